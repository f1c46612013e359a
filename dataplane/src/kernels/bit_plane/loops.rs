//! The loops that the portable kernel and NEON share: two groups, or two bytes of the map, at a
//! time.
//!
//! `#[inline(always)]`: each is compiled into the kernel that calls it, with that kernel's
//! instructions.

use super::super::loops::padded;
use super::{
    GROUP_ROOM, MAX_OCTETS, MAX_WIDTH, MORE_ROOM, RAW_GROUP, decode_with, encode_with, mode, scalar32,
};
use crate::codec::bit_plane::{Bound, SECTION_VALUES};
use crate::codec::{DecodeError, EncodeError, VALUE_LEN};

/// Values, or items, of a step.
const STEP: usize = 16;
/// Bytes of a step's values.
pub(super) const STEP_LEN: usize = STEP * VALUE_LEN;
/// A step of items, a word each.
pub(super) type Words = [u8; 2 * STEP];
/// The planes of two groups, 16 each, the lowest first.
pub(super) type Planes = [[u8; 16]; 2];
/// Eight decoded values.
pub(super) type Octet = [u8; 8 * VALUE_LEN];

/// Magnitudes of coded values, in whole bounds, are smaller.
pub(super) const RAW_FROM: i16 = 1 << 14;

/// The values of a section that are not zero.
pub(super) struct Items {
    /// The magnitude of each in whole bounds, with its sign; of a raw one, something from
    /// [`RAW_FROM`] on. Zeros behind the last to the end of its step.
    words: [u8; 2 * (SECTION_VALUES + STEP)],
    /// A bit for each value.
    map: [[u8; 2]; MAX_OCTETS / 2],
    count: usize,
}

impl Items {
    /// Takes the values of a section with `close_up`, which writes the words of those of a step
    /// that are not zero, and anything behind them; the bits of the map.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        values: &[u8],
        mut close_up: impl FnMut(&[u8; STEP_LEN], &mut Words) -> [u8; 2],
    ) {
        let mut count = 0;
        let mut step = |values: &[u8; STEP_LEN], map: &mut [u8; 2]| {
            if let Some(to) = self.words.get_mut(2 * count..).and_then(|words| words.first_chunk_mut()) {
                *map = close_up(values, to);
                count += u16::from_le_bytes(*map).count_ones() as usize;
            }
        };
        self.map = [[0; 2]; MAX_OCTETS / 2];
        let mut map = self.map.iter_mut();
        let (whole, part) = values.as_chunks();
        for (values, map) in whole.iter().zip(&mut map) {
            step(values, map);
        }
        if !part.is_empty()
            && let Some(map) = map.next()
        {
            step(&padded(part), map);
        }
        if let Some(behind) = self.words.get_mut(2 * count..).and_then(|words| words.first_chunk_mut::<32>())
        {
            *behind = [0; 32];
        }
        self.count = count;
    }
}

/// The written parts of two groups.
pub(super) struct Groups {
    pub(super) planes: Planes,
    /// Of each word its sign.
    pub(super) signs: [u8; 2],
    /// Which words are of raw values.
    pub(super) raw: [u8; 2],
    /// Planes up to the last that is not zero, of each group.
    pub(super) widths: [u8; 2],
}

