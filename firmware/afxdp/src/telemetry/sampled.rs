//! The loss of values by compression, measured on some frames.

use serde::{Deserialize, Serialize};

/// Sums over the values of compressed frames that were restored at once and compared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// Frames that were looked at.
    pub frames: u64,
    /// Their values.
    pub values: u64,
    /// Values that were not zero before and are zero now.
    pub zeroed: u64,
    /// Infinities and NaN, which the sums below leave out.
    pub non_finite: u64,
    /// Sum of squares before.
    pub squares: f64,
    /// Sum of squares after.
    pub squares_kept: f64,
}

impl Sampled {
    /// Of no frames.
    pub const NONE: Self =
        Self { frames: 0, values: 0, zeroed: 0, non_finite: 0, squares: 0.0, squares_kept: 0.0 };

    /// The share of the Euclidean norm that is gone, as `gradwire check` has it; None if there is
    /// no norm to lose.
    #[must_use]
    pub fn norm_lost(&self) -> Option<f64> {
        (self.squares > 0.0).then(|| 1.0 - (self.squares_kept / self.squares).sqrt())
    }

    /// The share of values that became zero; None if there were none.
    #[must_use]
    pub fn share_zeroed(&self) -> Option<f64> {
        (self.values > 0).then(|| self.zeroed as f64 / self.values as f64)
    }

    /// Adds another frame: little-endian `f32`s before and after.
    pub fn frame(&mut self, before: &[u8], after: &[u8]) {
        self.frames += 1;
        for (before, after) in before.as_chunks().0.iter().zip(after.as_chunks().0) {
            let [before, after] = [before, after].map(|bytes| f64::from(f32::from_le_bytes(*bytes)));
            self.values += 1;
            if !before.is_finite() {
                self.non_finite += 1;
                continue;
            }
            self.zeroed += u64::from(before != 0.0 && after == 0.0);
            self.squares += before * before;
            self.squares_kept += after * after;
        }
    }
}

impl std::ops::Add for Sampled {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            frames: self.frames + other.frames,
            values: self.values + other.values,
            zeroed: self.zeroed + other.zeroed,
            non_finite: self.non_finite + other.non_finite,
            squares: self.squares + other.squares,
            squares_kept: self.squares_kept + other.squares_kept,
        }
    }
}

/// A lost share of the norm in percent, for people: values that rounding made longer have lost none
/// of it.
#[must_use]
pub fn percent_lost(share: f64) -> f64 {
    if share > 0.0 { 100.0 * share } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_of_finite_values_and_shares_of_what_there_is() {
        assert_eq!((Sampled::NONE.norm_lost(), Sampled::NONE.share_zeroed()), (None, None));
        let bytes = |values: [f32; 5]| values.map(f32::to_le_bytes).concat();
        let mut sampled = Sampled::NONE;
        sampled.frame(&bytes([3.0, -4.0, 0.0, f32::NAN, 0.0]), &bytes([3.0, 0.0, 0.0, f32::NAN, -0.0]));
        let once =
            Sampled { frames: 1, values: 5, zeroed: 1, non_finite: 1, squares: 25.0, squares_kept: 9.0 };
        assert_eq!(sampled, once);
        assert_eq!((sampled.norm_lost(), sampled.share_zeroed()), (Some(0.4), Some(0.2)));
        assert_eq!((once + once).norm_lost(), Some(0.4));
        assert_eq!((once + once).values, 10);
    }
}
