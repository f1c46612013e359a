//! From sections to values.

use core::arch::x86_64::*;

use super::super::tables::SPREAD_OUT;
use super::super::{MAX_OCTETS, MAX_WIDTH, RAW_GROUP, decode_with, mode};
use super::{RawValues, STEP_GROUPS, Words, turned};
use crate::codec::bit_plane::Bound;
use crate::codec::{DecodeError, VALUE_LEN};
use crate::kernels::loops::copy_start;
use crate::kernels::numbers::bytes_of_mut;
use crate::kernels::x86::{load16, load32};

/// The bytes from which the planes of a step are read: three groups of at most 15 bytes, and 16
/// bytes of the fourth.
const WINDOW_LEN: usize = 64;
/// The lowest bit of each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) fn decode_sections(
    sections: &[u8],
    values: &mut [u8],
    bound: Bound,
) -> Result<usize, DecodeError> {
    let mut items = Words::new();
    let scale = _mm256_set1_ps(bound.bound());
    // At most 15 bits: exact, and zero or normal.
    let to_floats = |words| _mm256_castps_si256(_mm256_mul_ps(_mm256_cvtepi32_ps(words), scale));
    decode_with(sections, values, |section, values| {
        decode_section(section, values, true, &mut items, to_floats)
    })
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) fn decode_units(section: &[u8], units: &mut [i32]) -> Option<usize> {
    decode_section(section, bytes_of_mut(units), false, &mut Words::new(), |words| words)
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) fn decode_sums(section: &[u8], sums: &mut [i32]) -> Option<usize> {
    // An odd number, or zero: the middle of a bin becomes its outer border, halved.
    let to_sums = |words| {
        let is_positive = _mm256_cmpgt_epi32(words, _mm256_setzero_si256());
        _mm256_sub_epi32(_mm256_srai_epi32::<1>(words), is_positive)
    };
    decode_section(section, bytes_of_mut(sums), true, &mut Words::new(), to_sums)
}

/// Decodes the section at the start of `section`; its length. `to_values` makes values of words,
/// `2p + 1` with its sign or 0; raw ones are taken as they are, or, if `takes_raw` is false, not at
/// all.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn decode_section(
    section: &[u8],
    values: &mut [u8],
    takes_raw: bool,
    items: &mut Words,
    to_values: impl Fn(__m256i) -> __m256i,
) -> Option<usize> {
    let bytes = Bytes::new(section);
    let count = values.len() / VALUE_LEN;
    let octets = count.div_ceil(8);
    let &mode = section.first()?;
    let mut map = [u64::MAX; MAX_OCTETS / 8];
    let (item_count, signs_at) = match mode {
        mode::EMPTY => {
            values.fill(0);
            return Some(1);
        }
        mode::DENSE => (count, 1),
        mode::TWO_LEVEL | mode::FLAT => {
            // Without a branch: for many gradients, both are as likely.
            let two_level = mode == mode::TWO_LEVEL;
            let all = _bzhi_u64(u64::MAX, octets as u32);
            let presence_len = octets.div_ceil(8) & usize::from(two_level).wrapping_neg();
            let present = u64::from_le_bytes(*bytes.window(1)?.first_chunk()?);
            let present = _bzhi_u64(present, 8 * presence_len as u32);
            if present & !all != 0 {
                return None;
            }
            let present = if two_level { present } else { all };
            let of_map = bytes.window(1 + presence_len)?;
            let mut at = 0;
            let mut item_count = 0;
            for (map, present) in map.iter_mut().zip(present.to_le_bytes()) {
                let there = _pdep_u64(present.into(), ONES) * 0xff;
                *map = _pdep_u64(u64::from_le_bytes(*of_map.get(at..)?.first_chunk()?), there);
                at += u32::from(present).count_ones() as usize;
                item_count += map.count_ones() as usize;
            }
            let last = map.get(count / 64).copied().unwrap_or(0);
            if last >> (count % 64) != 0 {
                return None;
            }
            (item_count, 1 + presence_len + at)
        }
        _ => return None,
    };
    if item_count == 0 {
        values.fill(0);
        return (signs_at <= section.len()).then_some(signs_at);
    }
    let groups = item_count.div_ceil(8);
    let codes_len = groups.div_ceil(2);
    let codes_at = signs_at + groups;
    let first = codes_at + codes_len;
    let signs = bytes.window(signs_at)?;
    let mut codes = [0; MAX_OCTETS / 2];
    let has_raw = put_codes(bytes.window(codes_at)?, groups, &mut codes)?;
    let dense = mode == mode::DENSE;
    if has_raw && !takes_raw {
        return None;
    }
    if has_raw {
        let groups = Groups { map, dense, count: groups, signs: *signs, codes, at: first };
        return decode_raw(&bytes, &groups, values, items, to_values);
    }
    let mut at = first;
    let steps = codes.as_chunks().0.iter().zip(signs.as_chunks().0).enumerate();
    for (step, (codes, signs)) in steps.take(groups.div_ceil(STEP_GROUPS)) {
        let widths = _pdep_u32(u16::from_le_bytes(*codes).into(), 0x0f0f_0f0f);
        let ends = widths.wrapping_mul(ONES as u32).to_le_bytes();
        // From the byte before the planes on.
        let window = bytes.window(at - 1)?;
        let group = |at: u8| {
            load16(window.get(at.into()..).and_then(|window| window.first_chunk()).unwrap_or(&[0; 16]))
        };
        let planes =
            [_mm256_set_m128i(group(ends[0]), group(0)), _mm256_set_m128i(group(ends[2]), group(ends[1]))];
        let words = to_words(planes, widths, u32::from_le_bytes(*signs), dense);
        items.put32(64 * step, words[0]);
        items.put32(64 * step + 32, words[1]);
        at += usize::from(ends[3]);
    }
    if at > section.len() {
        return None;
    }
    items.put32(64 * groups.div_ceil(STEP_GROUPS), _mm256_setzero_si256());
    put_values(values, items, &map, dense, to_values);
    Some(at)
}

