//! For small 32-bit processors: no multiplication, no floating point, no count of leading zeros
//! unless the target has one, and loads of whole words if payloads lie on them.
//!
//! Branches by class, unlike `portable`: gradients are mostly below the bound, and a core without
//! speculation pays for what it executes alone. A value below the bound costs a load, a shift and a
//! branch; a decoded group without any lane, eight stores.

use core::hint::black_box;
use core::sync::atomic::{Ordering, compiler_fence};

use super::loops::{Burst, WINDOW_LEN, Window, decode_from, encode_with, padded};
use crate::checksum::Sum;
use crate::codec::{BURST_LEN, DecodeError, EncodeError, LANES, MAX_GROUP_LEN, Params, TAGS_LEN, VALUE_LEN};

mod sums;

pub(super) use sums::encode_result;
pub use sums::{Adder, Codes};

/// A burst as words, least significant byte first.
type Words = [u32; LANES];

const SIGN: u32 = 1 << 31;
/// Bits of a significand, the hidden one not counted.
const MANTISSA: u32 = 23;

/// As [`Sum::of`].
// As `portable::sum`.
#[cfg_attr(target_arch = "x86_64", inline(never))]
pub(super) fn sum(bytes: &[u8]) -> Sum {
    // SAFETY: every bit pattern of four bytes is a `u32`, and the other way round.
    let (before, words, after) = unsafe { bytes.align_to::<u32>() };
    if before.len() % 2 != 0 {
        return Sum::of(bytes);
    }
    // A turn of eight words costs as much beside them as one of a word.
    let (eights, rest) = words.as_chunks::<8>();
    let all = eights.iter().fold((0, 0), |all, eight| eight.iter().fold(all, add_word));
    let (sum, carries) = rest.iter().fold(all, add_word);
    let ends = Sum::part_of_le_word(before) + Sum::part_of_le_word(after);
    Sum::from_le_words((u64::from(carries) << 32 | u64::from(sum)) + ends)
}

/// A sum and its carries, with one more word.
#[inline(always)]
fn add_word((sum, carries): (u32, u32), word: &u32) -> (u32, u32) {
    let (sum, carry) = sum.overflowing_add(word.to_le());
    (sum, carries + u32::from(carry))
}

