//! AVX2 with BMI2: byte shuffles from tables stand for the codec's shifter trees, four lanes at a
//! time.
//!
//! This is shorter than the AVX-512 kernel translated: values are scaled by adding to the exponent,
//! the conversion itself shows which lanes are raw, and one `lea` and one `pext` make the tags. The
//! number of instructions bounds it.

use core::arch::x86_64::*;

use super::super::ahead::{AHEAD, NIBBLE_LENS, decode_ahead};
use super::super::loops::{Burst, WINDOW_LEN, Window, encode_steps, encode_with};
use super::super::numbers::{bytes_of, bytes_of_mut};
use super::super::tables::{BYTE_MASKS, CLOSE_UP, Placing, SPREAD_OUT};
use super::super::units::{self, SIMPLE_BELOW, one_by};
use super::{load16, load32, store};
use crate::checksum::Sum;
use crate::codec::{BURST_LEN, EncodeError, MAX_GROUP_LEN, Params, TAGS_LEN, VALUE_LEN};
use crate::sums::{BLOCK_VALUES, NAN_BITS, NOT_A_NUMBER, Unit};
use crate::values;

cpufeatures::new!(cpu, "avx2", "bmi1", "bmi2", "popcnt");

token!(Avx2);

impl Avx2 {
    pub(in super::super) fn sum_and_may_be_implausible(self, values: &[u8]) -> (Sum, bool) {
        // SAFETY: the callee needs these features and nothing else; `self` proves them.
        unsafe { sum_and_may_be_implausible(values) }
    }
}

/// Two bursts a step share the loop's own instructions.
const STEP: usize = 2 * BURST_LEN;
/// A group of at most 34 bytes, and a window.
const ROOM: usize = MAX_GROUP_LEN + WINDOW_LEN;

/// The Internet checksum's sum (RFC 1071 §2): of words of 32 bits, whose carries the 64 bits of a
/// sum have room for. Words are added in pairs, 64 bits wide, and their high halves once more: what
/// these make of the first sum can be taken away again.
struct Sums {
    pairs: __m256i,
    high: __m256i,
}

impl Sums {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Self {
        Self { pairs: _mm256_setzero_si256(), high: _mm256_setzero_si256() }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(&mut self, words: __m256i) {
        self.pairs = _mm256_add_epi64(self.pairs, words);
        self.high = _mm256_add_epi64(self.high, _mm256_srli_epi64::<32>(words));
    }

    /// The sum of `bytes`, whose whole words have been added.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn of(self, bytes: &[u8]) -> Sum {
        let low = _mm256_sub_epi64(self.pairs, _mm256_slli_epi64::<32>(self.high));
        let sums = _mm256_add_epi64(low, self.high);
        let sums = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
        let sum = _mm_cvtsi128_si64(sums).wrapping_add(_mm_extract_epi64::<1>(sums)) as u64;
        Sum::from_le_words(sum + Sum::part_of_le_word(bytes))
    }
}

/// The least and the greatest magnitude, nearly: [`values::any_may_be_implausible`].
struct Extremes {
    /// Magnitudes, doubled and less one: zero is no minimum.
    least: __m256i,
    /// The bits of all.
    all: __m256i,
}

impl Extremes {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new() -> Self {
        Self { least: _mm256_set1_epi32(-1), all: _mm256_setzero_si256() }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(&mut self, words: __m256i) {
        let less = _mm256_add_epi32(_mm256_slli_epi32::<1>(words), _mm256_set1_epi32(-1));
        self.least = _mm256_min_epu32(self.least, less);
        self.all = _mm256_or_si256(self.all, words);
    }

    /// Whether one of `values`, all of which have been added, may be implausible.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn of(self, values: &[u8]) -> bool {
        // To the sign, of which there is a mask.
        let large = _mm256_slli_epi32::<{ 31 - values::FROM_TWO.trailing_zeros() as i32 }>(self.all);
        let below = _mm256_set1_epi32(values::SUBNORMAL_BELOW as i32 - 1);
        let subnormal = _mm256_cmpeq_epi32(_mm256_min_epu32(self.least, below), self.least);
        _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_or_si256(large, subnormal))) != 0
            && values::any_may_be_implausible(values)
    }
}

