//! No SIMD, no `unsafe`, no branch on data: for processors without a kernel of their own.

use super::drive::{Burst, WINDOW_LEN, Window, decode_with, encode_with, padded};
use crate::codec::{LANES, Params, TAGS_LEN, VALUE_LEN};
use crate::error::{DecodeError, EncodeError};
use crate::wire::checksum::Sum;

/// How a value of one exponent is encoded.
#[derive(Clone, Copy, Default)]
struct Coding {
    /// Takes a significand, left-aligned in 32 bits, to the magnitude 32 bits above its place: a shift
    /// to the right, without a shift count. At most 2^15.
    multiplier: u16,
    /// The vector's top bit.
    sign: u16,
    /// The bits of the value that are kept as they are: all of a raw one, or none.
    whole: u32,
    /// Length of the vector in bytes.
    len: u8,
    tag: u8,
}

/// Index of the first exponent of raw values, at most: E is 14 below it, and 0 stands for all below E.
const MAX_RAW: usize = Params::MAX_B as usize + 1;

/// Codings by exponent, 1 for E; the last one is raw.
fn codings(params: Params) -> [Coding; 16] {
    const { assert!(MAX_RAW < 16) };
    let (b, k) = (u32::from(params.b()), u32::from(params.k()));
    core::array::from_fn(|index| {
        let distance = (b + 1).wrapping_sub(index as u32); // 127+x-e
        match index {
            0 => Coding::default(),
            _ if distance == 0 || distance > b => {
                Coding { multiplier: 0, sign: 0, whole: u32::MAX, len: 4, tag: 3 }
            }
            _ if distance > k => {
                Coding { multiplier: 1 << (8 + k - distance), sign: 1 << 7, whole: 0, len: 1, tag: 1 }
            }
            _ => Coding { multiplier: 1 << (16 - distance), sign: 1 << 15, whole: 0, len: 2, tag: 2 },
        }
    })
}

/// As [`Sum::of`].
pub(super) fn sum(bytes: &[u8]) -> Sum {
    Sum::of(bytes)
}

/// As [`crate::codec::encode_payload`].
pub(super) fn encode(values: &[u8], groups: &mut [u8], params: Params) -> Result<usize, EncodeError> {
    encode_with(values, groups, params, |values| *values, padded, stepper(params))
}

/// From values to groups.
#[inline(always)]
fn stepper(params: Params) -> impl Fn(Burst, &mut [u8; WINDOW_LEN]) -> usize {
    let codings = codings(params);
    let below = params.byte_from() - 1;
    let raw = u32::from(params.b()) + 1;

    move |values, room| {
        let (mut tags, mut at) = (0u32, TAGS_LEN);
        let (values, _) = values.as_chunks::<VALUE_LEN>();
        for (lane, value) in values.iter().enumerate() {
            let f = u32::from_le_bytes(*value);
            let index = ((f >> 23) & 0xff).saturating_sub(below).min(raw);
            let coding = codings[(index & 15) as usize];
            let significand = u64::from(1 << 31 | f << 8);
            let magnitude = ((significand * u64::from(coding.multiplier)) >> 32) as u32;
            let sign = ((f as i32) >> 31) as u32 & u32::from(coding.sign);
            let vector = f & coding.whole | sign | magnitude;
            tags |= u32::from(coding.tag) << (2 * lane);
            // A lane starts at byte 30 at most: the mask changes nothing and spares the check.
            put(room, at & 31, vector);
            at += usize::from(coding.len);
        }
        let [low, high, ..] = tags.to_le_bytes();
        (room[0], room[1]) = (low, high);
        at
    }
}

/// As [`crate::codec::decode_payload`].
pub(super) fn decode(groups: &[u8], values: &mut [u8], params: Params) -> Result<usize, DecodeError> {
    // By tag. A placed vector has its sign at bit 31 and its magnitude below, whatever its class.
    let place = [0u32, 1 << 24, 1 << 16, 1];
    let lens = [0usize, 1, 2, 4];
    // The sign of a coded lane, all of a raw one, whose multiplier is zero.
    let kept = [0, 1 << 31, 1 << 31, u32::MAX];
    let power = |exponent: i32| f32::from_bits(((127 + exponent) as u32) << 23);
    let (k, x) = (i32::from(params.k()), i32::from(params.x()));
    let down = [0.0, power(x - 31 - k), power(x - 31), 0.0];

    decode_with(groups, values, params, |window: &Window, to: &mut Burst| {
        let tags = u16::from_le_bytes([window[0], window[1]]);
        let mut at = TAGS_LEN;
        let (values, _) = to.as_chunks_mut::<VALUE_LEN>();
        for (lane, value) in values.iter_mut().enumerate().take(LANES) {
            let tag = usize::from(tags >> (2 * lane) & 3);
            let placed = get(window, at & 31).wrapping_mul(place[tag]);
            // At most 15 significant bits, or raw: the conversion is exact where it counts.
            let magnitude = (placed & 0x7fff_ffff) as i32 as f32 * down[tag];
            *value = (magnitude.to_bits() | placed & kept[tag]).to_le_bytes();
            at += lens[tag];
        }
        at
    })
}

/// Writes four bytes at `at`, which is at most 31.
#[inline(always)]
fn put(room: &mut [u8; WINDOW_LEN], at: usize, vector: u32) {
    if let Some(room) = room.get_mut(at..at + VALUE_LEN) {
        room.copy_from_slice(&vector.to_le_bytes());
    }
}

/// Reads four bytes at `at`, which is at most 31.
#[inline(always)]
fn get(window: &Window, at: usize) -> u32 {
    let bytes = window.get(at..).and_then(|window| window.first_chunk());
    u32::from_le_bytes(*bytes.unwrap_or(&[0; VALUE_LEN]))
}
