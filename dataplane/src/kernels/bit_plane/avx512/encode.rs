//! From values to sections.

use core::arch::x86_64::*;

use super::super::{GROUP_ROOM, MAX_OCTETS, MAX_WIDTH, MORE_ROOM, RAW_GROUP, encode_with, mode};
use super::{
    COLUMNS, Floats, STEP, STEP_GROUPS, STEPS, Words, get_part, get64, put_map_words, put_part, put64,
};
use crate::codec::bit_plane::{Bound, SECTION_VALUES};
use crate::codec::{EncodeError, VALUE_LEN};
use crate::kernels::Encoded;
use crate::kernels::x86::avx512::{Extremes, Sums};

/// Room in which every section fits.
const APART_LEN: usize = MORE_ROOM + GROUP_ROOM * MAX_OCTETS + VALUE_LEN * SECTION_VALUES;
/// Magnitudes of coded values are smaller.
const RAW_FROM: i16 = 1 << 14;

#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
pub(super) fn encode_sections(values: &[u8], out: &mut [u8], bound: Bound) -> Result<usize, EncodeError> {
    encode_floats(values, out, bound, |_| ())
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
pub(super) fn encode_and_check(values: &[u8], out: &mut [u8], bound: Bound) -> Encoded {
    let (mut sums, mut extremes) = (Sums::new(), Extremes::new());
    let len = encode_floats(values, out, bound, |floats| {
        sums.add(floats);
        extremes.add(floats);
    });
    Encoded::new(len.ok(), sums.sum(), extremes.of(values))
}

#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn encode_floats(
    values: &[u8],
    out: &mut [u8],
    bound: Bound,
    mut see: impl FnMut(__m512i),
) -> Result<usize, EncodeError> {
    let mut items = Items { words: Words::new(), map: [0; STEPS], count: 0 };
    encode_with(values, out, |values, room| {
        if !items.take(values, bound, &mut see)
            && let Some(len) = encode_taken(&items, values.len() / VALUE_LEN, room)
        {
            return Some(len);
        }
        encode_any(&mut items, values, room, bound)
    })
}

/// The values of a section that are not zero.
struct Items {
    /// The magnitude of each in whole bounds, with its sign; of a raw one, something from
    /// [`RAW_FROM`] on. Zeros behind the last to the end of its step.
    words: Words,
    /// A bit for each value.
    map: [u32; STEPS],
    count: usize,
}

impl Items {
    /// Takes the values of a section, and gives all of them to `see` unless the bound is above 1.
    /// Whether one has an exponent from 128 on, which [`Self::take_any`] may have to take again.
    #[inline]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
    )]
    fn take(&mut self, values: &[u8], bound: Bound, mut see: impl FnMut(__m512i)) -> bool {
        if bound.y() > 0 {
            return true;
        }
        // Nothing is multiplied, so that subnormals cost nothing. Exponents up to 127 do not
        // overflow.
        let up = _mm512_set1_epi32(-i32::from(bound.y()) << 23);
        let mut all = _mm512_setzero_si512();
        self.compact(values, |low, high| {
            all = _mm512_ternarylogic_epi32::<0xfe>(all, low, high);
            see(low);
            see(high);
            packed([low, high].map(|f| _mm512_cvttps_epi32(_mm512_castsi512_ps(_mm512_add_epi32(f, up)))))
        });
        _mm512_test_epi32_mask(all, _mm512_set1_epi32(1 << 30)) != 0
    }

    /// As [`Self::take`], for all values.
    #[inline(never)]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
    )]
    fn take_any(&mut self, values: &[u8], bound: Bound) {
        let from = _mm512_set1_epi32((bound.coded_from() << 24) as i32);
        let scale = _mm512_set1_ps(f32::from_bits((254 - bound.coded_from()) << 23));
        self.compact(values, |low, high| {
            packed([low, high].map(|f| {
                let nonzero = _mm512_cmpge_epu32_mask(_mm512_slli_epi32::<1>(f), from);
                _mm512_cvttps_epi32(_mm512_maskz_mul_ps(nonzero, _mm512_castsi512_ps(f), scale))
            }))
        });
    }

    /// Fills `self` with `values`, 32 at a time, of which `to_words` makes words.
    #[inline]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
    )]
    fn compact(&mut self, values: &[u8], mut to_words: impl FnMut(__m512i, __m512i) -> __m512i) {
        let mut count = 0;
        let mut step = |low, high, map: &mut u32| {
            let words = to_words(low, high);
            *map = _mm512_test_epi16_mask(words, words);
            self.words.put(2 * count, _mm512_maskz_compress_epi16(*map, words));
            count += map.count_ones() as usize;
        };
        let (whole, part) = values.as_chunks::<{ STEP * VALUE_LEN }>();
        put_map_words(&mut self.map, _mm512_setzero_si512());
        let mut map = self.map.iter_mut();
        for (values, map) in whole.iter().zip(&mut map) {
            step(get64(values, 0), get64(values, 64), map);
        }
        if !part.is_empty()
            && let Some(map) = map.next()
        {
            let (low, high) = part.split_at(part.len().min(64));
            step(get_part(low), get_part(high), map);
        }
        self.words.put(2 * count, _mm512_setzero_si512());
        self.count = count;
    }

    /// The map of the section.
    #[inline]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
    )]
    fn map(&self) -> __m512i {
        // SAFETY: 64 readable bytes; no alignment is asked for.
        unsafe { _mm512_loadu_si512(self.map.as_ptr().cast()) }
    }
}

