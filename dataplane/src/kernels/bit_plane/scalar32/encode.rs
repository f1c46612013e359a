//! Values and sums to sections.
//!
//! The short way keeps a byte for each item, the long one a word of 16 bits.

use core::mem::MaybeUninit;

use super::super::{MAX_OCTETS, RAW_GROUP, encode_with, mode};
use super::{ONES, turned};
use crate::codec::bit_plane::sums::MAX_CODED;
use crate::codec::bit_plane::{Bound, SECTION_VALUES};
use crate::codec::{EncodeError, VALUE_LEN};
use crate::kernels::scalar32::Writer;

const SIGN: u32 = 1 << 31;
/// The largest plane value, and one, that is a byte with its sign.
const MAX_NARROW: u32 = 127;

/// As [`crate::codec::bit_plane::encode_payload`].
pub(in super::super::super) fn encode(
    values: &[u8],
    out: &mut [u8],
    bound: Bound,
) -> Result<usize, EncodeError> {
    encode_with(values, out, |values, room| encode_section(values, room, bound))
}

/// Encodes a section to the start of `room`; its length. Behind the section, `room` may be
/// overwritten.
pub(in super::super) fn encode_section(values: &[u8], room: &mut [u8], bound: Bound) -> Option<usize> {
    let encoder = Encoder(Values::new(bound));
    // SAFETY: every bit pattern of four bytes is a `u32`.
    let (before, words, _) = unsafe { values.align_to::<u32>() };
    if before.is_empty() { encoder.section(words, room) } else { encoder.moved(values, room) }
}

/// As [`crate::codec::bit_plane::sums::encode`].
pub(in super::super::super) fn encode_sums(sums: &[i32], room: &mut [u8]) -> Option<usize> {
    // SAFETY: every bit pattern of an `i32` is a `u32`; both are aligned alike.
    Encoder(Sums).section(unsafe { sums.align_to() }.1, room)
}

/// Stands for a raw value; indices of bins are smaller.
const RAW: u16 = 1 << 14;
/// The sign of a bin beside its index.
const NEGATIVE: u16 = 1 << 15;

/// The source of items.
trait Source: Copy {
    /// Whether a section is worth a guess that it is dense.
    const OFTEN_DENSE: bool;

    /// The number that a word in memory is.
    fn bits(word: u32) -> u32;

    fn is_zero(self, bits: u32) -> bool;

    fn is_raw(self, bits: u32) -> bool;

    /// Plane value and sign of what is not zero, or [`RAW`].
    fn item(self, bits: u32) -> u16;

    /// Whether what is not raw has a plane value below [`MAX_NARROW`]; no if it is raw.
    fn is_narrow(self, bits: u32) -> bool;

    /// In the lowest byte, what [`Self::numbers`] makes an item of; 0 for a zero.
    fn narrow(self, bits: u32) -> u32;

    /// Four items: of each the plane value and one, and its sign in the top bit.
    fn numbers(bytes: u32) -> u32;
}

/// Values within a bound.
#[derive(Clone, Copy)]
struct Values {
    /// The borders of coded, wide and raw values, compared with a value without its sign: the
    /// exponent is then the topmost byte.
    from: u32,
    wide_from: u32,
    raw_from: u32,
    /// Less the exponent: by how much a significand, left-aligned, is shifted to its magnitude in
    /// whole bounds; 18 to 31.
    shift: u32,
}

impl Values {
    const fn new(bound: Bound) -> Self {
        let from = bound.coded_from() << 24;
        Self {
            from,
            // 254 bounds: 127/64 of 2^7.
            wide_from: from + (7 << 24) + (63 << 18),
            raw_from: bound.raw_from() << 24,
            shift: bound.raw_from() + 17,
        }
    }

    /// The index of the bin of a coded value.
    #[inline(always)]
    const fn index(self, value: u32) -> u32 {
        let significand = value << 8 | SIGN;
        significand.wrapping_shr(self.shift.wrapping_sub(value << 1 >> 24)) >> 1
    }
}

impl Source for Values {
    const OFTEN_DENSE: bool = false;

