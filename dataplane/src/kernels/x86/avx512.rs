//! AVX-512 with VBMI2: the byte-wise compress and expand instructions are the codec's shifter
//! trees. A mask of bytes is all that differs between placed lanes (`tables.rs`).
//!
//! One step encodes 16 lanes. A truncating conversion to integers does the codec's shift by the
//! exponent. One unsigned byte compare with the three class borders gives the bytes to keep and,
//! through one `pext`, the tags. Only the output offset is carried from step to step, by one add,
//! so latency does not count; port 5 does.

use core::arch::x86_64::*;

use super::super::ahead::{AHEAD, NIBBLE_LENS, decode_ahead};
use super::super::loops::{Burst, Window, encode_steps, encode_with};
use super::super::numbers::{bytes_of, bytes_of_mut};
use super::super::tables::Placing;
use super::super::units::{self, SIMPLE_BELOW, one_by};
use super::{get_group, load16, put_group, store};
use crate::checksum::Sum;
use crate::codec::{EncodeError, MAX_GROUP_LEN, Params, VALUE_LEN};
use crate::sums::{BLOCK_VALUES, NAN_BITS, NOT_A_NUMBER, Unit};
use crate::values;

cpufeatures::new!(
    cpu,
    "avx512f",
    "avx512bw",
    "avx512dq",
    "avx512cd",
    "avx512vl",
    "avx512vbmi",
    "avx512vbmi2",
    "avx512bitalg",
    "gfni",
    "avx2",
    "bmi1",
    "bmi2",
    "popcnt"
);

token!(Avx512);

/// Two bursts a step: 16 lanes fill a register.
const STEP: usize = 64;
/// Two groups of at most 34 bytes; each store is 32 bytes wide behind 2 bytes of tags, so it ends
/// within them.
const ROOM: usize = 2 * MAX_GROUP_LEN;

/// The sum of words: RFC 1071 §2, of 32 bits each, whose carries the 64 bits of a sum have room
/// for.
pub(in crate::kernels) struct Sums {
    /// Words are added in pairs, 64 bits wide, ...
    pairs: __m512i,
    /// ... and their high halves once more: what these make of the first sum can be taken away
    /// again.
    high: __m512i,
}

impl Sums {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(in crate::kernels) fn new() -> Self {
        Self { pairs: _mm512_setzero_si512(), high: _mm512_setzero_si512() }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(in crate::kernels) fn add(&mut self, words: __m512i) {
        self.pairs = _mm512_add_epi64(self.pairs, words);
        self.high = _mm512_add_epi64(self.high, _mm512_srli_epi64::<32>(words));
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(in crate::kernels) fn sum(self) -> Sum {
        let low = _mm512_sub_epi64(self.pairs, _mm512_slli_epi64::<32>(self.high));
        Sum::from_le_words(_mm512_reduce_add_epi64(_mm512_add_epi64(low, self.high)) as u64)
    }
}

/// The least and the greatest magnitude, nearly: [`values::any_may_be_implausible`].
pub(in crate::kernels) struct Extremes {
    /// The bits of all whose exponent is zero.
    // Not by floating-point classes, which depend on the thread's MXCSR.
    tiny: __m512i,
    /// The bits of all.
    all: __m512i,
}

impl Extremes {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(in crate::kernels) fn new() -> Self {
        Self { tiny: _mm512_setzero_si512(), all: _mm512_setzero_si512() }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(in crate::kernels) fn add(&mut self, words: __m512i) {
        let is_tiny = _mm512_testn_epi32_mask(words, _mm512_set1_epi32(values::EXPONENT as i32));
        self.tiny = _mm512_mask_or_epi32(self.tiny, is_tiny, self.tiny, words);
        self.all = _mm512_or_si512(self.all, words);
    }

