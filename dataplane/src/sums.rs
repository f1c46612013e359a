//! Sums of what codecs restore, defined value by value (docs/aggregation-protocol.md §2).
//!
//! A restored value is a whole number of [units](Unit), and a raw one is taken to the nearest. So
//! sums are integers, and do not depend on the order of the workers. Partial sums hold the integers
//! themselves, and what a result holds is the codec's choice:
//!
//! | codec | unit | a result holds | a sum of `n` workers is off by |
//! |---|---|---|---|
//! | 1 | `2^(x-15)` | codec 1's code of the `f32` nearest to the sum | less than `n + 1` bounds |
//! | 2 | `2^y` | the sum | `n` bounds at most |
//!
//! The last rounding to an `f32` is not counted. The functions here are the reference for every
//! [`Kernel`](crate::kernels::Kernel).

use core::fmt;

use crate::codec::bit_plane::{self, Bound};
use crate::codec::{VALUE_LEN, decode_lane, encode_lane, encode_payload};
use crate::profile::Profile;

/// Values of a block: the longest code of one fits a packet.
pub const BLOCK_VALUES: usize = 128;
/// Bytes of a block's values.
pub const BLOCK_LEN: usize = BLOCK_VALUES * VALUE_LEN;

/// Stands for a value that is NaN or infinite, and for a sum that has one in it. No sum is this
/// number: [`limit`] sees to that.
pub const NOT_A_NUMBER: i32 = i32::MIN;
/// Stands for a value beyond the limit; in a partial sum, for one that has such a value in it. No
/// sum is this number either.
pub const OVER: i32 = i32::MIN + 1;
/// The NaN that is restored for [`NOT_A_NUMBER`].
pub const NAN_BITS: u32 = 0x7fc0_0000;

const SIGN: u32 = 0x8000_0000;
const MANTISSA_BITS: u32 = 23;
const HIDDEN: u32 = 1 << MANTISSA_BITS;
const INFINITE: u32 = 0x7f80_0000;

/// The contribution of a value to a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Units {
    /// So many units.
    Whole(i32),
    /// More units than the limit; `true` if negative.
    Over(bool),
    /// A NaN or an infinity.
    NotANumber,
}

/// The most units that one of `workers` may add: sums of all fit an `i32`, and are never
/// [`NOT_A_NUMBER`] or [`OVER`].
#[must_use]
pub const fn limit(workers: u8) -> i32 {
    (i32::MAX - 1) / if workers == 0 { 1 } else { workers as i32 }
}

/// The power of two that sums count in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Unit {
    /// As a binary32 has it: 32 to 239.
    exponent: u8,
}

impl Unit {
    /// Its biased exponent.
    pub(crate) const fn exponent(self) -> u32 {
        self.exponent as u32
    }

    /// The unit, exactly.
    #[must_use]
    pub const fn value(self) -> f32 {
        f32::from_bits(self.exponent() << MANTISSA_BITS)
    }
}

/// The nearest whole number of units to a restored value, the even one of two. It is exact for all
/// that a codec codes, and half a unit away at most for what is raw.
#[must_use]
pub const fn units(bits: u32, unit: Unit, limit: i32) -> Units {
    let exponent = (bits & !SIGN) >> MANTISSA_BITS;
    let negative = bits & SIGN != 0;
    if exponent == 255 {
        return Units::NotANumber;
    }
    // A subnormal is far below any unit, and the hidden bit does not change that.
    let mantissa = (HIDDEN | bits & (HIDDEN - 1)) as u64;
    // The weight of the mantissa's last bit, in units.
    let up = exponent as i32 - MANTISSA_BITS as i32 - unit.exponent() as i32;
    let magnitude = if up >= 0 {
        if up > 8 {
            return Units::Over(negative);
        }
        mantissa << up
    } else if up < -25 {
        0
    } else {
        let (whole, half) = (mantissa >> -up, 1 << (-up - 1));
        let rest = mantissa & ((1 << -up) - 1);
        whole + (rest > half || (rest == half && whole & 1 == 1)) as u64
    };
    if magnitude > limit as u64 {
        return Units::Over(negative);
    }
    Units::Whole(if negative { -(magnitude as i32) } else { magnitude as i32 })
}

/// As [`units`], with [`NOT_A_NUMBER`] and [`OVER`] for what is no number of units. `limit` is
/// below `i32::MAX`.
#[must_use]
pub(crate) const fn marked(bits: u32, unit: Unit, limit: i32) -> i32 {
    match units(bits, unit, limit) {
        Units::Whole(units) => units,
        Units::Over(_) => OVER,
        Units::NotANumber => NOT_A_NUMBER,
    }
}

/// The sum that a value of codec 1's result stands for, or one with the same [`value_of`]: the
/// rounding to an `f32` may have taken the sum beyond the largest one, or to infinity.
#[must_use]
pub(crate) const fn sum_of(bits: u32, unit: Unit) -> i32 {
    const MOST: i32 = limit(1);
    let negative = match units(bits, unit, MOST) {
        Units::Whole(sum) => return sum,
        Units::NotANumber if bits & !SIGN != INFINITE => return NOT_A_NUMBER,
        Units::NotANumber => bits & SIGN != 0,
        Units::Over(negative) => negative,
    };
    if negative { -MOST } else { MOST }
}

