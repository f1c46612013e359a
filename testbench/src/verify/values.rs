//! Verifies values, for every command that compares some: in `f64` and by the bound alone, with
//! nothing of the codec that it verifies.

use gradwire::codec::Params;
use gradwire::profile::Profile;

use super::usefulness::{self, Remark, Spectrum};

/// The difference between a value and what came back for it, both as `f32` bit patterns.
///
/// 0 if the bits are equal, also of NaN and infinities; infinite if one of the two is not finite.
#[must_use]
pub fn error(sent: u32, got: u32) -> f64 {
    if sent == got {
        return 0.0;
    }
    let difference = (f64::from(f32::from_bits(sent)) - f64::from(f32::from_bits(got))).abs();
    if difference.is_nan() { f64::INFINITY } else { difference }
}

/// The bound's exponent: of codec 1 `x-b`, of codec 2 `y`.
#[must_use]
pub fn bound_exponent(profile: Profile) -> i16 {
    match profile {
        Profile::SizeClass(params) => i16::from(params.x()) - i16::from(params.b()),
        Profile::BitPlane(bound) => bound.y().into(),
    }
}

/// The bound, exactly.
#[must_use]
pub fn bound(profile: Profile) -> f64 {
    f64::from(bound_exponent(profile)).exp2()
}

/// Values compared so far: how many, how far off, how many too far.
#[derive(Clone, Debug)]
pub struct ErrorTally {
    bound: f64,
    /// Whether an error may be as large as the bound: codec 1 stays below its own.
    reaches: bool,
    /// Values compared.
    pub values: u64,
    /// The largest error of one value.
    pub max_error: f64,
    /// Values whose error is beyond the bound.
    pub violations: u64,
    squared_error: f64,
    squared_sent: f64,
    squared_got: f64,
    /// Of the values sent.
    spectrum: Spectrum,
}

impl ErrorTally {
    /// An empty tally that verifies by the bound of `profile`.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        Self::with_bound(bound(profile), matches!(profile, Profile::BitPlane(_)))
    }

    /// An empty tally with the same bound.
    #[must_use]
    pub const fn new_like(other: &Self) -> Self {
        Self::with_bound(other.bound, other.reaches)
    }

    const fn with_bound(bound: f64, reaches: bool) -> Self {
        Self {
            bound,
            reaches,
            values: 0,
            max_error: 0.0,
            violations: 0,
            squared_error: 0.0,
            squared_sent: 0.0,
            squared_got: 0.0,
            spectrum: Spectrum::new(),
        }
    }

    /// Compares one value. Codec 1: `|f - f'| < 2^(x-b)`; codec 2: `|f - f'| <= 2^y`.
    pub fn value(&mut self, sent: u32, got: u32) {
        let error = error(sent, got);
        self.values += 1;
        self.spectrum.value(f32::from_bits(sent));
        self.max_error = self.max_error.max(error);
        self.violations += u64::from(error > self.bound || error == self.bound && !self.reaches);
        let (sent, got) = (f64::from(f32::from_bits(sent)), f64::from(f32::from_bits(got)));
        if error.is_finite() && sent.is_finite() {
            self.squared_error += error * error;
            self.squared_sent += sent * sent;
            self.squared_got += got * got;
        }
    }

    /// Compares the whole values of two byte strings; what follows the last whole value is not
    /// looked at.
    pub fn bytes(&mut self, sent: &[u8], got: &[u8]) {
        for (sent, got) in sent.as_chunks::<4>().0.iter().zip(got.as_chunks::<4>().0) {
            self.value(u32::from_le_bytes(*sent), u32::from_le_bytes(*got));
        }
    }

    /// The remarks beside the bound.
    #[must_use]
    pub fn remarks(&self) -> Vec<Remark> {
        usefulness::remarks(&self.spectrum, self.norm_lost(), self.bound.log2() as i16)
    }

    /// Values that are NaN or infinite.
    #[must_use]
    pub const fn non_finite(&self) -> u64 {
        self.spectrum.non_finite()
    }

    /// The root of the mean squared error over the finite values.
    #[must_use]
    pub fn rms_error(&self) -> f64 {
        if self.values == 0 { 0.0 } else { (self.squared_error / self.values as f64).sqrt() }
    }

    /// `1 - ||f'|| / ||f||`, the share of the vector's Euclidean norm that truncation took; 0 for a
    /// zero vector.
    #[must_use]
    pub fn norm_lost(&self) -> f64 {
        if self.squared_sent == 0.0 { 0.0 } else { 1.0 - (self.squared_got / self.squared_sent).sqrt() }
    }
}