    #[inline(always)]
    fn bits(word: u32) -> u32 {
        word.to_le()
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
        self.index(value) as u16 | (value >> 16) as u16 & NEGATIVE
    }

    #[inline(always)]
    fn is_narrow(self, value: u32) -> bool {
        value << 1 < self.wide_from
    }

    #[inline(always)]
    fn narrow(self, value: u32) -> u32 {
        if self.is_zero(value) { 0 } else { (self.index(value) + 1) | value >> 24 & 0x80 }
    }

    #[inline(always)]
    fn numbers(bytes: u32) -> u32 {
        bytes
    }
}

/// Sums.
#[derive(Clone, Copy)]
struct Sums;

impl Source for Sums {
    // A sum of four sparse blocks is.
    const OFTEN_DENSE: bool = true;

    #[inline(always)]
    fn bits(word: u32) -> u32 {
        word
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

    #[inline(always)]
    fn is_narrow(self, sum: u32) -> bool {
        sum.wrapping_add(MAX_NARROW) <= 2 * MAX_NARROW
    }

    #[inline(always)]
    fn narrow(self, sum: u32) -> u32 {
        sum
    }

    #[inline(always)]
    fn numbers(bytes: u32) -> u32 {
        // Negative bytes: all bits but the sign are inverted, and one is added, which is no carry
        // since none is -128.
        let negative = bytes >> 7 & ONES;
        (bytes ^ ((negative << 7) - negative)) + negative
    }
}

/// Items of a byte each, and padding.
#[repr(align(4))]
struct Items(MaybeUninit<[u8; SECTION_VALUES + 8]>);

impl Items {
    const fn first(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }

    /// For an item for each value of a section, and padding.
    #[inline(always)]
    const fn writer(&mut self) -> Writer {
        // SAFETY: callers write no more.
        unsafe { Writer::new(self.0.as_mut_ptr().cast()) }
    }
}

/// From values, or sums, to sections.
#[derive(Clone, Copy)]
struct Encoder<S>(S);

impl<S: Source> Encoder<S> {
    /// Encodes a section to the start of `room`; its length.
    #[inline(never)]
    fn section(self, values: &[u32], room: &mut [u8]) -> Option<usize> {
        if values.len() > SECTION_VALUES {
            return None;
        }
        self.narrow(values, room).or_else(|| self.wide(values, room))
    }

    /// As [`Self::section`], of values that do not lie on words.
    #[inline(never)]
    fn moved(self, values: &[u8], room: &mut [u8]) -> Option<usize> {
        let mut words = [0; SECTION_VALUES];
        let (values, _) = values.as_chunks::<VALUE_LEN>();
        words.iter_mut().zip(values).for_each(|(word, value)| *word = u32::from_ne_bytes(*value));
        self.section(words.get(..values.len())?, room)
    }

