//! No intrinsics, no `unsafe`: what is done to each value alone is written so that compilers
//! vectorise it.

use super::loops::{self, Groups, Octet, Planes, RAW_FROM, STEP_LEN, Words};
use crate::codec::bit_plane::Bound;
use crate::codec::{DecodeError, EncodeError};

/// As [`crate::codec::bit_plane::encode_payload`].
pub(in super::super) fn encode(values: &[u8], out: &mut [u8], bound: Bound) -> Result<usize, EncodeError> {
    let close_up = closer(bound);
    loops::encode(values, out, bound, |items, values| items.take(values, &close_up), transpose, spread)
}

/// From values to the words of those that are not zero.
#[inline(always)]
fn closer(bound: Bound) -> impl Fn(&[u8; STEP_LEN], &mut Words) -> [u8; 2] {
    let [from, raw_from] = [bound.coded_from(), bound.raw_from()].map(|exponent| (exponent << 23) as i32);
    let up = -i32::from(bound.y()) << 23;
    // Between 2^23 and 2^24 floats are the whole numbers. A conversion would have to saturate,
    // which not every vector unit does.
    let whole = f32::from_bits((127 + 23) << 23);

    move |values, to| {
        let mut words = [0i16; 16];
        for (value, word) in values.as_chunks().0.iter().zip(&mut words) {
            let f = i32::from_le_bytes(*value);
            let magnitude = f & i32::MAX;
            // From 1 to 2^14, which is raw; no subnormal is added to anything. `clamp` would panic
            // if it could.
            let scaled = f32::from_bits((magnitude.max(from).min(raw_from) + up) as u32);
            let rounded = scaled + whole;
            let too_much = i32::from(rounded - whole > scaled);
            let bounds = (rounded.to_bits() - whole.to_bits()) as i32 - too_much;
            let bounds = if magnitude < from { 0 } else { bounds };
            let sign = f >> 31;
            *word = ((bounds ^ sign) - sign) as i16;
        }
        let (mut at, mut map) = (0, 0u16);
        for (place, word) in words.into_iter().enumerate() {
            if let Some(to) = to.get_mut(at..).and_then(|to| to.first_chunk_mut()) {
                *to = word.to_le_bytes();
            }
            at += 2 * usize::from(word != 0);
            map |= u16::from(word != 0) << place;
        }
        map.to_le_bytes()
    }
}

#[inline(always)]
fn transpose(words: &Words, more: [u8; 2], _: bool) -> Groups {
    let mut groups = Groups { planes: [[0; 16]; 2], signs: [0; 2], raw: [0; 2], widths: [0; 2] };
    let (words, _) = words.as_chunks::<16>();
    for (group, (words, more)) in words.iter().zip(more).enumerate() {
        let (mut low, mut high, mut all) = (0u64, 0u64, 0u16);
        for (item, word) in words.as_chunks().0.iter().enumerate() {
            let word = i16::from_le_bytes(*word);
            let magnitude = word.unsigned_abs();
            let is_raw = magnitude >= RAW_FROM as u16;
            let value = (magnitude >> 1) + u16::from(more >> item & 1);
            let value = if is_raw { 0 } else { value };
            groups.signs[group] |= u8::from(word < 0 && !is_raw) << item;
            groups.raw[group] |= u8::from(is_raw) << item;
            low |= u64::from(value & 0xff) << (8 * item);
            high |= u64::from(value >> 8) << (8 * item);
            all |= value;
        }
        groups.planes[group] = (u128::from(turned(low)) | u128::from(turned(high)) << 64).to_le_bytes();
        groups.widths[group] = (u16::BITS - all.leading_zeros()) as u8;
    }
    groups
}

/// Bit j of byte i becomes bit i of byte j.
#[inline(always)]
const fn turned(mut matrix: u64) -> u64 {
    let swap = (matrix ^ matrix >> 7) & 0x00aa_00aa_00aa_00aa;
    matrix ^= swap ^ swap << 7;
    let swap = (matrix ^ matrix >> 14) & 0x0000_cccc_0000_cccc;
    matrix ^= swap ^ swap << 14;
    let swap = (matrix ^ matrix >> 28) & 0x0000_0000_f0f0_f0f0;
    matrix ^ swap ^ swap << 28
}

/// As [`crate::codec::bit_plane::decode_payload`].
pub(in super::super) fn decode(
    sections: &[u8],
    values: &mut [u8],
    bound: Bound,
) -> Result<usize, DecodeError> {
    let scale = bound.bound();
    let place = |words: &[u8; 16], map: u8, to: &mut Octet| {
        let placed = spread(words, map);
        for (word, to) in placed.as_chunks().0.iter().zip(to.as_chunks_mut().0) {
            // At most 15 bits: exact, and zero or normal.
            *to = (f32::from(i16::from_le_bytes(*word)) * scale).to_le_bytes();
        }
    };
    loops::decode(sections, values, to_words, place)
}

/// Words to where `map` has a bit, and zeros elsewhere.
#[inline(always)]
fn spread(words: &[u8; 16], map: u8) -> [u8; 16] {
    let mut spread = [0; 16];
    let mut at = 0;
    for (place, to) in spread.as_chunks_mut().0.iter_mut().enumerate() {
        let there = u16::from(map >> place & 1);
        let word = words.get(at..).and_then(|words| words.first_chunk()).unwrap_or(&[0; 2]);
        *to = (u16::from_le_bytes(*word) & there.wrapping_neg()).to_le_bytes();
        at += 2 * usize::from(there);
    }
    spread
}

#[inline(always)]
fn to_words(planes: &Planes, widths: [u8; 2], signs: [u8; 2], dense: bool) -> Words {
    let mut words = [0; 32];
    let less = if dense { 2 } else { 0 };
    let (to, _) = words.as_chunks_mut::<16>();
    for (((planes, width), signs), to) in planes.iter().zip(widths).zip(signs).zip(to) {
        let planes = u128::from_le_bytes(*planes) & ((1 << (8 * width)) - 1);
        let (low, high) = (turned(planes as u64), turned((planes >> 64) as u64));
        for (item, to) in to.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let value = (low >> (8 * item) & 0xff | (high >> (8 * item) & 0xff) << 8) as u16;
            let magnitude = (2 * value + 1).saturating_sub(less);
            let sign = -i16::from(signs >> item & 1);
            *to = ((magnitude as i16 ^ sign) - sign).to_le_bytes();
        }
    }
    words
}
