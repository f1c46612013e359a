//! From sections to values.

use core::arch::x86_64::*;

use super::super::{MAX_WIDTH, RAW_GROUP, decode_with, mode};
use super::{
    COLUMNS, Floats, STEP, STEP_GROUPS, STEPS, get_part, get_part16, put_map_words, put_part, put64,
};
use crate::checksum::Sum;
use crate::codec::bit_plane::Bound;
use crate::codec::{DecodeError, VALUE_LEN};
use crate::kernels::numbers::bytes_of_mut;
use crate::kernels::x86::avx512::Sums;

#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
pub(super) fn decode_sections(
    sections: &[u8],
    values: &mut [u8],
    bound: Bound,
) -> Result<usize, DecodeError> {
    decode_floats(sections, values, bound, |_| ())
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
pub(super) fn decode_and_sum(
    sections: &[u8],
    values: &mut [u8],
    bound: Bound,
) -> Result<(usize, Sum), DecodeError> {
    // Zeros between words do not change their sum, so those of items are enough.
    let mut sums = Sums::new();
    let len = decode_floats(sections, values, bound, |floats| sums.add(floats))?;
    Ok((len, sums.sum()))
}

#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn decode_floats(
    sections: &[u8],
    values: &mut [u8],
    bound: Bound,
    mut take: impl FnMut(__m512i),
) -> Result<usize, DecodeError> {
    let mut items = Floats::new();
    let scale = _mm512_set1_ps(f32::from_bits(bound.coded_from() << 23));
    let to_floats = |words| _mm512_castps_si512(_mm512_mul_ps(_mm512_cvtepi32_ps(words), scale));
    decode_with(sections, values, |section, values| {
        decode_section(section, values, true, &mut items, to_floats, &mut take)
    })
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
pub(super) fn decode_units(section: &[u8], units: &mut [i32]) -> Option<usize> {
    decode_section(section, bytes_of_mut(units), false, &mut Floats::new(), |words| words, &mut |_| ())
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
pub(super) fn decode_sums(section: &[u8], sums: &mut [i32]) -> Option<usize> {
    let one = _mm512_set1_epi32(1);
    // An odd number, or zero: the middle of a bin becomes its outer border, halved.
    let to_sums = |words| {
        let halves = _mm512_srai_epi32::<1>(words);
        let is_positive = _mm512_cmpgt_epi32_mask(words, _mm512_setzero_si512());
        _mm512_mask_add_epi32(halves, is_positive, halves, one)
    };
    decode_section(section, bytes_of_mut(sums), true, &mut Floats::new(), to_sums, &mut |_| ())
}

/// Decodes the section at the start of `section`; its length. `to_values` makes values of words,
/// `2p + 1` with its sign or 0; raw ones are taken as they are, or, if `takes_raw` is false, not at
/// all. `take` gets all values that are not zero, in any order and with zeros between.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn decode_section(
    section: &[u8],
    values: &mut [u8],
    takes_raw: bool,
    items: &mut Floats,
    to_values: impl Fn(__m512i) -> __m512i,
    take: &mut impl FnMut(__m512i),
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
    let steps = groups.div_ceil(STEP_GROUPS);
    // The values of a step's items. Those behind the last are none, whatever their planes say.
    let step_values = |step: usize, planes, signs, is_raw: u32| {
        let there = _bzhi_u32(u32::MAX, (item_count - STEP * step).min(STEP) as u32);
        let magnitudes = _mm512_maskz_subs_epu16(there & !is_raw, untranspose(planes), less);
        let words = _mm512_mask_sub_epi16(magnitudes, signs, _mm512_setzero_si512(), magnitudes);
        let halves = [_mm512_castsi512_si256(words), _mm512_extracti64x4_epi64::<1>(words)];
        halves.map(|words| to_values(_mm512_cvtepi16_epi32(words)))
    };
    let has_raw = _mm512_cmpeq_epi8_mask(codes, _mm512_set1_epi8(RAW_GROUP as i8));
    if has_raw != 0 {
        if !takes_raw {
            return None;
        }
        let mut groups = Groups::new(codes, has_raw);
        let len = groups.put_raw(planes, item_count, items, take)?;
        let mut at = 0;
        for (step, signs) in sign_bits.into_iter().enumerate().take(steps) {
            let planes = groups.planes(planes, step, &mut at)?;
            let is_raw = groups.is_raw.get(step).copied().unwrap_or(0);
            for (half, values) in step_values(step, planes, signs, is_raw).into_iter().enumerate() {
                take(values);
                items.put_where(
                    !(is_raw >> (16 * half)) as u16,
                    VALUE_LEN * (STEP * step + 16 * half),
                    values,
                );
            }
        }
        items.put(VALUE_LEN * STEP * steps, _mm512_setzero_si512());
        spread(items, &map, values);
        return Some(section.len() - planes.len() + len);
    }
    let mut kept = [0u64; STEPS];
    put_kept(&mut kept, codes);
    let mut planes_left = planes;
    let mut next = |step, kept: u64, signs| {
        let (taken, behind) = planes_left.split_at_checked(kept.count_ones() as usize)?;
        planes_left = behind;
        let values = step_values(step, expand(taken, kept), signs, 0);
        values.into_iter().for_each(&mut *take);
        Some(values)
    };
    let all = kept.iter().zip(sign_bits).enumerate().take(steps);
    if mode == mode::DENSE {
        for ((step, (kept, signs)), to) in all.zip(values.chunks_mut(STEP * VALUE_LEN)) {
            let [low, high] = next(step, *kept, signs)?;
            put_step(to, low, high);
        }
    } else {
        for (step, (kept, signs)) in all {
            let [low, high] = next(step, *kept, signs)?;
            items.put(VALUE_LEN * STEP * step, low);
            items.put(VALUE_LEN * STEP * step + 64, high);
        }
        items.put(VALUE_LEN * STEP * steps, _mm512_setzero_si512());
        spread(items, &map, values);
    }
    Some(section.len() - planes_left.len())
}

/// The groups of a section, some of them with raw items.
// Only those have a length that their bytes say, and nobody can foretell which they are. So there
// is a chain only from one of them to the next, and not from group to group.
struct Groups {
    /// A bit for each group that has raw items.
    has_raw: u64,
    /// As [`put_kept`] makes them.
    kept: [u64; STEPS],
    /// Lengths, 16 bits each.
    lens: [u64; STEPS],
    /// A bit for each raw item.
    is_raw: [u32; STEPS],
}

impl Groups {
    /// Groups of these codes, whose raw items are yet to be found.
    #[inline]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
    )]
    fn new(codes: __m512i, has_raw: u64) -> Self {
        let mut new = Self { has_raw, kept: [0; STEPS], lens: [0; STEPS], is_raw: [0; STEPS] };
        let widths = _mm512_maskz_mov_epi8(!has_raw, codes);
        put_kept(&mut new.kept, widths);
        put_words(&mut new.lens, widths, |widths| widths);
        new
    }

    /// Puts the raw ones among `count` items of the groups in `bytes` to their places in `items`,
    /// and gives them to `take`; the length of all groups.
    #[inline]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
    )]
    fn put_raw(
        &mut self,
        bytes: &[u8],
        count: usize,
        items: &mut Floats,
        take: &mut impl FnMut(__m512i),
    ) -> Option<usize> {
        let (mut starts, coded) = ([0; STEPS], self.kept);
        let mut len = 0;
        for (start, kept) in starts.iter_mut().zip(coded).take(count.div_ceil(STEP)) {
            *start = len;
            len += kept.count_ones() as usize;
        }
        let mut left = self.has_raw;
        let mut more = 0;
        while left != 0 {
            let group = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            let (step, place) = (group / STEP_GROUPS, group % STEP_GROUPS);
            let before = _bzhi_u64(*coded.get(step)?, 16 * place as u32).count_ones() as usize;
            let at = *starts.get(step)? + before + more;
            let &[of_group, width] = bytes.get(at..)?.first_chunk()?;
            let head_len = 2 + usize::from(width);
            let group_len = head_len + VALUE_LEN * of_group.count_ones() as usize;
            if width > MAX_WIDTH || at + group_len > bytes.len() {
                return None;
            }
            let from = bytes.as_ptr().wrapping_add(at + head_len);
            // SAFETY: as many values are read as bits are set, and they have been compared.
            let raw = unsafe { _mm256_maskz_expandloadu_epi32(of_group, from.cast()) };
            // Items behind the last are none, whatever the group says.
            let there = _bzhi_u32(of_group.into(), count.saturating_sub(8 * group).min(8) as u32);
            let raw = _mm512_maskz_mov_epi32(there as u16, _mm512_castsi256_si512(raw));
            take(raw);
            items.put(VALUE_LEN * 8 * group, raw);
            *self.kept.get_mut(step)? |= ((2 << width) - 2) << (16 * place);
            *self.lens.get_mut(step)? |= (group_len as u64) << (16 * place);
            *self.is_raw.get_mut(step)? |= there << (8 * place);
            more += group_len;
        }
        Some(len + more)
    }

    /// The planes of a step's groups, the first of which is at `at` of `bytes`, as [`expand`]
    /// returns them; `at` is then where they end.
    #[inline]
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
    )]
    fn planes(&self, bytes: &[u8], step: usize, at: &mut usize) -> Option<__m512i> {
        let (kept, lens) = (*self.kept.get(step)?, *self.lens.get(step)?);
        let has_raw = self.has_raw >> (STEP_GROUPS * step);
        // Where each group starts, behind the first, and in the end where the last one ends.
        let starts = lens.wrapping_mul(0x0001_0001_0001_0001);
        let end = *at + (starts >> 48) as usize;
        if end > bytes.len() {
            return None;
        }
        let ones = _mm_setr_epi8(-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        let mut planes = [_mm_setzero_si128(); STEP_GROUPS];
        for (group, planes) in planes.iter_mut().enumerate() {
            let start = *at + usize::from(((starts << 16) >> (16 * group)) as u16);
            let head_len = ((has_raw >> group) & 1) as usize * 2;
            let from = bytes.as_ptr().wrapping_add(start + head_len).wrapping_sub(1);
            // SAFETY: of the 16 bytes from one before the planes on only planes are read, and the
            // end of the step has been compared.
            *planes = unsafe { _mm_mask_loadu_epi8(ones, (kept >> (16 * group)) as u16, from.cast()) };
        }
        *at = end;
        let [a, b, c, d] = planes;
        let low = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b);
        let high = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(c), d);
        Some(_mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high))
    }
}