/// From 32 numbers to words, saturated: infinities, NaN and all that is too large stay too large.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn packed([low, high]: [__m512i; 2]) -> __m512i {
    // Packing works in parts of 16 bytes.
    let in_order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    _mm512_permutexvar_epi64(in_order, _mm512_packs_epi32(low, high))
}

/// Encodes a section of `count` values to the start of `room`. None if a value is raw, or there is
/// too little room.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn encode_taken(items: &Items, count: usize, room: &mut [u8]) -> Option<usize> {
    if items.count == 0 {
        *room.first_mut()? = mode::EMPTY;
        return Some(1);
    }
    match encode_coded(items, count, room) {
        Some((len, used)) if used & RAW_OR_HIGHEST == 0 => Some(len),
        _ => None,
    }
}

/// Encodes a section of `count` values to the start of `room`; returns its length, and the planes
/// that its items use, as [`put_groups`], which says whether there is room enough. With a raw value
/// among them, what is written is no section.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn encode_coded(items: &Items, count: usize, room: &mut [u8]) -> Option<(usize, u64)> {
    if 16 * items.count >= 13 * count {
        *room.first_mut()? = mode::DENSE;
        let one = _mm512_set1_epi16(1);
        let mut at = 0;
        put_groups::<true>(count, room, 1, |step| {
            let there = items.map.get(step).copied().unwrap_or(0);
            // SAFETY: `compact` has put the items and a register behind the last, and `at` is no
            // more than they are.
            let words = unsafe { items.words.get(2 * at) };
            let words = _mm512_maskz_expand_epi16(there, words);
            at += there.count_ones() as usize;
            let planes = _mm512_srli_epi16::<1>(_mm512_abs_epi16(words));
            (words, _mm512_mask_add_epi16(planes, there, planes, one))
        })
    } else {
        let at = put_map(items, count, room)?;
        put_groups::<false>(items.count, room, at, |step| {
            // SAFETY: `compact` has put the items and a register behind the last, which is in this
            // step or behind it.
            let words = unsafe { items.words.get(2 * STEP * step) };
            (words, _mm512_srli_epi16::<1>(_mm512_abs_epi16(words)))
        })
    }
}

