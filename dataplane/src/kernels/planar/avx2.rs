//! AVX2 with BMI2: shuffles from tables close up and spread eight words at a time; matrices of 8x8 bits are transposed by
//! exchanging halves, quarters and eighths.

use core::arch::x86_64::*;

use super::super::x86::avx2::Avx2;
use super::super::x86::{load16, load32};
use super::loops::{self, Groups, Octet, Planes, RAW_FROM, STEP_LEN, Words};
use super::tables::{CLOSE_UP, SPREAD_OUT, THERE};
use crate::codec::planar::Bound;
use crate::codec::{DecodeError, EncodeError};

/// As [`crate::codec::planar::encode_payload`].
pub(in super::super) fn encode(
    _: Avx2,
    values: &[u8],
    out: &mut [u8],
    bound: Bound,
) -> Result<usize, EncodeError> {
    // SAFETY: the callee needs these features and nothing else; the token proves them.
    unsafe { encode_sections(values, out, bound) }
}

/// As [`crate::codec::planar::decode_payload`].
pub(in super::super) fn decode(
    _: Avx2,
    sections: &[u8],
    values: &mut [u8],
    bound: Bound,
) -> Result<usize, DecodeError> {
    // SAFETY: the callee needs these features and nothing else; the token proves them.
    unsafe { decode_sections(sections, values, bound) }
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn encode_sections(values: &[u8], out: &mut [u8], bound: Bound) -> Result<usize, EncodeError> {
    let up = _mm256_set1_epi32(-i32::from(bound.y()) << 23);
    let [from, raw_from] =
        [bound.coded_from(), bound.raw_from()].map(|exponent| _mm256_set1_epi32((exponent << 23) as i32));
    let below = _mm256_sub_epi32(from, _mm256_set1_epi32(1));
    let magnitude_bits = _mm256_set1_epi32(i32::MAX);
    let take = |items: &mut loops::Items, values: &[u8]| {
        // Nothing is multiplied, so that subnormals cost nothing. Exponents up to 127 do not overflow, whatever is added.
        if bound.y() <= 0 {
            let mut all = _mm256_setzero_si256();
            items.take(values, |values, to| {
                let (low, high) = halves(values);
                all = _mm256_or_si256(all, _mm256_or_si256(low, high));
                let [low, high] =
                    [low, high].map(|f| _mm256_cvttps_epi32(_mm256_castsi256_ps(_mm256_add_epi32(f, up))));
                close_up(low, high, to)
            });
            if _mm256_testz_si256(all, _mm256_set1_epi32(1 << 30)) != 0 {
                return;
            }
        }
        items.take(values, |values, to| {
            let (low, high) = halves(values);
            let [low, high] = [low, high].map(|f| {
                // From just below 1 to 2^14, which is raw.
                let magnitude = _mm256_and_si256(f, magnitude_bits);
                let magnitude = _mm256_max_epi32(_mm256_min_epi32(magnitude, raw_from), below);
                let scaled = _mm256_castsi256_ps(_mm256_add_epi32(magnitude, up));
                _mm256_sign_epi32(_mm256_cvttps_epi32(scaled), f)
            });
            close_up(low, high, to)
        });
    };
    loops::encode(
        values,
        out,
        bound,
        take,
        |words, more, with_raw| transpose(words, more, with_raw),
        |words, map| {
            let mut spread = [0; 32];
            put16(&mut spread, 0, _mm_shuffle_epi8(load16(words), load16(&SPREAD_OUT[usize::from(map)])));
            *spread.first_chunk().unwrap_or(words)
        },
    )
}

#[inline]
#[target_feature(enable = "avx2")]
fn halves(values: &[u8; STEP_LEN]) -> (__m256i, __m256i) {
    (load32(values.first_chunk().unwrap_or(&[0; 32])), load32(values.last_chunk().unwrap_or(&[0; 32])))
}

/// Writes those of 16 numbers, eight and eight, that are not zero, as words; which they are.
#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn close_up(low: __m256i, high: __m256i, to: &mut Words) -> [u8; 2] {
    // Saturated: infinities, NaN and all that is too large stay too large. Packing works in halves.
    let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(low, high));
    let (low, high) = (_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
    let zero = _mm_setzero_si128();
    let zeros = _mm_packs_epi16(_mm_cmpeq_epi16(low, zero), _mm_cmpeq_epi16(high, zero));
    let map = !(_mm_movemask_epi8(zeros) as u16);
    let [first, second] = map.to_le_bytes();
    put16(to, 0, _mm_shuffle_epi8(low, load16(&CLOSE_UP[usize::from(first)])));
    let at = 2 * first.count_ones() as usize;
    put16(to, at, _mm_shuffle_epi8(high, load16(&CLOSE_UP[usize::from(second)])));
    [first, second]
}

