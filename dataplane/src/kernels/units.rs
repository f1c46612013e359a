//! From values to units, and from units to sums: the loops that each kernel compiles with its
//! processor's instructions.

use crate::sums::{BLOCK_VALUES, Unit};

/// Between 2^23 and 2^24 floats are the whole numbers; so a float that this is added to rounds to
/// one, of either sign.
const WHOLE: f32 = f32::from_bits((127 + 23) << 23 | 1 << 22);
/// Magnitudes from here on, in units, are no longer a whole number behind [`WHOLE`].
pub(super) const WHOLE_BITS: u32 = 22;
/// The same magnitude, as bits of an `f32`. Infinities and NaN are beyond it, too.
pub(super) const SIMPLE_BELOW: u32 = (127 + WHOLE_BITS) << 23;

/// The values of a block that a sum cannot hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsummable {
    /// A bit for each value that is NaN or infinite. It was not added.
    pub not_numbers: u128,
    /// A finite value was beyond the limit, and was not added.
    pub over: bool,
}

/// Takes values, whose bytes stand there, to units if they are below 2^22 of them, and else to
/// anything. The bits of the largest number of units, without its sign. Compiled into each kernel,
/// with its instructions.
#[inline(always)]
pub(super) fn to_units(values: &mut [i32], unit: Unit) -> u32 {
    let scale = one_by(unit);
    values.iter_mut().fold(0, |all, value| {
        let number = f32::from_bits(u32::from_le(value.cast_unsigned())) * scale;
        *value = ((number + WHOLE).to_bits() as i32).wrapping_sub(WHOLE.to_bits() as i32);
        all.max(number.to_bits() & i32::MAX as u32)
    })
}

/// One by the unit, exactly: its exponent is from 32 to 239.
pub(super) const fn one_by(unit: Unit) -> f32 {
    f32::from_bits((254 - unit.exponent()) << 23)
}

/// Adds all units, also those that stand for something else; the least of them. Compiled into each
/// kernel, with its instructions.
#[inline(always)]
pub(super) fn add(units: &[i32; BLOCK_VALUES], sums: &mut [i32; BLOCK_VALUES]) -> i32 {
    units.iter().zip(sums).fold(i32::MAX, |least, (units, sum)| {
        *sum = sum.wrapping_add(*units);
        least.min(*units)
    })
}
