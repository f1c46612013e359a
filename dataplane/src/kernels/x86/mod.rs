//! Kernels for x86-64.

pub(super) mod avx2;
pub(super) mod avx512;

use core::arch::x86_64::*;

use super::drive::{Burst, Window};
use crate::codec::{Class, Params, TAGS_LEN};

/// The numbers that place vectors at the top of 32 bits and take them down again; all normal `f32`s for
/// valid parameters (FORMAT.md §3.1).
struct Placing {
    /// A lane's bytes 3, 2, 1, 0 are kept from these biased exponents on.
    borders: i32,
    /// `2^(31+k-x)` and `2^(31-x)`: from a value to its placed magnitude.
    byte_up: f32,
    half_up: f32,
    /// Their inverses.
    byte_down: f32,
    half_down: f32,
}

impl Placing {
    fn new(params: Params) -> Self {
        let (byte, half, raw) = (params.byte_from(), params.half_from(), params.raw_from());
        let power = |exponent: i32| f32::from_bits(((127 + exponent) as u32) << 23);
        let (k, x) = (i32::from(params.k()), i32::from(params.x()));
        Self {
            borders: (byte << 24 | half << 16 | raw << 8 | raw) as i32,
            byte_up: power(31 + k - x),
            half_up: power(31 - x),
            byte_down: power(x - 31 - k),
            half_down: power(x - 31),
        }
    }
}

/// The bytes that four lanes with these tags keep: a nibble a lane, the top bytes first.
const BYTE_MASKS: [u16; 256] = {
    let mut table = [0; 256];
    let mut tags = 0;
    while tags < 256 {
        let mut lane = 0;
        while lane < 4 {
            let nibble = match Class::from_tag(tags as u16 >> (2 * lane)) {
                Class::Zero => 0b0000,
                Class::Byte => 0b1000,
                Class::Half => 0b1100,
                Class::Raw => 0b1111,
            };
            table[tags] |= nibble << (4 * lane);
            lane += 1;
        }
        tags += 1;
    }
    table
};

/// The first four bytes of a group, which start with its tag vector, in every lane; and the 32 bytes behind
/// the tag vector.
#[inline]
#[target_feature(enable = "avx2")]
fn get_group(window: &Window) -> [__m256i; 2] {
    let tags = i32::from_le_bytes(*window.first_chunk().unwrap_or(&[0; 4]));
    let vectors = window.get(TAGS_LEN..).and_then(|window| window.first_chunk());
    [_mm256_set1_epi32(tags), load32(vectors.unwrap_or(&[0; 32]))]
}

/// Writes a tag vector and the 32 bytes behind it to byte `at` of `room`, which must have 34 bytes there.
#[inline]
#[target_feature(enable = "avx")]
fn put_group(room: &mut [u8], at: usize, tags: u16, vectors: __m256i) {
    let room = room.get_mut(at..).and_then(|room| room.split_first_chunk_mut::<TAGS_LEN>());
    let Some((to_tags, to_vectors)) = room else { return };
    let Some(to_vectors) = to_vectors.first_chunk_mut() else { return };
    *to_tags = tags.to_le_bytes();
    store(to_vectors, vectors);
}

#[inline]
#[target_feature(enable = "avx")]
fn load16(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: 16 readable bytes; no alignment is asked for.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx")]
fn load32(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 readable bytes; no alignment is asked for.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx")]
fn store(to: &mut Burst, bytes: __m256i) {
    // SAFETY: 32 writable bytes; no alignment is asked for.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), bytes) };
}
