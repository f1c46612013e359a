//! A section: which values are there, their signs, how wide each group is, its planes (FORMAT.md
//! §4.2).

use heapless::Vec;

use super::value::Coded;
use super::{GROUP_ITEMS, SECTION_VALUES};

/// Bytes of the largest map.
const MAX_OCTETS: usize = SECTION_VALUES / 8;
/// The code of a group with raw items; smaller codes are widths.
const RAW_GROUP: u8 = 15;
/// The widest plane values have so many bits.
const MAX_WIDTH: u8 = 14;

/// The way in which a section says which values are items; the discriminant is its first byte.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Mode {
    /// No value is: all are zero.
    Empty = 0,
    /// A bit for each byte of the map, and the bytes that are not zero.
    TwoLevel = 1,
    /// A bit for each value.
    Flat = 2,
    /// Every value is, and a plane value of 0 stands for zero.
    Dense = 3,
}

/// Bytes that are written one after the other.
struct Output<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl Output<'_> {
    fn push(&mut self, byte: u8) -> Option<()> {
        *self.room.get_mut(self.len)? = byte;
        self.len += 1;
        Some(())
    }
}

/// Encodes at most [`SECTION_VALUES`] values to the start of `room`; the section's length. None if
/// it does not fit.
pub(super) fn encode<T>(values: &[T], room: &mut [u8], encode_value: impl Fn(&T) -> Coded) -> Option<usize> {
    let mut out = Output { room, len: 0 };
    let coded = || values.iter().map(&encode_value);
    let mut map = [0u8; MAX_OCTETS];
    for (place, coded) in coded().enumerate() {
        *map.get_mut(place / 8)? |= u8::from(coded != Coded::Zero) << (place % 8);
    }
    let map = map.get(..values.len().div_ceil(8))?;
    let mode = choose(map, values.len(), coded().any(|coded| matches!(coded, Coded::Raw(_))));
    out.push(mode as u8)?;
    match mode {
        Mode::Empty => return Some(out.len),
        Mode::TwoLevel => {
            for octets in map.chunks(8) {
                let present = octets.iter().enumerate().map(|(i, octet)| u8::from(*octet != 0) << i);
                out.push(present.fold(0, |all, bit| all | bit))?;
            }
            map.iter().filter(|octet| **octet != 0).try_for_each(|octet| out.push(*octet))?;
        }
        Mode::Flat => map.iter().try_for_each(|octet| out.push(*octet))?,
        Mode::Dense => {}
    }
    let mut items: Vec<Coded, SECTION_VALUES> = Vec::new();
    for coded in coded().filter(|coded| mode == Mode::Dense || *coded != Coded::Zero) {
        items.push(coded).ok()?;
    }
    let groups = || items.chunks(GROUP_ITEMS);
    for group in groups() {
        out.push(bits(group, |coded| matches!(coded, Coded::Bin { negative: true, .. })))?;
    }
    for pair in items.chunks(2 * GROUP_ITEMS) {
        let code = |group: Option<&[Coded]>| group.map_or(0, |group| code(group, mode));
        let mut pair = pair.chunks(GROUP_ITEMS);
        out.push(code(pair.next()) | code(pair.next()) << 4)?;
    }
    for group in groups() {
        if code(group, mode) == RAW_GROUP {
            out.push(bits(group, |coded| matches!(coded, Coded::Raw(_))))?;
            out.push(width(group, mode))?;
        }
        for plane in 0..width(group, mode) {
            out.push(bits(group, |coded| plane_value(coded, mode) >> plane & 1 != 0))?;
        }
        for coded in group {
            if let Coded::Raw(raw) = coded {
                raw.to_le_bytes().into_iter().try_for_each(|byte| out.push(byte))?;
            }
        }
    }
    Some(out.len)
}

/// The mode that every encoder has to choose for values with this map.
fn choose(map: &[u8], values: usize, raw: bool) -> Mode {
    let nonzero: u32 = map.iter().map(|octet| octet.count_ones()).sum();
    let present = map.iter().filter(|octet| **octet != 0).count();
    if nonzero == 0 {
        Mode::Empty
    } else if !raw && 16 * nonzero as usize >= 13 * values {
        Mode::Dense
    } else if map.len().div_ceil(8) + present < map.len() {
        Mode::TwoLevel
    } else {
        Mode::Flat
    }
}

/// A byte with a bit for each item of a group.
fn bits(group: &[Coded], is_set: impl Fn(Coded) -> bool) -> u8 {
    group.iter().enumerate().fold(0, |all, (item, coded)| all | u8::from(is_set(*coded)) << item)
}

/// The value in the planes for an item.
const fn plane_value(coded: Coded, mode: Mode) -> u16 {
    match (coded, mode) {
        (Coded::Bin { index, .. }, Mode::Dense) => index + 1,
        (Coded::Bin { index, .. }, _) => index,
        (Coded::Zero | Coded::Raw(_), _) => 0,
    }
}

/// Planes of a group: as many as its largest plane value has bits.
fn width(group: &[Coded], mode: Mode) -> u8 {
    let all = group.iter().fold(0, |all, coded| all | plane_value(*coded, mode));
    (u16::BITS - all.leading_zeros()) as u8
}

fn code(group: &[Coded], mode: Mode) -> u8 {
    let raw = group.iter().any(|coded| matches!(coded, Coded::Raw(_)));
    if raw { RAW_GROUP } else { width(group, mode) }
}

/// Bytes that are read one after the other.
struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..)?.get(..len)?;
        self.at += len;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }
}

