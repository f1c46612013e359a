//! For small 32-bit processors: no multiplication, no floating point, no 64-bit numbers, a kilobyte of tables.
//!
//! The decoder writes items to the start of the values and then moves them to their places from the last to the first, so that
//! its one buffer is the map. The encoder keeps a word of 16 bits for each value.

use core::sync::atomic::{Ordering, compiler_fence};

use super::super::scalar32::{BYTES, to_hidden};
use super::{MAX_OCTETS, MAX_WIDTH, RAW_GROUP, decode_with, encode_with, mode};
use crate::codec::planar::sums::MAX_CODED;
use crate::codec::planar::{Bound, SECTION_VALUES};
use crate::codec::{DecodeError, EncodeError, VALUE_LEN};

const SIGN: u32 = 1 << 31;
/// Bits of a significand, the hidden one not counted.
const MANTISSA: u32 = 23;
/// The lowest bit of each byte.
const ONES: u32 = 0x0101_0101;

/// Four bits, a byte each.
static SPREAD: [u32; 16] = {
    let mut table = [0; 16];
    let mut bits = 0;
    while bits < 16 {
        table[bits] =
            (bits as u32 & 1) | (bits as u32 & 2) << 7 | (bits as u32 & 4) << 14 | (bits as u32 & 8) << 21;
        bits += 1;
    }
    table
};

/// Four and four bits, a byte each.
#[inline(always)]
fn spread(bits: u8) -> [u32; 2] {
    [SPREAD[usize::from(bits & 15)], SPREAD[usize::from(bits >> 4)]]
}

/// A bit for each value, on words so that they can be counted.
#[repr(align(4))]
struct Map([u8; MAX_OCTETS]);

impl Map {
    /// How many bits are set, without the multiplication that compilers put here. Each byte counts its own until the end.
    #[inline(always)]
    fn count_ones(&self, octets: usize) -> usize {
        let mut sums = 0;
        for word in self.0.as_chunks().0.iter().take(octets.div_ceil(4)) {
            let bits = u32::from_le_bytes(*word);
            let bits = bits - (bits >> 1 & 0x5555_5555);
            let bits = (bits & 0x3333_3333) + (bits >> 2 & 0x3333_3333);
            sums += (bits + (bits >> 4)) & 0x0f0f_0f0f; // at most 16 times 8
        }
        let sums = (sums & 0x00ff_00ff) + (sums >> 8 & 0x00ff_00ff);
        ((sums & 0xffff) + (sums >> 16)) as usize
    }
}

/// As [`crate::codec::planar::decode_payload`].
pub(in super::super) fn decode(
    sections: &[u8],
    values: &mut [u8],
    bound: Bound,
) -> Result<usize, DecodeError> {
    let decoder = Decoder(Floats { exponent: bound.coded_from().wrapping_sub(127) << MANTISSA });
    decode_with(sections, values, |section, values| {
        // SAFETY: every bit pattern of four bytes is a `u32`, and the other way round.
        let (before, words, _) = unsafe { values.align_to_mut::<u32>() };
        if before.is_empty() {
            decoder.section(section, words)
        } else {
            let mut items = [0; SECTION_VALUES];
            let (values, _) = values.as_chunks_mut::<VALUE_LEN>();
            let items = items.get_mut(..values.len())?;
            let len = decoder.section(section, items)?;
            values.iter_mut().zip(items).for_each(|(value, item)| *value = item.to_ne_bytes());
            Some(len)
        }
    })
}

/// As [`crate::kernels::Kernel::decode_units`]; None also if there are raw values.
pub(in super::super) fn decode_units(section: &[u8], units: &mut [i32]) -> Option<usize> {
    Decoder(Units).section(section, words_of(units))
}

/// As [`crate::codec::planar::sums::decode`].
pub(in super::super) fn decode_sums(section: &[u8], sums: &mut [i32]) -> Option<usize> {
    Decoder(Sums).section(section, words_of(sums))
}

