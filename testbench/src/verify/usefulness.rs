//! Verifies whether values are of use after a codec: a bound can hold where nothing is left of
//! them.

use std::fmt;

/// A gradient that keeps less than this share of its Euclidean norm is of no use.
const LEAST_NORM: f64 = 0.5;

/// A bound that would do takes at most this share of the squared norm.
const SPARED: f64 = 0.01;

/// The largest magnitudes are outliers if this share of the values...
const FEW: f64 = 1e-3;

/// ... has at least this share of the squared norm.
const MOST: f64 = 0.5;

/// The distribution of magnitudes: how many values there are at each power of two, and their
/// squared norm.
#[derive(Clone, Debug)]
pub struct Spectrum {
    /// By an `f32`'s biased exponent. All ones are infinities and NaN.
    counts: [u64; 256],
    squares: [f64; 256],
}

impl Spectrum {
    /// Of no values.
    #[must_use]
    pub const fn new() -> Self {
        Self { counts: [0; 256], squares: [0.0; 256] }
    }

    /// Takes another value.
    pub fn value(&mut self, value: f32) {
        let exponent = usize::from((value.to_bits() >> 23) as u8);
        self.counts[exponent] += 1;
        self.squares[exponent] += f64::from(value) * f64::from(value);
    }

    /// Infinities and NaN.
    #[must_use]
    pub const fn non_finite(&self) -> u64 {
        self.counts[255]
    }

    /// The exponent above all finite magnitudes; None if there is none above zero.
    #[must_use]
    pub fn peak(&self) -> Option<i16> {
        let largest = (0..255).rev().find(|&exponent| self.squares[exponent] > 0.0)?;
        Some(largest as i16 - 126)
    }

    /// The exponent of the widest bound that spares nearly all of the norm; None if there is no
    /// norm.
    #[must_use]
    pub fn spared(&self) -> Option<i16> {
        let peak = self.peak()?;
        let all: f64 = self.squares[..255].iter().sum();
        let mut below = 0.0;
        for (exponent, square) in self.squares[..255].iter().enumerate() {
            below += square;
            if below > SPARED * all {
                return Some(exponent as i16 - 127);
            }
        }
        Some(peak)
    }

    /// Values so large that they have most of the norm, and the share of the others' norm that is
    /// below 2^`bound`; None if there are no such values.
    fn outliers(&self, bound: i16) -> Option<(u64, f64)> {
        let values: u64 = self.counts[..255].iter().sum();
        let all: f64 = self.squares[..255].iter().sum();
        let (mut few, mut square, mut from) = (0, 0.0, 255);
        for exponent in (0..255).rev() {
            if (few + self.counts[exponent]) as f64 > FEW * values as f64 {
                break;
            }
            few += self.counts[exponent];
            square += self.squares[exponent];
            from = exponent;
        }
        let others: f64 = self.squares[..from].iter().sum();
        if few == 0 || others == 0.0 || square < MOST * all {
            return None;
        }
        let zeroed = usize::try_from(bound + 127).unwrap_or(0).min(from);
        let lost: f64 = self.squares[..zeroed].iter().sum();
        Some((few, 1.0 - (1.0 - lost / others).max(0.0).sqrt()))
    }
}

impl Default for Spectrum {
    fn default() -> Self {
        Self::new()
    }
}

/// A remark on values beside the bound that held for them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Remark {
    /// Less than half of the norm is left.
    Lost {
        /// The share that is gone.
        norm: f64,
        /// The scale exponent that `--scale auto` chooses.
        scale: i16,
        /// The bound exponent B that would do with that scale.
        bound: i16,
    },
    /// Few values are so large that a bound by the largest hides the others.
    Outliers {
        /// The number found.
        few: u64,
        /// The share of the others' norm that is gone.
        others: f64,
    },
    /// Values that are no numbers. They arrive as such.
    NonFinite {
        /// The number of values.
        values: u64,
    },
    /// All values are zero.
    Zeros,
}