/// A section up to its groups.
struct Head<'a> {
    /// A bit for each value: whether it is an item.
    map: [u8; MAX_OCTETS],
    dense: bool,
    /// A byte for each group.
    signs: &'a [u8],
    /// Four bits for each group.
    codes: &'a [u8],
}

impl<'a> Head<'a> {
    /// Reads the head of a section of `values` values, at most [`SECTION_VALUES`].
    fn read(input: &mut Input<'a>, values: usize) -> Option<Self> {
        let octets = values.div_ceil(8);
        let mut whole = [0u8; MAX_OCTETS];
        let map = whole.get_mut(..octets)?;
        let mode = input.byte()?;
        match mode {
            0 => {}
            1 => {
                let presence = input.take(octets.div_ceil(8))?;
                has_no_bit_from(presence, octets).then_some(())?;
                for (place, octet) in map.iter_mut().enumerate() {
                    if presence.get(place / 8)? >> (place % 8) & 1 != 0 {
                        *octet = input.byte()?;
                    }
                }
            }
            2 => map.copy_from_slice(input.take(octets)?),
            3 => {
                map.fill(u8::MAX);
                if !values.is_multiple_of(8) {
                    *map.last_mut()? = (1 << (values % 8)) - 1;
                }
            }
            _ => return None,
        }
        has_no_bit_from(map, values).then_some(())?;
        let items: u32 = map.iter().map(|octet| octet.count_ones()).sum();
        let groups = (items as usize).div_ceil(GROUP_ITEMS);
        let signs = input.take(groups)?;
        let codes = input.take(groups.div_ceil(2))?;
        has_no_bit_from(codes, 4 * groups).then_some(())?;
        Some(Self { map: whole, dense: mode == Mode::Dense as u8, signs, codes })
    }

    /// Reads what group number `group` holds beside its sign byte: which of its items are raw, its
    /// planes, the raw values.
    fn group(&self, input: &mut Input<'a>, group: usize) -> Option<(u8, &'a [u8], &'a [u8])> {
        let code = self.codes.get(group / 2)? >> (4 * (group % 2)) & 15;
        let (raw, width) = if code == RAW_GROUP { (input.byte()?, input.byte()?) } else { (0, code) };
        if width > MAX_WIDTH {
            return None;
        }
        // Four bytes for each bit, also of items that are absent.
        Some((raw, input.take(width.into())?, input.take(4 * raw.count_ones() as usize)?))
    }
}

/// The length of the section of `values` values, at most [`SECTION_VALUES`], at the start of
/// `bytes`; None if [`decode`] would refuse it. It decodes nothing, and needs no room.
pub(super) fn len(bytes: &[u8], values: usize) -> Option<usize> {
    let mut input = Input { bytes, at: 0 };
    let head = Head::read(&mut input, values)?;
    for group in 0..head.signs.len() {
        head.group(&mut input, group)?;
    }
    Some(input.at)
}

/// Whether a group of the section of `values` values at the start of `bytes` may have raw items. If
/// [`decode`] would refuse the section, any answer may come.
pub(super) fn may_have_raw(bytes: &[u8], values: usize) -> bool {
    let octets = values.div_ceil(8);
    let ones = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
    let mut input = Input { bytes, at: 0 };
    let mut groups_have = || {
        let items = match input.byte()? {
            0 => return Some(false),
            1 => {
                let present = ones(input.take(octets.div_ceil(8))?);
                ones(input.take(present)?)
            }
            2 => ones(input.take(octets)?),
            _ => values,
        };
        let groups = items.div_ceil(GROUP_ITEMS);
        input.take(groups)?;
        let codes = input.take(groups.div_ceil(2))?;
        Some(codes.iter().any(|pair| pair & 15 == RAW_GROUP || pair >> 4 == RAW_GROUP))
    };
    groups_have().unwrap_or(true)
}

/// Decodes the section at the start of `bytes` to at most [`SECTION_VALUES`] values; its length.
/// None if it is cut short, or has a bit or a number that no section has.
pub(super) fn decode<T>(bytes: &[u8], values: &mut [T], decode_value: impl Fn(Coded) -> T) -> Option<usize> {
    let mut input = Input { bytes, at: 0 };
    let head = Head::read(&mut input, values.len())?;
    values.fill_with(|| decode_value(Coded::Zero));
    let is_item = |place: usize| head.map.get(place / 8).is_some_and(|octet| octet >> (place % 8) & 1 != 0);
    let mut items = values.iter_mut().enumerate().filter(|(place, _)| is_item(*place));
    for (group, signs) in head.signs.iter().enumerate() {
        let (raw, planes, raw_values) = head.group(&mut input, group)?;
        let mut raw_values = raw_values.as_chunks::<4>().0.iter();
        for item in 0..GROUP_ITEMS {
            let bit = |byte: &u8| byte >> item & 1;
            let raw_value = if bit(&raw) != 0 { Some(*raw_values.next()?) } else { None };
            let Some((_, value)) = items.next() else { continue };
            let plane_value = planes.iter().rev().fold(0u16, |all, plane| all << 1 | u16::from(bit(plane)));
            let negative = bit(signs) != 0;
            let coded = match (raw_value, head.dense, plane_value) {
                (Some(raw), ..) => Coded::Raw(u32::from_le_bytes(raw)),
                (None, true, 0) => Coded::Zero,
                (None, true, p) => Coded::Bin { negative, index: p - 1 },
                (None, false, index) => Coded::Bin { negative, index },
            };
            *value = decode_value(coded);
        }
    }
    Some(input.at)
}

/// Whether no bit of `bytes` is set from number `from` on.
fn has_no_bit_from(bytes: &[u8], from: usize) -> bool {
    let is_set = |bit: usize| bytes.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 != 0);
    !(from..8 * bytes.len()).any(is_set)
}
