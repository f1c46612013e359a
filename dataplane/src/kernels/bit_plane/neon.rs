//! NEON: shuffles from tables close up and spread eight words at a time; matrices of 8x8 bits are
//! transposed by exchanging halves, quarters and eighths.

use core::arch::aarch64::*;

use super::super::neon::Neon;
use super::loops::{self, Groups, Octet, Planes, RAW_FROM, STEP_LEN, Words};
use super::tables::{CLOSE_UP, SPREAD_OUT};
use crate::codec::bit_plane::Bound;
use crate::codec::{DecodeError, EncodeError};

/// By the number of planes: all bits of those that are there.
static THERE: [[u8; 16]; 16] = {
    let mut table = [[0; 16]; 16];
    let mut width = 0;
    while width < 16 {
        let mut plane = 0;
        while plane < width {
            table[width][plane] = 0xff;
            plane += 1;
        }
        width += 1;
    }
    table
};

/// As [`crate::codec::bit_plane::encode_payload`].
pub(in super::super) fn encode(
    _: Neon,
    values: &[u8],
    out: &mut [u8],
    bound: Bound,
) -> Result<usize, EncodeError> {
    // SAFETY: the callee needs NEON and nothing else; the token proves it.
    unsafe { encode_sections(values, out, bound) }
}

/// As [`crate::codec::bit_plane::decode_payload`].
pub(in super::super) fn decode(
    _: Neon,
    sections: &[u8],
    values: &mut [u8],
    bound: Bound,
) -> Result<usize, DecodeError> {
    // SAFETY: the callee needs NEON and nothing else; the token proves it.
    unsafe { decode_sections(sections, values, bound) }
}

#[target_feature(enable = "neon")]
fn encode_sections(values: &[u8], out: &mut [u8], bound: Bound) -> Result<usize, EncodeError> {
    let up = vdupq_n_s32(-i32::from(bound.y()) << 23);
    let [from, raw_from] =
        [bound.coded_from(), bound.raw_from()].map(|exponent| vdupq_n_s32((exponent << 23) as i32));
    let below = vsubq_s32(from, vdupq_n_s32(1));
    // Four values in whole bounds.
    let whole = |values: &[u8; STEP_LEN], at| {
        let f = vreinterpretq_s32_u8(load_at(values, at));
        let magnitude = vandq_s32(f, vdupq_n_s32(i32::MAX));
        // From just below 1 to 2^14, which is raw: a NaN would convert to 0, and no subnormal is
        // converted.
        let magnitude = vmaxq_s32(vminq_s32(magnitude, raw_from), below);
        let bounds = vcvtq_s32_f32(vreinterpretq_f32_s32(vaddq_s32(magnitude, up)));
        let sign = vshrq_n_s32::<31>(f);
        vmovn_s32(vsubq_s32(veorq_s32(bounds, sign), sign))
    };
    let close_up = |values: &[u8; STEP_LEN], to: &mut Words| {
        let mut at = 0;
        [0, 32].map(|from| {
            let words = vcombine_s16(whole(values, from), whole(values, from + 16));
            let map = bits(vtstq_s16(words, words));
            let closed = vqtbl1q_u8(vreinterpretq_u8_s16(words), load(&CLOSE_UP[usize::from(map)].0));
            put(to, at, closed);
            at += 2 * map.count_ones() as usize;
            map
        })
    };
    loops::encode(
        values,
        out,
        bound,
        |items, values| items.take(values, &close_up),
        |words, more, with_raw| transpose(words, more, with_raw),
        |words, map| {
            let mut spread = [0; 16];
            put(&mut spread, 0, vqtbl1q_u8(load(words), load(&SPREAD_OUT[usize::from(map)].0)));
            spread
        },
    )
}

#[inline]
#[target_feature(enable = "neon")]
fn transpose(words: &Words, more: [u8; 2], with_raw: bool) -> Groups {
    let mut groups = Groups { planes: [[0; 16]; 2], signs: [0; 2], raw: [0; 2], widths: [0; 2] };
    let of_groups =
        groups.planes.iter_mut().zip(&mut groups.signs).zip(&mut groups.raw).zip(&mut groups.widths);
    for ((at, more), (((planes, signs), raw), width)) in [0, 16].into_iter().zip(more).zip(of_groups) {
        let words = vreinterpretq_s16_u8(load_at(words, at));
        let values = vshrq_n_u16::<1>(vreinterpretq_u16_s16(vabsq_s16(words)));
        let is_raw = vcgeq_u16(values, vdupq_n_u16(RAW_FROM as u16 >> 1));
        *raw = bits(is_raw);
        *signs = bits(vcltzq_s16(words)) & !*raw;
        let values = if with_raw { vbicq_u16(values, is_raw) } else { values };
        let values = vsubq_u16(values, mask(more));
        *width = (u16::BITS - vmaxvq_u16(values).leading_zeros()) as u8;
        let bytes = vcombine_u8(vmovn_u16(values), vshrn_n_u16::<8>(values));
        put(planes, 0, turned(bytes));
    }
    groups
}

