//! From values to sections.

use core::arch::x86_64::*;

use super::super::tables::CLOSE_UP;
use super::super::{GROUP_ROOM, MAX_OCTETS, MAX_WIDTH, MORE_ROOM, RAW_GROUP, encode_with, mode, scalar32};
use super::{RawValues, STEP, STEPS, Words, turned};
use crate::codec::bit_plane::Bound;
use crate::codec::{EncodeError, VALUE_LEN};
use crate::kernels::numbers::bytes_of;
use crate::kernels::x86::{load16, load32};

/// The number of groups that are handled at a time.
const BLOCK_GROUPS: usize = 8;
const BLOCKS: usize = MAX_OCTETS / BLOCK_GROUPS;
/// Their items, as words.
const BLOCK_LEN: usize = 2 * 8 * BLOCK_GROUPS;
/// Bytes of the codes of a section.
const MAX_CODES: usize = MAX_OCTETS / 2;
/// Magnitudes of coded values are smaller.
const RAW_FROM: i16 = 1 << 14;
/// Magnitudes of coded sums are smaller.
const RAW_SUMS_FROM: i32 = RAW_FROM as i32 / 2 + 1;

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) fn encode_sections(values: &[u8], out: &mut [u8], bound: Bound) -> Result<usize, EncodeError> {
    // Not made by a function: what that returns would be copied, byte by byte.
    let mut taken = Taken { words: Words::new(), items: Words::new(), map: [0; STEPS], count: 0 };
    let mut raw = RawValues::new();
    encode_with(values, out, |values, room| {
        let raw_count = taken.take(values, bound, &mut raw);
        taken.encode(values.len() / VALUE_LEN, &raw, raw_count, room).or_else(|| {
            // Too little room for stores beyond the end. This one has none, and needs less stack
            // than a buffer would.
            scalar32::encode_section(values, room, bound)
        })
    })
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) fn encode_sums(sums: &[i32], room: &mut [u8]) -> Option<usize> {
    let mut taken = Taken { words: Words::new(), items: Words::new(), map: [0; STEPS], count: 0 };
    let mut raw = RawValues::new();
    let raw_count = taken.take_sums(sums, &mut raw);
    taken.encode(sums.len(), &raw, raw_count, room)
}

/// The values of a section.
struct Taken {
    /// The magnitude of each in whole bounds, with its sign; of a raw one, something from
    /// [`RAW_FROM`] on. Zeros to the end of the last block.
    words: Words,
    /// The words that are not zero, and zeros to the end of the last block.
    items: Words,
    /// A bit for each value that is not zero.
    map: [u32; STEPS],
    /// The number that are not zero.
    count: usize,
}