/// As [`crate::codec::encode_payload`].
pub(super) fn encode(values: &[u8], groups: &mut [u8], params: Params) -> Result<usize, EncodeError> {
    let encoder = Encoder::new(params);
    let have = groups.len();
    let (mut at, mut done) = (0, 0);
    // SAFETY: every bit pattern of 32 bytes is an array of 8 `u32`.
    let (before, bursts, _) = unsafe { values.align_to::<Words>() };
    let mut bursts = if before.is_empty() { bursts } else { &[] };
    // As many bursts as fit for sure, and again.
    while let Some(room) = groups.get_mut(at..)
        && let Some((fitting, left)) = bursts.split_at_checked(bursts.len().min(room.len() / MAX_GROUP_LEN))
        && !fitting.is_empty()
    {
        // SAFETY: there is room for the longest group of each burst, and `burst` writes no more.
        let mut to = unsafe { Writer::new(room.as_mut_ptr()) };
        for burst in fitting {
            encoder.burst(burst, &mut to);
        }
        at += to.written(room.as_ptr());
        done += BURST_LEN * fitting.len();
        bursts = left;
    }
    let rest = values.get(done..).unwrap_or(&[]);
    let room = groups.get_mut(at..).unwrap_or(&mut []);
    let step = move |words: &Words, room: &mut [u8; WINDOW_LEN]| encoder.called(words, room);
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

/// From numbers, which words stand for, to groups.
trait Encode: Copy {
    /// One lane: at most 4 bytes. Its tag goes to bit `shift` of `tags`.
    fn lane(self, word: u32, shift: u32, to: &mut Writer, tags: &mut u32);

    /// One group: at most [`MAX_GROUP_LEN`] bytes.
    #[inline(always)]
    fn burst(self, words: &Words, to: &mut Writer) {
        let tags = to.skip(TAGS_LEN);
        let [a, b, c, d, e, f, g, h] = *words;
        let (mut low, mut high) = (0, 0);
        self.lane(a, 0, to, &mut low);
        self.lane(b, 2, to, &mut low);
        self.lane(c, 4, to, &mut low);
        self.lane(d, 6, to, &mut low);
        self.lane(e, 0, to, &mut high);
        self.lane(f, 2, to, &mut high);
        self.lane(g, 4, to, &mut high);
        self.lane(h, 6, to, &mut high);
        tags.fill([low as u8, high as u8]);
    }
}

/// From values to groups.
#[derive(Clone, Copy)]
struct Encoder {
    /// The borders of the classes, compared with a value without its sign: the exponent is then the
    /// topmost byte.
    byte_from: u32,
    half_from: u32,
    raw_from: u32,
    /// Less the exponent: by how much a significand, left-aligned, is shifted to its vector's
    /// place; 17 to 31.
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

    /// As [`Self::burst`], to the start of `room`, for callers in which it is worth its size only
    /// once; the group's length.
    #[inline(never)]
    fn called(self, values: &Words, room: &mut [u8; WINDOW_LEN]) -> usize {
        // SAFETY: there is room for the longest group, and `burst` writes no more.
        let mut to = unsafe { Writer::new(room.as_mut_ptr()) };
        self.burst(values, &mut to);
        to.written(room.as_ptr())
    }
}

impl Encode for Encoder {
    #[inline(always)]
    fn lane(self, value: u32, shift: u32, to: &mut Writer, tags: &mut u32) {
        let value = value.to_le();
        let magnitude = value << 1;
        if magnitude < self.byte_from {
            return;
        }
        let significand = value << 8 | SIGN;
        let exponent = magnitude >> 24;
        if magnitude < self.half_from {
            let vector = significand.wrapping_shr(self.byte_shift.wrapping_sub(exponent));
            to.put(value >> 24 & 0x80 | vector);
            *tags |= 1 << shift;
        } else if magnitude < self.raw_from {
            let vector = significand.wrapping_shr(self.half_shift.wrapping_sub(exponent));
            to.put(vector);
            to.put(value >> 24 & 0x80 | vector >> 8);
            *tags |= 2 << shift;
        } else {
            to.put(value);
            to.put(value >> 8);
            to.put(value >> 16);
            to.put(value >> 24);
            *tags |= 3 << shift;
        }
    }
}

/// Bytes one behind the other, as a pointer: an index beside a pointer costs an instruction a byte.
pub(super) struct Writer(*mut u8);

impl Writer {
    /// From `first` on.
    ///
    /// # Safety
    /// What is written is there, and nobody else uses it in the meantime.
    pub(super) const unsafe fn new(first: *mut u8) -> Self {
        Self(first)
    }

    /// Appends the lowest byte of `byte`.
    #[inline(always)]
    pub(super) const fn put(&mut self, byte: u32) {
        // SAFETY: `new` promises that the room is there.
        unsafe { self.0.write(byte as u8) };
        self.0 = self.0.wrapping_add(1);
    }

    /// Leaves out `len` bytes, which the result writes.
    #[inline(always)]
    const fn skip(&mut self, len: usize) -> Self {
        let skipped = Self(self.0);
        self.0 = self.0.wrapping_add(len);
        skipped
    }

    /// Writes what was left out.
    #[inline(always)]
    fn fill(mut self, bytes: [u8; TAGS_LEN]) {
        bytes.into_iter().for_each(|byte| self.put(byte.into()));
    }

    /// The number of bytes that were written or left out since `first`.
    pub(super) fn written(&self, first: *const u8) -> usize {
        self.0.addr() - first.addr()
    }
}

/// As [`crate::codec::decode_payload`].
pub(super) fn decode(groups: &[u8], values: &mut [u8], params: Params) -> Result<usize, DecodeError> {
    decode_with(groups, values, params, Decoder::new(params))
}

/// As [`crate::codec::decode_payload`], to the numbers that `decoder` makes of vectors, in the
/// order of this processor's bytes.
#[inline(always)]
fn decode_with(
    groups: &[u8],
    numbers: &mut [u8],
    params: Params,
    decoder: impl Decode,
) -> Result<usize, DecodeError> {
    let (mut at, mut done) = (0, 0);
    // SAFETY: every bit pattern of 32 bytes is an array of 8 `u32`, and the other way round.
    let (before, bursts, _) = unsafe { numbers.align_to_mut::<Words>() };
    let mut bursts = if before.is_empty() { bursts } else { &mut [] };
    // As many bursts as there are groups for sure, and again.
    while let Some(rest) = groups.get(at..)
        && let Some((whole, left)) = bursts.split_at_mut_checked(bursts.len().min(rest.len() / MAX_GROUP_LEN))
        && !whole.is_empty()
    {
        // SAFETY: the longest group for each burst is there, and `burst` reads no more.
        let mut from = unsafe { Reader::new(rest) };
        done += BURST_LEN * whole.len();
        for to in whole {
            decoder.burst(&mut from, to);
        }
        at += from.read(rest);
        bursts = left;
    }
    let rest = numbers.get_mut(done..).unwrap_or(&mut []);
    let to_bytes = move |window: &Window, to: &mut Burst| {
        let mut words = [0; LANES];
        let len = decoder.called(window, &mut words);
        let (numbers, _) = to.as_chunks_mut::<VALUE_LEN>();
        numbers.iter_mut().zip(words).for_each(|(number, word)| *number = word.to_ne_bytes());
        len
    };
    decode_from(groups, at, rest, params, to_bytes)
}

/// Stands in [`BYTES`] if the magnitude is 0, whose exponent is no other number's; no integer below
/// 128 is this.
const NOTHING: u32 = u32::MAX;

/// The `f32`s that byte vectors are as integers.
pub(super) static BYTES: [u32; 256] = {
    let mut table = [NOTHING; 256];
    let mut vector = 0;
    while vector < 256 {
        let magnitude = (vector & 0x7f) as f32;
        if magnitude != 0.0 {
            table[vector] = magnitude.to_bits() | (vector as u32 & 0x80) << 24;
        }
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
pub(super) fn to_hidden(magnitude: u32) -> u32 {
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

/// From groups to numbers, which words stand for. A lane of class zero is 0.
trait Decode: Copy {
    /// The value of a byte vector.
    fn byte(self, vector: u32) -> u32;

    /// The value of a half vector.
    fn half(self, vector: u32) -> u32;

    /// Takes a number to its place.
    fn put(self, number: u32, to: &mut u32);

    /// Takes a 0 to its place.
    fn put_zero(self, to: &mut u32);

    /// Takes what a raw vector stands for to its place.
    fn put_raw(self, vector: u32, to: &mut u32);

    /// The next group: at most [`MAX_GROUP_LEN`] bytes.
    #[inline(always)]
    fn burst(self, from: &mut Reader, to: &mut Words) {
        let (low, high) = (from.take(), from.take());
        let (first, second) = to.split_at_mut(LANES / 2);
        self.half_burst(low, from, first);
        self.half_burst(high, from, second);
    }

    /// Four lanes, by the four tags of one byte.
    #[inline(always)]
    fn half_burst(self, tags: u32, from: &mut Reader, to: &mut [u32]) {
        let [a, b, c, d] = to else { return };
        if tags == 0 {
            [a, b, c, d].into_iter().for_each(|to| self.put_zero(to));
            return;
        }
        // Half vectors and raw ones are few, so mostly one look at all tags saves one at each.
        if tags & 0xaa == 0 {
            self.small_lane(tags, 0, from, a);
            self.small_lane(tags, 2, from, b);
            self.small_lane(tags, 4, from, c);
            self.small_lane(tags, 6, from, d);
            return;
        }
        self.lane(tags, 0, from, a);
        self.lane(tags, 2, from, b);
        self.lane(tags, 4, from, c);
        self.lane(tags, 6, from, d);
    }

    /// As [`Self::lane`], of a class below half.
    #[inline(always)]
    fn small_lane(self, tags: u32, shift: u32, from: &mut Reader, to: &mut u32) {
        if tags & 1 << shift == 0 {
            self.put_zero(to);
        } else {
            self.put(self.byte(from.take()), to);
        }
    }

    /// As [`Self::burst`], from the start of `window`, for callers in which it is worth its size
    /// only once; the group's length.
    #[inline(never)]
    fn called(self, window: &Window, to: &mut Words) -> usize {
        // SAFETY: the longest group is there, and `burst` reads no more.
        let mut from = unsafe { Reader::new(window) };
        self.burst(&mut from, to);
        from.read(window)
    }

    /// The next lane, whose tag is at bit `shift` of `tags`: at most 4 bytes.
    #[inline(always)]
    fn lane(self, tags: u32, shift: u32, from: &mut Reader, to: &mut u32) {
        if tags & 3 << shift == 0 {
            self.put_zero(to);
        } else if tags & 2 << shift == 0 {
            self.put(self.byte(from.take()), to);
        } else if tags & 1 << shift == 0 {
            self.put(self.half(from.take() | from.take() << 8), to);
        } else {
            self.put_raw(from.take() | from.take() << 8 | from.take() << 16 | from.take() << 24, to);
        }
    }
}

/// From groups to values.
#[derive(Clone, Copy)]
struct Decoder {
    /// Added to the exponent of an integer, it gives that of its byte vector: the integer 1
    /// has 127.
    byte_exponent: u32,
    /// The exponent of a half vector whose leading one is at bit 23, less the one that the hidden
    /// bit adds.
    half_exponent: u32,
    /// [`NOTHING`], hidden from the compiler: it knows the table by heart and would look at the
    /// vector instead, for one instruction more.
    nothing: u32,
}

impl Decoder {
    fn new(params: Params) -> Self {
        Self {
            byte_exponent: params.raw_from().wrapping_sub(127 + u32::from(params.k()) + 7) << MANTISSA,
            half_exponent: (params.raw_from() + MANTISSA - 15 - 1) << MANTISSA,
            nothing: black_box(NOTHING),
        }
    }
}

impl Decode for Decoder {
    #[inline(always)]
    fn byte(self, vector: u32) -> u32 {
        let value = BYTES[vector as usize & 0xff];
        let value = if value == self.nothing {
            // No encoder makes them. The fence, which is no instruction, keeps this a branch that
            // is never taken; the compiler would rather have four instructions for every lane.
            compiler_fence(Ordering::SeqCst);
            (vector & 0x80) << 24
        } else {
            value.wrapping_add(self.byte_exponent)
        };
        value.to_le()
    }

    #[inline(always)]
    fn half(self, vector: u32) -> u32 {
        let (sign, magnitude) = (vector >> 15 << 31, vector & 0x7fff);
        let value = if magnitude == 0 {
            sign
        } else {
            let shift = to_hidden(magnitude);
            let placed = magnitude.wrapping_shl(shift);
            sign | placed.wrapping_add(self.half_exponent).wrapping_sub(shift << MANTISSA)
        };
        value.to_le()
    }

    #[inline(always)]
    fn put(self, number: u32, to: &mut u32) {
        *to = number;
    }

    #[inline(always)]
    fn put_zero(self, to: &mut u32) {
        *to = 0;
    }

    #[inline(always)]
    fn put_raw(self, vector: u32, to: &mut u32) {
        *to = vector.to_le();
    }
}

/// Bytes one behind the other, as a pointer: an index beside a pointer costs an instruction a byte.
struct Reader(*const u8);

impl Reader {
    /// From the start of `bytes`.
    ///
    /// # Safety
    /// No more than all of `bytes` is taken.
    const unsafe fn new(bytes: &[u8]) -> Self {
        Self(bytes.as_ptr())
    }

    /// The next byte.
    #[inline(always)]
    const fn take(&mut self) -> u32 {
        // SAFETY: `new` promises that it is there.
        let byte = unsafe { self.0.read() };
        self.0 = self.0.wrapping_add(1);
        byte as u32
    }

    /// The number that were taken since the start of `bytes`.
    fn read(&self, bytes: &[u8]) -> usize {
        self.0.addr() - bytes.as_ptr().addr()
    }
}