/// The scale exponent that brings the largest finite magnitude of `values` (little-endian `f32`s)
/// into [0.5, 1), as near as the codec's range allows; 0 if there is none above zero.
#[must_use]
pub fn scale_to_peak(values: &[u8]) -> i8 {
    let mut spectrum = Spectrum::new();
    for value in values.as_chunks::<4>().0 {
        spectrum.value(f32::from_le_bytes(*value));
    }
    let peak = spectrum.peak().unwrap_or(0);
    peak.clamp(Params::MIN_SCALE.into(), i8::MAX.into()) as i8
}

/// The number of `values` (little-endian `f32`s) that no gradient has: subnormal and not zero, or
/// finite and at least 2^64.
///
/// Small integers, lengths and flags are the first, read as `f32`; text and one random word of four
/// are the second.
#[must_use]
pub fn implausible(values: &[u8]) -> u64 {
    implausible_places(values).count() as u64
}

/// Whether two such values are less than twelve apart (FORMAT.md S9).
#[must_use]
pub fn holds_header(values: &[u8]) -> bool {
    let places: Vec<usize> = implausible_places(values).collect();
    places.windows(2).any(|pair| pair[1] - pair[0] < 12)
}

fn implausible_places(values: &[u8]) -> impl Iterator<Item = usize> {
    values.as_chunks::<4>().0.iter().enumerate().filter_map(|(place, value)| {
        let value = f32::from_le_bytes(*value);
        (value.is_subnormal() || (value.is_finite() && value.abs() >= 2f32.powi(64))).then_some(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire::codec::Split;
    use gradwire::codec::bit_plane::Bound;

    #[test]
    fn the_bound_is_exact_and_that_of_codec_1_strict() {
        let profile = Params::new(10, Split::Dense, 0).unwrap().into();
        assert_eq!(bound(profile), 1.0 / 1024.0);
        let mut tally = ErrorTally::new(profile);
        tally.value(1.0f32.to_bits(), (1.0f32 - 1.0 / 1024.0).to_bits());
        assert_eq!(tally.violations, 1);
        tally.value(1.0f32.to_bits(), (1.0f32 - 0.9 / 1024.0).to_bits());
        assert_eq!((tally.violations, tally.values), (1, 2));

        let mut tally = ErrorTally::new(Bound::new(-10).unwrap().into());
        tally.value(1.0f32.to_bits(), (1.0f32 - 1.0 / 1024.0).to_bits());
        assert_eq!(tally.violations, 0);
        tally.value(1.0f32.to_bits(), (1.0f32 - 1.1 / 1024.0).to_bits());
        assert_eq!((tally.violations, tally.values), (1, 2));
    }

    #[test]
    fn values_that_are_not_finite_must_come_back_bit_by_bit() {
        let nan = 0x7fc0_0001;
        assert_eq!(error(nan, nan), 0.0);
        assert_eq!(error(nan, nan + 1), f64::INFINITY);
        assert_eq!(error(f32::INFINITY.to_bits(), f32::MAX.to_bits()), f64::INFINITY);
        assert_eq!(error((-0.0f32).to_bits(), 0), 0.0);
    }

    #[test]
    fn norm_lost_is_a_share() {
        let mut tally = ErrorTally::new(Profile::DEFAULT);
        tally.value(3.0f32.to_bits(), 3.0f32.to_bits());
        tally.value(4.0f32.to_bits(), 0);
        assert!((tally.norm_lost() - 0.4).abs() < 1e-12);
        assert!((tally.rms_error() - (16.0f64 / 2.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn the_scale_brings_the_peak_below_one() {
        for (peak, x) in [(1.0f32, 1), (0.99, 0), (0.5, 0), (0.49, -1), (-3.0, 2), (0.0, 0), (1e-38, -80)] {
            let values: Vec<u8> = [0.0, peak, f32::NAN].iter().flat_map(|v| v.to_le_bytes()).collect();
            assert_eq!(scale_to_peak(&values), x, "{peak}");
        }
    }

    #[test]
    fn integers_and_text_are_no_gradients() {
        let values: Vec<u8> = [1u32, 0, 48, 0x3f80_0000].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(implausible(&values), 2);
        assert_eq!(implausible(b"tensor.weight.00"), 3);
        let values = [f32::INFINITY, f32::NAN, 2f32.powi(64).next_down(), -2f32.powi(64)];
        assert_eq!(implausible(values.map(f32::to_le_bytes).as_flattened()), 1);
    }
}
