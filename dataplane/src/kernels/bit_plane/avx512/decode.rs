//! From sections to values.

use core::arch::x86_64::*;

use super::super::{MAX_OCTETS, MAX_WIDTH, RAW_GROUP, decode_with, mode};
use super::{
    COLUMNS, Floats, STEP, STEP_GROUPS, STEPS, Words, get_part, get_part16, get64, of_values, put_map_words,
    put_part, put64,
};
use crate::codec::bit_plane::Bound;
use crate::codec::{DecodeError, VALUE_LEN};
use crate::kernels::numbers::bytes_of_mut;

#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
pub(super) fn decode_sections(
    sections: &[u8],
    values: &mut [u8],
    bound: Bound,
) -> Result<usize, DecodeError> {
    let mut words = Words::new();
    // Words come in the upper halves of lanes.
    let scale = _mm512_set1_ps(f32::from_bits((bound.coded_from() - 16) << 23));
    let to_float = |words| _mm512_castps_si512(_mm512_mul_ps(_mm512_cvtepi32_ps(words), scale));
    decode_with(sections, values, |section, values| {
        decode_section(section, values, true, &mut words, to_float)
    })
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
pub(super) fn decode_units(section: &[u8], units: &mut [i32]) -> Option<usize> {
    let to_units = |words| _mm512_srai_epi32::<16>(words);
    decode_section(section, bytes_of_mut(units), false, &mut Words::new(), to_units)
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
pub(super) fn decode_sums(section: &[u8], sums: &mut [i32]) -> Option<usize> {
    let one = _mm512_set1_epi32(1);
    // An odd number, or zero: the middle of a bin becomes its outer border, halved.
    let to_sums = |words| {
        let halves = _mm512_srai_epi32::<17>(words);
        let is_positive = _mm512_cmpgt_epi32_mask(words, _mm512_setzero_si512());
        _mm512_mask_add_epi32(halves, is_positive, halves, one)
    };
    decode_section(section, bytes_of_mut(sums), true, &mut Words::new(), to_sums)
}

/// Decodes the section at the start of `section`; its length. `to_values` makes values of words,
/// `2p + 1` with its sign or 0 in the upper half of each lane; raw ones are taken as they are, or,
/// if `takes_raw` is false, not at all.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn decode_section(
    section: &[u8],
    values: &mut [u8],
    takes_raw: bool,
    words: &mut Words,
    to_values: impl Fn(__m512i) -> __m512i,
) -> Option<usize> {
    let count = values.len() / VALUE_LEN;
    let octets = count.div_ceil(8);
    let (&mode, mut rest) = section.split_first()?;
    let mut map = [u32::MAX; STEPS];
    let item_count = match mode {
        mode::EMPTY => {
            values.fill(0);
            return Some(1);
        }
        mode::DENSE => count,
        mode::TWO_LEVEL | mode::FLAT => {
            // Without a branch: for many gradients, both are as likely.
            let two_level = mode == mode::TWO_LEVEL;
            let all = _bzhi_u64(u64::MAX, octets as u32);
            let presence_len = octets.div_ceil(8) & usize::from(two_level).wrapping_neg();
            let (presence, behind) = rest.split_at_checked(presence_len)?;
            let present = _mm_cvtsi128_si64(get_part16(presence)) as u64;
            if present & !all != 0 {
                return None;
            }
            let present = if two_level { present } else { all };
            let (bytes, behind) = behind.split_at_checked(present.count_ones() as usize)?;
            rest = behind;
            let octets_map = _mm512_maskz_expand_epi8(present, get_part(bytes));
            put_map_words(&mut map, octets_map);
            let last = map.as_slice().get(count / STEP).copied().unwrap_or(0);
            if beyond(last.into(), count % STEP) {
                return None;
            }
            let ones = _mm512_sad_epu8(_mm512_popcnt_epi8(octets_map), _mm512_setzero_si512());
            _mm512_reduce_add_epi64(ones) as usize
        }
        _ => return None,
    };
    if item_count == 0 {
        values.fill(0);
        return Some(section.len() - rest.len());
    }
    let groups = item_count.div_ceil(8);
    let (signs, behind) = rest.split_at_checked(groups)?;
    let (codes, planes) = behind.split_at_checked(groups.div_ceil(2))?;
    let mut sign_bits = [0; STEPS];
    put_map_words(&mut sign_bits, get_part(signs));
    let codes = get_part(codes);
    // A code to a byte: twice the byte as a word, and once more four bits on.
    let codes = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(codes));
    let codes = _mm512_and_si512(_mm512_or_si512(codes, _mm512_slli_epi16::<4>(codes)), _mm512_set1_epi8(15));
    if beyond(_mm512_test_epi8_mask(codes, codes), groups) {
        return None;
    }
    // In mode 3, plane values are one more, and 0 is zero.
    let less = _mm512_set1_epi16(if mode == mode::DENSE { 2 } else { 0 });
    if _mm512_cmpeq_epi8_mask(codes, _mm512_set1_epi8(RAW_GROUP as i8)) != 0 {
        if !takes_raw {
            return None;
        }
        let mut raw = Floats::new();
        let (is_raw, read) = decode_raw(planes, codes, &sign_bits, groups, less, words, &mut raw)?;
        words.put(2 * STEP * groups.div_ceil(STEP_GROUPS), _mm512_setzero_si512());
        let (mut item, mut raw_at) = (0, 0);
        put_values(
            values,
            to_values,
            |step| {
                let there = map.get(step).copied().unwrap_or(0);
                let is_raw = of_values(&is_raw, item, there);
                // SAFETY: all items have been put and a register behind the last, and `item` is no
                // more than they are.
                let words = unsafe { words.get(2 * item) };
                item += there.count_ones() as usize;
                (_mm512_maskz_expand_epi16(there, words), is_raw)
            },
            |coded, is_raw| {
                // SAFETY: all raw values have been put and a register behind the last, and `raw_at`
                // is no more than they are.
                let raw = unsafe { raw.get(raw_at) };
                raw_at += VALUE_LEN * is_raw.count_ones() as usize;
                _mm512_mask_expand_epi32(coded, is_raw, raw)
            },
        );
        return Some(section.len() - planes.len() + read);
    }
    let mut kept = [0u64; STEPS];
    put_kept(&mut kept, codes);
    let mut planes_left = planes;
    for (step, (kept, signs)) in kept.iter().zip(sign_bits).enumerate().take(groups.div_ceil(STEP_GROUPS)) {
        let (taken, behind) = planes_left.split_at_checked(kept.count_ones() as usize)?;
        planes_left = behind;
        words.put(2 * STEP * step, to_words(expand(taken, *kept), signs, less));
    }
    words.put(2 * STEP * groups.div_ceil(STEP_GROUPS), _mm512_setzero_si512());
    if mode == mode::DENSE {
        // SAFETY: all steps have been put.
        put_values(values, to_values, |step| (unsafe { words.get(2 * STEP * step) }, 0), |coded, _| coded);
    } else {
        let mut at = 0;
        let next = |step: usize| {
            let there = map.get(step).copied().unwrap_or(0);
            // SAFETY: all items have been put and a register behind the last, and `at` is no more
            // than they are.
            let words = unsafe { words.get(2 * at) };
            at += there.count_ones() as usize;
            (_mm512_maskz_expand_epi16(there, words), 0)
        };
        put_values(values, to_values, next, |coded, _| coded);
    }
    Some(section.len() - planes_left.len())
}