fn words_of(numbers: &mut [i32]) -> &mut [u32] {
    // SAFETY: every bit pattern of an `i32` is a `u32`, and the other way round; both are aligned alike.
    unsafe { numbers.align_to_mut() }.1
}

/// What is made of odd numbers, which are twice a plane value and one.
trait Numbers: Copy {
    /// Whether raw items are taken as they are, or not at all.
    const TAKES_RAW: bool;

    /// The word in memory of a number below 2^7 whose sign is the top bit of its byte.
    fn of_byte(self, byte: u8) -> u32;

    /// The word in memory of a number from 1 to 2^15 - 1.
    fn of_number(self, number: u32, is_negative: bool) -> u32;

    /// The word in memory of these four bytes of a section.
    fn of_raw(bytes: [u8; VALUE_LEN]) -> u32;
}

/// Values, of so many bounds.
#[derive(Clone, Copy)]
struct Floats {
    /// What takes the exponent of an integer to that of its value: the integer 1 has 127.
    exponent: u32,
}

impl Numbers for Floats {
    const TAKES_RAW: bool = true;

    #[inline(always)]
    fn of_byte(self, byte: u8) -> u32 {
        BYTES[usize::from(byte)].wrapping_add(self.exponent).to_le()
    }

    #[inline(always)]
    fn of_number(self, number: u32, is_negative: bool) -> u32 {
        let shift = to_hidden(number);
        // The hidden bit adds one to the exponent.
        let magnitude = (number << shift)
            .wrapping_add((126 + MANTISSA).wrapping_sub(shift) << MANTISSA)
            .wrapping_add(self.exponent);
        (u32::from(is_negative) << 31 | magnitude).to_le()
    }

    #[inline(always)]
    fn of_raw(bytes: [u8; VALUE_LEN]) -> u32 {
        u32::from_ne_bytes(bytes)
    }
}

/// The numbers themselves.
#[derive(Clone, Copy)]
struct Units;

impl Numbers for Units {
    const TAKES_RAW: bool = false;

    #[inline(always)]
    fn of_byte(self, byte: u8) -> u32 {
        self.of_number(u32::from(byte & 0x7f), byte >> 7 != 0)
    }

    #[inline(always)]
    fn of_number(self, number: u32, is_negative: bool) -> u32 {
        // All bits of a negative number's complement, and one more.
        let sign = u32::from(is_negative).wrapping_neg();
        (number ^ sign).wrapping_sub(sign)
    }

    #[inline(always)]
    fn of_raw(bytes: [u8; VALUE_LEN]) -> u32 {
        u32::from_le_bytes(bytes)
    }
}

/// Sums: the middle of a bin becomes its outer border, halved.
#[derive(Clone, Copy)]
struct Sums;

impl Numbers for Sums {
    const TAKES_RAW: bool = true;

    #[inline(always)]
    fn of_byte(self, byte: u8) -> u32 {
        self.of_number(u32::from(byte & 0x7f), byte >> 7 != 0)
    }

    #[inline(always)]
    fn of_number(self, number: u32, is_negative: bool) -> u32 {
        Units.of_number((number + 1) >> 1, is_negative)
    }

    #[inline(always)]
    fn of_raw(bytes: [u8; VALUE_LEN]) -> u32 {
        Units::of_raw(bytes)
    }
}

/// From sections to values.
#[derive(Clone, Copy)]
struct Decoder<N>(N);