/// The bits of the `f32` nearest to a sum, the even one of two.
#[must_use]
pub fn value_of(sum: i32, unit: Unit) -> u32 {
    if sum == NOT_A_NUMBER {
        return NAN_BITS;
    }
    // The conversion rounds, the product does not: both factors' exponents are far from the least.
    // It may be infinite.
    (sum as f32 * unit.value()).to_bits()
}

/// A profile whose restored values are whole numbers of a [`Unit`]: any of codec 2, and those of
/// codec 1 whose byte offset `k` is at most 8, as both named splits have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Summable(Profile);

impl Summable {
    /// Values are whole numbers.
    pub(crate) const ONE: Self = Self(Profile::BitPlane(Bound::ONE));
    /// The largest byte offset of codec 1 whose byte vectors, of weight `2^(x-k-7)`, are whole
    /// numbers of `2^(x-15)`.
    const MAX_K: u8 = 8;

    /// The profile.
    #[must_use]
    pub const fn profile(self) -> Profile {
        self.0
    }

    /// The unit of its sums.
    #[must_use]
    pub const fn unit(self) -> Unit {
        let exponent = match self.0 {
            Profile::SizeClass(params) => params.raw_from() - 15,
            Profile::BitPlane(bound) => bound.coded_from(),
        };
        Unit { exponent: exponent as u8 }
    }

    /// The bits of the value that a result restores for a sum.
    #[must_use]
    pub fn restored(self, sum: i32) -> u32 {
        let value = value_of(sum, self.unit());
        match self.0 {
            Profile::SizeClass(params) => decode_lane(encode_lane(value, params), params),
            Profile::BitPlane(_) => value,
        }
    }

    /// Fills `units`, at most [`BLOCK_VALUES`], from the code of as many values at the start of
    /// `coded`, with what each adds to a sum as [`units`] says; [`NOT_A_NUMBER`] and [`OVER`] stand
    /// for what adds nothing. `limit` is below `i32::MAX`, as [`limit`] is. The code's length; None
    /// if there is no such code, and `units` then holds nothing of use.
    #[must_use]
    pub fn decode_units(self, coded: &[u8], units: &mut [i32], limit: i32) -> Option<usize> {
        self.decode_with(coded, units, |bits| marked(bits, self.unit(), limit))
    }

    /// Encodes at most [`BLOCK_VALUES`] sums as a result has them to the start of `out`; the code's
    /// length. None if it does not fit, or if there are more sums.
    #[must_use]
    pub fn encode_result(self, sums: &[i32], out: &mut [u8]) -> Option<usize> {
        match self.0 {
            _ if sums.len() > BLOCK_VALUES => None,
            Profile::SizeClass(params) => {
                let mut room = [0; BLOCK_LEN];
                let values = room.get_mut(..sums.len() * VALUE_LEN)?;
                for (value, sum) in values.as_chunks_mut().0.iter_mut().zip(sums) {
                    *value = value_of(*sum, self.unit()).to_le_bytes();
                }
                encode_payload(values, out, params).ok()
            }
            Profile::BitPlane(_) => bit_plane::sums::encode(sums, out),
        }
    }

    /// Fills `sums`, at most [`BLOCK_VALUES`], from a result at the start of `coded`; its length.
    /// None if there is no such result; `sums` then holds nothing of use. Of codec 1's results, the
    /// sums are those whose [`value_of`] they are.
    #[must_use]
    pub fn decode_result(self, coded: &[u8], sums: &mut [i32]) -> Option<usize> {
        match self.0 {
            Profile::SizeClass(_) => self.decode_with(coded, sums, |bits| sum_of(bits, self.unit())),
            Profile::BitPlane(_) if sums.len() > BLOCK_VALUES => None,
            Profile::BitPlane(_) => bit_plane::sums::decode(coded, sums),
        }
    }

    fn decode_with(self, coded: &[u8], to: &mut [i32], whole: impl Fn(u32) -> i32) -> Option<usize> {
        let mut room = [0; BLOCK_LEN];
        let values = room.get_mut(..to.len() * VALUE_LEN)?;
        let len = self.0.decode_payload(coded, values).ok()?;
        for (to, value) in to.iter_mut().zip(values.as_chunks().0) {
            *to = whole(u32::from_le_bytes(*value));
        }
        Some(len)
    }
}

impl From<Bound> for Summable {
    fn from(bound: Bound) -> Self {
        Self(bound.into())
    }
}

impl TryFrom<Profile> for Summable {
    type Error = UnitError;

    fn try_from(profile: Profile) -> Result<Self, UnitError> {
        match profile {
            Profile::SizeClass(params) if params.k() > Self::MAX_K => Err(UnitError { got: params.k() }),
            Profile::SizeClass(_) | Profile::BitPlane(_) => Ok(Self(profile)),
        }
    }
}

/// Values with this byte offset cannot be summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct UnitError {
    /// The byte offset given.
    pub got: u8,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte offset {}, expected at most {} where values are summed", self.got, Summable::MAX_K)
    }
}

impl core::error::Error for UnitError {}
