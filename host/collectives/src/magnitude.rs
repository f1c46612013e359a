//! Magnitudes of values, as exponents.

/// The exponent of values that are not all finite: above those of all numbers.
pub(crate) const NOT_FINITE: i32 = 200;
/// Below this, a tensor is not scaled further: it would soon reach the largest factor.
const LEAST_EXPONENT: i32 = -100;

/// The least power of two above all magnitudes, as its exponent.
pub(crate) fn exponent(values: &[f32]) -> i32 {
    // As integers, magnitudes are in the order of their values.
    let peak = values.iter().fold(0, |peak, value| peak.max(value.to_bits() & 0x7fff_ffff));
    match (peak >> 23) as i32 {
        255 => NOT_FINITE,
        biased => (biased - 126).max(LEAST_EXPONENT),
    }
}

pub(crate) fn all_finite(values: &[f32]) -> bool {
    exponent(values) < NOT_FINITE
}