/// Writes mode and map; their length. Nothing behind the mode's nine bytes if less than 64 more are
/// there, which [`put_groups`] needs, too.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn put_map(items: &Items, count: usize, room: &mut [u8]) -> Option<usize> {
    let octets = count.div_ceil(8);
    let presence_len = octets.div_ceil(8);
    let map = items.map();
    let present = _mm512_test_epi8_mask(map, map);
    let two_level = presence_len + (present.count_ones() as usize) < octets;
    // Without a branch: for many gradients, both are as likely.
    let (mode, presence_len, kept, len) = if two_level {
        (mode::TWO_LEVEL, presence_len, present, present.count_ones() as usize)
    } else {
        (mode::FLAT, 0, u64::MAX, octets)
    };
    // Presence bytes that are not there are written too, and then over.
    let [first, presence @ ..] = room.first_chunk_mut::<9>()?;
    (*first, *presence) = (mode, present.to_le_bytes());
    put64(room, 1 + presence_len, _mm512_maskz_compress_epi8(kept, map));
    Some(1 + presence_len + len)
}

/// Writes signs, codes and planes of `count` items at `signs_at`; returns where they end, and a bit
/// for each plane of four groups that any item uses. `items` gives 32 of them: words with their
/// signs, and plane values. None if `room` is too small. With `PAIRS`, two steps are taken at a
/// time: that is faster if their number is always about the same, and else the processor foretells
/// two branches wrongly in place of one.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn put_groups<const PAIRS: bool>(
    count: usize,
    room: &mut [u8],
    signs_at: usize,
    mut items: impl FnMut(usize) -> (__m512i, __m512i),
) -> Option<(usize, u64)> {
    let groups = count.div_ceil(8);
    let codes_len = groups.div_ceil(2);
    let steps = groups.div_ceil(STEP_GROUPS);
    // Compared once for all stores below: each step has at most 4 signs and 2 codes, 14 planes for
    // each of its groups, and reaches less than 64 bytes beyond them.
    let room = room.get_mut(signs_at..)?;
    if room.len() < groups + codes_len + MAX_WIDTH as usize * STEP_GROUPS * steps + 64 {
        return None;
    }
    let signs_to = room.as_mut_ptr();
    let codes_to = signs_to.wrapping_add(groups);
    let mut to = codes_to.wrapping_add(codes_len);
    let mut all_used = 0;
    let mut first_codes = 0;
    let in_pairs = if PAIRS { steps & !1 } else { 0 };
    for step in (0..in_pairs).step_by(2) {
        let (low_words, low_plane_values) = items(step);
        let (high_words, high_plane_values) = items(step + 1);
        // Up to three bytes too many, as below.
        let signs = [low_words, high_words].map(|words| _mm512_movepi16_mask(words));
        // SAFETY: eight bytes at the signs of these steps, of which at least five are before the
        // codes; planes and 64 bytes are behind.
        unsafe { signs_to.wrapping_add(STEP_GROUPS * step).cast::<[u32; 2]>().write_unaligned(signs) };
        let planes = [low_plane_values, high_plane_values].map(|values| transpose(values));
        let [low_used, high_used] = planes.map(|planes| _mm512_test_epi8_mask(planes, planes) as i64);
        all_used |= (low_used | high_used) as u64;
        // A doubleword for each group.
        let zeros = _mm256_lzcnt_epi32(_mm256_cvtepu16_epi32(_mm_set_epi64x(high_used, low_used)));
        let kept = _mm256_cvtepi32_epi16(_mm256_srlv_epi32(_mm256_set1_epi32(-1), zeros));
        let kept =
            [_mm_cvtsi128_si64(kept), _mm_extract_epi64::<1>(kept)].map(|kept| kept as u64 & ALL_PLANES);
        let widths = _mm256_cvtepi32_epi8(_mm256_sub_epi32(_mm256_set1_epi32(32), zeros));
        let codes = _pext_u64(_mm_cvtsi128_si64(widths) as u64, 0x0f0f_0f0f_0f0f_0f0f) as u32;
        first_codes |= if step == 0 { codes } else { 0 };
        // Where there is no fourth byte of codes, the third is written over it.
        let [first, second, third, fourth] = codes.to_le_bytes();
        // SAFETY: a code of this section.
        unsafe { codes_to.wrapping_add((2 * step + 3).min(codes_len - 1)).write(fourth) };
        // SAFETY: codes of this section: two steps have three or four bytes of them.
        unsafe { codes_to.wrapping_add(2 * step).cast::<[u8; 3]>().write_unaligned([first, second, third]) };
        for (kept, planes) in kept.into_iter().zip(planes) {
            let planes = _mm512_maskz_compress_epi8(kept, planes);
            // SAFETY: so many steps have written at most 14 planes for each of their groups, and 64
            // bytes are behind.
            unsafe { _mm512_storeu_si512(to.cast(), planes) };
            to = to.wrapping_add(kept.count_ones() as usize);
        }
    }
    for step in in_pairs..steps {
        let (words, plane_values) = items(step);
        // Up to three bytes too many, which are written over: by planes that follow, and by the
        // first codes in the end.
        let signs = _mm512_movepi16_mask(words);
        // SAFETY: four bytes at the signs of this step, which begin before the codes; planes and 64
        // bytes are behind.
        unsafe { signs_to.wrapping_add(STEP_GROUPS * step).cast::<u32>().write_unaligned(signs) };
        let planes = transpose(plane_values);
        let used = _mm512_test_epi8_mask(planes, planes);
        all_used |= used;
        let kept = down_from_highest(used) & ALL_PLANES;
        let codes = codes(kept);
        first_codes |= if step < 2 { u32::from(codes) << (16 * step) } else { 0 };
        // Where there is no second byte of codes, the first is written over it.
        let [first, second] = codes.to_le_bytes();
        // SAFETY: a code of this section.
        unsafe { codes_to.wrapping_add((2 * step + 1).min(codes_len - 1)).write(second) };
        // SAFETY: a code of this section: a step has one or two bytes of them.
        unsafe { codes_to.wrapping_add(2 * step).write(first) };
        let planes = _mm512_maskz_compress_epi8(kept, planes);
        // SAFETY: so many steps have written at most 14 planes for each of their groups, and 64
        // bytes are behind.
        unsafe { _mm512_storeu_si512(to.cast(), planes) };
        to = to.wrapping_add(kept.count_ones() as usize);
    }
    let end = signs_at + (to.addr() - signs_to.addr());
    let (codes, _) = room.get_mut(groups..)?.split_at_mut_checked(codes_len)?;
    codes.iter_mut().zip(first_codes.to_le_bytes()).for_each(|(to, code)| *to = code);
    Some((end, all_used))
}