/// Decodes groups, some of them with raw items, from `bytes`, which begin with the planes of the
/// first, to `words`, and their raw values to `raw`. Which items are raw, and how many bytes that
/// took.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn decode_raw(
    bytes: &[u8],
    codes: __m512i,
    signs: &[u32; STEPS],
    groups: usize,
    less: __m512i,
    words: &mut Words,
    raw: &mut Floats,
) -> Option<([u32; STEPS], usize)> {
    let (mut at, mut raw_at) = (0, 0);
    let mut code_bytes = [0; MAX_OCTETS];
    put64(&mut code_bytes, 0, codes);
    let mut is_raw = [0; STEPS];
    let steps = groups.div_ceil(STEP_GROUPS);
    let (codes, _) = code_bytes.as_chunks::<STEP_GROUPS>();
    for (step, ((codes, &signs), is_raw)) in codes.iter().zip(signs).zip(&mut is_raw).enumerate().take(steps)
    {
        let mut planes = [_mm_setzero_si128(); STEP_GROUPS];
        for (group, (&code, planes)) in codes.iter().zip(&mut planes).enumerate() {
            let has_raw = code == RAW_GROUP;
            let [first, second] = *bytes.get(at..)?.first_chunk().unwrap_or(&[0; 2]);
            // Without a branch: which groups have raw items is hard to foretell.
            let (of_group, width, head) = if has_raw { (first, second, 2) } else { (0, code, 0) };
            let raw_len = VALUE_LEN * u32::from(of_group).count_ones() as usize;
            let raw_from = at + head + usize::from(width);
            if width > MAX_WIDTH || raw_from + raw_len > bytes.len() {
                return None;
            }
            let ones = _mm_setr_epi8(-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
            let from = bytes.as_ptr().wrapping_add(at + head);
            // SAFETY: of the 16 bytes from one before the planes on only planes are read, and they
            // have been compared.
            *planes = unsafe { _mm_mask_loadu_epi8(ones, (2 << width) - 2, from.wrapping_sub(1).cast()) };
            let from = bytes.as_ptr().wrapping_add(raw_from);
            let there = _bzhi_u32(u32::MAX, raw_len as u32);
            // SAFETY: only raw values are read, and they have been compared.
            let values = unsafe { _mm256_maskz_loadu_epi8(there, from.cast()) };
            raw.put(raw_at, _mm512_zextsi256_si512(values));
            *is_raw |= u32::from(of_group) << (8 * group);
            raw_at += raw_len;
            at = raw_from + raw_len;
        }
        let [a, b, c, d] = planes;
        let low = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b);
        let high = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(c), d);
        let planes = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
        words.put(2 * STEP * step, to_words(planes, signs, less));
    }
    raw.put(raw_at, _mm512_setzero_si512());
    Some((is_raw, at))
}

