//! For small 32-bit processors: no multiplication, no floating point, no count of leading zeros unless the target has
//! one, and loads of whole words where payloads lie on them.
//!
//! Branches by class, unlike `portable`: gradients are mostly below the bound, and a core without speculation pays for
//! what it executes alone. A value below the bound costs a load, a shift and a branch; a decoded group without any
//! lane, eight stores.

use super::drive::{Burst, WINDOW_LEN, Window, decode_from, encode_with, padded};
use crate::codec::{BURST_LEN, LANES, Params, TAGS_LEN, VALUE_LEN};
use crate::error::{DecodeError, EncodeError};
use crate::wire::checksum::Sum;

/// A burst as words, least significant byte first.
type Words = [u32; LANES];

const SIGN: u32 = 1 << 31;
/// Bits of a significand, the hidden one not counted.
const MANTISSA: u32 = 23;

/// As [`Sum::of`].
pub(super) fn sum(bytes: &[u8]) -> Sum {
    // SAFETY: every bit pattern of four bytes is a `u32`, and the other way round.
    let (before, words, after) = unsafe { bytes.align_to::<u32>() };
    if !before.is_empty() {
        return Sum::of(bytes);
    }
    let (mut sum, mut carries) = (0u32, 0u32);
    for word in words {
        let (next, carry) = sum.overflowing_add(word.to_le());
        (sum, carries) = (next, carries + u32::from(carry));
    }
    Sum::from_le_words(u64::from(carries) << 32 | u64::from(sum)) + Sum::of(after)
}

/// As [`crate::codec::encode_payload`].
pub(super) fn encode(values: &[u8], groups: &mut [u8], params: Params) -> Result<usize, EncodeError> {
    let encoder = Encoder::new(params);
    let have = groups.len();
    let (mut at, mut done) = (0, 0);
    // SAFETY: every bit pattern of 32 bytes is an array of 8 `u32`.
    let (before, bursts, _) = unsafe { values.align_to::<Words>() };
    if before.is_empty() {
        for burst in bursts {
            let Some(room) = groups.get_mut(at..).and_then(|groups| groups.first_chunk_mut()) else { break };
            at += encoder.burst(burst, room);
            done += BURST_LEN;
        }
    }
    let rest = values.get(done..).unwrap_or(&[]);
    let room = groups.get_mut(at..).unwrap_or(&mut []);
    let step = |words: Words, room: &mut [u8; WINDOW_LEN]| encoder.called(&words, room);
    let len = encode_with(rest, room, params, words, |part| words(&padded(part)), step);
    len.map(|len| at + len).map_err(|_| EncodeError::NoRoom { have })
}

/// A burst of any alignment.
fn words(burst: &Burst) -> Words {
    let (values, _) = burst.as_chunks::<VALUE_LEN>();
    let mut words = [0; LANES];
    words.iter_mut().zip(values).for_each(|(word, value)| *word = u32::from_ne_bytes(*value));
    words
}

/// From values to groups.
#[derive(Clone, Copy)]
struct Encoder {
    /// Where the classes begin, compared with a value without its sign: the exponent is then the topmost byte.
    byte_from: u32,
    half_from: u32,
    raw_from: u32,
    /// Less the exponent: by how much a significand, left-aligned, is shifted to its vector's place; 17 to 31.
    byte_shift: u32,
    half_shift: u32,
}

impl Encoder {
    const fn new(params: Params) -> Self {
        Self {
            byte_from: params.byte_from() << 24,
            half_from: params.half_from() << 24,
            raw_from: params.raw_from() << 24,
            byte_shift: params.raw_from() + 24 - params.k() as u32,
            half_shift: params.raw_from() + 16,
        }
    }

    /// One burst to the start of `room`; the group's length.
    #[inline(always)]
    fn burst(&self, values: &Words, room: &mut [u8; WINDOW_LEN]) -> usize {
        let (mut tags, mut at) = (0, TAGS_LEN);
        // Written out, so that the compiler sees where each lane can start: at byte 30 at most, which spares checks.
        self.lane(values[0], 0, room, &mut at, &mut tags);
        self.lane(values[1], 1, room, &mut at, &mut tags);
        self.lane(values[2], 2, room, &mut at, &mut tags);
        self.lane(values[3], 3, room, &mut at, &mut tags);
        self.lane(values[4], 4, room, &mut at, &mut tags);
        self.lane(values[5], 5, room, &mut at, &mut tags);
        self.lane(values[6], 6, room, &mut at, &mut tags);
        self.lane(values[7], 7, room, &mut at, &mut tags);
        (room[0], room[1]) = (tags as u8, (tags >> 8) as u8);
        at
    }

    /// As [`Self::burst`], where it is worth its size only once.
    #[inline(never)]
    fn called(&self, values: &Words, room: &mut [u8; WINDOW_LEN]) -> usize {
        self.burst(values, room)
    }

    #[inline(always)]
    fn lane(&self, value: u32, lane: u32, room: &mut [u8; WINDOW_LEN], at: &mut usize, tags: &mut u32) {
        let value = value.to_le();
        let magnitude = value << 1;
        if magnitude < self.byte_from {
            return;
        }
        let place = *at;
        let significand = value << 8 | SIGN;
        let exponent = magnitude >> 24;
        if magnitude < self.half_from {
            let vector = significand.wrapping_shr(self.byte_shift.wrapping_sub(exponent));
            room[place] = (value >> 24 & 0x80 | vector) as u8;
            *at += 1;
            *tags |= 1 << (2 * lane);
        } else if magnitude < self.raw_from {
            let vector = significand.wrapping_shr(self.half_shift.wrapping_sub(exponent));
            room[place] = vector as u8;
            room[place + 1] = (value >> 24 & 0x80 | vector >> 8) as u8;
            *at += 2;
            *tags |= 2 << (2 * lane);
        } else {
            let [a, b, c, d] = value.to_le_bytes();
            (room[place], room[place + 1], room[place + 2], room[place + 3]) = (a, b, c, d);
            *at += 4;
            *tags |= 3 << (2 * lane);
        }
    }
}