/// A bit for each plane of four groups.
const ALL_PLANES: u64 = 0x3fff_3fff_3fff_3fff;
/// The bits above them.
const RAW_PLANES: u64 = 0x4000_4000_4000_4000;
/// The highest plane and the bits above it, one of which each raw value uses. If a section is
/// dense, the largest magnitude that is coded uses that plane, too.
const RAW_OR_HIGHEST: u64 = 0xe000_e000_e000_e000;

/// From 32 words to their 16 planes, eight words at a time.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn transpose(words: __m512i) -> __m512i {
    // The rows of a matrix are the bytes of a quadword, the last one first.
    let rows = _mm_setr_epi8(14, 12, 10, 8, 6, 4, 2, 0, 15, 13, 11, 9, 7, 5, 3, 1);
    let matrices = _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(rows));
    _mm512_gf2p8affine_epi64_epi8::<0>(_mm512_set1_epi64(COLUMNS), matrices)
}

/// In each 16 bits, all bits below the highest that is set are set too.
#[inline(always)]
const fn down_from_highest(mut bits: u64) -> u64 {
    bits |= bits >> 1 & 0x7fff_7fff_7fff_7fff;
    bits |= bits >> 2 & 0x3fff_3fff_3fff_3fff;
    bits |= bits >> 4 & 0x0fff_0fff_0fff_0fff;
    bits | bits >> 8 & 0x00ff_00ff_00ff_00ff
}

