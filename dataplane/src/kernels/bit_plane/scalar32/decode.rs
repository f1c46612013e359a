//! Sections to values, to units and to sums.
//!
//! Items are written to the start of the values, as bytes or as words, and then move to their
//! places from the last to the first, so that the one buffer is the map.

use super::super::{MAX_OCTETS, MAX_WIDTH, RAW_GROUP, decode_with, mode};
use super::{ONES, turned};
use crate::codec::bit_plane::{Bound, SECTION_VALUES};
use crate::codec::{DecodeError, VALUE_LEN};
use crate::kernels::scalar32::{BYTES, to_hidden};
use crate::sums::BLOCK_VALUES;

/// Bits of a significand, the hidden one not counted.
const MANTISSA: u32 = 23;
/// The highest bit of each byte.
const SIGNS: u32 = ONES << 7;
/// The most planes of items that are twice a plane value and one in a byte with their sign.
const MAX_NARROW: u8 = 6;

/// A bit for each value, on words so that they can be counted.
#[repr(align(4))]
struct Map<const OCTETS: usize>([u8; OCTETS]);

impl<const OCTETS: usize> Map<OCTETS> {
    /// The number of bits that are set, without the multiplication that compilers put here. Each
    /// byte counts its own until the end.
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

/// As [`crate::codec::bit_plane::decode_payload`].
pub(in super::super::super) fn decode(
    sections: &[u8],
    values: &mut [u8],
    bound: Bound,
) -> Result<usize, DecodeError> {
    let decoder = Decoder(Floats { exponent: bound.coded_from().wrapping_sub(127) << MANTISSA });
    decode_with(sections, values, |section, values| {
        // SAFETY: every bit pattern of four bytes is a `u32`, and the other way round.
        let (before, words, _) = unsafe { values.align_to_mut::<u32>() };
        if before.is_empty() {
            decoder.section::<MAX_OCTETS>(section, words)
        } else {
            let mut items = [0; SECTION_VALUES];
            let (values, _) = values.as_chunks_mut::<VALUE_LEN>();
            let items = items.get_mut(..values.len())?;
            let len = decoder.section::<MAX_OCTETS>(section, items)?;
            values.iter_mut().zip(items).for_each(|(value, item)| *value = item.to_ne_bytes());
            Some(len)
        }
    })
}

/// As [`crate::kernels::Kernel::decode_units`]; None also if there are raw values.
pub(in super::super::super) fn decode_units(section: &[u8], units: &mut [i32]) -> Option<usize> {
    Decoder(Units).section::<{ BLOCK_VALUES / 8 }>(section, words_of(units))
}

/// As [`crate::codec::bit_plane::sums::decode`].
pub(in super::super::super) fn decode_sums(section: &[u8], sums: &mut [i32]) -> Option<usize> {
    Decoder(Sums).section::<{ BLOCK_VALUES / 8 }>(section, words_of(sums))
}

fn words_of(numbers: &mut [i32]) -> &mut [u32] {
    // SAFETY: every bit pattern of an `i32` is a `u32`, and the other way round; both are aligned
    // alike.
    unsafe { numbers.align_to_mut() }.1
}

/// Results made of odd numbers, which are twice a plane value and one.
trait Numbers: Copy {
    /// Whether raw items are taken as they are, or not at all.
    const TAKES_RAW: bool;

    /// As [`Self::of_byte`], for four numbers below 2^7 with their signs in the top bits of their
    /// bytes.
    fn bytes(numbers: u32) -> u32;

    /// The word in memory of such a byte.
    fn of_byte(self, byte: u8) -> u32;

    /// The word in memory of a number from 1 to 2^15 - 1.
    fn of_number(self, number: u32, is_negative: bool) -> u32;

    /// The word in memory of these four bytes of a section.
    fn of_raw(bytes: [u8; VALUE_LEN]) -> u32;
}

/// Values, of so many bounds.
#[derive(Clone, Copy)]
struct Floats {
    /// Added to the exponent of an integer, it gives that of its value: the integer 1 has 127.
    exponent: u32,
}

impl Numbers for Floats {
    const TAKES_RAW: bool = true;