/// Of eight words, all ones or zeros, a bit each.
#[inline]
#[target_feature(enable = "neon")]
fn bits(words: uint16x8_t) -> u8 {
    vaddvq_u16(vandq_u16(words, lanes([1, 2, 4, 8, 16, 32, 64, 128]))) as u8
}

/// Words of ones where a bit is set.
#[inline]
#[target_feature(enable = "neon")]
fn mask(bits: u8) -> uint16x8_t {
    vtstq_u16(vdupq_n_u16(bits.into()), lanes([1, 2, 4, 8, 16, 32, 64, 128]))
}

/// Bit j of byte i becomes bit i of byte j, in both halves.
#[inline]
#[target_feature(enable = "neon")]
fn turned(matrices: uint8x16_t) -> uint8x16_t {
    let x = vreinterpretq_u64_u8(matrices);
    let swap = vandq_u64(veorq_u64(x, vshrq_n_u64::<7>(x)), vdupq_n_u64(0x00aa_00aa_00aa_00aa));
    let x = veorq_u64(x, veorq_u64(swap, vshlq_n_u64::<7>(swap)));
    let swap = vandq_u64(veorq_u64(x, vshrq_n_u64::<14>(x)), vdupq_n_u64(0x0000_cccc_0000_cccc));
    let x = veorq_u64(x, veorq_u64(swap, vshlq_n_u64::<14>(swap)));
    let swap = vandq_u64(veorq_u64(x, vshrq_n_u64::<28>(x)), vdupq_n_u64(0x0000_0000_f0f0_f0f0));
    vreinterpretq_u8_u64(veorq_u64(x, veorq_u64(swap, vshlq_n_u64::<28>(swap))))
}

#[target_feature(enable = "neon")]
fn decode_sections(sections: &[u8], values: &mut [u8], bound: Bound) -> Result<usize, DecodeError> {
    let scale = vdupq_n_f32(bound.bound());
    loops::decode(
        sections,
        values,
        |planes, widths, signs, dense| to_words(planes, widths, signs, dense),
        |words: &[u8; 16], map, to: &mut Octet| {
            let words = vqtbl1q_u8(load(words), load(&SPREAD_OUT[usize::from(map)].0));
            let words = vreinterpretq_s16_u8(words);
            // At most 15 bits: exact, and zero or normal.
            let [low, high] = [vmovl_s16(vget_low_s16(words)), vmovl_high_s16(words)]
                .map(|words| vreinterpretq_u8_f32(vmulq_f32(vcvtq_f32_s32(words), scale)));
            put(to, 0, low);
            put(to, 16, high);
        },
    )
}

#[inline]
#[target_feature(enable = "neon")]
fn to_words(planes: &Planes, widths: [u8; 2], signs: [u8; 2], dense: bool) -> Words {
    let mut words = [0; 32];
    let less = vdupq_n_u16(if dense { 2 } else { 0 });
    for (((planes, width), signs), at) in planes.iter().zip(widths).zip(signs).zip([0, 16]) {
        let there = load(&THERE[usize::from(width & 15)]);
        let bytes = turned(vandq_u8(load(planes), there));
        let values = vreinterpretq_u16_u8(vzip1q_u8(bytes, vextq_u8::<8>(bytes, bytes)));
        let odd = vorrq_u16(vshlq_n_u16::<1>(values), vdupq_n_u16(1));
        let (magnitudes, negative) = (vqsubq_u16(odd, less), mask(signs));
        put(&mut words, at, vreinterpretq_u8_u16(vsubq_u16(veorq_u16(magnitudes, negative), negative)));
    }
    words
}

#[inline]
#[target_feature(enable = "neon")]
fn load(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: 16 readable bytes; no alignment is asked for.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

/// The 16 bytes at `at`, which must be there.
#[inline]
#[target_feature(enable = "neon")]
fn load_at<const N: usize>(bytes: &[u8; N], at: usize) -> uint8x16_t {
    load(bytes.get(at..).and_then(|bytes| bytes.first_chunk()).unwrap_or(&[0; 16]))
}

/// Writes 16 bytes at `at`, which must be there.
#[inline]
#[target_feature(enable = "neon")]
fn put<const N: usize>(to: &mut [u8; N], at: usize, bytes: uint8x16_t) {
    let Some(to) = to.get_mut(at..).and_then(|to| to.first_chunk_mut::<16>()) else { return };
    // SAFETY: 16 writable bytes; no alignment is asked for.
    unsafe { vst1q_u8(to.as_mut_ptr(), bytes) };
}

#[inline]
#[target_feature(enable = "neon")]
fn lanes(lanes: [u16; 8]) -> uint16x8_t {
    // SAFETY: 8 readable values.
    unsafe { vld1q_u16(lanes.as_ptr()) }
}