/// As [`crate::codec::bit_plane::encode_payload`]. `take` fills items from the values of a section;
/// `transpose` makes groups of two times eight words, whose plane value is one more where a bit of
/// its second argument is set; planes of raw words do not matter if its third is false, and are
/// zero if it is true. `spread` puts words to where its second argument has a bit, and zeros
/// elsewhere.
#[inline(always)]
pub(super) fn encode(
    values: &[u8],
    out: &mut [u8],
    bound: Bound,
    mut take: impl FnMut(&mut Items, &[u8]),
    transpose: impl Fn(&Words, [u8; 2], bool) -> Groups,
    spread: impl Fn(&[u8; 16], u8) -> [u8; 16],
) -> Result<usize, EncodeError> {
    let mut items =
        Items { words: [0; 2 * (SECTION_VALUES + STEP)], map: [[0; 2]; MAX_OCTETS / 2], count: 0 };
    encode_with(values, out, |values, room| {
        take(&mut items, values);
        let count = values.len() / VALUE_LEN;
        if items.count == 0 {
            *room.first_mut()? = mode::EMPTY;
            return Some(1);
        }
        let room_for_groups = MORE_ROOM + GROUP_ROOM * count.div_ceil(8);
        if room_for_groups <= room.len()
            && let Some(len) = encode_coded(&items, count, room, &transpose, &spread)
        {
            return Some(len);
        }
        let mut raw = [0; VALUE_LEN * SECTION_VALUES + 32];
        let raw_count = close_up_raw(values, bound, &mut raw);
        if raw_count > 0 && room_for_groups + VALUE_LEN * raw_count <= room.len() {
            return encode_raw(&items, count, &raw, room, &transpose);
        }
        // Too little room for stores beyond the end. This one has none, and needs less stack than a
        // buffer would.
        scalar32::encode_section(values, room, bound)
    })
}

/// Encodes a section of `count` values to the start of `room`, which is large enough. None if one
/// is raw.
#[inline(always)]
fn encode_coded(
    items: &Items,
    count: usize,
    room: &mut [u8],
    transpose: impl Fn(&Words, [u8; 2], bool) -> Groups,
    spread: impl Fn(&[u8; 16], u8) -> [u8; 16],
) -> Option<usize> {
    if 16 * items.count < 13 * count {
        let at = put_map(items, count, room)?;
        let (words, _) = items.words.as_chunks();
        return put_coded(items.count, room, at, words.iter().map(|words| transpose(words, [0; 2], false)));
    }
    // Every value is an item: those that are not zero go back to where they were.
    *room.first_mut()? = mode::DENSE;
    let mut at = 0;
    let groups = items.map.iter().map(|map| {
        let mut words = [0; 2 * STEP];
        for (bits, to) in map.iter().zip(words.as_chunks_mut().0) {
            if let Some(closed) = items.words.get(at..).and_then(|words| words.first_chunk()) {
                *to = spread(closed, *bits);
            }
            at += 2 * bits.count_ones() as usize;
        }
        transpose(&words, *map, false)
    });
    put_coded(count, room, 1, groups)
}

/// Writes signs, codes and planes of `count` items from byte `signs_at` on; where they end. None if
/// a value is raw.
#[inline(always)]
fn put_coded(
    count: usize,
    room: &mut [u8],
    signs_at: usize,
    pairs: impl Iterator<Item = Groups>,
) -> Option<usize> {
    let groups = count.div_ceil(8);
    let (signs_room, room_behind) = room.get_mut(signs_at..)?.split_at_mut_checked(groups)?;
    let (codes, planes) = room_behind.split_at_mut_checked(groups.div_ceil(2))?;
    let mut at = 0;
    let mut raw = 0;
    for ((code, signs), pair) in codes.iter_mut().zip(signs_room.chunks_mut(2)).zip(pairs) {
        raw |= u16::from_le_bytes(pair.raw);
        for (to, sign) in signs.iter_mut().zip(pair.signs) {
            *to = sign;
        }
        let [first, second] = pair.widths;
        *code = first | second << 4;
        *planes.get_mut(at..)?.first_chunk_mut()? = pair.planes[0];
        at += usize::from(first);
        *planes.get_mut(at..)?.first_chunk_mut()? = pair.planes[1];
        at += usize::from(second);
    }
    (raw == 0).then_some(signs_at + groups + groups.div_ceil(2) + at)
}

