//! Numbers seen as the bytes that they are in memory, in this processor's order.

/// The bytes of numbers.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn bytes_of(numbers: &[i32]) -> &[u8] {
    // SAFETY: any byte of a number is a byte; bytes need no alignment.
    unsafe { numbers.align_to() }.1
}

/// As [`bytes_of`].
#[inline]
pub(super) fn bytes_of_mut(numbers: &mut [i32]) -> &mut [u8] {
    // SAFETY: as there, and any four bytes are a number.
    unsafe { numbers.align_to_mut() }.1
}