    #[inline(always)]
    fn bytes(numbers: u32) -> u32 {
        numbers
    }

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
    fn bytes(numbers: u32) -> u32 {
        // As signed bytes. Of an odd number that is negative, all bits but the first and the sign
        // are inverted.
        let negative = numbers & SIGNS;
        numbers ^ (negative - (negative >> 6))
    }

    #[inline(always)]
    fn of_byte(self, byte: u8) -> u32 {
        i32::from(byte.cast_signed()).cast_unsigned()
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
    fn bytes(numbers: u32) -> u32 {
        // As signed bytes.
        let negative = numbers >> 7 & ONES;
        let magnitudes = ((numbers & 0x7e7e_7e7e) >> 1) + ONES;
        (magnitudes ^ (negative << 8).wrapping_sub(negative)) + negative
    }

    #[inline(always)]
    fn of_byte(self, byte: u8) -> u32 {
        Units.of_byte(byte)
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
    /// Decodes the section at the start of `section`; its length. None also if its map may have
    /// more bytes than `OCTETS`.
    #[inline(never)]
    fn section<const OCTETS: usize>(self, section: &[u8], values: &mut [u32]) -> Option<usize> {
        let count = values.len();
        let octets = count.div_ceil(8);
        let (&mode, rest) = section.split_first()?;
        let mut whole_map = Map([0; OCTETS]);
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
        let groups = item_count.div_ceil(8);
        let (signs, behind) = rest.split_at_checked(groups)?;
        let (codes, behind) = behind.split_at_checked(groups.div_ceil(2))?;
        if !groups.is_multiple_of(2) && codes.last()? >> 4 != 0 {
            return None;
        }
        let map = whole_map.0.get(..octets)?;
        if mode == mode::DENSE {
            rest = self.any_groups(behind, codes, signs, true, values)?;
        } else if let Some(behind) = Self::narrow_groups(behind, codes, signs, values) {
            place(values, item_count, map, |byte| self.0.of_byte(byte));
            rest = behind;
        } else {
            rest = self.any_groups(behind, codes, signs, false, values.get_mut(..item_count)?)?;
            place_words(values, item_count, map);
        }
        Some(section.len() - rest.len())
    }

    /// Decodes the groups at the start of `bytes` to the start of `items`, a byte for each item, as
    /// [`Numbers::of_byte`] takes it; what is behind them. None if one has too many planes, if they
    /// are cut short, or if there is too little room.
    #[inline(always)]
    fn narrow_groups<'a>(bytes: &'a [u8], codes: &[u8], signs: &[u8], items: &mut [u32]) -> Option<&'a [u8]> {
        let (items, _) = items.as_chunks_mut::<2>();
        let items = items.get_mut(..signs.len())?;
        let (mut rest, mut codes, mut code) = (bytes, codes.iter(), 0);
        for (group, (to, signs)) in items.iter_mut().zip(signs).enumerate() {
            code = if group & 1 == 0 { *codes.next()? } else { code >> 4 };
            *to = Self::narrow_group(&mut rest, code & 15, *signs)?;
        }
        Some(rest)
    }

    /// Decodes the group at the start of `rest`, and leaves there what is behind it.
    #[inline(always)]
    fn narrow_group(rest: &mut &[u8], code: u8, signs: u8) -> Option<[u32; 2]> {
        if code > MAX_NARROW {
            return None;
        }
        let (planes, behind) = rest.split_at_checked(code.into())?;
        *rest = behind;
        // Twice the plane value and one: the lowest plane is full.
        let (mut low, mut high) = (0xff, u32::from(signs) << 24);
        let take = |word: &mut u32, plane: usize, shift: u32| {
            let byte = planes.get(plane);
            if let Some(byte) = byte {
                *word |= u32::from(*byte) << shift;
            }
            byte.is_some()
        };
        let _ = take(&mut low, 0, 8)
            && take(&mut low, 1, 16)
            && take(&mut low, 2, 24)
            && take(&mut high, 3, 0)
            && take(&mut high, 4, 8)
            && take(&mut high, 5, 16);
        let (low, high) = turned(low, high);
        Some([low, high].map(|numbers| N::bytes(numbers).to_le()))
    }