    /// Whether one of `values`, all of which have been added, may be implausible.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(in crate::kernels) fn of(&self, values: &[u8]) -> bool {
        // But for signs, zeros have no bits.
        let subnormal = _mm512_test_epi32_mask(self.tiny, _mm512_set1_epi32(i32::MAX));
        let large = _mm512_test_epi32_mask(self.all, _mm512_set1_epi32(values::FROM_TWO as i32));
        (subnormal | large) != 0 && values::any_may_be_implausible(values)
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn sum(bytes: &[u8]) -> Sum {
    let (chunks, rest) = bytes.as_chunks();
    let mut sums = Sums::new();
    for chunk in chunks {
        sums.add(load64(chunk));
    }
    sums.add(load_part(rest));
    sums.sum()
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn add(units: &[i32; BLOCK_VALUES], sums: &mut [i32; BLOCK_VALUES]) -> i32 {
    units::add(units, sums)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn to_units(values: &mut [i32], unit: Unit) -> u32 {
    units::to_units(values, unit)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn any_may_be_implausible(values: &[u8]) -> bool {
    let (words, _) = values.as_chunks::<VALUE_LEN>();
    let (chunks, rest) = words.as_flattened().as_chunks();
    let mut extremes = Extremes::new();
    for chunk in chunks {
        extremes.add(load64(chunk));
    }
    extremes.add(load_part(rest));
    extremes.of(values)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn encode(values: &[u8], groups: &mut [u8], params: Params) -> Result<usize, EncodeError> {
    encode_with(
        values,
        groups,
        params,
        |values: &[u8; STEP]| load64(values),
        |part| load_part(part),
        stepper(params),
    )
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn encode_result(sums: &[i32], groups: &mut [u8], params: Params, unit: Unit) -> Option<usize> {
    let scale = _mm512_set1_ps(unit.value());
    let to_values = |sums| {
        let values = _mm512_castps_si512(_mm512_mul_ps(_mm512_cvtepi32_ps(sums), scale));
        let is_no_number = _mm512_cmpeq_epi32_mask(sums, _mm512_set1_epi32(NOT_A_NUMBER));
        _mm512_mask_mov_epi32(values, is_no_number, _mm512_set1_epi32(NAN_BITS as i32))
    };
    encode_steps(
        bytes_of(sums),
        groups,
        |sums: &[u8; STEP]| to_values(load64(sums)),
        |part| to_values(load_part(part)),
        stepper(params),
    )
    .ok()
}

/// A lane's bytes 3, 2, 1, 0 are kept from these biased exponents on.
fn borders(params: Params) -> i32 {
    let (byte, half, raw) = (params.byte_from(), params.half_from(), params.raw_from());
    (byte << 24 | half << 16 | raw << 8 | raw) as i32
}

/// From values to groups.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn stepper(params: Params) -> impl Fn(&__m512i, &mut [u8; ROOM]) -> usize {
    let Placing { byte_up, half_up, .. } = Placing::new(params);
    let borders = _mm512_set1_epi32(borders(params));
    // The smallest magnitude of each class but zero.
    let [byte_from, half_from, raw_from] = [params.byte_from(), params.half_from(), params.raw_from()]
        .map(|exponent| _mm512_set1_epi32((exponent << 23) as i32));
    let byte_up = _mm512_set1_ps(byte_up);
    let half_up = _mm512_set1_ps(half_up);
    let magnitude_bits = _mm512_set1_epi32(0x7fff_ffff);
    // Byte 3 of each lane, four times.
    let spread = _mm512_broadcast_i32x4(_mm_set_epi8(15, 15, 15, 15, 11, 11, 11, 11, 7, 7, 7, 7, 3, 3, 3, 3));

    move |&f, room| {
        // The exponent, in byte 3.
        let exponent = _mm512_slli_epi32::<1>(f);
        // Per lane 0000, 1000, 1100 or 1111: zero, byte, half, raw.
        let keep = _mm512_cmpge_epu8_mask(_mm512_shuffle_epi8(exponent, spread), borders);
        // What is below the byte class is not kept; no subnormal may reach the multiplier.
        let magnitude = _mm512_max_epu32(_mm512_and_si512(f, magnitude_bits), byte_from);
        let half = _mm512_cmpge_epu32_mask(magnitude, half_from);
        let coded = _mm512_cmplt_epu32_mask(magnitude, raw_from);
        // The truncating conversion is the shift by the exponent.
        let up = _mm512_mask_blend_ps(half, byte_up, half_up);
        let fraction = _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_castsi512_ps(magnitude), up));
        // The sign of the value over the fraction; raw lanes are the value itself.
        let placed = _mm512_mask_ternarylogic_epi32::<0xd8>(f, coded, fraction, magnitude_bits);

        // t0 is set if an odd number of bits of the nibble's upper three is, t1 is bit 2.
        let tags =
            _pext_u64(keep ^ ((keep >> 1 ^ keep >> 2) & 0x2222_2222_2222_2222), 0x6666_6666_6666_6666) as u32;
        let (low_keep, high_keep) = (keep as u32, (keep >> 32) as u32);
        let low = _mm256_maskz_compress_epi8(low_keep, _mm512_castsi512_si256(placed));
        let high = _mm256_maskz_compress_epi8(high_keep, _mm512_extracti64x4_epi64::<1>(placed));
        let low_len = 2 + low_keep.count_ones() as usize; // at most 34
        put_group(room, 0, tags as u16, low);
        put_group(room, low_len, (tags >> 16) as u16, high);
        low_len + 2 + high_keep.count_ones() as usize
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn decode(groups: &[u8], values: &mut [u8], params: Params) -> Option<usize> {
    let Placing { byte_down, half_down, .. } = Placing::new(params);
    // By tag. The sign is not used but tells raw lanes from others.
    let down = by_tag([-0.0, -byte_down, -half_down, 0.0]);
    let magnitude_bits = _mm256_set1_epi32(0x7fff_ffff);
    decode_bursts(groups, values, |placed, tags| {
        let magnitude = _mm256_cvtepi32_ps(_mm256_and_si256(placed, magnitude_bits));
        let down = _mm256_permutevar_ps(down, tags);
        let value = _mm256_castps_si256(_mm256_mul_ps(magnitude, down));
        // The sign of the vector over the value; raw lanes are the vector itself.
        let coded = _mm256_movepi32_mask(_mm256_castps_si256(down));
        _mm256_mask_ternarylogic_epi32::<0xd8>(placed, coded, value, magnitude_bits)
    })
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn decode_units(groups: &[u8], units: &mut [i32], params: Params, unit: Unit) -> Option<usize> {
    let Placing { byte_down, half_down, .. } = Placing::new(params);
    // As for values. Powers of two, so that it is the same to multiply by both at once.
    let up = one_by(unit);
    let down = by_tag([-0.0, -byte_down * up, -half_down * up, up]);
    let magnitude_bits = _mm256_set1_epi32(0x7fff_ffff);
    let mut greatest = _mm256_setzero_si256();
    let len = decode_bursts(groups, bytes_of_mut(units), |placed, tags| {
        let magnitude = _mm256_and_si256(placed, magnitude_bits);
        let down = _mm256_permutevar_ps(down, tags);
        let coded = _mm256_movepi32_mask(_mm256_castps_si256(down));
        let magnitude = _mm256_mask_cvtepi32_ps(_mm256_castsi256_ps(magnitude), coded, magnitude);
        let scaled = _mm256_castps_si256(_mm256_mul_ps(magnitude, down));
        greatest = _mm256_max_epu32(greatest, _mm256_and_si256(scaled, magnitude_bits));
        // The sign of the vector over the number.
        let signed = _mm256_ternarylogic_epi32::<0xd8>(placed, scaled, magnitude_bits);
        _mm256_cvtps_epi32(_mm256_castsi256_ps(signed))
    })?;
    let simple = _mm256_cmplt_epu32_mask(greatest, _mm256_set1_epi32(SIMPLE_BELOW as i32));
    (simple == u8::MAX).then_some(len)
}

/// Decodes groups until `to` is full of what `finish` makes of each burst's placed lanes, and of
/// its tags, which are the two low bits of each lane, whatever stands above.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn decode_bursts(
    groups: &[u8],
    to: &mut [u8],
    mut finish: impl FnMut(__m256i, __m256i) -> __m256i,
) -> Option<usize> {
    let kept_bytes = _mm256_setr_epi32(0, -1 << 24, -1 << 16, -1, 0, -1 << 24, -1 << 16, -1);
    let kept_bytes = _mm256_castsi256_ps(kept_bytes);
    let lanes = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    decode_ahead(
        groups,
        to,
        |bytes, lens| ahead(bytes, lens),
        |window: &Window, to: &mut Burst| {
            let [tags, vectors] = get_group(window);
            let tags = _mm256_srlv_epi32(tags, lanes);
            // vpermilps looks at the two low bits of each lane.
            let keep = _mm256_movepi8_mask(_mm256_castps_si256(_mm256_permutevar_ps(kept_bytes, tags)));
            store(to, finish(_mm256_maskz_expand_epi8(keep, vectors), tags));
        },
    )
}

/// The vector from which `vpermilps` chooses by a tag.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi1,bmi2,popcnt")]
fn by_tag([zero, byte, half, raw]: [f32; 4]) -> __m256 {
    _mm256_setr_ps(zero, byte, half, raw, zero, byte, half, raw)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load64(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: 64 readable bytes; no alignment is asked for.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

/// Fewer than 64 bytes, and zeros behind.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
fn load_part(bytes: &[u8]) -> __m512i {
    let there = _bzhi_u64(u64::MAX, bytes.len() as u32);
    // SAFETY: of the 64 bytes only those whose bit is set are read, and `there` has a bit for each
    // of `bytes`.
    unsafe { _mm512_maskz_loadu_epi8(there, bytes.as_ptr().cast()) }
}

/// For each of 64 offsets the length of a group that starts there.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn ahead(bytes: &[u8; AHEAD + 1], lens: &mut [u8; AHEAD]) {
    let nibble_lens = _mm512_broadcast_i32x4(load16(&NIBBLE_LENS));
    let nibble = _mm512_set1_epi8(15);
    let low = load64(bytes.first_chunk().unwrap_or(&[0; AHEAD]));
    let high = load64(bytes.last_chunk().unwrap_or(&[0; AHEAD]));
    let vectors_len = |tags| {
        let low = _mm512_shuffle_epi8(nibble_lens, _mm512_and_si512(tags, nibble));
        let high = _mm512_shuffle_epi8(nibble_lens, _mm512_and_si512(_mm512_srli_epi16::<4>(tags), nibble));
        _mm512_add_epi8(low, high)
    };
    let len = _mm512_add_epi8(_mm512_add_epi8(vectors_len(low), vectors_len(high)), _mm512_set1_epi8(2));
    // SAFETY: 64 writable bytes; no alignment is asked for.
    unsafe { _mm512_storeu_si512(lens.as_mut_ptr().cast(), len) };
}
