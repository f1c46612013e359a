//! Sums of codec 1's values: groups added to sums, and sums to the groups of a result. A unit is
//! the weight of a half vector's last bit, so vectors are whole numbers but for a shift, and no
//! floating point is needed but for what is raw.

use core::cell::Cell;

use super::super::units::Unsummable;
use super::{Decode, Encode, Reader, Words, Writer};
use crate::codec::{LANES, MAX_GROUP_LEN, Params, TAGS_LEN};
use crate::sums::{BLOCK_VALUES, NOT_A_NUMBER, OVER, Unit, marked, value_of};

/// From a byte vector's last bit to a half vector's.
const fn byte_shift(params: Params) -> u32 {
    8u32.wrapping_sub(params.k() as u32)
}

/// The whole numbers that byte vectors are.
static BYTES: [i8; 256] = {
    let mut table = [0; 256];
    let mut vector = 0;
    while vector < 256 {
        let magnitude = (vector & 0x7f) as i8;
        table[vector] = if vector < 0x80 { magnitude } else { -magnitude };
        vector += 1;
    }
    table
};

/// Bytes of half a group, by its tags: those and its lanes.
static LENGTHS: [u8; 256] = {
    let mut table = [TAGS_LEN as u8 / 2; 256];
    let mut tags = 0;
    while tags < 256 {
        let mut lane = 0;
        while lane < LANES / 2 {
            table[tags] += [0, 1, 2, 4][tags >> (2 * lane) & 3];
            lane += 1;
        }
        tags += 1;
    }
    table
};

/// Adds groups to sums. Lanes of class zero, which most are, cost a look at their tags: decoding
/// them to units first would store each, and load it again.
#[derive(Clone, Copy, Debug)]
pub struct Adder {
    byte_shift: u32,
    unit: Unit,
    limit: i32,
}

impl Adder {
    /// A value that is not raw must be within the limit.
    pub(in super::super) const fn new(params: Params, unit: Unit, limit: i32) -> Self {
        Self { byte_shift: byte_shift(params), unit, limit }
    }

    /// `groups`, if they are the code of so many values and nothing else. `values` is not limited
    /// to a block's.
    #[must_use]
    pub fn codes(self, groups: &[u8], values: usize) -> Option<Codes<'_>> {
        let mut rest = groups;
        let mut tags = 0;
        for _ in 0..values.div_ceil(LANES) {
            let [low, high] = *rest.first_chunk::<TAGS_LEN>()?;
            let len = usize::from(LENGTHS[usize::from(low)]) + usize::from(LENGTHS[usize::from(high)]);
            rest = rest.get(len..)?;
            tags = u32::from(u16::from_le_bytes([low, high]));
        }
        let lanes = values % LANES;
        let is_whole = rest.is_empty() && (lanes == 0 || tags >> (2 * lanes) == 0);
        is_whole.then_some(Codes { adder: self, groups, values })
    }
}

/// Groups that are whole, as [`Adder::codes`] found; each call takes the next of them.
#[derive(Clone, Debug)]
pub struct Codes<'a> {
    adder: Adder,
    /// The code of `values` values, to its last byte.
    groups: &'a [u8],
    values: usize,
}

impl Codes<'_> {
    /// Adds the next block to sums, as
    /// [`Kernel::decode_units`](crate::kernels::Kernel::decode_units) and
    /// [`Kernel::add`](crate::kernels::Kernel::add) do one after the other: a whole block, or the
    /// values that are left.
    pub fn add(&mut self, sums: &mut [i32; BLOCK_VALUES]) -> Unsummable {
        self.next::<false>(sums)
    }

    /// As [`Self::add`] to zeros, whatever was there.
    pub fn begin(&mut self, sums: &mut [i32; BLOCK_VALUES]) -> Unsummable {
        self.next::<true>(sums)
    }

    #[inline(always)]
    fn next<const BEGIN: bool>(&mut self, sums: &mut [i32; BLOCK_VALUES]) -> Unsummable {
        // SAFETY: `i32` and `u32` are of one size and alignment, and every bit pattern is both.
        let (_, bursts, _) = unsafe { sums.align_to_mut::<Words>() };
        let raw = Raw { adder: self.adder, first: bursts.as_ptr().addr(), unsummable: Cell::default() };
        let adding = Adding::<BEGIN> { byte_shift: self.adder.byte_shift, raw: &raw };
        // SAFETY: so many groups as `values` need are there, whole, and no more are read.
        let mut from = unsafe { Reader::new(self.groups) };
        for to in bursts.iter_mut().take(self.values.div_ceil(LANES)) {
            adding.burst(&mut from, to);
        }
        self.groups = self.groups.get(from.read(self.groups)..).unwrap_or(&[]);
        self.values = self.values.saturating_sub(BLOCK_VALUES);
        raw.unsummable.get()
    }

    /// Leaves the next block out.
    pub fn skip(&mut self) {
        // Whatever is added here, nobody sees.
        let _ = self.add(&mut [0; BLOCK_VALUES]);
    }
}

