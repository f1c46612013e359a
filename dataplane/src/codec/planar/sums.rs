//! Sums of codec 2's values, defined value by value (FORMAT.md §11.2).
//!
//! What codec 2 restores is a whole number of units `2^y`: an odd one for a coded value, and a raw value is taken to the nearest
//! one. So sums are integers. They do not depend on the order of the workers, and the sum of `n` values is within `n` bounds.
//!
//! A section of sums is laid out as one of values, but holds each sum exactly: its plane value is the magnitude less one
//! where codec 2's is the bin. A sum beyond [`MAX_CODED`] is raw, and its four bytes are the integer.

use super::value::{Bound, Coded, decode_value};
use super::{SECTION_VALUES, section};

/// Values of a block: the longest code of one fits a packet.
pub const BLOCK_VALUES: usize = 128;

/// Stands for a value that is NaN or infinite, and for a sum that has one in it. No sum is this number: [`limit`] sees to that.
pub const NOT_A_NUMBER: i32 = i32::MIN;
/// Stands for a value beyond the limit; in a partial sum, for one that has such a value in it. No sum is this number either.
pub const OVER: i32 = i32::MIN + 1;
/// The largest magnitude of a sum that is not raw.
pub const MAX_CODED: u32 = 1 << 13;
/// The NaN that is restored for [`NOT_A_NUMBER`].
pub const NAN_BITS: u32 = 0x7fc0_0000;

const SIGN: u32 = 0x8000_0000;
const MANTISSA_BITS: u32 = 23;
const HIDDEN: u32 = 1 << MANTISSA_BITS;

/// What a value adds to a sum.
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

/// The most units that one of `workers` may add: sums of all fit an `i32`, and are never [`NOT_A_NUMBER`] or [`OVER`].
#[must_use]
pub const fn limit(workers: u8) -> i32 {
    (i32::MAX - 1) / if workers == 0 { 1 } else { workers as i32 }
}

/// The nearest whole number of units `2^y` to a restored value, the even one of two. It is exact for all that codec 2 codes,
/// and half a bound away at most for what is raw.
#[must_use]
pub const fn units(bits: u32, bound: Bound, limit: i32) -> Units {
    let exponent = (bits & !SIGN) >> MANTISSA_BITS;
    let negative = bits & SIGN != 0;
    if exponent == 255 {
        return Units::NotANumber;
    }
    // A subnormal is far below any unit, and the hidden bit does not change that.
    let mantissa = (HIDDEN | bits & (HIDDEN - 1)) as u64;
    // The weight of the mantissa's last bit, in units.
    let up = exponent as i32 - MANTISSA_BITS as i32 - bound.coded_from() as i32;
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

/// As [`units`], with [`NOT_A_NUMBER`] and [`OVER`] for what is no number of units. `limit` is below `i32::MAX`.
#[must_use]
pub(crate) const fn marked(bits: u32, bound: Bound, limit: i32) -> i32 {
    match units(bits, bound, limit) {
        Units::Whole(units) => units,
        Units::Over(_) => OVER,
        Units::NotANumber => NOT_A_NUMBER,
    }
}

/// The bits of the `f32` nearest to a sum of units `2^y`, the even one of two.
#[must_use]
pub fn value_of(sum: i32, bound: Bound) -> u32 {
    if sum == NOT_A_NUMBER {
        return NAN_BITS;
    }
    // The conversion rounds, the product does not: both factors' exponents are far from the least. It may be infinite.
    (sum as f32 * bound.bound()).to_bits()
}

const fn encode_sum(sum: i32) -> Coded {
    match sum.unsigned_abs() {
        0 => Coded::Zero,
        magnitude @ 1..=MAX_CODED => Coded::Bin { negative: sum < 0, index: (magnitude - 1) as u16 },
        _ => Coded::Raw(sum as u32),
    }
}

const fn decode_sum(coded: Coded) -> i32 {
    match coded {
        Coded::Zero => 0,
        Coded::Bin { negative: true, index } => -(index as i32) - 1,
        Coded::Bin { negative: false, index } => index as i32 + 1,
        Coded::Raw(bits) => bits as i32,
    }
}

/// Encodes at most [`SECTION_VALUES`] sums to a section at the start of `out`; its length. None if it does not fit, or if there
/// are more sums.
#[must_use]
pub fn encode(sums: &[i32], out: &mut [u8]) -> Option<usize> {
    if sums.len() > SECTION_VALUES {
        return None;
    }
    section::encode(sums, out, |sum| encode_sum(*sum))
}

/// Fills `units`, at most [`SECTION_VALUES`], from the section of codec 2's values at the start of `bytes`, with what each adds to a
/// sum as [`units`] says; [`NOT_A_NUMBER`] and [`OVER`] stand for what adds nothing. `limit` is below `i32::MAX`, as [`limit`] is.
/// The section's length; None if there is no such section, and `units` then holds nothing of use.
#[must_use]
pub fn decode_units(bytes: &[u8], units: &mut [i32], bound: Bound, limit: i32) -> Option<usize> {
    if units.len() > SECTION_VALUES {
        return None;
    }
    section::decode(bytes, units, |coded| marked(decode_value(coded, bound), bound, limit))
}

/// Fills `sums`, at most [`SECTION_VALUES`], from the section at the start of `bytes`; its length. None if there is no such
/// section; `sums` then holds nothing of use.
#[must_use]
pub fn decode(bytes: &[u8], sums: &mut [i32]) -> Option<usize> {
    if sums.len() > SECTION_VALUES {
        return None;
    }
    section::decode(bytes, sums, decode_sum)
}

/// Whether the section of `sums` sums at the start of `bytes` may have raw ones; any answer if there is no such section.
#[must_use]
pub(crate) fn may_have_raw(bytes: &[u8], sums: usize) -> bool {
    section::may_have_raw(bytes, sums)
}