    /// Encodes a section of narrow items. None if there is another, or if there might be too little
    /// room.
    #[inline(never)]
    fn narrow(self, values: &[u32], room: &mut [u8]) -> Option<usize> {
        let octets = values.len().div_ceil(8);
        // Mode and map; of each group its signs, half a byte of code, seven planes.
        if room.len() < 1 + 9 * octets + octets.div_ceil(2) {
            return None;
        }
        let mut padded = [0; 8];
        let (whole, part) = values.as_chunks();
        padded.iter_mut().zip(part).for_each(|(to, word)| *to = *word);
        let of_eight = || (0..octets).map(|octet| whole.get(octet).unwrap_or(&padded));

        let mut items = Items(MaybeUninit::uninit());
        // The map is made behind the place that mode and map take.
        let (front, behind) = room.split_at_mut_checked(1 + octets)?;
        let map = behind.get_mut(..octets)?;
        let mut present = 0;
        let guessed =
            if S::OFTEN_DENSE { self.all(of_eight(), values.len(), true, &mut items) } else { None };
        let (mut to, count) = if let Some(to) = guessed {
            (to, values.len())
        } else {
            let mut to = items.writer();
            for (words, map) in of_eight().zip(&mut *map) {
                *map = self.octet::<false>(words, &mut to)? as u8;
                present += usize::from(*map != 0);
            }
            let nonzero = to.written(items.first());
            if nonzero == 0 {
                *front.first_mut()? = mode::EMPTY;
                return Some(1);
            }
            if is_dense(nonzero, values.len()) {
                (self.all(of_eight(), values.len(), false, &mut items)?, values.len())
            } else {
                (to, nonzero)
            }
        };
        // If there is no zero, a section is dense.
        let dense = count == values.len();
        // Absent items have the plane value 0.
        let less = if dense { 0 } else { ONES };
        (0..8).for_each(|_| to.put(less));

        let signs_at = head(front, map, present, dense)?;
        let groups = count.div_ceil(8);
        let codes_at = signs_at + groups;
        let start = room.as_mut_ptr();
        // SAFETY: as many groups as there are octets, or fewer, have room, by the comparison above.
        let at = |place: usize| unsafe { Writer::new(start.wrapping_add(place)) };
        let mut codes = at(codes_at);
        let mut to = Groups {
            items: items.first().cast(),
            less,
            signs: at(signs_at),
            planes: at(codes_at + groups.div_ceil(2)),
        };
        for _ in 0..groups / 2 {
            let code = to.put::<S>();
            codes.put(code | to.put::<S>() << 4);
        }
        if groups & 1 != 0 {
            codes.put(to.put::<S>());
        }
        Some(to.planes.written(start))
    }

    /// Takes all of so many values as items, also zeros. None if another is not narrow; with
    /// `guess` also if the section is not dense, or does not look so before its end.
    #[inline(never)]
    fn all<'a>(
        self,
        octets: impl Iterator<Item = &'a [u32; 8]>,
        count: usize,
        guess: bool,
        items: &mut Items,
    ) -> Option<Writer> {
        let mut to = items.writer();
        // Three zeros in sixteen values are allowed, and some more at the beginning.
        let (mut zeros, mut allowed) = (0, 3);
        for words in octets {
            zeros += self.octet::<true>(words, &mut to)?;
            allowed += 3;
            if guess && 2 * zeros > allowed {
                return None;
            }
        }
        let padding = to.written(items.first()) - count;
        (!guess || is_dense(count + padding - zeros as usize, count)).then_some(to)
    }

    /// Appends the items of eight values to `to`; a bit for each. If `ALL` are items, how many are
    /// zero. None if one is not narrow.
    #[inline(always)]
    fn octet<const ALL: bool>(self, words: &[u32; 8], to: &mut Writer) -> Option<u32> {
        let [a, b, c, d, e, f, g, h] = *words;
        let mut result = 0;
        let mut item = |place: u32, word| {
            let bits = S::bits(word);
            let is_zero = self.0.is_zero(bits);
            if !is_zero && !self.0.is_narrow(bits) {
                return None;
            }
            if ALL || !is_zero {
                to.put(self.0.narrow(bits));
            }
            if ALL && is_zero {
                result += 1;
            } else if !ALL && !is_zero {
                result |= 1 << place;
            }
            Some(())
        };
        item(0, a)?;
        item(1, b)?;
        item(2, c)?;
        item(3, d)?;
        item(4, e)?;
        item(5, f)?;
        item(6, g)?;
        item(7, h)?;
        Some(result)
    }