impl<N: Numbers> Decoder<N> {
    /// Decodes the section at the start of `section`; its length.
    #[inline(never)]
    fn section(self, section: &[u8], values: &mut [u32]) -> Option<usize> {
        let count = values.len();
        let octets = count.div_ceil(8);
        let (&mode, rest) = section.split_first()?;
        let mut whole_map = Map([0; MAX_OCTETS]);
        let map = whole_map.0.get_mut(..octets)?;
        let (mut item_count, mut rest) = match mode {
            mode::EMPTY => (0, rest),
            mode::TWO_LEVEL => {
                let (presence, bytes) = rest.split_at_checked(octets.div_ceil(8))?;
                if !octets.is_multiple_of(8) && presence.last()? >> (octets % 8) != 0 {
                    return None;
                }
                let mut bytes = bytes.iter();
                for (presence, map) in presence.iter().zip(map.chunks_mut(8)) {
                    let mut presence = *presence;
                    for octet in map {
                        if presence & 1 != 0 {
                            *octet = *bytes.next()?;
                        }
                        presence >>= 1;
                    }
                }
                (0, bytes.as_slice())
            }
            mode::FLAT => {
                let (bytes, behind) = rest.split_at_checked(octets)?;
                map.copy_from_slice(bytes);
                (0, behind)
            }
            mode::DENSE => (count, rest),
            _ => return None,
        };
        if mode != mode::DENSE {
            if !count.is_multiple_of(8) && map.last()? >> (count % 8) != 0 {
                return None;
            }
            item_count = whole_map.count_ones(octets);
        }
        if item_count == 0 {
            values.fill(0);
            return Some(section.len() - rest.len());
        }
        let groups = item_count.div_ceil(8);
        let (signs, behind) = rest.split_at_checked(groups)?;
        let (codes, behind) = behind.split_at_checked(groups.div_ceil(2))?;
        if !groups.is_multiple_of(2) && codes.last()? >> 4 != 0 {
            return None;
        }
        rest = behind;
        let dense = mode == mode::DENSE;
        let (mut codes, mut code) = (codes.iter(), 0);
        for (number, (to, signs)) in values.get_mut(..item_count)?.chunks_mut(8).zip(signs).enumerate() {
            code = if number & 1 == 0 { *codes.next()? } else { code >> 4 };
            let mut apart = [0; 8];
            match to.first_chunk_mut() {
                Some(to) => rest = self.group(rest, code & 15, *signs, dense, to)?,
                None => {
                    rest = self.any_group(rest, code & 15, *signs, dense, &mut apart)?;
                    to.iter_mut().zip(apart).for_each(|(to, item)| *to = item);
                }
            }
        }
        if !dense {
            move_to_places(values, item_count, whole_map.0.get(..octets)?);
        }
        Some(section.len() - rest.len())
    }

    /// Decodes the group at the start of `bytes`; what is behind it.
    #[inline(always)]
    fn group<'a>(
        self,
        bytes: &'a [u8],
        code: u8,
        signs: u8,
        dense: bool,
        to: &mut [u32; 8],
    ) -> Option<&'a [u8]> {
        if code > 6 || dense {
            return self.any_group(bytes, code, signs, dense, to);
        }
        let (planes, behind) = bytes.split_at_checked(code.into())?;
        let [mut low, mut high] = [0, 0];
        for plane in planes.iter().rev() {
            let bits = spread(*plane);
            (low, high) = (low << 1 | bits[0], high << 1 | bits[1]);
        }
        // 2v + 1, and the sign: a byte vector of codec 1.
        let signs = spread(signs);
        let low = low << 1 | ONES | signs[0] << 7;
        let high = high << 1 | ONES | signs[1] << 7;
        let value = |byte: u32| self.0.of_byte(byte as u8);
        *to = [
            value(low),
            value(low >> 8),
            value(low >> 16),
            value(low >> 24),
            value(high),
            value(high >> 8),
            value(high >> 16),
            value(high >> 24),
        ];
        Some(behind)
    }

    /// As [`Self::group`], for many planes, raw items and zeros.
    #[inline(never)]
    fn any_group<'a>(
        self,
        bytes: &'a [u8],
        code: u8,
        signs: u8,
        dense: bool,
        to: &mut [u32; 8],
    ) -> Option<&'a [u8]> {
        let (raw, width, bytes) = match code {
            RAW_GROUP if !N::TAKES_RAW => return None,
            RAW_GROUP => {
                let ([raw, width], bytes) = bytes.split_first_chunk()?;
                (*raw, *width, bytes)
            }
            _ => (0, code, bytes),
        };
        if width > MAX_WIDTH {
            return None;
        }
        let (planes, mut behind) = bytes.split_at_checked(width.into())?;
        // Of each item eight bits, and the others.
        let (first, more) = planes.split_at(planes.len().min(8));
        let [first, more] = [first, more].map(|planes| {
            let [mut low, mut high] = [0, 0];
            for plane in planes.iter().rev() {
                let bits = spread(*plane);
                (low, high) = (low << 1 | bits[0], high << 1 | bits[1]);
            }
            let ([a, b, c, d], [e, f, g, h]) = (low.to_le_bytes(), high.to_le_bytes());
            [a, b, c, d, e, f, g, h]
        });
        for (item, ((to, first), more)) in to.iter_mut().zip(first).zip(more).enumerate() {
            let is_negative = signs >> item & 1 != 0;
            let odd = (u32::from(more) << 8 | u32::from(first)) << 1 | 1;
            *to = if raw >> item & 1 != 0 {
                let (value, rest) = behind.split_first_chunk()?;
                behind = rest;
                N::of_raw(*value)
            } else if !dense {
                self.0.of_number(odd, is_negative)
            } else if odd == 1 {
                0
            } else {
                self.0.of_number(odd - 2, is_negative)
            };
        }
        Some(behind)
    }
}