/// As [`crate::codec::decode_payload`].
pub(super) fn decode(groups: &[u8], values: &mut [u8], params: Params) -> Result<usize, DecodeError> {
    let decoder = Decoder::new(params);
    let (mut at, mut done) = (0, 0);
    // SAFETY: every bit pattern of 32 bytes is an array of 8 `u32`, and the other way round.
    let (before, bursts, _) = unsafe { values.align_to_mut::<Words>() };
    if before.is_empty() {
        for to in bursts {
            let Some(window) = groups.get(at..).and_then(|groups| groups.first_chunk()) else { break };
            at += decoder.burst(window, to);
            done += BURST_LEN;
        }
    }
    let rest = values.get_mut(done..).unwrap_or(&mut []);
    let to_bytes = |window: &Window, to: &mut Burst| {
        let mut words = [0; LANES];
        let len = decoder.called(window, &mut words);
        let (values, _) = to.as_chunks_mut::<VALUE_LEN>();
        values.iter_mut().zip(words).for_each(|(value, word)| *value = word.to_ne_bytes());
        len
    };
    decode_from(groups, at, rest, params, to_bytes)
}

/// The `f32`s that byte vectors are as integers.
static BYTES: [u32; 256] = {
    let mut table = [0; 256];
    let mut vector = 0;
    while vector < 256 {
        let magnitude = (vector & 0x7f) as f32;
        table[vector] = magnitude.to_bits() | (vector as u32 & 0x80) << 24;
        vector += 1;
    }
    table
};

/// From the leading one of a number below 256 to bit [`MANTISSA`]; 0 for 0.
static TO_HIDDEN: [u8; 256] = {
    let mut table = [0; 256];
    let mut number = 1usize;
    while number < 256 {
        table[number] = (MANTISSA - number.ilog2()) as u8;
        number += 1;
    }
    table
};

/// From the leading one of a half vector's magnitude, which is not 0, to bit [`MANTISSA`].
#[inline(always)]
fn to_hidden(magnitude: u32) -> u32 {
    if cfg!(target_feature = "zbb") {
        return magnitude.leading_zeros().wrapping_sub(31 - MANTISSA);
    }
    let high = magnitude >> 7 & 0xff;
    if high != 0 {
        u32::from(TO_HIDDEN[high as usize]).wrapping_sub(7)
    } else {
        u32::from(TO_HIDDEN[(magnitude & 0xff) as usize])
    }
}

/// From groups to values.
#[derive(Clone, Copy)]
struct Decoder {
    /// What takes the exponent of an integer to that of its byte vector: the integer 1 has 127.
    byte_exponent: u32,
    /// The exponent of a half vector whose leading one is at bit 23, less the one that the hidden bit adds.
    half_exponent: u32,
}

impl Decoder {
    const fn new(params: Params) -> Self {
        Self {
            byte_exponent: params.raw_from().wrapping_sub(127 + params.k() as u32 + 7) << MANTISSA,
            half_exponent: (params.raw_from() + MANTISSA - 15 - 1) << MANTISSA,
        }
    }

    /// The group at the start of `window`; its length.
    #[inline(always)]
    fn burst(&self, window: &Window, to: &mut Words) -> usize {
        let tags = u32::from(u16::from_le_bytes([window[0], window[1]]));
        if tags == 0 {
            *to = [0; LANES];
            return TAGS_LEN;
        }
        let mut at = TAGS_LEN;
        // Written out, so that the compiler sees where each lane can start: at byte 30 at most, which spares checks.
        to[0] = self.lane(tags, window, &mut at);
        to[1] = self.lane(tags >> 2, window, &mut at);
        to[2] = self.lane(tags >> 4, window, &mut at);
        to[3] = self.lane(tags >> 6, window, &mut at);
        to[4] = self.lane(tags >> 8, window, &mut at);
        to[5] = self.lane(tags >> 10, window, &mut at);
        to[6] = self.lane(tags >> 12, window, &mut at);
        to[7] = self.lane(tags >> 14, window, &mut at);
        at
    }

    /// As [`Self::burst`], where it is worth its size only once.
    #[inline(never)]
    fn called(&self, window: &Window, to: &mut Words) -> usize {
        self.burst(window, to)
    }

    /// The lane whose tag is the lowest of `tags`.
    #[inline(always)]
    fn lane(&self, tags: u32, window: &Window, at: &mut usize) -> u32 {
        let place = *at;
        let tag = tags & 3;
        let value = if tag == 0 {
            0
        } else if tag == 1 {
            *at += 1;
            let value = BYTES[usize::from(window[place])];
            if value << 1 == 0 { value } else { value.wrapping_add(self.byte_exponent) }
        } else if tag == 2 {
            *at += 2;
            let vector = u32::from(u16::from_le_bytes([window[place], window[place + 1]]));
            let (sign, magnitude) = (vector >> 15 << 31, vector & 0x7fff);
            if magnitude == 0 {
                sign
            } else {
                let shift = to_hidden(magnitude);
                let placed = magnitude.wrapping_shl(shift);
                sign | placed.wrapping_add(self.half_exponent).wrapping_sub(shift << MANTISSA)
            }
        } else {
            *at += 4;
            u32::from_le_bytes([window[place], window[place + 1], window[place + 2], window[place + 3]])
        };
        value.to_le()
    }
}