    /// Encodes any section.
    #[inline(never)]
    fn wide(self, values: &[u32], room: &mut [u8]) -> Option<usize> {
        let mut map = [0; MAX_OCTETS];
        let (mut nonzero, mut raw) = (0, false);
        let mut octets = values.chunks(8);
        for octet in &mut map {
            // Not zipped: a zip that is not inlined divides by the chunks' length, which it does
            // not know.
            let Some(values) = octets.next() else { break };
            for (place, word) in values.iter().enumerate() {
                let bits = S::bits(*word);
                if !self.0.is_zero(bits) {
                    raw |= self.0.is_raw(bits);
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
        let dense = !raw && is_dense(nonzero, values.len());
        let present = map.iter().filter(|octet| **octet != 0).count();
        let len = head(room, map, present, dense)?;
        let all = || values.iter().map(|word| S::bits(*word));
        let items = all()
            .filter(|bits| dense || !self.0.is_zero(*bits))
            .map(|bits| if self.0.is_zero(bits) { 0 } else { self.0.item(bits) + u16::from(dense) });
        let count = if dense { values.len() } else { nonzero };
        Output { room, len }.groups(count, items, all().filter(|bits| self.0.is_raw(*bits)))
    }
}

/// Whether so many of the values of a section, none of them raw, make it dense:
/// `16 * nonzero >= 13 * count`, without multiplying.
const fn is_dense(nonzero: usize, count: usize) -> bool {
    nonzero << 4 >= (count << 4) - (count << 2) + count
}

/// Writes mode and map, in which so many bytes are not 0, to the start of `room`; the length of
/// both.
#[inline(always)]
fn head(room: &mut [u8], map: &[u8], present: usize, dense: bool) -> Option<usize> {
    let (mode, room) = room.split_first_mut()?;
    let presence_len = map.len().div_ceil(8);
    if dense {
        *mode = mode::DENSE;
        Some(1)
    } else if presence_len + present < map.len() {
        *mode = mode::TWO_LEVEL;
        let (presence, room) = room.split_at_mut_checked(presence_len)?;
        let mut there = room.get_mut(..present)?.iter_mut();
        for (presence, octets) in presence.iter_mut().zip(map.chunks(8)) {
            *presence = 0;
            for (place, octet) in octets.iter().enumerate() {
                if *octet != 0 {
                    *presence |= 1 << place;
                    *there.next()? = *octet;
                }
            }
        }
        Some(1 + presence_len + present)
    } else {
        *mode = mode::FLAT;
        room.get_mut(..map.len())?.copy_from_slice(map);
        Some(1 + map.len())
    }
}

/// The source of the next group, and the destinations of its parts.
struct Groups {
    /// Bytes of items, all of which have been written.
    items: *const u32,
    /// The difference of plane values and the numbers of items, for each of four.
    less: u32,
    signs: Writer,
    planes: Writer,
}

impl Groups {
    /// Writes signs and planes of the next group; its code.
    #[inline(always)]
    fn put<S: Source>(&mut self) -> u32 {
        // SAFETY: items or padding, which lie on words.
        let low = unsafe { self.items.read() };
        // SAFETY: likewise.
        let high = unsafe { self.items.wrapping_add(1).read() };
        self.items = self.items.wrapping_add(2);
        let [low, high] = [low, high].map(|bytes| S::numbers(bytes.to_le()) - self.less);
        let (low, high) = turned(low, high);
        self.signs.put(high >> 24);
        put_planes(&mut self.planes, low, high & 0x00ff_ffff)
    }
}

/// Writes the planes of a group up to the last that is not 0; how many. The first four are `low`,
/// the others `high`.
#[inline(always)]
fn put_planes(to: &mut Writer, low: u32, high: u32) -> u32 {
    // Not a loop: compilers would leave it one.
    let some = |to: &mut Writer, mut planes: u32, mut width: u32| {
        let mut put = || {
            let more = planes != 0;
            if more {
                to.put(planes);
                planes >>= 8;
                width += 1;
            }
            more
        };
        let _ = put() && put() && put() && put();
        width
    };
    if high == 0 {
        return some(to, low, 0);
    }
    for shift in [0, 8, 16, 24] {
        to.put(low >> shift);
    }
    some(to, high, 4)
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

    /// Writes signs, codes and planes of `count` items; what has been written by then. The raw ones
    /// are `raw_values`, in order.
    #[inline(always)]
    fn groups(
        mut self,
        count: usize,
        mut items: impl Iterator<Item = u16>,
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
                let item = items.next()?;
                signs |= ((item >> 15) as u8) << place;
                if item & !NEGATIVE == RAW {
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
            for (first, planes) in [(0, plane_values), (8, plane_values.map(|value| value >> 8))] {
                let [a, b, c, d, e, f, g, h] = planes.map(|value| value as u8);
                let (low, high) = turned(u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
                let planes = low.to_le_bytes().into_iter().chain(high.to_le_bytes());
                planes
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
