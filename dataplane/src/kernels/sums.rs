//! Fast sums of codec 2's values. [`crate::codec::planar::sums`] defines what each function must do on every input.
//!
//! A section of sums none of which is raw is, byte for byte, codec 2's section of the numbers `±(2|q| - 1)` at `y = 0`. So the
//! codec's kernels do the work, and what is left are loops that compilers vectorise.

use super::{Kernel, Token};
use crate::codec::VALUE_LEN;
use crate::codec::planar::Bound;
use crate::codec::planar::sums::{self, BLOCK_VALUES, MAX_CODED, Units, units};

/// Bytes of a block's values.
const BLOCK_LEN: usize = BLOCK_VALUES * VALUE_LEN;
/// Between 2^23 and 2^24 floats are the whole numbers; so a float that this is added to rounds to one, of either sign.
const WHOLE: f32 = f32::from_bits((127 + 23) << 23 | 1 << 22);
/// Magnitudes from here on, in units, are no longer a whole number behind [`WHOLE`].
const WHOLE_BITS: u32 = 22;

/// What of a block's values a sum cannot hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Odd {
    /// A bit for each value that is NaN or infinite. It was not added.
    pub not_numbers: u128,
    /// A finite value was beyond the limit, and was not added.
    pub over: bool,
}

impl Kernel {
    /// Adds a block's restored values (little-endian `f32`s, at most [`BLOCK_VALUES`]) to as many sums, in units `2^y`, as
    /// [`units`] says. Sums wrap; callers that keep to [`sums::limit`] never see that.
    pub fn add(self, values: &[u8], sums: &mut [i32], bound: Bound, limit: i32) -> Odd {
        let (values, _) = values.as_chunks::<VALUE_LEN>();
        let all = values.iter().fold(0, |all, value| (u32::from_le_bytes(*value) & i32::MAX as u32).max(all));
        if all >= (bound.coded_from() + WHOLE_BITS) << 23 || limit < 1 << WHOLE_BITS {
            return add_one_by_one(values, sums, bound, limit);
        }
        match self.0 {
            Token::Scalar32 => add_integers(values, sums, bound),
            _ => add_floats(values, sums, bound),
        }
        Odd::default()
    }

    /// As [`sums::encode`], of at most [`BLOCK_VALUES`] sums.
    #[must_use]
    pub fn encode_sums(self, sums: &[i32], out: &mut [u8]) -> Option<usize> {
        let largest = sums.iter().fold(0, |all, sum| sum.unsigned_abs().max(all));
        let mut room = [0; BLOCK_LEN];
        match (room.get_mut(..sums.len() * VALUE_LEN), Bound::new(0)) {
            (Some(values), Ok(one)) if largest <= MAX_CODED => {
                for (value, sum) in values.as_chunks_mut().0.iter_mut().zip(sums) {
                    let odd = (2 * sum - sum.signum()) as f32;
                    *value = odd.to_bits().to_le_bytes();
                }
                self.encode_planar(values, out, one).ok()
            }
            _ => sums::encode(sums, out),
        }
    }

    /// As [`sums::decode`], of at most [`BLOCK_VALUES`] sums.
    #[must_use]
    pub fn decode_sums(self, bytes: &[u8], sums: &mut [i32]) -> Option<usize> {
        let mut room = [0; BLOCK_LEN];
        match (room.get_mut(..sums.len() * VALUE_LEN), Bound::new(0)) {
            (Some(values), Ok(one)) if !sums::may_have_raw(bytes, sums.len()) => {
                let len = self.decode_planar(bytes, values, one).ok()?;
                for (value, sum) in values.as_chunks().0.iter().zip(sums) {
                    // An odd number below 2^15, or zero: the middle of a bin becomes its outer border, halved.
                    let odd = f32::from_bits(u32::from_le_bytes(*value)) as i32;
                    *sum = (odd + odd.signum()) / 2;
                }
                Some(len)
            }
            _ => sums::decode(bytes, sums),
        }
    }
}

/// Values of which some may be raw, or no numbers.
#[cold]
fn add_one_by_one(values: &[[u8; VALUE_LEN]], sums: &mut [i32], bound: Bound, limit: i32) -> Odd {
    let mut odd = Odd::default();
    for (place, (value, sum)) in values.iter().zip(sums).enumerate() {
        match units(u32::from_le_bytes(*value), bound, limit) {
            Units::Whole(units) => *sum = sum.wrapping_add(units),
            Units::Over(_) => odd.over = true,
            Units::NotANumber => odd.not_numbers |= 1u128.checked_shl(place as u32).unwrap_or(0),
        }
    }
    odd
}

/// Values below 2^22 units, on a processor with floats.
#[inline(always)]
fn add_floats(values: &[[u8; VALUE_LEN]], sums: &mut [i32], bound: Bound) {
    // 2^-y, exactly: y is from -94 to 111.
    let scale = f32::from_bits((254 - bound.coded_from()) << 23);
    for (value, sum) in values.iter().zip(sums) {
        let whole = f32::from_bits(u32::from_le_bytes(*value)) * scale + WHOLE;
        *sum = sum.wrapping_add((whole.to_bits() as i32).wrapping_sub(WHOLE.to_bits() as i32));
    }
}

/// Values below 2^22 units, on a processor without floats.
fn add_integers(values: &[[u8; VALUE_LEN]], sums: &mut [i32], bound: Bound) {
    for (value, sum) in values.iter().zip(sums) {
        if let Units::Whole(units) = units(u32::from_le_bytes(*value), bound, i32::MAX) {
            *sum = sum.wrapping_add(units);
        }
    }
}