/// The codes of four groups, from the planes that are kept, a bit for each.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn codes(kept: u64) -> u16 {
    _pext_u64(widths(kept), 0x000f_000f_000f_000f) as u16
}

/// The number of planes of four groups that are kept, a word each.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn widths(kept: u64) -> u64 {
    _mm_cvtsi128_si64(_mm_popcnt_epi16(_mm_cvtsi64_si128(kept as i64))) as u64
}

/// Encodes a section that may have raw values, or too little room.
#[inline(never)]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn encode_any(items: &mut Items, values: &[u8], room: &mut [u8], bound: Bound) -> Option<usize> {
    let count = values.len() / VALUE_LEN;
    let mut raw = Floats::new();
    let (raw_count, greatest) = close_up_raw(values, bound.raw_from() << 24, &mut raw);
    // Exponents from here on overflow in `take`, which bounds above 1 are not for. With other
    // bounds, values that have one are raw.
    if bound.y() > 0 || i32::from(greatest.to_be_bytes()[0]) > 255 + i32::from(bound.y()) {
        items.take_any(values, bound);
    }
    if items.count == 0 {
        *room.first_mut()? = mode::EMPTY;
        return Some(1);
    }
    if MORE_ROOM + GROUP_ROOM * count.div_ceil(8) + VALUE_LEN * raw_count > room.len() {
        return encode_apart(items, count, &raw, raw_count, room);
    }
    if raw_count == 0 {
        encode_coded(items, count, room).map(|(len, _)| len)
    } else {
        encode_raw(items, count, &raw, raw_count, room)
    }
}

/// Encodes where there is room, and then copies what fits.
#[cold]
#[inline(never)]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn encode_apart(
    items: &Items,
    count: usize,
    raw: &Floats,
    raw_count: usize,
    room: &mut [u8],
) -> Option<usize> {
    let mut apart = [0; APART_LEN];
    let len = if raw_count == 0 {
        encode_coded(items, count, &mut apart).map(|(len, _)| len)
    } else {
        encode_raw(items, count, raw, raw_count, &mut apart)
    }?;
    room.get_mut(..len)?.copy_from_slice(apart.get(..len)?);
    Some(len)
}

/// Writes the raw ones among `values` to `raw`, those with magnitudes, shifted left by one, from
/// `raw_from` on; how many they are, and the bits of the greatest of them, shifted as well.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn close_up_raw(values: &[u8], raw_from: u32, raw: &mut Floats) -> (usize, u32) {
    let raw_from = _mm512_set1_epi32(raw_from as i32);
    let mut count = 0;
    let mut greatest = _mm512_setzero_si512();
    let mut step = |f| {
        let magnitudes = _mm512_slli_epi32::<1>(f);
        let is_raw = _mm512_cmpge_epu32_mask(magnitudes, raw_from);
        // Most steps have none, also where one value in a hundred is raw.
        if is_raw != 0 {
            raw.put(VALUE_LEN * count, _mm512_maskz_compress_epi32(is_raw, f));
            count += is_raw.count_ones() as usize;
            greatest = _mm512_max_epu32(greatest, magnitudes);
        }
    };
    let (whole, part) = values.as_chunks::<64>();
    whole.iter().for_each(|values| step(get64(values, 0)));
    step(get_part(part));
    raw.put(VALUE_LEN * count, _mm512_setzero_si512());
    (count, _mm512_reduce_max_epu32(greatest))
}