/// Fills `values` with `items`, all of which have been put and a register behind the last: each
/// goes to where the map has a bit, and zeros elsewhere.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn spread(items: &Floats, map: &[u32; STEPS], values: &mut [u8]) {
    let mut at = 0;
    for (to, map) in values.chunks_mut(STEP * VALUE_LEN).zip(map) {
        let [low, high] = [*map as u16, (*map >> 16) as u16].map(|there| {
            // SAFETY: `at` is no more than the items' end.
            let items = unsafe { items.get(at) };
            at += VALUE_LEN * there.count_ones() as usize;
            _mm512_maskz_expand_epi32(there, items)
        });
        put_step(to, low, high);
    }
}

/// Writes the values of a step, or, at the end, as many as `to` has.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn put_step(to: &mut [u8], low: __m512i, high: __m512i) {
    if to.len() == STEP * VALUE_LEN {
        put64(to, 0, low);
        put64(to, 64, high);
    } else {
        let (low_to, high_to) = to.split_at_mut(to.len().min(64));
        put_part(low_to, low);
        put_part(high_to, high);
    }
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
    put_words(to, codes, |codes| _mm512_sub_epi16(_mm512_sllv_epi16(two, codes), two));
}

/// Writes what `to_words` makes of `bytes` as words.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512cd,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,gfni,bmi1,bmi2,popcnt"
)]
fn put_words(to: &mut [u64; STEPS], bytes: __m512i, to_words: impl Fn(__m512i) -> __m512i) {
    let (low, high) = (_mm512_castsi512_si256(bytes), _mm512_extracti64x4_epi64::<1>(bytes));
    let [low, high] = [low, high].map(|bytes| to_words(_mm512_cvtepu8_epi16(bytes)));
    // SAFETY: 128 writable bytes; no alignment is asked for.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), low) };
    // SAFETY: as above; the second half.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().wrapping_add(STEPS / 2).cast(), high) };
}