impl Taken {
    /// Takes the values of a section, and writes the raw ones to `raw`; how many those are.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn take(&mut self, values: &[u8], bound: Bound, raw: &mut RawValues) -> usize {
        // Nothing is multiplied, so that subnormals cost nothing. Exponents up to 127 do not
        // overflow if they become larger; if they become smaller, any may. With a fine bound, some
        // of these values are raw.
        let up = _mm256_set1_epi32(-i32::from(bound.y()) << 23);
        let scale = |f| _mm256_cvttps_epi32(_mm256_castsi256_ps(_mm256_add_epi32(f, up)));
        let any_overflows = bound.y() > 0;
        let any_is_raw = bound.raw_from() < 128;
        let from_128 = _mm256_set1_epi32(1 << 30);
        // From just below 1 to 2^14, which is raw.
        let raw_from = (bound.raw_from() << 23) as i32;
        let least = (bound.coded_from() << 23) as i32 - 1;
        let [most, least] = [raw_from, least].map(|f| [f, f | i32::MIN].map(|f| _mm256_set1_epi32(f)));
        let mut count = 0;
        self.take_with(values, |floats| {
            let [a, b, c, d] = floats;
            let all = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
            if !any_overflows && _mm256_testz_si256(all, from_128) != 0 {
                let words = packed(floats.map(scale));
                if !any_is_raw || !has_raw(words) {
                    return words;
                }
            }
            let words = packed(floats.map(|f| {
                // Negative ones are the smaller numbers with a sign, and the larger ones without.
                let f = _mm256_min_epu32(_mm256_min_epi32(f, most[0]), most[1]);
                scale(_mm256_max_epi32(_mm256_max_epu32(f, least[0]), least[1]))
            }));
            if has_raw(words) {
                for f in floats {
                    let magnitudes = _mm256_and_si256(f, _mm256_set1_epi32(i32::MAX));
                    count += close_up_raw(f, magnitudes, raw_from, raw, count);
                }
            }
            words
        });
        count
    }

    /// As [`Self::take`], for sums: what is not zero is twice as large, less one.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn take_sums(&mut self, sums: &[i32], raw: &mut RawValues) -> usize {
        let one = _mm256_set1_epi16(1);
        let twice = |word| _mm256_sub_epi16(_mm256_adds_epi16(word, word), _mm256_sign_epi16(one, word));
        let mut count = 0;
        self.take_with(bytes_of(sums), |sums| {
            let words = packed(sums).map(twice);
            if has_raw(words) {
                for sums in sums {
                    count += close_up_raw(sums, _mm256_abs_epi32(sums), RAW_SUMS_FROM, raw, count);
                }
            }
            words
        });
        count
    }

    /// Fills words, map and count from `values`, 32 at a time, of which `to_words` makes words.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn take_with(&mut self, values: &[u8], mut to_words: impl FnMut([__m256i; 4]) -> [__m256i; 2]) {
        let (mut count, mut at) = (0, 0);
        self.map = [0; STEPS];
        for (values, map) in values.chunks(STEP * VALUE_LEN).zip(&mut self.map) {
            // One loop for whole steps and the last one, so that all is inlined.
            let words = to_words(match values.first_chunk::<{ STEP * VALUE_LEN }>() {
                Some(whole) => [0, 32, 64, 96].map(|at| load_at(whole, at)),
                None => [0, 8, 16, 24].map(|first| load_part(values, first)),
            });
            self.words.put32(at, words[0]);
            self.words.put32(at + 32, words[1]);
            at += 2 * STEP;
            // Saturated, what is not zero stays so. Packing works in halves.
            let bytes = _mm256_packs_epi16(words[0], words[1]);
            let bytes = _mm256_permute4x64_epi64::<0b11_01_10_00>(bytes);
            *map = !_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_setzero_si256())) as u32;
            count += map.count_ones() as usize;
        }
        for more in [0, 32] {
            self.words.put32(at + more, _mm256_setzero_si256());
        }
        self.count = count;
    }

    /// Fills items from words.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn close_up(&mut self, count: usize) {
        let items = self.items.0.as_mut_ptr().cast::<u8>();
        let mut to = items;
        for (step, map) in self.map.iter().enumerate().take(count.div_ceil(STEP)) {
            for (octet, bits) in map.to_le_bytes().into_iter().enumerate() {
                // SAFETY: `take_with` has put the words of all steps.
                let words = unsafe { self.words.get16(2 * STEP * step + 16 * octet) };
                let closed = _mm_shuffle_epi8(words, load16(&CLOSE_UP[usize::from(bits)].0));
                // SAFETY: each octet before took at most 16 bytes of the items, which have room for
                // all and a step more.
                unsafe { _mm_storeu_si128(to.cast(), closed) };
                to = to.wrapping_add(2 * u32::from(bits).count_ones() as usize);
            }
        }
        let at = to.addr() - items.addr();
        for more in [0, 32, 64, 96] {
            self.items.put32(at + more, _mm256_setzero_si256());
        }
    }

    /// Encodes a section of `count` values, `raw_count` of them `raw`, to the start of `room`. None
    /// if there is too little room for stores beyond the end.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn encode(&mut self, count: usize, raw: &RawValues, raw_count: usize, room: &mut [u8]) -> Option<usize> {
        if self.count == 0 {
            *room.first_mut()? = mode::EMPTY;
            return Some(1);
        }
        if GROUP_ROOM * count.div_ceil(8) + MORE_ROOM + VALUE_LEN * raw_count > room.len() {
            return None;
        }
        if raw_count == 0 { self.encode_coded(count, room) } else { self.encode_raw(count, raw, room) }
    }

    /// Encodes a section of `count` values, none of them raw, to the start of `room`, which is
    /// large enough.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn encode_coded(&mut self, count: usize, room: &mut [u8]) -> Option<usize> {
        if 16 * self.count >= 13 * count {
            *room.first_mut()? = mode::DENSE;
            let ones = _mm256_set1_epi16(1);
            let all = put_groups::<false>(&mut self.words, count, room, 1, |words, values| {
                // One more, but for zeros.
                let is_zero = _mm256_cmpeq_epi16(words, _mm256_setzero_si256());
                _mm256_add_epi16(values, _mm256_add_epi16(ones, is_zero))
            });
            return all.map(|(len, _)| len);
        }
        self.close_up(count);
        let at = self.put_map(count, room)?;
        let all = put_groups::<false>(&mut self.items, self.count, room, at, |_, values| values);
        all.map(|(len, _)| len)
    }

    /// Writes mode and map; their length.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn put_map(&self, count: usize, room: &mut [u8]) -> Option<usize> {
        let octets = count.div_ceil(8);
        let presence_len = octets.div_ceil(8);
        let mut map = [0u64; STEPS / 2];
        for (to, [low, high]) in map.iter_mut().zip(self.map.as_chunks().0) {
            *to = u64::from(*low) | u64::from(*high) << 32;
        }
        let mut there = [0u64; STEPS / 2];
        let mut present = 0u64;
        for (half, (map, there)) in
            map.as_chunks::<4>().0.iter().zip(there.as_chunks_mut::<4>().0).enumerate()
        {
            // SAFETY: 32 readable bytes; no alignment is asked for.
            let map = unsafe { _mm256_loadu_si256(map.as_ptr().cast()) };
            let absent = _mm256_cmpeq_epi8(map, _mm256_setzero_si256());
            let bytes = _mm256_xor_si256(absent, _mm256_set1_epi8(-1));
            // SAFETY: 32 writable bytes; no alignment is asked for.
            unsafe { _mm256_storeu_si256(there.as_mut_ptr().cast(), bytes) };
            present |= u64::from(!_mm256_movemask_epi8(absent) as u32) << (32 * half);
        }
        // Without a branch: for many gradients, both are as likely.
        let two_level = presence_len + (present.count_ones() as usize) < octets;
        let (mode, presence_len, all) =
            if two_level { (mode::TWO_LEVEL, presence_len, 0) } else { (mode::FLAT, 0, u64::MAX) };
        // Presence bytes that are not there are written too, and then over.
        let [first, presence @ ..] = room.first_chunk_mut::<9>()?;
        (*first, *presence) = (mode, present.to_le_bytes());
        let room = room.get_mut(1 + presence_len..)?.first_chunk_mut::<{ MAX_OCTETS + 8 }>()?;
        let mut at = 0;
        for ((map, there), present) in map.into_iter().zip(there).zip((present | all).to_le_bytes()) {
            let bytes = _pext_u64(map, there | all).to_le_bytes();
            *room.get_mut(at..)?.first_chunk_mut()? = bytes;
            at += present.count_ones() as usize;
        }
        Some(1 + presence_len + at.min(octets))
    }

    /// Encodes a section of `count` values, some of them `raw`, to the start of `room`, which is
    /// large enough.
    #[inline(never)]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn encode_raw(&mut self, count: usize, raw: &RawValues, room: &mut [u8]) -> Option<usize> {
        self.close_up(count);
        let signs_at = self.put_map(count, room)?;
        let (len, lengths) =
            put_groups::<true>(&mut self.items, self.count, room, signs_at, |_, values| values)?;
        let groups = self.count.div_ceil(8);
        let (codes, groups) = room.get_mut(signs_at + groups..)?.split_at_mut_checked(groups.div_ceil(2))?;
        let mut raw_from = 0;
        // One loop over the groups of all blocks: its end is guessed wrong once, not once a block.
        let mut rest = raw_groups(lengths.is_raw);
        for _ in 0..rest.count_ones() {
            let group = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let (block, place) = (group / BLOCK_GROUPS, group % BLOCK_GROUPS);
            let is_raw = (lengths.is_raw.get(block)? >> (8 * place)) as u8;
            let [even, odd] = lengths.starts.get(block)?;
            let starts = if place.is_multiple_of(2) { even } else { odd };
            let planes_at = *starts.get(place / 2)? as usize;
            let code = codes.get_mut(group / 2)?;
            let shift = 4 * (group % 2);
            let width = *code >> shift & 15;
            *code |= RAW_GROUP << shift;
            *groups.get_mut(planes_at.checked_sub(2)?..)?.first_chunk_mut()? = [is_raw, width];
            // Not a register: the next group is there already.
            let values = groups.get_mut(planes_at + usize::from(width)..)?.as_chunks_mut::<VALUE_LEN>().0;
            for value in values.get_mut(..is_raw.count_ones() as usize)? {
                // SAFETY: `take` has put the raw values.
                *value = unsafe { raw.get4(raw_from) };
                raw_from += VALUE_LEN;
            }
        }
        Some(len)
    }
}

