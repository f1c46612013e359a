//! NEON, which every 64-bit Arm core has: byte look-ups from tables stand for the codec's shifter
//! trees, four lanes at a time.
//!
//! Neither the rounding mode nor flushing of subnormals matters: the products of byte and half
//! lanes are exact and normal, and those of other lanes are not used.

use core::arch::aarch64::*;

use super::ahead::{AHEAD, NIBBLE_LENS, decode_ahead};
use super::loops::{Burst, WINDOW_LEN, Window, encode_with, padded};
use super::tables::{BYTE_MASKS, CLOSE_UP, Placing, SPREAD_OUT};
use crate::checksum::Sum;
use crate::codec::{DecodeError, EncodeError, Params, TAGS_LEN, decode_payload};

/// Proof that the processor has NEON.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neon(());

impl Neon {
    /// Nothing is left to detect: this module is only compiled for targets that have NEON.
    pub(super) const fn detect() -> Self {
        Self(())
    }

    pub(super) fn sum(self, bytes: &[u8]) -> Sum {
        // SAFETY: the callee needs NEON and nothing else; `self` proves it.
        unsafe { sum(bytes) }
    }

    pub(super) fn encode(
        self,
        values: &[u8],
        groups: &mut [u8],
        params: Params,
    ) -> Result<usize, EncodeError> {
        // SAFETY: the callee needs NEON and nothing else; `self` proves it.
        unsafe { encode(values, groups, params) }
    }

    pub(super) fn decode(
        self,
        groups: &[u8],
        values: &mut [u8],
        params: Params,
    ) -> Result<usize, DecodeError> {
        // SAFETY: the callee needs NEON and nothing else; `self` proves it.
        unsafe { decode(groups, values, params) }.map_or_else(|| decode_payload(groups, values, params), Ok)
    }
}

/// By the tags of four lanes: bytes of their vectors. A look-up, because NEON has no scalar
/// population count.
static LENS: [u8; 256] = {
    let mut table = [0; 256];
    let mut tags = 0;
    while tags < 256 {
        table[tags] = BYTE_MASKS[tags].count_ones() as u8;
        tags += 1;
    }
    table
};

/// As [`Sum::of`], with the instruction that adds pairs of words to wider sums.
#[target_feature(enable = "neon")]
fn sum(bytes: &[u8]) -> Sum {
    let (chunks, rest) = bytes.as_chunks::<64>();
    let mut sums = [vdupq_n_u64(0); 4]; // of 32-bit words: a frame has 2^14, so they stay below 2^46
    for chunk in chunks {
        for (sum, words) in sums.iter_mut().zip(chunk.as_chunks().0) {
            *sum = vpadalq_u32(*sum, vreinterpretq_u32_u8(load(words)));
        }
    }
    let [a, b, c, d] = sums;
    Sum::from_le_words(vaddvq_u64(vaddq_u64(vaddq_u64(a, b), vaddq_u64(c, d)))) + Sum::of(rest)
}

#[target_feature(enable = "neon")]
fn encode(values: &[u8], groups: &mut [u8], params: Params) -> Result<usize, EncodeError> {
    encode_with(values, groups, params, |values| *values, padded, stepper(params))
}

/// From values to groups.
#[inline]
#[target_feature(enable = "neon")]
fn stepper(params: Params) -> impl Fn(&Burst, &mut [u8; WINDOW_LEN]) -> usize {
    let Placing { byte_up, half_up, .. } = Placing::new(params);
    let (byte_up, half_up) = (vdupq_n_f32(byte_up), vdupq_n_f32(half_up));
    let sign_bit = vdupq_n_u32(1 << 31);
    // The smallest magnitude of each class but zero.
    let [byte_from, half_from, raw_from] = [params.byte_from(), params.half_from(), params.raw_from()]
        .map(|exponent| vdupq_n_u32(exponent << 23));
    // A lane's tag is counted down from 0; it goes to bit 2i.
    let weights =
        lanes_u16([1, 1 << 2, 1 << 4, 1 << 6, 1 << 8, 1 << 10, 1 << 12, 1 << 14].map(u16::wrapping_neg));

    // Four placed lanes, and minus their tags.
    let place = move |bytes: &[u8; 16]| {
        let f = vreinterpretq_f32_u8(load(bytes));
        let magnitude = vabsq_f32(f);
        let bits = vreinterpretq_u32_f32(magnitude);
        // All ones, which is minus one, if the lane is of this class or a higher one.
        let [byte, half, raw] = [byte_from, half_from, raw_from].map(|from| vcgeq_u32(bits, from));
        // The truncating conversion is the shift by the exponent. It saturates if the lane is raw,
        // and whatever it makes of lanes below the byte class is not kept.
        let fraction = vcvtq_u32_f32(vmulq_f32(magnitude, vbslq_f32(half, half_up, byte_up)));
        // The sign of the value over the fraction; raw lanes are the value itself.
        let placed = vbslq_u32(vorrq_u32(raw, sign_bit), vreinterpretq_u32_f32(f), fraction);
        (vreinterpretq_u8_u32(placed), vaddq_u32(vaddq_u32(byte, half), raw))
    };

    move |values, room| {
        let (low, low_minus) = place(get16(values, 0));
        let (high, high_minus) = place(get16(values, 16));
        let minus = vcombine_u16(vmovn_u32(low_minus), vmovn_u32(high_minus));
        let [low_tags, high_tags] = vaddvq_u16(vmulq_u16(minus, weights)).to_le_bytes();
        (room[0], room[1]) = (low_tags, high_tags);
        let (low_tags, high_tags) = (usize::from(low_tags), usize::from(high_tags));
        let low_len = usize::from(LENS[low_tags]);
        put16(room, TAGS_LEN, vqtbl1q_u8(low, load(&CLOSE_UP[low_tags].0)));
        put16(room, TAGS_LEN + low_len, vqtbl1q_u8(high, load(&CLOSE_UP[high_tags].0)));
        TAGS_LEN + low_len + usize::from(LENS[high_tags])
    }
}

