//! AVX-512 with VBMI2, BITALG, CD and GFNI: compress and expand close up and spread the values, and
//! one instruction transposes eight matrices of 8x8 bits, which are the planes of 32 items.
//!
//! The encoder has two phases of 32 values a step. The first turns values into words and closes up
//! those that are not zero. The second transposes, and a compression drops the planes above the
//! last one used. Dense sections all have the same number of steps, so they are taken in pairs; in
//! other modes nobody can foretell that number, and pairs cost more than they gain.
//!
//! The decoder knows all lengths from map and codes before it decodes a value, so there is no chain
//! from group to group. It makes values of items, and puts them to their places as a whole: most
//! values are zero, and cost a part of an expansion. Their sum is taken of the items, too.
//!
//! A payload with magnitudes from 2 on costs a pass that closes raw values up. The encoder then
//! writes a step as a whole, and loops over those of its groups that have raw values: what is
//! behind a group's raw values is written once more behind them. The decoder first goes from one
//! group with raw items to the next, and puts these to their places; then it knows all lengths.

mod decode;
mod encode;

use core::arch::x86_64::*;

use super::Buffer;
use crate::checksum::Sum;
use crate::codec::bit_plane::{Bound, SECTION_VALUES};
use crate::codec::{DecodeError, VALUE_LEN};
use crate::kernels::Encoded;
use crate::kernels::x86::avx512::Avx512;

entries!(Avx512);

/// As [`crate::kernels::Kernel::encode_and_check`]; None for bounds above 1, or if there is too
/// little room.
#[inline(always)]
pub(in super::super) fn encode_and_check(
    _: Avx512,
    values: &[u8],
    out: &mut [u8],
    bound: Bound,
) -> Option<Encoded> {
    // Above 1, not all values are seen in one pass.
    if bound.y() > 0 {
        return None;
    }
    // SAFETY: the callee needs these features and nothing else; the token proves them.
    let encoded = unsafe { encode::encode_and_check(values, out, bound) };
    encoded.len().is_some().then_some(encoded)
}

/// As [`crate::kernels::Kernel::decode_and_sum`].
pub(in super::super) fn decode_and_sum(
    _: Avx512,
    sections: &[u8],
    values: &mut [u8],
    bound: Bound,
) -> Result<(usize, Sum), DecodeError> {
    // SAFETY: the callee needs these features and nothing else; the token proves them.
    unsafe { decode::decode_and_sum(sections, values, bound) }
}

/// Values, or items, of a step: as words they fill a register. Of items, four groups.
const STEP: usize = 32;
const STEPS: usize = SECTION_VALUES / STEP;
const STEP_GROUPS: usize = STEP / 8;
/// Items as words, and a register behind the last.
type Words = Buffer<{ 2 * (SECTION_VALUES + STEP) }>;
/// Raw values, or items as floats, and a register behind the last.
type Floats = Buffer<{ VALUE_LEN * SECTION_VALUES + 64 }>;

/// A matrix times the byte with bit j alone is its column j.
const COLUMNS: i64 = i64::from_le_bytes([1, 2, 4, 8, 16, 32, 64, 128]);

impl<const N: usize> Buffer<N> {
    /// Writes 64 bytes at `at`, or at the end if they would reach beyond.
    #[inline]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
    )]
    fn put(&mut self, at: usize, bytes: __m512i) {
        let at = at.min(N - 64);
        // SAFETY: 64 writable bytes; no alignment is asked for.
        unsafe { _mm512_storeu_si512(self.0.as_mut_ptr().cast::<u8>().wrapping_add(at).cast(), bytes) };
    }

    /// As [`Self::put`], of those of 16 values whose bit is set.
    #[inline]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
    )]
    fn put_where(&mut self, there: u16, at: usize, values: __m512i) {
        let at = at.min(N - 64);
        let to = self.0.as_mut_ptr().cast::<u8>().wrapping_add(at);
        // SAFETY: 64 writable bytes; no alignment is asked for.
        unsafe { _mm512_mask_storeu_epi32(to.cast(), there, values) };
    }

    /// The 64 bytes at `at`, or at the end if they would reach beyond.
    ///
    /// # Safety
    /// All bytes up to their last have been put.
    #[inline]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
    )]
    unsafe fn get(&self, at: usize) -> __m512i {
        let at = at.min(N - 64);
        // SAFETY: 64 bytes that the caller has put; no alignment is asked for.
        unsafe { _mm512_loadu_si512(self.0.as_ptr().cast::<u8>().wrapping_add(at).cast()) }
    }
}

/// The 64 bytes at `at`, which must be there.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn get64(bytes: &[u8], at: usize) -> __m512i {
    let bytes: &[u8; 64] = bytes.get(at..).and_then(|bytes| bytes.first_chunk()).unwrap_or(&[0; 64]);
    // SAFETY: 64 readable bytes; no alignment is asked for.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Writes 64 bytes at `at`, which must be there.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn put64(room: &mut [u8], at: usize, bytes: __m512i) {
    let Some(to) = room.get_mut(at..).and_then(|room| room.first_chunk_mut::<64>()) else { return };
    // SAFETY: 64 writable bytes; no alignment is asked for.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), bytes) };
}

/// At most 64 bytes, and zeros behind.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn get_part(bytes: &[u8]) -> __m512i {
    let there = _bzhi_u64(u64::MAX, bytes.len() as u32);
    // SAFETY: of the 64 bytes only those whose bit is set are read, and no more are set than there
    // are bytes.
    unsafe { _mm512_maskz_loadu_epi8(there, bytes.as_ptr().cast()) }
}

/// At most 16 bytes, and zeros behind.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn get_part16(bytes: &[u8]) -> __m128i {
    let there = _bzhi_u32(0xffff, bytes.len() as u32) as u16;
    // SAFETY: of the 16 bytes only those whose bit is set are read, and no more are set than there
    // are bytes.
    unsafe { _mm_maskz_loadu_epi8(there, bytes.as_ptr().cast()) }
}

/// Writes as many bytes as `to` has, at most 64.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn put_part(to: &mut [u8], bytes: __m512i) {
    let there = _bzhi_u64(u64::MAX, to.len() as u32);
    // SAFETY: of the 64 bytes only those whose bit is set are written, and no more are set than
    // there are bytes.
    unsafe { _mm512_mask_storeu_epi8(to.as_mut_ptr().cast(), there, bytes) };
}

#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn put_map_words(to: &mut [u32; STEPS], bits: __m512i) {
    // SAFETY: 64 writable bytes; no alignment is asked for.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), bits) };
}