/// Moves the first `item_count` of `values` to where `map` has a bit, as many as it has, and writes zeros elsewhere.
#[inline(always)]
fn move_to_places(values: &mut [u32], item_count: usize, map: &[u8]) {
    // From the last one on. As many items are left as the octets that are left have bits, so an item's place is never before
    // the item, and what is written has been read.
    let mut left = item_count;
    let (whole, part) = map.split_at(values.len() / 8);
    if let Some(octet) = part.first() {
        let start = 8 * whole.len();
        for place in (start..values.len()).rev() {
            let there = octet >> (place - start) & 1 != 0;
            left -= usize::from(there);
            let value = if there { values.get(left).copied().unwrap_or(0) } else { 0 };
            if let Some(to) = values.get_mut(place) {
                *to = value;
            }
        }
    }
    let first: *mut u32 = values.as_mut_ptr();
    let mut item = first.wrapping_add(left);
    let mut to = first.wrapping_add(8 * whole.len());
    for octet in whole.iter().rev() {
        to = to.wrapping_sub(8);
        let bits = u32::from(*octet);
        let mut place = |place: usize| {
            if bits & 1 << place == 0 {
                // SAFETY: this octet has eight values.
                unsafe { to.wrapping_add(place).write(0) };
                // Or compilers would write in one place, and take an instruction more for each zero.
                compiler_fence(Ordering::SeqCst);
            } else {
                item = item.wrapping_sub(1);
                // SAFETY: one of `values`: as many items are left as bits.
                let value = unsafe { item.read() };
                // SAFETY: this octet has eight values.
                unsafe { to.wrapping_add(place).write(value) };
            }
        };
        place(7);
        place(6);
        place(5);
        place(4);
        place(3);
        place(2);
        place(1);
        place(0);
    }
}

/// As [`crate::codec::planar::encode_payload`].
pub(in super::super) fn encode(values: &[u8], out: &mut [u8], bound: Bound) -> Result<usize, EncodeError> {
    encode_with(values, out, |values, room| encode_section(values, room, bound))
}

/// Encodes a section to the start of `room`, and writes nothing behind it; its length.
pub(super) fn encode_section(values: &[u8], room: &mut [u8], bound: Bound) -> Option<usize> {
    let [from, raw_from] = [bound.coded_from(), bound.raw_from()].map(|exponent| exponent << 24);
    Encoder(Values { from, raw_from, shift: bound.raw_from() + 17 }).section(values.as_chunks().0, room)
}

/// As [`crate::codec::planar::sums::encode`].
pub(in super::super) fn encode_sums(sums: &[i32], room: &mut [u8]) -> Option<usize> {
    Encoder(WholeSums).section(sums, room)
}

/// Stands for a raw value; indices of bins are smaller.
const RAW: u16 = 1 << 14;
/// The sign of a bin beside its index.
const NEGATIVE: u16 = 1 << 15;