/// Writes the codes of so many groups, and zeros behind; whether one is of a group with raw items.
/// None if spare bits are set.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn put_codes(from: &[u8; WINDOW_LEN], groups: usize, to: &mut [u8; MAX_OCTETS / 2]) -> Option<bool> {
    let codes = load32(from.first_chunk()?);
    let index = _mm256_setr_epi8(
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
        28, 29, 30, 31,
    );
    let codes = _mm256_and_si256(codes, _mm256_cmpgt_epi8(_mm256_set1_epi8(groups.div_ceil(2) as i8), index));
    put32(to, codes);
    if !groups.is_multiple_of(2) && to.get(groups / 2)? >> 4 != 0 {
        return None;
    }
    let low = _mm256_set1_epi8(15);
    let is_raw = |codes| _mm256_cmpeq_epi8(_mm256_and_si256(codes, low), low);
    let raw = _mm256_or_si256(is_raw(codes), is_raw(_mm256_srli_epi16::<4>(codes)));
    Some(_mm256_movemask_epi8(raw) != 0)
}

/// A section, and what is behind.
struct Bytes<'a> {
    bytes: &'a [u8],
    /// The last of them, and zeros behind.
    end: [u8; 2 * WINDOW_LEN],
}

impl<'a> Bytes<'a> {
    #[inline(always)]
    fn new(bytes: &'a [u8]) -> Self {
        let mut end = [0; 2 * WINDOW_LEN];
        let (last, _) = end.split_at_mut(WINDOW_LEN);
        match bytes.last_chunk::<WINDOW_LEN>() {
            Some(bytes) => last.copy_from_slice(bytes),
            None => {
                let (_, last) = last.split_at_mut(WINDOW_LEN.saturating_sub(bytes.len()));
                copy_start(last, bytes);
            }
        }
        Self { bytes, end }
    }