/// Words of integers, saturated: infinities, NaN and all that is too large stay too large.
#[inline]
#[target_feature(enable = "avx2")]
fn packed([a, b, c, d]: [__m256i; 4]) -> [__m256i; 2] {
    // Packing works in halves.
    [_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d)]
        .map(|words| _mm256_permute4x64_epi64::<0b11_01_10_00>(words))
}

/// Which of these magnitudes are of raw values. They are without sign: the one of the smallest
/// number is the largest.
#[inline]
#[target_feature(enable = "avx2")]
fn are_raw(magnitudes: __m256i) -> __m256i {
    _mm256_cmpeq_epi16(_mm256_max_epu16(magnitudes, _mm256_set1_epi16(RAW_FROM)), magnitudes)
}

/// Whether one of these words is of a raw value.
#[inline]
#[target_feature(enable = "avx2")]
fn has_raw(words: [__m256i; 2]) -> bool {
    let largest = _mm256_max_epu16(_mm256_abs_epi16(words[0]), _mm256_abs_epi16(words[1]));
    _mm256_movemask_epi8(are_raw(largest)) != 0
}

/// Writes those of eight values that are raw, of magnitudes from `raw_from` on, behind `count`
/// others; how many they are.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn close_up_raw(
    values: __m256i,
    magnitudes: __m256i,
    raw_from: i32,
    raw: &mut RawValues,
    count: usize,
) -> usize {
    let from = _mm256_set1_epi32(raw_from);
    let is_raw = _mm256_cmpeq_epi32(_mm256_max_epu32(magnitudes, from), magnitudes);
    let is_raw = _mm256_movemask_ps(_mm256_castsi256_ps(is_raw)) as u8;
    // From a shuffle of words' bytes to one of doublewords, of which three bits count.
    let places = _mm256_srli_epi32::<1>(_mm256_cvtepu16_epi32(load16(&CLOSE_UP[usize::from(is_raw)].0)));
    raw.put32(VALUE_LEN * count, _mm256_permutevar8x32_epi32(values, places));
    u32::from(is_raw).count_ones() as usize
}