#[target_feature(enable = "neon")]
fn decode(groups: &[u8], values: &mut [u8], params: Params) -> Option<usize> {
    let Placing { byte_down, half_down, .. } = Placing::new(params);
    let (byte_down, half_down) = (vdupq_n_f32(byte_down), vdupq_n_f32(half_down));
    let sign_bit = vdupq_n_u32(1 << 31);
    let raw_tag = vdupq_n_u32(3 << 30);
    // Of the tag vector, twice in 32 bits, these shifts leave each lane's tag at the top.
    let shifts = [lanes_i32([14, 12, 10, 8]), lanes_i32([6, 4, 2, 0])];

    // Four lanes from vectors without gaps.
    let restore = |vectors: &[u8; 16], shuffle: &[u8; 16], tags: uint32x4_t| {
        let placed = vreinterpretq_u32_u8(vqtbl1q_u8(load(vectors), load(shuffle)));
        let half_or_raw = vcltzq_s32(vreinterpretq_s32_u32(tags));
        let raw = vcgeq_u32(tags, raw_tag);
        // Shifted out, the sign needs no mask; the conversion halves what that doubled.
        let magnitude = vcvtq_n_f32_u32::<1>(vshlq_n_u32::<1>(placed));
        // Lanes of tag 0 are zero, whatever they are multiplied by.
        let value = vmulq_f32(magnitude, vbslq_f32(half_or_raw, half_down, byte_down));
        // The sign of the vector over the value; raw lanes are the vector itself.
        let value = vbslq_u32(vorrq_u32(raw, sign_bit), placed, vreinterpretq_u32_f32(value));
        vreinterpretq_u8_u32(value)
    };

    decode_ahead(
        groups,
        values,
        |bytes, lens| ahead(bytes, lens),
        |window: &Window, to: &mut Burst| {
            let (low_tags, high_tags) = (usize::from(window[0]), usize::from(window[1]));
            let high_at = TAGS_LEN + usize::from(LENS[low_tags]);
            let tags = vreinterpretq_u32_u16(vdupq_n_u16(u16::from_le_bytes([window[0], window[1]])));
            let [low, high] = shifts.map(|shift| vshlq_u32(tags, shift));
            let low = restore(get16(window, TAGS_LEN), &SPREAD_OUT[low_tags].0, low);
            let high = restore(get16(window, high_at), &SPREAD_OUT[high_tags].0, high);
            put16(to, 0, low);
            put16(to, 16, high);
        },
    )
}

/// For each of 64 offsets the length of a group that starts there.
#[inline]
#[target_feature(enable = "neon")]
fn ahead(bytes: &[u8; AHEAD + 1], lens: &mut [u8; AHEAD]) {
    let nibble_lens = load(&NIBBLE_LENS);
    let vectors_len = |at| {
        let tags = load(get16(bytes, at));
        let low = vqtbl1q_u8(nibble_lens, vandq_u8(tags, vdupq_n_u8(15)));
        let high = vqtbl1q_u8(nibble_lens, vshrq_n_u8::<4>(tags));
        vaddq_u8(low, high)
    };
    let (a, b, c, d) = (vectors_len(0), vectors_len(16), vectors_len(32), vectors_len(48));
    // The same, one byte on.
    let next = [vextq_u8::<1>(a, b), vextq_u8::<1>(b, c), vextq_u8::<1>(c, d), vectors_len(49)];
    let two = vdupq_n_u8(TAGS_LEN as u8);
    for (at, (len, next)) in (0..AHEAD).step_by(16).zip([a, b, c, d].into_iter().zip(next)) {
        put16(lens, at, vaddq_u8(vaddq_u8(len, next), two));
    }
}

/// The 16 bytes at `at`, which must be there.
#[inline]
#[target_feature(enable = "neon")]
fn get16<const N: usize>(bytes: &[u8; N], at: usize) -> &[u8; 16] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).unwrap_or(&[0; 16])
}

/// Writes 16 bytes at `at`, which must be there.
#[inline]
#[target_feature(enable = "neon")]
fn put16<const N: usize>(room: &mut [u8; N], at: usize, bytes: uint8x16_t) {
    let Some(to) = room.get_mut(at..).and_then(|room| room.first_chunk_mut::<16>()) else { return };
    // SAFETY: 16 writable bytes; no alignment is asked for.
    unsafe { vst1q_u8(to.as_mut_ptr(), bytes) };
}

#[inline]
#[target_feature(enable = "neon")]
fn load(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: 16 readable bytes; no alignment is asked for.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn lanes_u16(lanes: [u16; 8]) -> uint16x8_t {
    // SAFETY: 8 readable values.
    unsafe { vld1q_u16(lanes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn lanes_i32(lanes: [i32; 4]) -> int32x4_t {
    // SAFETY: 4 readable values.
    unsafe { vld1q_s32(lanes.as_ptr()) }
}