    /// Decodes the groups at the start of `bytes` to `items`; what is behind them.
    #[inline(never)]
    fn any_groups<'a>(
        self,
        bytes: &'a [u8],
        codes: &[u8],
        signs: &[u8],
        dense: bool,
        items: &mut [u32],
    ) -> Option<&'a [u8]> {
        let (mut rest, mut codes, mut code) = (bytes, codes.iter(), 0);
        for (group, (to, signs)) in items.chunks_mut(8).zip(signs).enumerate() {
            code = if group & 1 == 0 { *codes.next()? } else { code >> 4 };
            let mut eight = [0; 8];
            rest = self.any_group(rest, code & 15, *signs, dense, &mut eight)?;
            to.iter_mut().zip(eight).for_each(|(to, item)| *to = item);
        }
        Some(rest)
    }

    /// Decodes the group at the start of `bytes`; what is behind it.
    #[inline(always)]
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
            let mut words = [0; 8];
            words.iter_mut().zip(planes).for_each(|(to, plane)| *to = *plane);
            let [a, b, c, d, e, f, g, h] = words;
            let (low, high) = turned(u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
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

/// Makes values of the items at the start of `values`, as many as `map` has bits, where it has one,
/// and zeros elsewhere. An item is as long as a value, or shorter.
#[inline(always)]
fn place<T: Copy>(values: &mut [u32], item_count: usize, map: &[u8], value_of: impl Fn(T) -> u32) {
    // From the last one on. As many items are left as the octets that are left have bits, so an
    // item is never behind its value, and what is overwritten has been read.
    let count = values.len();
    let first: *mut u32 = values.as_mut_ptr();
    let mut item = first.cast::<T>().wrapping_add(item_count);
    let mut next = || {
        item = item.wrapping_sub(1);
        // SAFETY: within `values`: there is an item for each bit.
        value_of(unsafe { item.read() })
    };
    // As long as that, always.
    let Some((whole, part)) = map.split_at_checked(count / 8) else { return };
    let mut to = first.wrapping_add(count);
    if let Some(octet) = part.first() {
        for place in (0..count % 8).rev() {
            to = to.wrapping_sub(1);
            let value = if octet >> place & 1 == 0 { 0 } else { next() };
            // SAFETY: a value that is not in a whole octet.
            unsafe { to.write(value) };
        }
    }
    for octet in whole.iter().rev() {
        to = to.wrapping_sub(8);
        if *octet == 0 {
            // SAFETY: this octet has eight values.
            unsafe { to.cast::<[u32; 8]>().write([0; 8]) };
            continue;
        }
        place_four(octet >> 4, to.wrapping_add(4), &mut next);
        place_four(octet & 15, to, &mut next);
    }
}

/// As [`place`], of items that are values. All kinds of numbers share it.
#[inline(never)]
fn place_words(values: &mut [u32], item_count: usize, map: &[u8]) {
    place(values, item_count, map, |word| word);
}

/// Writes four values, of which those are `next()` that have a bit, and the others zero.
#[inline(always)]
fn place_four(bits: u8, to: *mut u32, mut next: impl FnMut() -> u32) {
    macro_rules! by_bits {
        ($($bits:literal)*) => {
            match bits {
                $($bits => for place in (0..4).rev() {
                    let value = if $bits >> place & 1 == 0 { 0 } else { next() };
                    // SAFETY: the caller has four values.
                    unsafe { to.wrapping_add(place).write(value) };
                })*
                _ => {}
            }
        };
    }
    by_bits!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
}