/// Encodes a section of `count` values, some of them `raw`, to the start of `room`, which is large
/// enough.
#[inline(always)]
fn encode_raw(
    items: &Items,
    count: usize,
    mut raw: &[u8],
    room: &mut [u8],
    transpose: impl Fn(&Words, [u8; 2], bool) -> Groups,
) -> Option<usize> {
    let signs_at = put_map(items, count, room)?;
    let groups = items.count.div_ceil(8);
    let (signs_room, room_behind) = room.get_mut(signs_at..)?.split_at_mut_checked(groups)?;
    let (codes, bytes) = room_behind.split_at_mut_checked(groups.div_ceil(2))?;
    let (words, _) = items.words.as_chunks();
    let mut at = 0;
    let mut signs_of_pairs = signs_room.chunks_mut(2);
    for (words, code) in words.iter().zip(codes) {
        // Not zipped: a zip that is not inlined divides by the chunks' length, which it does not
        // know.
        let signs = signs_of_pairs.next()?;
        let pair = transpose(words, [0; 2], true);
        for (to, sign) in signs.iter_mut().zip(pair.signs) {
            *to = sign;
        }
        *code = 0;
        let of_group = pair.planes.iter().zip(pair.raw).zip(pair.widths).enumerate();
        for (group, ((planes, is_raw), width)) in of_group {
            // All is written, whether it is there or not, and then over.
            let has_raw = is_raw != 0;
            let (head, raw_len) = (2 * usize::from(has_raw), VALUE_LEN * is_raw.count_ones() as usize);
            *code |= if has_raw { RAW_GROUP } else { width } << (4 * group);
            let bytes = bytes.get_mut(at..)?;
            *bytes.first_chunk_mut()? = [is_raw, width];
            *bytes.get_mut(head..)?.first_chunk_mut()? = *planes;
            *bytes.get_mut(head + usize::from(width)..)?.first_chunk_mut::<32>()? = *raw.first_chunk()?;
            raw = raw.get(raw_len..)?;
            at += head + usize::from(width) + raw_len;
        }
    }
    Some(signs_at + groups + groups.div_ceil(2) + at)
}

/// Writes the raw ones among `values` to `raw`; how many they are.
#[inline(always)]
fn close_up_raw(values: &[u8], bound: Bound, raw: &mut [u8; VALUE_LEN * SECTION_VALUES + 32]) -> usize {
    let from = bound.raw_from() << 24;
    let mut count = 0;
    for octet in values.chunks(8 * VALUE_LEN) {
        let (octet, _) = octet.as_chunks::<VALUE_LEN>();
        // Without a branch for each value, so that compilers can look at eight at once.
        if !octet.iter().fold(false, |any, value| any | (u32::from_le_bytes(*value) << 1 >= from)) {
            continue;
        }
        for value in octet {
            if let Some(to) = raw.get_mut(VALUE_LEN * count..).and_then(|raw| raw.first_chunk_mut()) {
                *to = *value;
            }
            count += usize::from(u32::from_le_bytes(*value) << 1 >= from);
        }
    }
    count
}

/// Writes mode and map to the start of `room`; their length.
#[inline(always)]
fn put_map(items: &Items, count: usize, room: &mut [u8]) -> Option<usize> {
    let octets = count.div_ceil(8);
    let map = items.map.as_flattened();
    let mut presence = [0; MAX_OCTETS / 8];
    let mut present = 0;
    for (octets, bits) in map.as_chunks().0.iter().zip(&mut presence) {
        *bits = nonzero_bytes(u64::from_le_bytes(*octets));
        present += bits.count_ones() as usize;
    }
    let presence_len = octets.div_ceil(8);
    let (first, room) = room.split_first_mut()?;
    if presence_len + present >= octets {
        *first = mode::FLAT;
        room.get_mut(..octets)?.copy_from_slice(map.get(..octets)?);
        return Some(1 + octets);
    }
    *first = mode::TWO_LEVEL;
    *room.first_chunk_mut()? = presence;
    let room = room.get_mut(presence_len..)?.first_chunk_mut::<{ MAX_OCTETS + 1 }>()?;
    let mut at = 0;
    for octet in map {
        *room.get_mut(at)? = *octet;
        at += usize::from(*octet != 0);
    }
    Some(1 + presence_len + at)
}