/// Encodes a section of `count` values, some of them `raw`, to the start of `room`, which is large
/// enough.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn encode_raw(items: &Items, count: usize, raw: &Floats, raw_count: usize, room: &mut [u8]) -> Option<usize> {
    let signs_at = put_map(items, count, room)?;
    let groups = items.count.div_ceil(8);
    let (signs_to, room) = room.get_mut(signs_at..)?.split_at_mut_checked(groups)?;
    let (codes_to, room) = room.split_at_mut_checked(groups.div_ceil(2))?;
    // Compared once for all stores below: each group has at most two bytes, 14 planes and its raw
    // values, and no store reaches more than 64 bytes beyond.
    let steps = groups.div_ceil(STEP_GROUPS);
    if room.len() < (2 + MAX_WIDTH as usize) * groups + VALUE_LEN * raw_count + 64 {
        return None;
    }
    let first = room.as_mut_ptr();
    let mut to = first;
    let mut raw_at = 0;
    let mut signs = [0; STEPS];
    let mut codes = [0; STEPS];
    for (step, (signs, codes)) in signs.iter_mut().zip(&mut codes).enumerate().take(steps) {
        // SAFETY: `compact` has put the items and a register behind the last, which is in this step
        // or behind it.
        let words = unsafe { items.words.get(2 * STEP * step) };
        let magnitudes = _mm512_abs_epi16(words);
        let coded = _mm512_cmplt_epu16_mask(magnitudes, _mm512_set1_epi16(RAW_FROM));
        *signs = _mm512_movepi16_mask(words) & coded;
        // Raw items have the bit above the planes instead, so that the map of a group's raw items
        // is its 15th plane. In front of the others, that is where the map belongs; the width is
        // put behind it, in place of the 16th.
        let planes = transpose(_mm512_mask_srli_epi16::<1>(_mm512_set1_epi16(RAW_FROM), coded, magnitudes));
        let used = _mm512_test_epi8_mask(planes, planes);
        let kept = down_from_highest(used & ALL_PLANES);
        let widths = widths(kept);
        let mut raw_groups = used & RAW_PLANES;
        let raw_codes = (raw_groups >> MAX_WIDTH) * u64::from(RAW_GROUP);
        *codes = _pext_u64(widths | raw_codes, 0x000f_000f_000f_000f) as u16;
        let widths = _mm512_castsi128_si512(_mm_cvtsi64_si128((widths << 8) as i64));
        let widths = _mm512_maskz_expand_epi16(0x0101_0101, widths);
        let bytes = _mm512_or_si512(_mm512_alignr_epi8::<14>(planes, planes), widths);
        let mut left = (kept << 2) | ((raw_groups >> MAX_WIDTH) * 0b11);
        let mut is_raw = _pdep_u64((!coded).into(), 0x00ff_00ff_00ff_00ff);
        // All to the end of the step is written, and what is behind a group's raw values again
        // behind these. Once also if no group has any: how many have cannot be foretold, but it is
        // often one at most.
        let all = _mm512_maskz_compress_epi8(left, bytes);
        // SAFETY: as compared.
        unsafe { _mm512_storeu_si512(to.cast(), all) };
        loop {
            // Up to the first group with raw values; all, if there is none.
            let to_here = ((raw_groups & raw_groups.wrapping_neg()) << 2).wrapping_sub(1);
            to = to.wrapping_add((left & to_here).count_ones() as usize);
            // SAFETY: `close_up_raw` has put the raw values and a register behind the last.
            let values = _mm512_castsi512_si256(unsafe { raw.get(raw_at) });
            // SAFETY: as compared.
            unsafe { _mm256_storeu_si256(to.cast(), values) };
            let raw_len = VALUE_LEN * (is_raw & to_here).count_ones() as usize;
            (to, raw_at) = (to.wrapping_add(raw_len), raw_at + raw_len);
            (left, is_raw) = (left & !to_here, is_raw & !to_here);
            let behind = _mm512_maskz_compress_epi8(left, bytes);
            // SAFETY: as compared.
            unsafe { _mm512_storeu_si512(to.cast(), behind) };
            raw_groups &= raw_groups.wrapping_sub(1);
            if raw_groups == 0 {
                break;
            }
        }
        to = to.wrapping_add(left.count_ones() as usize);
    }
    put_part(signs_to, get_part(signs.map(u32::to_le_bytes).as_flattened()));
    put_part(codes_to, get_part(codes.map(u16::to_le_bytes).as_flattened()));
    Some(signs_at + groups + groups.div_ceil(2) + (to.addr() - first.addr()))
}