impl Remark {
    /// Whether it makes the values useless.
    const fn fails(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}

/// Whether values of which `remarks` say all that there is to say are of use.
#[must_use]
pub fn useful(remarks: &[Remark]) -> bool {
    !remarks.iter().any(Remark::fails)
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Lost { norm, scale, bound } => {
                let lost = 100.0 * norm;
                write!(
                    f,
                    "{lost:.1}% of the norm is lost: the bound is too wide for these values. A bound of 2^{} would do: \
                     --scale {scale}, or --scale auto where there is one, with B = {bound}",
                    scale - bound
                )
            }
            Self::Outliers { few, others } => write!(
                f,
                "the {few} largest values have most of the norm; of the others' norm {:.1}% is lost",
                100.0 * others
            ),
            Self::NonFinite { values } => {
                write!(f, "{values} values are NaN or infinite; they arrive as such")
            }
            Self::Zeros => f.write_str("all values are zero: nothing shows what a bound would take"),
        }
    }
}

/// The remarks on values with this spectrum, of whose norm the share `lost` is gone under the bound
/// 2^`bound`.
#[must_use]
pub fn remarks(spectrum: &Spectrum, lost: f64, bound: i16) -> Vec<Remark> {
    let mut remarks = Vec::new();
    match (spectrum.peak(), spectrum.spared()) {
        (Some(scale), Some(spared)) => {
            if lost > 1.0 - LEAST_NORM {
                remarks.push(Remark::Lost { norm: lost, scale, bound: (scale - spared).max(1) });
            } else if let Some((few, others)) = spectrum.outliers(bound)
                && others > 1.0 - LEAST_NORM
            {
                remarks.push(Remark::Outliers { few, others });
            }
        }
        _ => remarks.push(Remark::Zeros),
    }
    match spectrum.non_finite() {
        0 => {}
        values => remarks.push(Remark::NonFinite { values }),
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spectrum(values: &[f32]) -> Spectrum {
        let mut spectrum = Spectrum::new();
        values.iter().for_each(|value| spectrum.value(*value));
        spectrum
    }

    #[test]
    fn small_values_need_a_smaller_bound() {
        let small = spectrum(&[1.5e-5, -1e-5, 2e-5, 0.0]);
        // 2^-16 is the power of two below 2e-5, and 2^-17 that below 1e-5.
        assert_eq!((small.peak(), small.spared()), (Some(-15), Some(-17)));
        let lost = Remark::Lost { norm: 1.0, scale: -15, bound: 2 };
        assert_eq!(remarks(&small, 1.0, -10), [lost]);
        assert!(!useful(&[Remark::Zeros, lost]) && lost.to_string().contains("--scale -15"));
        assert_eq!(remarks(&small, 0.5, -10), []);
    }

    #[test]
    fn few_large_values_hide_the_others() {
        let mut values = vec![1e-4f32; 9999];
        values.push(100.0);
        let hidden = spectrum(&values);
        assert_eq!(remarks(&hidden, 0.0, -10), [Remark::Outliers { few: 1, others: 1.0 }]);
        assert_eq!(remarks(&hidden, 0.0, -20), []);
        // One of ten is not few.
        assert_eq!(remarks(&spectrum(&values[9990..]), 0.0, -10), []);
    }

    #[test]
    fn zeros_and_what_is_no_number_are_named() {
        assert_eq!(remarks(&spectrum(&[0.0, -0.0]), 0.0, -10), [Remark::Zeros]);
        let mixed = spectrum(&[1.0, f32::NAN, f32::NEG_INFINITY]);
        assert_eq!(remarks(&mixed, 0.0, -10), [Remark::NonFinite { values: 2 }]);
        assert!(useful(&[Remark::Zeros]));
    }

    #[test]
    fn every_magnitude_has_a_place() {
        for (value, peak) in [(f32::from_bits(1), -126), (f32::MAX, 128), (1.0, 1), (-0.75, 0)] {
            assert_eq!(spectrum(&[value]).peak(), Some(peak), "{value}");
            assert_eq!(spectrum(&[value]).spared(), Some(peak - 1), "{value}");
        }
    }
}