    /// Bytes from `at` on, and zeros where there are none. None if `at` is beyond the end.
    #[inline(always)]
    fn window(&self, at: usize) -> Option<&[u8; WINDOW_LEN]> {
        match self.bytes.get(at..)?.first_chunk() {
            Some(window) => Some(window),
            None => self.end.get((at + WINDOW_LEN).checked_sub(self.bytes.len())?..)?.first_chunk(),
        }
    }
}

/// The groups of a section, some of them with raw items.
struct Groups {
    map: [u64; MAX_OCTETS / 8],
    /// Every value is an item, and plane values are one more.
    dense: bool,
    count: usize,
    signs: [u8; WINDOW_LEN],
    codes: [u8; MAX_OCTETS / 2],
    /// The start of the first one.
    at: usize,
}

/// Decodes groups, some of them with raw items, and puts the values; where the groups end.
#[inline(never)]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn decode_raw(
    bytes: &Bytes<'_>,
    groups: &Groups,
    values: &mut [u8],
    items: &mut Words,
    to_values: impl Fn(__m256i) -> __m256i,
) -> Option<usize> {
    let mut at = groups.at;
    let mut raw = RawValues::new();
    let mut raw_at = 0;
    let mut is_raw = [0; MAX_OCTETS + 16];
    let steps = groups.codes.as_chunks::<2>().0.iter().zip(groups.signs.as_chunks().0);
    let mut is_raw_of_steps = is_raw.as_chunks_mut::<STEP_GROUPS>().0.iter_mut();
    for (step, (codes, signs)) in steps.enumerate().take(groups.count.div_ceil(STEP_GROUPS)) {
        let codes = u16::from_le_bytes(*codes);
        let mut planes = [_mm_setzero_si128(); STEP_GROUPS];
        let mut widths = [0; STEP_GROUPS];
        let is_raw = is_raw_of_steps.next()?;
        for (group, ((planes, width), is_raw)) in planes.iter_mut().zip(&mut widths).zip(is_raw).enumerate() {
            // From the byte before the group on.
            let window = bytes.window(at - 1)?;
            let code = (codes >> (4 * group) & 15) as u8;
            let head;
            // Without a branch: which groups have raw items is hard to foretell.
            (*is_raw, *width, head) =
                if code == RAW_GROUP { (window[1], window[2], 2) } else { (0, code, 0) };
            if *width > MAX_WIDTH {
                return None;
            }
            *planes = load16(window.get(head..)?.first_chunk()?);
            let raw_from = 1 + head + usize::from(*width);
            raw.put32(raw_at, load32(window.get(raw_from..)?.first_chunk()?));
            let raw_len = VALUE_LEN * u32::from(*is_raw).count_ones() as usize;
            raw_at += raw_len;
            at += head + usize::from(*width) + raw_len;
        }
        let planes = [_mm256_set_m128i(planes[1], planes[0]), _mm256_set_m128i(planes[3], planes[2])];
        let words = to_words(planes, u32::from_le_bytes(widths), u32::from_le_bytes(*signs), groups.dense);
        items.put32(64 * step, words[0]);
        items.put32(64 * step + 32, words[1]);
    }
    if at > bytes.bytes.len() {
        return None;
    }
    items.put32(64 * groups.count.div_ceil(STEP_GROUPS), _mm256_setzero_si256());
    put_values(values, items, &groups.map, groups.dense, to_values);
    // Few are raw: they are written over what was there.
    let values = values.as_chunks_mut::<VALUE_LEN>().0;
    let (mut item, mut raw_from) = (0, 0);
    for (map, values) in groups.map.iter().zip(values.chunks_mut(64)) {
        let bits = u128::from_le_bytes(*is_raw.get(item / 8..)?.first_chunk()?) >> (item % 8);
        item += map.count_ones() as usize;
        let mut places = _pdep_u64(bits as u64, *map);
        while places != 0 {
            // In a dense section, absent items have places too.
            let Some(value) = values.get_mut(places.trailing_zeros() as usize) else { break };
            // SAFETY: all raw values have been put, and this is one of them.
            *value = unsafe { raw.get4(raw_from) };
            raw_from += VALUE_LEN;
            places &= places - 1;
        }
    }
    Some(at)
}