/// Writes signs, codes and planes of `count` items at `signs_at`; where they end, and where planes
/// start. `plane_values` makes plane values of words and half their magnitudes. If `RAW`, some
/// items may be raw: there is room for what else their groups need, and it is not written. None if
/// `room` is too small.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn put_groups<const RAW: bool>(
    items: &mut Words,
    count: usize,
    room: &mut [u8],
    signs_at: usize,
    plane_values: impl Fn(__m256i, __m256i) -> __m256i,
) -> Option<(usize, Lengths)> {
    let groups = count.div_ceil(8);
    let codes_len = groups.div_ceil(2);
    let blocks = groups.div_ceil(BLOCK_GROUPS);
    let room = room.get_mut(signs_at..)?;
    let lengths = Lengths::of::<RAW>(items, groups, room.first_chunk_mut()?, plane_values);
    let room = room.get_mut(groups..)?;
    let (codes, _) = lengths.codes.as_flattened().split_first_chunk::<MAX_CODES>()?;
    *room.first_chunk_mut()? = *codes;
    let room = room.get_mut(codes_len..)?;
    // Compared once for all stores below: no planes start behind the end of the groups, and no
    // store is longer than 16 bytes.
    if room.len() < lengths.groups + 16 {
        return None;
    }
    let to = room.as_mut_ptr();
    let few = _mm256_movemask_epi8(_mm256_cmpgt_epi32(lengths.most, _mm256_set1_epi32(0xff))) == 0;
    if few {
        for (block, [even, odd]) in lengths.starts.iter().enumerate().take(blocks) {
            for half in 0..2 {
                let planes = byte_planes(items, block, half);
                let (low, high) = (_mm256_castsi256_si128(planes), _mm256_extracti128_si256::<1>(planes));
                let groups = [
                    (even[2 * half], low),
                    (odd[2 * half], high),
                    (even[2 * half + 1], _mm_unpackhi_epi64(low, low)),
                    (odd[2 * half + 1], _mm_unpackhi_epi64(high, high)),
                ];
                for (at, planes) in groups {
                    // SAFETY: as compared.
                    unsafe { _mm_storel_epi64(to.wrapping_add(at as usize).cast(), planes) };
                }
            }
        }
    } else {
        for (block, [even, odd]) in lengths.starts.iter().enumerate().take(blocks) {
            for (pair, planes) in word_planes(items, block).into_iter().enumerate() {
                let groups = [
                    (even[pair], _mm256_castsi256_si128(planes)),
                    (odd[pair], _mm256_extracti128_si256::<1>(planes)),
                ];
                for (at, planes) in groups {
                    // SAFETY: as compared.
                    unsafe { _mm_storeu_si128(to.wrapping_add(at as usize).cast(), planes) };
                }
            }
        }
    }
    Some((signs_at + groups + codes_len + lengths.groups, lengths))
}