/// What items are made of.
trait Source: Copy {
    type Value: Copy;

    /// Its 32 bits.
    fn bits(value: Self::Value) -> u32;

    fn is_zero(self, bits: u32) -> bool;

    fn is_raw(self, bits: u32) -> bool;

    /// Plane value and sign of what is not zero, or [`RAW`].
    fn item(self, bits: u32) -> u16;
}

/// Values within a bound.
#[derive(Clone, Copy)]
struct Values {
    /// Where coded and raw values begin, compared with a value without its sign: the exponent is then the topmost byte.
    from: u32,
    raw_from: u32,
    /// Less the exponent: by how much a significand, left-aligned, is shifted to its magnitude in whole bounds; 18 to 31.
    shift: u32,
}

impl Source for Values {
    type Value = [u8; VALUE_LEN];

    #[inline(always)]
    fn bits(value: [u8; VALUE_LEN]) -> u32 {
        u32::from_le_bytes(value)
    }

    #[inline(always)]
    fn is_zero(self, value: u32) -> bool {
        value << 1 < self.from
    }

    #[inline(always)]
    fn is_raw(self, value: u32) -> bool {
        value << 1 >= self.raw_from
    }

    #[inline(always)]
    fn item(self, value: u32) -> u16 {
        if self.is_raw(value) {
            return RAW;
        }
        let magnitude = value << 1;
        let significand = value << 8 | SIGN;
        let bounds = significand.wrapping_shr(self.shift.wrapping_sub(magnitude >> 24));
        (bounds >> 1) as u16 | (value >> 16) as u16 & NEGATIVE
    }
}

/// Sums.
#[derive(Clone, Copy)]
struct WholeSums;

impl Source for WholeSums {
    type Value = i32;

    #[inline(always)]
    fn bits(sum: i32) -> u32 {
        sum.cast_unsigned()
    }

    #[inline(always)]
    fn is_zero(self, sum: u32) -> bool {
        sum == 0
    }

    #[inline(always)]
    fn is_raw(self, sum: u32) -> bool {
        sum.cast_signed().unsigned_abs() > MAX_CODED
    }

    #[inline(always)]
    fn item(self, sum: u32) -> u16 {
        if self.is_raw(sum) {
            return RAW;
        }
        (sum.cast_signed().unsigned_abs() - 1) as u16 | (sum >> 16) as u16 & NEGATIVE
    }
}

/// From values, or sums, to sections.
#[derive(Clone, Copy)]
struct Encoder<S>(S);

impl<S: Source> Encoder<S> {
    /// Encodes a section to the start of `room`; its length.
    #[inline(never)]
    fn section(self, values: &[S::Value], room: &mut [u8]) -> Option<usize> {
        let mut words = [0u16; SECTION_VALUES];
        let mut map = [0; MAX_OCTETS];
        let (mut nonzero, mut raw) = (0, 0);
        let mut octets = values.chunks(8);
        for octet in &mut map {
            // Not zipped: a zip that is not inlined divides by the chunks' length, which it does not know.
            let Some(values) = octets.next() else { break };
            for (place, value) in values.iter().enumerate() {
                let value = S::bits(*value);
                if !self.0.is_zero(value) {
                    let item = self.0.item(value);
                    raw |= item & RAW;
                    *words.get_mut(nonzero)? = item;
                    nonzero += 1;
                    *octet |= 1 << place;
                }
            }
        }
        let map = map.get(..values.len().div_ceil(8))?;
        if nonzero == 0 {
            *room.first_mut()? = mode::EMPTY;
            return Some(1);
        }
        // 13 and 16 times, without multiplying.
        let dense = raw == 0 && nonzero << 4 >= (values.len() << 4) - (values.len() << 2) + values.len();
        let mut out = Output { room, len: 0 };
        if dense {
            out.push(mode::DENSE)?;
            let item = |item| {
                let value = values.get(item).map_or(0, |value| S::bits(*value));
                if self.0.is_zero(value) { 0 } else { self.0.item(value) + 1 }
            };
            return out.groups(values.len(), dense, item, core::iter::empty());
        }
        let present = map.iter().filter(|octet| **octet != 0).count();
        if map.len().div_ceil(8) + present < map.len() {
            out.push(mode::TWO_LEVEL)?;
            for octets in map.chunks(8) {
                let bits = octets.iter().enumerate().map(|(place, octet)| u8::from(*octet != 0) << place);
                out.push(bits.fold(0, |all, bit| all | bit))?;
            }
            map.iter().filter(|octet| **octet != 0).try_for_each(|octet| out.push(*octet))?;
        } else {
            out.push(mode::FLAT)?;
            map.iter().try_for_each(|octet| out.push(*octet))?;
        }
        let raw_values = values.iter().map(|value| S::bits(*value)).filter(|value| self.0.is_raw(*value));
        out.groups(nonzero, dense, |item| words.get(item).copied().unwrap_or(0), raw_values)
    }
}