/// Gives all whole words of `bytes` to `add`, zeros behind the last.
#[inline]
#[target_feature(enable = "avx2")]
fn for_each_8_words(bytes: &[u8], mut add: impl FnMut(__m256i)) {
    let (words, _) = bytes.as_chunks::<VALUE_LEN>();
    let (chunks, rest) = words.as_flattened().as_chunks();
    for chunk in chunks {
        add(load32(chunk));
    }
    add(load_part(rest));
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn sum(bytes: &[u8]) -> Sum {
    let mut sums = Sums::new();
    for_each_8_words(bytes, |words| sums.add(words));
    sums.of(bytes)
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn any_may_be_implausible(values: &[u8]) -> bool {
    let mut extremes = Extremes::new();
    for_each_8_words(values, |words| extremes.add(words));
    extremes.of(values)
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn sum_and_may_be_implausible(values: &[u8]) -> (Sum, bool) {
    let (mut sums, mut extremes) = (Sums::new(), Extremes::new());
    for_each_8_words(values, |words| {
        sums.add(words);
        extremes.add(words);
    });
    (sums.of(values), extremes.of(values))
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn add(units: &[i32; BLOCK_VALUES], sums: &mut [i32; BLOCK_VALUES]) -> i32 {
    units::add(units, sums)
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn to_units(values: &mut [i32], unit: Unit) -> u32 {
    units::to_units(values, unit)
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn encode(values: &[u8], groups: &mut [u8], params: Params) -> Result<usize, EncodeError> {
    encode_with(
        values,
        groups,
        params,
        |values| load_step(values),
        |part| load_part_step(part),
        stepper(params),
    )
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn encode_result(sums: &[i32], groups: &mut [u8], params: Params, unit: Unit) -> Option<usize> {
    let scale = _mm256_set1_ps(unit.value());
    let to_values = |sums| {
        let values = _mm256_castps_si256(_mm256_mul_ps(_mm256_cvtepi32_ps(sums), scale));
        let is_no_number = _mm256_cmpeq_epi32(sums, _mm256_set1_epi32(NOT_A_NUMBER));
        _mm256_blendv_epi8(values, _mm256_set1_epi32(NAN_BITS as i32), is_no_number)
    };
    encode_steps(
        bytes_of(sums),
        groups,
        |sums: &[u8; STEP]| load_step(sums).map(to_values),
        |part| load_part_step(part).map(to_values),
        stepper(params),
    )
    .ok()
}

/// Two bursts.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn load_step(values: &[u8; STEP]) -> [__m256i; 2] {
    let (low, high) = values.split_at(BURST_LEN);
    [low, high].map(|burst| load32(burst.first_chunk().unwrap_or(&[0; BURST_LEN])))
}

/// Fewer than two bursts, and zeros behind.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn load_part_step(part: &[u8]) -> [__m256i; 2] {
    let (low, high) = part.split_at(part.len().min(BURST_LEN));
    [load_part(low), load_part(high)]
}

/// From two bursts of values to groups.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn stepper(params: Params) -> impl Fn(&[__m256i; 2], &mut [u8; ROOM]) -> usize {
    let burst = packer(params);
    move |&[low, high], room| {
        let low_len = room.first_chunk_mut().map_or(0, |room| burst(low, room));
        let high_room = room.get_mut(low_len..).and_then(|room| room.first_chunk_mut());
        low_len + high_room.map_or(0, |room| burst(high, room))
    }
}

/// From values to groups.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn packer(params: Params) -> impl Fn(__m256i, &mut [u8; WINDOW_LEN]) -> usize {
    let (b, h, r) = (params.byte_from(), params.half_from(), params.raw_from());
    // A lane's bytes 3, 2, 1, 0 are set from these biased exponents on: as many as are kept, but
    // not the same ones.
    let borders = _mm256_set1_epi32((h << 24 | b << 16 | r << 8 | r) as i32);
    let raw_from = _mm256_set1_epi32((r << 24) as i32);
    // `Placing::byte_up` as an exponent, and what `Placing::half_up` is less.
    let (k, x) = (i32::from(params.k()), i32::from(params.x()));
    let byte_up = _mm256_set1_epi32((31 + k - x) << 24);
    let half_less = _mm256_set1_epi32(k << 24);
    let sign_bit = _mm256_set1_epi32(i32::MIN);
    // Byte 3 of each lane, four times.
    let spread =
        _mm256_broadcastsi128_si256(_mm_set_epi8(15, 15, 15, 15, 11, 11, 11, 11, 7, 7, 7, 7, 3, 3, 3, 3));

    move |f, room| {
        // Without the sign the exponent is in byte 3.
        let magnitude = _mm256_add_epi32(f, f);
        let exponent = _mm256_shuffle_epi8(magnitude, spread);
        let kept = _mm256_cmpeq_epi8(_mm256_max_epu8(exponent, borders), exponent);
        let keep = _mm256_movemask_epi8(kept) as u32;

        // Scaled by adding to the exponent: no subnormal reaches a multiplier. What becomes of
        // lanes below the byte class does not matter; raw lanes become 2^31, which no exponent
        // takes beyond its byte.
        let magnitude = _mm256_add_epi32(_mm256_min_epu32(magnitude, raw_from), byte_up);
        let magnitude = _mm256_sub_epi32(magnitude, _mm256_and_si256(kept, half_less));
        // The truncating conversion is the shift by the exponent. Of 2^31 it makes the negative
        // number that says that it does not fit: there the value itself is taken.
        let fraction = _mm256_cvttps_epi32(_mm256_castsi256_ps(_mm256_srli_epi32::<1>(magnitude)));
        let fraction = _mm256_castsi256_ps(fraction);
        let placed = _mm256_blendv_ps(fraction, _mm256_castsi256_ps(f), fraction);
        let placed = _mm256_or_si256(_mm256_castps_si256(placed), _mm256_and_si256(f, sign_bit));

        // Three times 0000, 0100, 1100, 1111 has the tag at bits 5 and 3, and no lane's bits meet
        // its neighbour's.
        let tags = _pext_u64(3 * u64::from(keep), 0x2_aaaa_aaa8) as u16;
        let [low_tags, high_tags] = tags.to_le_bytes();
        let shuffle = both(&CLOSE_UP[usize::from(low_tags)].0, &CLOSE_UP[usize::from(high_tags)].0);
        let vectors = _mm256_shuffle_epi8(placed, shuffle);
        let low_len = (keep as u16).count_ones() as usize;
        (room[0], room[1]) = (low_tags, high_tags);
        put16(room, TAGS_LEN, _mm256_castsi256_si128(vectors));
        put16(room, TAGS_LEN + low_len, _mm256_extracti128_si256::<1>(vectors));
        TAGS_LEN + keep.count_ones() as usize
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn decode(groups: &[u8], values: &mut [u8], params: Params) -> Option<usize> {
    let Placing { byte_down, half_down, .. } = Placing::new(params);
    // By tag; the multiplier of raw lanes does not matter.
    let down = by_tag([0.0, byte_down, half_down, 0.0]);
    let sign_bit = _mm256_set1_epi32(i32::MIN);
    decode_bursts(groups, values, |placed, tags| {
        let magnitude = _mm256_cvtepi32_ps(_mm256_andnot_si256(sign_bit, placed));
        // vpermilps looks at the two low bits of each lane: its tag.
        let value = _mm256_mul_ps(magnitude, _mm256_permutevar_ps(down, tags));
        let value = _mm256_or_si256(_mm256_castps_si256(value), _mm256_and_si256(placed, sign_bit));
        _mm256_blendv_epi8(value, placed, is_raw(tags))
    })
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn decode_units(groups: &[u8], units: &mut [i32], params: Params, unit: Unit) -> Option<usize> {
    let Placing { byte_down, half_down, .. } = Placing::new(params);
    // Powers of two, so that it is the same to multiply by both at once.
    let up = one_by(unit);
    let down = by_tag([0.0, byte_down * up, half_down * up, up]);
    let sign_bit = _mm256_set1_epi32(i32::MIN);
    let mut greatest = _mm256_setzero_si256();
    let len = decode_bursts(groups, bytes_of_mut(units), |placed, tags| {
        let magnitude = _mm256_andnot_si256(sign_bit, placed);
        let coded = _mm256_castps_si256(_mm256_cvtepi32_ps(magnitude));
        let magnitude = _mm256_castsi256_ps(_mm256_blendv_epi8(coded, magnitude, is_raw(tags)));
        let magnitude = _mm256_castps_si256(_mm256_mul_ps(magnitude, _mm256_permutevar_ps(down, tags)));
        greatest = _mm256_max_epu32(greatest, magnitude);
        let signed = _mm256_or_si256(magnitude, _mm256_and_si256(placed, sign_bit));
        _mm256_cvtps_epi32(_mm256_castsi256_ps(signed))
    })?;
    // Without their signs, magnitudes are as large signed as unsigned.
    let simple = _mm256_cmpgt_epi32(_mm256_set1_epi32(SIMPLE_BELOW as i32), greatest);
    (_mm256_movemask_epi8(simple) == -1).then_some(len)
}

/// Decodes groups until `to` is full of what `finish` makes of each burst's placed lanes, and of
/// its tags, which are the two low bits of each lane.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn decode_bursts(
    groups: &[u8],
    to: &mut [u8],
    mut finish: impl FnMut(__m256i, __m256i) -> __m256i,
) -> Option<usize> {
    let lanes = _mm256_set_epi32(14, 12, 10, 8, 6, 4, 2, 0);
    decode_ahead(
        groups,
        to,
        |bytes, lens| ahead(bytes, lens),
        |window: &Window, to: &mut Burst| {
            let (low_tags, high_tags) = (usize::from(window[0]), usize::from(window[1]));
            let low_len = BYTE_MASKS[low_tags].count_ones() as usize;
            let vectors = _mm256_set_m128i(get16(window, TAGS_LEN + low_len), get16(window, TAGS_LEN));
            let placed =
                _mm256_shuffle_epi8(vectors, both(&SPREAD_OUT[low_tags].0, &SPREAD_OUT[high_tags].0));
            let tags = _mm256_set1_epi32((high_tags << 8 | low_tags) as i32);
            store(to, finish(placed, _mm256_srlv_epi32(tags, lanes)));
        },
    )
}

/// The vector from which `vpermilps` chooses by a tag.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn by_tag([zero, byte, half, raw]: [f32; 4]) -> __m256 {
    _mm256_setr_ps(zero, byte, half, raw, zero, byte, half, raw)
}

/// All bits of the lanes whose tag says so.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn is_raw(tags: __m256i) -> __m256i {
    let three = _mm256_set1_epi32(3);
    _mm256_cmpeq_epi32(_mm256_and_si256(tags, three), three)
}

/// At most 8 values, and zeros behind.
#[inline]
#[target_feature(enable = "avx2")]
fn load_part(values: &[u8]) -> __m256i {
    let count = _mm256_set1_epi32((values.len() / VALUE_LEN) as i32);
    let there = _mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    // SAFETY: of the 8 words only those whose mask is set are read, and as many are set as `values`
    // has.
    unsafe { _mm256_maskload_epi32(values.as_ptr().cast(), there) }
}

/// For each of 64 offsets the length of a group that starts there.
#[inline]
#[target_feature(enable = "avx2")]
fn ahead(bytes: &[u8; AHEAD + 1], lens: &mut [u8; AHEAD]) {
    let nibble_lens = _mm256_broadcastsi128_si256(load16(&NIBBLE_LENS));
    let nibble = _mm256_set1_epi8(15);
    let vectors_len = |tags| {
        let low = _mm256_shuffle_epi8(nibble_lens, _mm256_and_si256(tags, nibble));
        let high = _mm256_shuffle_epi8(nibble_lens, _mm256_and_si256(_mm256_srli_epi16::<4>(tags), nibble));
        _mm256_add_epi8(low, high)
    };
    for (half, lens) in lens.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let load =
            |at: usize| load32(bytes.get(at..).and_then(|bytes| bytes.first_chunk()).unwrap_or(&[0; 32]));
        let (low, high) = (load(32 * half), load(32 * half + 1));
        let len = _mm256_add_epi8(vectors_len(low), vectors_len(high));
        store(lens, _mm256_add_epi8(len, _mm256_set1_epi8(2)));
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn both(low: &[u8; 16], high: &[u8; 16]) -> __m256i {
    _mm256_set_m128i(load16(high), load16(low))
}

/// The 16 bytes at `at`, which is at most 18.
#[inline]
#[target_feature(enable = "avx2")]
fn get16(window: &Window, at: usize) -> __m128i {
    load16(window.get(at..).and_then(|window| window.first_chunk()).unwrap_or(&[0; 16]))
}

/// Writes 16 bytes at `at`, which is at most 18.
#[inline]
#[target_feature(enable = "avx2")]
fn put16(room: &mut [u8; WINDOW_LEN], at: usize, bytes: __m128i) {
    let Some(to) = room.get_mut(at..).and_then(|room| room.first_chunk_mut::<16>()) else { return };
    // SAFETY: 16 writable bytes; no alignment is asked for.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), bytes) };
}