/// Lengths of groups, from the largest plane value of each.
struct Lengths {
    /// A code for each group, as if none had raw items.
    codes: [[u8; 4]; BLOCKS],
    /// The starts of each group's planes: of those with even numbers, and of those with odd ones.
    starts: [[[u32; 4]; 2]; BLOCKS],
    /// All groups.
    groups: usize,
    /// Which items are raw: a byte for each group.
    is_raw: [u64; BLOCKS],
    /// The largest plane values.
    most: __m256i,
}

impl Lengths {
    /// Makes plane values of words, and writes the signs. If `RAW`, items may be raw.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn of<const RAW: bool>(
        items: &mut Words,
        groups: usize,
        signs: &mut [u8; MAX_OCTETS],
        plane_values: impl Fn(__m256i, __m256i) -> __m256i,
    ) -> Self {
        let mut codes = [[0; 4]; BLOCKS];
        let mut starts = [[[0; 4]; 2]; BLOCKS];
        let mut is_raw = [0; BLOCKS];
        let mut base = _mm_setzero_si128();
        let mut most = _mm256_setzero_si256();
        let blocks = codes.iter_mut().zip(&mut starts).zip(signs.as_chunks_mut::<BLOCK_GROUPS>().0);
        for (block, (((codes, [even_starts, odd_starts]), signs), is_raw)) in
            blocks.zip(&mut is_raw).enumerate().take(groups.div_ceil(BLOCK_GROUPS))
        {
            let at = BLOCK_LEN * block;
            // SAFETY: the items have been put to the end of their last block.
            let mut words = [at, at + 32, at + 64, at + 96].map(|at| unsafe { items.get32(at) });
            if RAW {
                let raw = words.map(|words| are_raw(_mm256_abs_epi16(words)));
                words = core::array::from_fn(|at| _mm256_andnot_si256(raw[at], words[at]));
                *is_raw = bits_of_block(raw);
            }
            *signs = bits_of_block(words).to_le_bytes();
            let values =
                words.map(|words| plane_values(words, _mm256_srli_epi16::<1>(_mm256_abs_epi16(words))));
            for (value, at) in values.into_iter().zip([at, at + 32, at + 64, at + 96]) {
                items.put32(at, value);
            }
            // The largest of each group, even groups in the lower half.
            let [a, b, c, d] = values;
            let low = _mm256_max_epu16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
            let high = _mm256_max_epu16(_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d));
            let (low, high) = (_mm256_castsi256_ps(low), _mm256_castsi256_ps(high));
            let [even, odd] = [
                _mm256_shuffle_ps::<0b10_00_10_00>(low, high),
                _mm256_shuffle_ps::<0b11_01_11_01>(low, high),
            ];
            let largest = _mm256_max_epu16(_mm256_castps_si256(even), _mm256_castps_si256(odd));
            let largest = _mm256_max_epu16(largest, _mm256_srli_epi32::<16>(largest));
            let largest = _mm256_and_si256(largest, _mm256_set1_epi32(0xffff));
            most = _mm256_max_epu16(most, largest);
            // A float's exponent tells the bits of a number.
            let exponents = _mm256_srli_epi32::<23>(_mm256_castps_si256(_mm256_cvtepi32_ps(largest)));
            let widths = _mm256_subs_epu16(exponents, _mm256_set1_epi32(126));
            let widths = _mm256_min_epi16(widths, _mm256_set1_epi32(MAX_WIDTH.into()));
            let (even, odd) = (_mm256_castsi256_si128(widths), _mm256_extracti128_si256::<1>(widths));
            let pairs = _mm_or_si128(even, _mm_slli_epi32::<4>(odd));
            let first_bytes = _mm_setr_epi8(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
            *codes = _mm_cvtsi128_si32(_mm_shuffle_epi8(pairs, first_bytes)).to_le_bytes();
            // Bytes before the planes, and before and behind them.
            let (heads, more) =
                if RAW { raw_lengths(*is_raw) } else { ([_mm_setzero_si128(); 2], [_mm_setzero_si128(); 2]) };
            let (even_len, odd_len) = (_mm_add_epi32(even, more[0]), _mm_add_epi32(odd, more[1]));
            // Sums of all before.
            let both = _mm_add_epi32(even_len, odd_len);
            let sums = _mm_add_epi32(both, _mm_slli_si128::<4>(both));
            let sums = _mm_add_epi32(sums, _mm_slli_si128::<8>(sums));
            let starts = _mm_add_epi32(base, _mm_sub_epi32(sums, both));
            put_words(even_starts, _mm_add_epi32(starts, heads[0]));
            put_words(odd_starts, _mm_add_epi32(_mm_add_epi32(starts, even_len), heads[1]));
            base = _mm_add_epi32(base, _mm_shuffle_epi32::<0b11_11_11_11>(sums));
        }
        Self { codes, starts, groups: _mm_cvtsi128_si32(base) as usize, is_raw, most }
    }
}

