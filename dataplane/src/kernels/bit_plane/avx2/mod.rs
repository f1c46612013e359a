//! AVX2 with BMI2: shuffles from tables close up and spread eight words at a time; matrices of 8x8
//! bits are transposed by exchanging halves, quarters and eighths.
//!
//! Values become words, 32 a step, in their places. A dense section goes on from there; others
//! first close up their words. From then on eight groups are one step. A tree of shuffles and
//! maxima finds the largest plane value of each group; its width is the exponent of its conversion
//! to float, and sums of widths give all places. Only then are planes made, from four matrices of
//! 32 values if all are below 2^8, and of 16 if not.
//!
//! The decoder reads windows of 64 bytes from the section, or from a copy of its end that it makes
//! first. So no load waits for a store, and no loop calls anything. An item's sign travels through
//! the transposition as its 16th plane.
//!
//! If a step has an exponent from 128 on, or with a fine bound a raw value, the encoder converts
//! and clamps it again. Groups with raw items are written like all others, with room for the rest;
//! heads and raw values follow, group by group. The decoder restores all values as if none were
//! raw, then writes the raw ones over them. It walks single groups to find planes, without a
//! branch: a wrong guess about raw items costs as much as a group.

mod decode;
mod encode;

use core::arch::x86_64::*;

use super::Buffer;
use crate::codec::VALUE_LEN;
use crate::codec::bit_plane::SECTION_VALUES;
use crate::kernels::x86::avx2::Avx2;

entries!(Avx2);

/// As [`crate::codec::bit_plane::sums::encode`]; None also if `out` has no room for stores behind
/// the section.
pub(in super::super) fn encode_sums(_: Avx2, sums: &[i32], out: &mut [u8]) -> Option<usize> {
    // SAFETY: the callee needs these features and nothing else; the token proves them.
    unsafe { encode::encode_sums(sums, out) }
}

/// Values, or items, of a step: as words they fill two registers. Of items, four groups.
const STEP: usize = 32;
const STEPS: usize = SECTION_VALUES / STEP;
const STEP_GROUPS: usize = STEP / 8;
/// A word for each value or item of a section, and two steps behind the last.
type Words = Buffer<{ 2 * (SECTION_VALUES + 2 * STEP) }>;
/// Raw values, and a register behind the last.
type RawValues = Buffer<{ VALUE_LEN * SECTION_VALUES + 32 }>;

impl<const N: usize> Buffer<N> {
    /// Writes 32 bytes at `at`, or at the end if they would reach beyond.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn put32(&mut self, at: usize, bytes: __m256i) {
        let at = at.min(N - 32);
        // SAFETY: 32 writable bytes; no alignment is asked for.
        unsafe { _mm256_storeu_si256(self.0.as_mut_ptr().cast::<u8>().wrapping_add(at).cast(), bytes) };
    }

    /// The 32 bytes at `at`, or at the end if they would reach beyond.
    ///
    /// # Safety
    /// All bytes up to their last have been put.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    unsafe fn get32(&self, at: usize) -> __m256i {
        let at = at.min(N - 32);
        // SAFETY: 32 bytes that the caller has put; no alignment is asked for.
        unsafe { _mm256_loadu_si256(self.0.as_ptr().cast::<u8>().wrapping_add(at).cast()) }
    }

    /// The 4 bytes at `at`, or at the end if they would reach beyond.
    ///
    /// # Safety
    /// All bytes up to their last have been put.
    #[inline]
    unsafe fn get4(&self, at: usize) -> [u8; 4] {
        let at = at.min(N - 4);
        // SAFETY: 4 bytes that the caller has put; no alignment is asked for.
        unsafe { self.0.as_ptr().cast::<u8>().wrapping_add(at).cast::<[u8; 4]>().read_unaligned() }
    }

    /// The 16 bytes at `at`, or at the end if they would reach beyond.
    ///
    /// # Safety
    /// All bytes up to their last have been put.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    unsafe fn get16(&self, at: usize) -> __m128i {
        let at = at.min(N - 16);
        // SAFETY: 16 bytes that the caller has put; no alignment is asked for.
        unsafe { _mm_loadu_si128(self.0.as_ptr().cast::<u8>().wrapping_add(at).cast()) }
    }
}

/// Bit j of byte i becomes bit i of byte j, in every 8 bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn turned(matrices: __m256i) -> __m256i {
    let x = matrices;
    let swap = _mm256_and_si256(
        _mm256_xor_si256(x, _mm256_srli_epi64::<7>(x)),
        _mm256_set1_epi64x(0x00aa_00aa_00aa_00aa),
    );
    let x = _mm256_xor_si256(x, _mm256_xor_si256(swap, _mm256_slli_epi64::<7>(swap)));
    let swap = _mm256_and_si256(
        _mm256_xor_si256(x, _mm256_srli_epi64::<14>(x)),
        _mm256_set1_epi64x(0x0000_cccc_0000_cccc),
    );
    let x = _mm256_xor_si256(x, _mm256_xor_si256(swap, _mm256_slli_epi64::<14>(swap)));
    let swap = _mm256_and_si256(
        _mm256_xor_si256(x, _mm256_srli_epi64::<28>(x)),
        _mm256_set1_epi64x(0x0000_0000_f0f0_f0f0),
    );
    _mm256_xor_si256(x, _mm256_xor_si256(swap, _mm256_slli_epi64::<28>(swap)))
}