/// A bit for each byte that is not zero.
#[inline(always)]
const fn nonzero_bytes(bytes: u64) -> u8 {
    const LOWEST: u64 = 0x0101_0101_0101_0101;
    // Each byte's seven lower bits carry to the highest if one is set.
    let highest = ((bytes & !(LOWEST << 7)) + 0x7f * LOWEST) | bytes;
    ((highest >> 7 & LOWEST).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// As [`crate::codec::bit_plane::decode_payload`]. `words` makes words, `2p + 1` with its sign, of
/// the planes of two groups, as many of each as the second argument says, and signs; `dense` is
/// whether they are `2p - 1`, and 0 for 0. `place` writes eight values from words, to where its
/// second argument has a bit, and zeros elsewhere.
#[inline(always)]
pub(super) fn decode(
    sections: &[u8],
    values: &mut [u8],
    words: impl Fn(&Planes, [u8; 2], [u8; 2], bool) -> Words,
    place: impl Fn(&[u8; 16], u8, &mut Octet),
) -> Result<usize, DecodeError> {
    let mut items = [0; 2 * (SECTION_VALUES + STEP)];
    decode_with(sections, values, |section, values| {
        let count = values.len() / VALUE_LEN;
        let Header { mode, map, item_count, len } = Header::parse(section, count)?;
        if item_count == 0 {
            values.fill(0);
            return Some(len);
        }
        let groups = item_count.div_ceil(8);
        let (signs, behind) = section.get(len..)?.split_at_checked(groups)?;
        let (codes, bytes) = behind.split_at_checked(groups.div_ceil(2))?;
        if !groups.is_multiple_of(2) && codes.last()? >> 4 != 0 {
            return None;
        }
        let dense = mode == mode::DENSE;
        let mut raw = RawGroups { groups: [(0, 0, 0); MAX_OCTETS], count: 0 };
        let mut at = 0;
        let (to, _) = items.as_chunks_mut();
        let has_raw = codes.iter().fold(false, |any, code| any | (code & 15 == 15) | (code >> 4 == 15));
        if has_raw {
            for (pair, ((code, signs), to)) in codes.iter().zip(signs.chunks(2)).zip(to).enumerate() {
                let mut planes = [[0; 16]; 2];
                let mut widths = [code & 15, code >> 4];
                for (group, (planes, width)) in planes.iter_mut().zip(&mut widths).enumerate() {
                    if *width == RAW_GROUP {
                        let [is_raw, of_planes] = *bytes.get(at..)?.first_chunk()?;
                        if of_planes > MAX_WIDTH {
                            return None;
                        }
                        *width = of_planes;
                        at += 2 + usize::from(of_planes);
                        *planes = window(bytes, at - usize::from(of_planes));
                        raw.push(2 * pair + group, is_raw, at);
                        at += VALUE_LEN * is_raw.count_ones() as usize;
                    } else {
                        *planes = window(bytes, at);
                        at += usize::from(*width);
                    }
                }
                *to = words(&planes, widths, [*signs.first()?, signs.get(1).copied().unwrap_or(0)], dense);
            }
        } else {
            for ((code, signs), to) in codes.iter().zip(signs.chunks(2)).zip(to) {
                let widths = [code & 15, code >> 4];
                let first = window(bytes, at);
                at += usize::from(widths[0]);
                let planes = [first, window(bytes, at)];
                at += usize::from(widths[1]);
                *to = words(&planes, widths, [*signs.first()?, signs.get(1).copied().unwrap_or(0)], dense);
            }
        }
        if at > bytes.len() {
            return None;
        }
        spread(&items, &map, values, &place);
        if has_raw {
            raw.put(bytes, &map, item_count, values);
        }
        Some(section.len() - bytes.len() + at)
    })
}

/// The 16 bytes at `at`, and zeros where there are none.
#[inline(always)]
fn window(bytes: &[u8], at: usize) -> [u8; 16] {
    let bytes = bytes.get(at..).unwrap_or(&[]);
    match bytes.first_chunk() {
        Some(window) => *window,
        None => padded(bytes),
    }
}

#[inline(always)]
fn spread(
    items: &[u8],
    map: &[u8; MAX_OCTETS],
    values: &mut [u8],
    place: impl Fn(&[u8; 16], u8, &mut Octet),
) {
    let mut at = 0;
    let mut octet = |bits: u8, to: &mut Octet| {
        if let Some(words) = items.get(at..).and_then(|items| items.first_chunk()) {
            place(words, bits, to);
        }
        at += 2 * bits.count_ones() as usize;
    };
    let (whole, part) = values.as_chunks_mut();
    let mut map = map.iter();
    for (to, bits) in whole.iter_mut().zip(&mut map) {
        octet(*bits, to);
    }
    if let Some(bits) = map.next()
        && !part.is_empty()
    {
        let mut to = [0; 8 * VALUE_LEN];
        octet(*bits, &mut to);
        part.iter_mut().zip(to).for_each(|(to, byte)| *to = byte);
    }
}

/// The start of a section.
struct Header {
    mode: u8,
    map: [u8; MAX_OCTETS],
    item_count: usize,
    /// Bytes of mode and map.
    len: usize,
}

impl Header {
    /// Of a section of `count` values. None if it is none, or cut short.
    #[inline(always)]
    fn parse(section: &[u8], count: usize) -> Option<Self> {
        let octets = count.div_ceil(8);
        let (&mode, rest) = section.split_first()?;
        let mut map = [0; MAX_OCTETS];
        let of_section = map.get_mut(..octets)?;
        let len = match mode {
            mode::EMPTY => 1,
            mode::TWO_LEVEL => {
                let (presence, bytes) = rest.split_at_checked(octets.div_ceil(8))?;
                if !octets.is_multiple_of(8) && presence.last()? >> (octets % 8) != 0 {
                    return None;
                }
                let mut at = 0;
                for (presence, map) in presence.iter().zip(of_section.chunks_mut(8)) {
                    for (place, octet) in map.iter_mut().enumerate() {
                        let present = presence >> place & 1;
                        *octet = bytes.get(at).copied().unwrap_or(0) & present.wrapping_neg();
                        at += usize::from(present);
                    }
                }
                if at > bytes.len() {
                    return None;
                }
                1 + presence.len() + at
            }
            mode::FLAT => {
                of_section.copy_from_slice(rest.get(..octets)?);
                1 + octets
            }
            mode::DENSE => {
                of_section.fill(u8::MAX);
                return Some(Self { mode, map, item_count: count, len: 1 });
            }
            _ => return None,
        };
        if !count.is_multiple_of(8) && of_section.last()? >> (count % 8) != 0 {
            return None;
        }
        let (words, _) = map.as_chunks();
        let item_count = words.iter().map(|word| u64::from_le_bytes(*word).count_ones() as usize).sum();
        Some(Self { mode, map, item_count, len })
    }
}

/// Groups with raw items, in order: which, a bit for each raw item, and where the values are.
struct RawGroups {
    groups: [(u8, u8, u16); MAX_OCTETS],
    count: usize,
}

impl RawGroups {
    #[inline(always)]
    fn push(&mut self, group: usize, is_raw: u8, at: usize) {
        if let Some(to) = self.groups.get_mut(self.count) {
            *to = (group as u8, is_raw, at as u16);
        }
        self.count += 1;
    }

    /// Writes the values, which are in `bytes`, to their places.
    #[inline(always)]
    fn put(&self, bytes: &[u8], map: &[u8; MAX_OCTETS], item_count: usize, values: &mut [u8]) {
        let (values, _) = values.as_chunks_mut::<VALUE_LEN>();
        // The octet that was come to, its items that are left, and the number of the first of
        // those.
        let mut octets = map.iter().copied().enumerate();
        let (mut octet, mut bits, mut first) = (0, 0u8, 0);
        for &(group, mut is_raw, at) in self.groups.iter().take(self.count) {
            let mut raw = bytes.get(usize::from(at)..).unwrap_or(&[]).as_chunks::<VALUE_LEN>().0.iter();
            while is_raw != 0 {
                let item = 8 * usize::from(group) + is_raw.trailing_zeros() as usize;
                is_raw &= is_raw - 1;
                while item >= first + bits.count_ones() as usize {
                    first += bits.count_ones() as usize;
                    let Some(next) = octets.next() else { return };
                    (octet, bits) = next;
                }
                while first < item {
                    bits &= bits - 1;
                    first += 1;
                }
                let place = 8 * octet + bits.trailing_zeros() as usize;
                if let (Some(to), Some(raw), true) = (values.get_mut(place), raw.next(), item < item_count) {
                    *to = *raw;
                }
            }
        }
    }
}