#[inline]
#[target_feature(enable = "avx2")]
fn transpose(words: &Words, more: [u8; 2], with_raw: bool) -> Groups {
    let words = load32(words);
    // At most 2^14: what is too large is raw.
    let values = _mm256_srli_epi16::<1>(_mm256_abs_epi16(words));
    let is_raw = _mm256_cmpgt_epi16(values, _mm256_set1_epi16((RAW_FROM >> 1) - 1));
    let raw = bits(is_raw);
    let values = if with_raw { _mm256_andnot_si256(is_raw, values) } else { values };
    let values = _mm256_sub_epi16(values, mask(more));
    let by_byte =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    let planes = turned(_mm256_shuffle_epi8(values, by_byte));
    let zeros = _mm256_movemask_epi8(_mm256_cmpeq_epi8(planes, _mm256_setzero_si256())) as u32;
    let widths =
        [!zeros as u16, (!zeros >> 16) as u16].map(|there| (u32::from(there) << 1 | 1).ilog2() as u8);
    let mut bytes = [0; 32];
    // SAFETY: 32 writable bytes; no alignment is asked for.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), planes) };
    let (low, high) = bytes.split_at(16);
    let planes = [low, high].map(|planes| *planes.first_chunk().unwrap_or(&[0; 16]));
    Groups { planes, signs: (bits(words) & !raw).to_le_bytes(), raw: raw.to_le_bytes(), widths }
}

/// The signs of 16 words.
#[inline]
#[target_feature(enable = "avx2")]
fn bits(words: __m256i) -> u16 {
    let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
    _mm_movemask_epi8(bytes) as u16
}

/// Words of ones where a bit is set.
#[inline]
#[target_feature(enable = "avx2")]
fn mask([low, high]: [u8; 2]) -> __m256i {
    let bits = _mm256_broadcastsi128_si256(_mm_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128));
    let bytes = _mm256_set_m128i(_mm_set1_epi16(high.into()), _mm_set1_epi16(low.into()));
    _mm256_cmpeq_epi16(_mm256_and_si256(bytes, bits), bits)
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

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn decode_sections(sections: &[u8], values: &mut [u8], bound: Bound) -> Result<usize, DecodeError> {
    let scale = _mm256_set1_ps(bound.bound());
    loops::decode(
        sections,
        values,
        |planes, widths, signs, dense| to_words(planes, widths, signs, dense),
        |words: &[u8; 16], map, to: &mut Octet| {
            let words = _mm_shuffle_epi8(load16(words), load16(&SPREAD_OUT[usize::from(map)]));
            // At most 15 bits: exact, and zero or normal.
            let values = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(words)), scale);
            put32(to, _mm256_castps_si256(values));
        },
    )
}

#[inline]
#[target_feature(enable = "avx2")]
fn to_words(planes: &Planes, widths: [u8; 2], signs: [u8; 2], dense: bool) -> Words {
    let [first, second] = planes;
    let there = widths.map(|width| load16(&THERE[usize::from(width & 15)]));
    let there = _mm256_set_m128i(there[1], there[0]);
    let planes = _mm256_and_si256(_mm256_set_m128i(load16(second), load16(first)), there);
    let by_word =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    let values = _mm256_shuffle_epi8(turned(planes), by_word);
    let odd = _mm256_or_si256(_mm256_add_epi16(values, values), _mm256_set1_epi16(1));
    let magnitudes = _mm256_subs_epu16(odd, _mm256_set1_epi16(if dense { 2 } else { 0 }));
    let negative = mask(signs);
    let mut words = [0; 32];
    put32(&mut words, _mm256_sub_epi16(_mm256_xor_si256(magnitudes, negative), negative));
    words
}

/// Writes 16 bytes at `at`, which is at most 16.
#[inline]
#[target_feature(enable = "avx2")]
fn put16(to: &mut [u8; 32], at: usize, bytes: __m128i) {
    let Some(to) = to.get_mut(at..).and_then(|to| to.first_chunk_mut::<16>()) else { return };
    // SAFETY: 16 writable bytes; no alignment is asked for.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), bytes) };
}

#[inline]
#[target_feature(enable = "avx2")]
fn put32(to: &mut [u8; 32], bytes: __m256i) {
    // SAFETY: 32 writable bytes; no alignment is asked for.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), bytes) };
}