/// Bytes that are written one after the other.
struct Output<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl Output<'_> {
    #[inline(always)]
    fn push(&mut self, byte: u8) -> Option<()> {
        *self.room.get_mut(self.len)? = byte;
        self.len += 1;
        Some(())
    }

    /// Writes signs, codes and planes of `count` items; what has been written by then. The raw items are `raw_values`, in order.
    #[inline(always)]
    fn groups(
        mut self,
        count: usize,
        dense: bool,
        item: impl Fn(usize) -> u16,
        mut raw_values: impl Iterator<Item = u32>,
    ) -> Option<usize> {
        let groups = count.div_ceil(8);
        let (signs_at, codes_at) = (self.len, self.len + groups);
        self.len = codes_at + groups.div_ceil(2);
        self.room.get_mut(codes_at..self.len)?.fill(0);
        for group in 0..groups {
            let (mut signs, mut raw, mut all) = (0, 0, 0);
            let mut plane_values = [0; 8];
            for (place, to) in plane_values.iter_mut().enumerate().take(count - 8 * group) {
                let item = item(8 * group + place);
                signs |= ((item >> 15) as u8) << place;
                if item & !NEGATIVE == RAW && !dense {
                    raw |= 1 << place;
                } else {
                    *to = item & !NEGATIVE;
                    all |= *to;
                }
            }
            *self.room.get_mut(signs_at + group)? = signs;
            let width = (u16::BITS - all.leading_zeros()) as u8;
            let code = if raw != 0 { RAW_GROUP } else { width };
            *self.room.get_mut(codes_at + group / 2)? |= code << (4 * (group & 1));
            if raw != 0 {
                self.push(raw)?;
                self.push(width)?;
            }
            for planes in [plane_values, plane_values.map(|value| value >> 8)].iter().zip([0, 8]) {
                let (bytes, first) = planes;
                let planes = turned(bytes.map(|value| value as u8));
                planes
                    .into_iter()
                    .take(usize::from(width).saturating_sub(first))
                    .try_for_each(|plane| self.push(plane))?;
            }
            for _ in (0..8).filter(|item| raw >> item & 1 != 0) {
                raw_values.next()?.to_le_bytes().into_iter().try_for_each(|byte| self.push(byte))?;
            }
        }
        Some(self.len)
    }
}

/// Bit j of byte i becomes bit i of byte j.
#[inline(always)]
fn turned([a, b, c, d, e, f, g, h]: [u8; 8]) -> [u8; 8] {
    let [mut low, mut high] =
        [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])].map(|half| {
            let swap = (half ^ half >> 7) & 0x00aa_00aa;
            let half = half ^ swap ^ swap << 7;
            let swap = (half ^ half >> 14) & 0x0000_cccc;
            half ^ swap ^ swap << 14
        });
    let swap = (low >> 4 ^ high) & 0x0f0f_0f0f;
    (low, high) = (low ^ swap << 4, high ^ swap);
    let ([a, b, c, d], [e, f, g, h]) = (low.to_le_bytes(), high.to_le_bytes());
    [a, b, c, d, e, f, g, h]
}
