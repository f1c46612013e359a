//! Sums of codec 1's values: groups to units, and sums to the groups of a result. A unit is the weight of a half vector's last bit, so
//! vectors are whole numbers but for a shift, and no floating point is needed but for what is raw.

use super::{Decode, Encode, Writer, decode_with};
use crate::codec::{LANES, MAX_GROUP_LEN, Params};
use crate::sums::{Unit, marked, value_of};

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

/// From groups to units.
#[derive(Clone, Copy)]
struct Units {
    byte_shift: u32,
    unit: Unit,
    limit: i32,
}

impl Decode for Units {
    #[inline(always)]
    fn byte(self, vector: u32) -> u32 {
        (i32::from(BYTES[vector as usize & 0xff]).wrapping_shl(self.byte_shift)).cast_unsigned()
    }

    #[inline(always)]
    fn half(self, vector: u32) -> u32 {
        let magnitude = vector & 0x7fff;
        if vector >> 15 == 0 { magnitude } else { magnitude.wrapping_neg() }
    }

    #[inline(always)]
    fn raw(self, vector: u32) -> u32 {
        self.rounded(vector)
    }
}

impl Units {
    #[cold]
    #[inline(never)]
    fn rounded(self, vector: u32) -> u32 {
        marked(vector, self.unit, self.limit).cast_unsigned()
    }
}

/// As [`crate::sums::Summable::decode_units`]. A value that is not raw must be within the limit.
pub(in super::super) fn decode_units(
    groups: &[u8],
    units: &mut [i32],
    params: Params,
    unit: Unit,
    limit: i32,
) -> Option<usize> {
    let decoder = Units { byte_shift: byte_shift(params), unit, limit };
    // SAFETY: any byte of a number is a byte, and any four bytes are a number.
    let units = unsafe { units.align_to_mut::<u8>() }.1;
    decode_with(groups, units, params, decoder).ok()
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
    #[inline(always)]
    fn lane(self, word: u32, shift: u32, to: &mut Writer, tags: &mut u32) {
        const RAW_FROM: u32 = 1 << 15;
        let sum = word.cast_signed();
        let magnitude = sum.unsigned_abs();
        if magnitude < self.byte_from {
            return;
        }
        if magnitude < self.half_from {
            to.put(word >> 31 << 7 | magnitude.wrapping_shr(self.byte_shift));
            *tags |= 1 << shift;
        } else if magnitude < RAW_FROM {
            to.put(magnitude);
            to.put(word >> 31 << 7 | magnitude >> 8);
            *tags |= 2 << shift;
        } else {
            self.raw(sum).into_iter().for_each(|byte| to.put(byte.into()));
            *tags |= 3 << shift;
        }
    }
}

impl Sums {
    #[cold]
    #[inline(never)]
    fn raw(self, sum: i32) -> [u8; 4] {
        value_of(sum, self.unit).to_le_bytes()
    }
}

/// As [`crate::sums::Summable::encode_result`]; None also if there is no room for the longest groups.
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
