//! The scale of a block whose values become whole numbers.

use crate::ops::{lost, round};

/// Magnitudes below 2^-100 are kept as residual: scales of that size have no reciprocal.
const LEAST: f32 = f32::from_bits((127 - 100) << 23);

/// What one step of a code is worth, and how many steps 1 is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) value: f32,
    inverse: f32,
}

impl Scale {
    /// The scale by which the magnitude `peak` becomes `most`; NaN if `peak` is. `most` steps are
    /// finite if `peak` is.
    #[inline(always)]
    pub(crate) fn new(peak: f32, most: f32) -> Self {
        let mut value = if peak < LEAST { 0.0 } else { peak / most };
        // The quotient of the largest `f32` may have been rounded up.
        if value * most == f32::INFINITY {
            value = value.next_down();
        }
        Self { value, inverse: if value > 0.0 { 1.0 / value } else { 0.0 } }
    }

    /// The nearest whole number of steps, in two's complement; what it loses is left in `value`.
    ///
    /// The magnitude is at most `most` if that of `value` is at most `peak`: three roundings add
    /// less than 2^-22 of a product, and `most + 1` begins half a step later.
    #[inline(always)]
    pub(crate) fn code(self, value: &mut f32) -> u8 {
        let (whole, code) = round(*value * self.inverse);
        *value = lost(*value, whole * self.value);
        if self.value.is_nan() { 0 } else { code as u8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A product grows with the value, so no value of a block has a code beyond its peak's. Powers
    /// of two change no rounding here: the first and the last exponent stand for all.
    #[test]
    fn the_largest_value_has_the_largest_code() {
        for (most, exponent) in [(7i8, 27), (7, 254), (127, 27), (127, 254)] {
            for mantissa in 0..1 << 23 {
                let peak = f32::from_bits(exponent << 23 | mantissa);
                let scale = Scale::new(peak, f32::from(most));
                let codes = [peak, -peak].map(|mut value| scale.code(&mut value) as i8);
                assert_eq!(codes, [most, -most], "{peak}");
                assert!((f32::from(most) * scale.value).is_finite(), "{peak}");
            }
        }
    }
}