/// Writes `values`, 32 at a time, which `to_values` makes of words; `blend` puts others to where
/// the bits say that came with the words.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn put_values(
    values: &mut [u8],
    to_values: impl Fn(__m512i) -> __m512i,
    mut words: impl FnMut(usize) -> (__m512i, u32),
    mut blend: impl FnMut(__m512i, u16) -> __m512i,
) {
    // To the upper halves of doublewords; zero into the lower ones.
    let spread = |from: i16| {
        let mut index = [0u8; 64];
        let mut i = 0;
        while i < 16 {
            index[4 * i + 2] = (2 * i) as u8 + from as u8;
            index[4 * i + 3] = (2 * i + 1) as u8 + from as u8;
            i += 1;
        }
        get64(&index, 0)
    };
    let (low_bytes, high_bytes) = (spread(0), spread(32));
    let mut both = |step| {
        let (words, others) = words(step);
        let mut half = |bytes, others| {
            blend(to_values(_mm512_maskz_permutexvar_epi8(0xcccc_cccc_cccc_cccc, bytes, words)), others)
        };
        [half(low_bytes, others as u16), half(high_bytes, (others >> 16) as u16)]
    };
    let (whole, part) = values.as_chunks_mut::<{ STEP * VALUE_LEN }>();
    let steps = whole.len();
    for (step, to) in whole.iter_mut().enumerate() {
        let [low, high] = both(step);
        put64(to, 0, low);
        put64(to, 64, high);
    }
    if !part.is_empty() {
        let [low, high] = both(steps);
        let (low_to, high_to) = part.split_at_mut(part.len().min(64));
        put_part(low_to, low);
        put_part(high_to, high);
    }
}

/// From the planes of 32 words, `2p + 1` with its sign; `less` is taken from all but zero.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn to_words(planes: __m512i, signs: u32, less: __m512i) -> __m512i {
    let magnitudes = _mm512_subs_epu16(untranspose(planes), less);
    _mm512_mask_sub_epi16(magnitudes, signs, _mm512_setzero_si512(), magnitudes)
}

/// From planes, the first of each eight words at byte 1 of 16, to 32 words.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn untranspose(planes: __m512i) -> __m512i {
    let columns = _mm512_gf2p8affine_epi64_epi8::<0>(_mm512_set1_epi64(COLUMNS), planes);
    // The first row is the last bit: turned round by a matrix of ones from corner to corner.
    let bytes = _mm512_gf2p8affine_epi64_epi8::<0>(columns, _mm512_set1_epi64(COLUMNS));
    let words = _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    _mm512_shuffle_epi8(bytes, _mm512_broadcast_i32x4(words))
}

/// Whether a bit of `bits` is set from number `from` on, which is at most 64.
#[inline(always)]
fn beyond(bits: u64, from: usize) -> bool {
    bits.checked_shr(from as u32).unwrap_or(0) != 0
}

/// Planes go to where a bit of `kept` is set; a plane of ones to the first byte of each 16, which
/// `kept` leaves out.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn expand(planes: &[u8], kept: u64) -> __m512i {
    let ones = _mm512_broadcast_i32x4(_mm_setr_epi8(-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    if planes.len() < kept.count_ones() as usize {
        return ones;
    }
    // SAFETY: as many bytes are read as bits of `kept` are set, and as many are there.
    unsafe { _mm512_mask_expandloadu_epi8(ones, kept, planes.as_ptr().cast()) }
}

/// For each group, 16 bits of which those from 1 up to its code are set.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn put_kept(to: &mut [u64; STEPS], codes: __m512i) {
    let two = _mm512_set1_epi16(2);
    let kept = |codes| _mm512_sub_epi16(_mm512_sllv_epi16(two, _mm512_cvtepu8_epi16(codes)), two);
    let (low, high) = (_mm512_castsi512_si256(codes), _mm512_extracti64x4_epi64::<1>(codes));
    // SAFETY: 128 writable bytes; no alignment is asked for.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), kept(low)) };
    // SAFETY: as above; the second half.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().wrapping_add(STEPS / 2).cast(), kept(high)) };
}
