//! Kernels for x86-64.

#[macro_use]
mod token;

pub(super) mod avx2;
pub(super) mod avx512;

use core::arch::x86_64::*;

use super::loops::{Burst, Window};
use crate::codec::TAGS_LEN;

/// The first four bytes of a group, which start with its tag vector, in every lane; and the 32
/// bytes behind the tag vector.
#[inline]
#[target_feature(enable = "avx2")]
fn get_group(window: &Window) -> [__m256i; 2] {
    let tags = i32::from_le_bytes(*window.first_chunk().unwrap_or(&[0; 4]));
    let vectors = window.get(TAGS_LEN..).and_then(|window| window.first_chunk());
    [_mm256_set1_epi32(tags), load32(vectors.unwrap_or(&[0; 32]))]
}

/// Writes a tag vector and the 32 bytes behind it to byte `at` of `room`, which must have 34 bytes
/// there.
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
pub(super) fn load16(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: 16 readable bytes; no alignment is asked for.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx")]
pub(super) fn load32(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 readable bytes; no alignment is asked for.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx")]
fn store(to: &mut Burst, bytes: __m256i) {
    // SAFETY: 32 writable bytes; no alignment is asked for.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), bytes) };
}
