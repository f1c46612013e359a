//! Data of the engines beside the bytes.

/// Set in [`crate::Received::user`] of a frame that the decompressor refused: nothing of it may be
/// used.
pub const REFUSED: u64 = 1;

/// The coding of a frame; `layout_t` of `rtl/gw_pkg.sv`, the bits of `s_axis_tuser`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coding {
    /// Bytes before the first value.
    pub bypass: u16,
    /// Values of 4 bytes; 0 bypasses the whole frame.
    pub values: u16,
    /// The bound exponent `b`, 1 to 14.
    pub b: u8,
    /// The byte offset `k`, 0 to `b`, at least `b - 7`.
    pub k: u8,
    /// The scale exponent `x`, -80 to 127.
    pub x: i8,
}

impl Coding {
    /// The bits of `s_axis_tuser`.
    #[must_use]
    pub fn user(self) -> u64 {
        let raw_from = (127 + i64::from(self.x)) as u64 & 0xff;
        raw_from << 40
            | u64::from(self.k & 15) << 36
            | u64::from(self.b & 15) << 32
            | u64::from(self.values) << 16
            | u64::from(self.bypass)
    }
}