/// To sums, or in their place if they are to `BEGIN`. What few lanes need stands apart, so that it
/// does not take registers from the others.
#[derive(Clone, Copy)]
struct Adding<'a, const BEGIN: bool> {
    byte_shift: u32,
    raw: &'a Raw,
}

impl<const BEGIN: bool> Decode for Adding<'_, BEGIN> {
    #[inline(always)]
    fn byte(self, vector: u32) -> u32 {
        i32::from(BYTES[vector as usize & 0xff]).wrapping_shl(self.byte_shift).cast_unsigned()
    }

    #[inline(always)]
    fn half(self, vector: u32) -> u32 {
        let magnitude = vector & 0x7fff;
        if vector >> 15 == 0 { magnitude } else { magnitude.wrapping_neg() }
    }

    #[inline(always)]
    fn put(self, units: u32, to: &mut u32) {
        *to = if BEGIN { units } else { to.wrapping_add(units) };
    }

    #[inline(always)]
    fn put_zero(self, to: &mut u32) {
        if BEGIN {
            *to = 0;
        }
    }

    #[inline(always)]
    fn put_raw(self, vector: u32, to: &mut u32) {
        self.put_zero(to);
        self.raw.add(vector, to);
    }
}

/// Adds what is raw to sums, of which the first one is at address `first`.
struct Raw {
    adder: Adder,
    first: usize,
    /// The values that were no number of units.
    unsummable: Cell<Unsummable>,
}

impl Raw {
    #[cold]
    #[inline(never)]
    fn add(&self, vector: u32, to: &mut u32) {
        let mut unsummable = self.unsummable.get();
        match marked(vector, self.adder.unit, self.adder.limit) {
            NOT_A_NUMBER => {
                let place = (core::ptr::from_ref(to).addr() - self.first) / size_of::<u32>();
                unsummable.not_numbers |= 1 << (place & 127);
            }
            OVER => unsummable.over = true,
            units => *to = to.wrapping_add(units.cast_unsigned()),
        }
        self.unsummable.set(unsummable);
    }
}

/// From sums to the groups of a result. Where classes begin is in units.
#[derive(Clone, Copy)]
struct Sums {
    byte_from: u32,
    half_from: u32,
    byte_shift: u32,
    unit: Unit,
}

impl Encode for Sums {
    // A branch by the sign costs less than a magnitude, a sign's bit, and putting both together.
    #[inline(always)]
    fn lane(self, word: u32, shift: u32, to: &mut Writer, tags: &mut u32) {
        let sum = word.cast_signed();
        if sum >= 0 {
            self.signed::<0>(sum, word, shift, to, tags);
        } else {
            self.signed::<0x80>(sum, word.wrapping_neg(), shift, to, tags);
        }
    }
}

impl Sums {
    /// A sum whose sign is in `SIGN`, as a vector's last byte has it.
    #[inline(always)]
    fn signed<const SIGN: u32>(self, sum: i32, magnitude: u32, shift: u32, to: &mut Writer, tags: &mut u32) {
        const RAW_FROM: u32 = 1 << 15;
        if magnitude < self.byte_from {
            return;
        }
        if magnitude < self.half_from {
            to.put(SIGN | magnitude.wrapping_shr(self.byte_shift));
            *tags |= 1 << shift;
        } else if magnitude < RAW_FROM {
            to.put(magnitude);
            to.put(SIGN | magnitude >> 8);
            *tags |= 2 << shift;
        } else {
            self.raw(sum).into_iter().for_each(|byte| to.put(byte.into()));
            *tags |= 3 << shift;
        }
    }

    #[cold]
    #[inline(never)]
    fn raw(self, sum: i32) -> [u8; 4] {
        value_of(sum, self.unit).to_le_bytes()
    }
}

/// As [`crate::sums::Summable::encode_result`]; None also if there is no room for the longest
/// groups.
pub(in super::super) fn encode_result(
    sums: &[i32],
    groups: &mut [u8],
    params: Params,
    unit: Unit,
) -> Option<usize> {
    if groups.len() < sums.len().div_ceil(LANES) * MAX_GROUP_LEN {
        return None;
    }
    let (b, k) = (u32::from(params.b()), u32::from(params.k()));
    let one = 1u32 << 15;
    let encoder = Sums {
        byte_from: one.wrapping_shr(b),
        half_from: one.wrapping_shr(k),
        byte_shift: byte_shift(params),
        unit,
    };
    // SAFETY: every bit pattern of an `i32` is a `u32`; both are aligned alike.
    let words = unsafe { sums.align_to::<u32>() }.1;
    let (bursts, last) = words.as_chunks::<LANES>();
    // SAFETY: there is room for the longest group of each burst, and `burst` writes no more.
    let mut to = unsafe { Writer::new(groups.as_mut_ptr()) };
    for burst in bursts {
        encoder.burst(burst, &mut to);
    }
    if !last.is_empty() {
        // Zeros leave nothing behind.
        let mut burst = [0; LANES];
        burst.iter_mut().zip(last).for_each(|(to, word)| *to = *word);
        encoder.burst(&burst, &mut to);
    }
    Some(to.written(groups.as_ptr()))
}