/// Words, `2p + 1` with its sign, of the planes of four groups, of which so many are there, from
/// the second byte of 16 on; if `dense`, `2p - 1`, and 0 for 0.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn to_words(pairs: [__m256i; 2], widths: u32, signs: u32, dense: bool) -> [__m256i; 2] {
    // Byte 0 is for a plane of ones, and byte 15 for the signs.
    let widths = _mm256_set1_epi32(widths as i32);
    let planes_there =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(127, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 127));
    let ones_and_signs = _mm256_set1_epi64x((u64::from(signs) | 0xff << 32) as i64);
    let mut words = [_mm256_setzero_si256(); 2];
    for (pair, (planes, words)) in pairs.into_iter().zip(&mut words).enumerate() {
        let (first, second) = (2 * pair as i8, 2 * pair as i8 + 1);
        let of_group = _mm256_set_m128i(_mm_set1_epi8(second), _mm_set1_epi8(first));
        let there = _mm256_cmpgt_epi8(_mm256_shuffle_epi8(widths, of_group), planes_there);
        let at = |group: i8| _mm_setr_epi8(4, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, group);
        let more = _mm256_shuffle_epi8(ones_and_signs, _mm256_set_m128i(at(second), at(first)));
        let planes = _mm256_or_si256(_mm256_and_si256(planes, there), more);
        let by_word =
            _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
        let signed = _mm256_shuffle_epi8(turned(planes), by_word);
        let magnitudes = _mm256_and_si256(signed, _mm256_set1_epi16(i16::MAX));
        let magnitudes = _mm256_subs_epu16(magnitudes, _mm256_set1_epi16(if dense { 2 } else { 0 }));
        // Not zero: the lowest bit is set.
        *words = _mm256_sign_epi16(magnitudes, signed);
    }
    words
}

/// Writes values, which `to_values` makes of items: where `map` has a bit, and zeros elsewhere; if
/// `dense`, everywhere.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn put_values(
    values: &mut [u8],
    items: &Words,
    map: &[u64; MAX_OCTETS / 8],
    dense: bool,
    to_values: impl Fn(__m256i) -> __m256i,
) {
    let to_values = |words| to_values(_mm256_cvtepi16_epi32(words));
    let (whole, part) = values.as_chunks_mut::<32>();
    let last = whole.len();
    let map = map.map(u64::to_le_bytes);
    let map = map.as_flattened();
    let from = items.0.as_ptr().cast::<u8>();
    let mut at = 0;
    let mut next = |bits: u8| {
        // SAFETY: all items have been put and a register behind the last, and `at` is no more than
        // they are.
        let words = unsafe { _mm_loadu_si128(from.wrapping_add(at).cast()) };
        at += 2 * u32::from(bits).count_ones() as usize;
        to_values(_mm_shuffle_epi8(words, load16(&SPREAD_OUT[usize::from(bits)].0)))
    };
    if dense {
        for (octet, to) in whole.iter_mut().enumerate() {
            // SAFETY: all items have been put.
            put32(to, to_values(unsafe { items.get16(16 * octet) }));
        }
        if !part.is_empty() {
            // SAFETY: all items have been put.
            put_part(part, to_values(unsafe { items.get16(16 * last) }));
        }
        return;
    }
    for (to, bits) in whole.iter_mut().zip(map) {
        put32(to, next(*bits));
    }
    if !part.is_empty() {
        put_part(part, next(map.get(last).copied().unwrap_or(0)));
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn put32(to: &mut [u8; 32], bytes: __m256i) {
    // SAFETY: 32 writable bytes; no alignment is asked for.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), bytes) };
}

/// Writes as many values as `to` has, at most 8.
#[inline]
#[target_feature(enable = "avx2")]
fn put_part(to: &mut [u8], values: __m256i) {
    let count = _mm256_set1_epi32((to.len() / VALUE_LEN) as i32);
    let there = _mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    // SAFETY: of the 8 words only those whose mask is set are written, and as many are set as `to`
    // has.
    unsafe { _mm256_maskstore_epi32(to.as_mut_ptr().cast(), there, values) };
}