/// A bit for each group that has raw items, of a byte for each group.
#[inline]
#[target_feature(enable = "avx2")]
fn raw_groups(is_raw: [u64; BLOCKS]) -> u64 {
    let [a, b, c, d, e, f, g, h] = is_raw.map(|block| block as i64);
    let [low, high] = [_mm256_set_epi64x(d, c, b, a), _mm256_set_epi64x(h, g, f, e)]
        .map(|bytes| _mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_setzero_si256())) as u32);
    !(u64::from(low) | u64::from(high) << 32)
}

/// By which items of eight groups are raw, a byte for each group: the bytes that a group has before
/// its planes, and all that it has beside them; each of the groups with even numbers, and of those
/// with odd ones.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn raw_lengths(is_raw: u64) -> ([__m128i; 2], [__m128i; 2]) {
    let bytes = _mm_cvtsi64_si128(is_raw as i64);
    let ones_of = _mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
    let low = _mm_set1_epi8(15);
    let ones = _mm_add_epi8(
        _mm_shuffle_epi8(ones_of, _mm_and_si128(bytes, low)),
        _mm_shuffle_epi8(ones_of, _mm_and_si128(_mm_srli_epi16::<4>(bytes), low)),
    );
    let heads = _mm_min_epu8(_mm_add_epi8(ones, ones), _mm_set1_epi8(2));
    let more = _mm_add_epi8(heads, _mm_slli_epi16::<2>(ones));
    let even = _mm_setr_epi8(0, -1, -1, -1, 2, -1, -1, -1, 4, -1, -1, -1, 6, -1, -1, -1);
    let odd = _mm_setr_epi8(1, -1, -1, -1, 3, -1, -1, -1, 5, -1, -1, -1, 7, -1, -1, -1);
    ([even, odd].map(|of| _mm_shuffle_epi8(heads, of)), [even, odd].map(|of| _mm_shuffle_epi8(more, of)))
}

/// Of 32 plane values below 2^8, half a block, the 8 planes of each group: the first and the third,
/// the second and the last.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn byte_planes(values: &Words, block: usize, half: usize) -> __m256i {
    let at = BLOCK_LEN * block + 64 * half;
    // SAFETY: the values have been put to the end of their last block.
    let [low, high] = [at, at + 32].map(|at| unsafe { values.get32(at) });
    turned(_mm256_packus_epi16(low, high))
}

/// Of a block of plane values, the 16 planes of each group.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn word_planes(values: &Words, block: usize) -> [__m256i; 4] {
    let by_byte =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    [0, 32, 64, 96].map(|at| {
        // SAFETY: the values have been put to the end of their last block.
        let values = unsafe { values.get32(BLOCK_LEN * block + at) };
        turned(_mm256_shuffle_epi8(values, by_byte))
    })
}

/// The highest bit of each of a block's words.
#[inline]
#[target_feature(enable = "avx2")]
fn bits_of_block([a, b, c, d]: [__m256i; 4]) -> u64 {
    u64::from(bits([a, b])) | u64::from(bits([c, d])) << 32
}

/// The highest bit of each of 32 words.
#[inline]
#[target_feature(enable = "avx2")]
fn bits([low, high]: [__m256i; 2]) -> u32 {
    // Packing works in halves.
    let bytes = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi16(low, high));
    _mm256_movemask_epi8(bytes) as u32
}

/// The 32 bytes at `at`, which must be there.
#[inline]
#[target_feature(enable = "avx2")]
fn load_at(bytes: &[u8], at: usize) -> __m256i {
    load32(bytes.get(at..).and_then(|bytes| bytes.first_chunk()).unwrap_or(&[0; 32]))
}

/// At most 8 values from the one numbered `first` on, and zeros behind.
#[inline]
#[target_feature(enable = "avx2")]
fn load_part(values: &[u8], first: i32) -> __m256i {
    let count = _mm256_set1_epi32((values.len() / VALUE_LEN) as i32 - first);
    let there = _mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    // An address near the values, also where nothing is read: processors take long to find out that
    // none of a page is.
    let from = values.as_ptr().wrapping_add(VALUE_LEN * first as usize);
    // SAFETY: of the 8 words only those whose mask is set are read, and no more are set than there
    // are values.
    unsafe { _mm256_maskload_epi32(from.cast(), there) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn put_words(to: &mut [u32; 4], words: __m128i) {
    // SAFETY: 16 writable bytes; no alignment is asked for.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), words) };
}
