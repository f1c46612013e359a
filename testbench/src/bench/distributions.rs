//! Input distributions of benches: values whose classes are known, and one recording.
//!
//! Every distribution is the same on every run and machine. Classes are those of the bound 2^-10,
//! and the same in both splits: what they disagree on, 2^-5 to 2^-3, is drawn by the Laplace
//! distributions only.

use std::ops::Range;

use gradwire::codec::VALUE_LEN;

use crate::input::npy;
use crate::input::recordings::GRADIENTS;

/// The recording of the distribution `recorded`.
pub const RECORDED: &str = "hdc256_i0040_w0.npy";
/// The recording of the distribution `resnet`.
const DENSE: &str = "resnet_i0010_w0.npy";

/// Values in a row that a recorded distribution takes from one place: those of a payload of 1448
/// bytes.
const RUN: usize = 362;

/// One distribution of input.
#[derive(Clone, Copy, Debug)]
pub struct Distribution {
    /// Its name in tables; stable.
    pub name: &'static str,
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// A file, and how many values in a hundred are raw instead, at random places.
    Recorded(&'static str, u64),
    /// Shares of the classes zero, byte, half and raw, in percent.
    Classes([u32; 4]),
    /// The mean magnitude of a Laplace distribution.
    Laplace(f64),
}

/// A real gradient, from places spread over the whole vector: its layers differ.
pub const RECORDED_VALUES: Distribution =
    Distribution { name: "recorded", source: Source::Recorded(RECORDED, 0) };
/// The same with some values that no codec shortens.
pub const RECORDED_RAW: Distribution =
    Distribution { name: "recorded 1% raw", source: Source::Recorded(RECORDED, 1) };
/// A gradient of which four values in five are not zero.
pub const RECORDED_DENSE: Distribution = Distribution { name: "resnet", source: Source::Recorded(DENSE, 0) };
/// The mix that targets are stated for.
pub const TYPICAL: Distribution = Distribution { name: "75/4/20/1", source: Source::Classes([75, 4, 20, 1]) };
/// A quarter of each class: no branch on a class can be predicted.
pub const MIXED: Distribution = Distribution { name: "mixed", source: Source::Classes([25, 25, 25, 25]) };

/// The distributions on which sums are measured.
pub const SUMMED: [Distribution; 3] = [RECORDED_VALUES, RECORDED_RAW, RECORDED_DENSE];

/// All distributions.
pub const ALL: [Distribution; 10] = [
    RECORDED_VALUES,
    RECORDED_RAW,
    RECORDED_DENSE,
    Distribution { name: "zero", source: Source::Classes([100, 0, 0, 0]) },
    Distribution { name: "raw", source: Source::Classes([0, 0, 0, 100]) },
    MIXED,
    TYPICAL,
    Distribution { name: "laplace 1e-4", source: Source::Laplace(1e-4) },
    Distribution { name: "laplace 1e-3", source: Source::Laplace(1e-3) },
    Distribution { name: "laplace 1e-2", source: Source::Laplace(1e-2) },
];

impl Distribution {
    /// So many values, as little-endian `f32`s.
    #[must_use]
    pub fn values(&self, count: usize) -> Vec<u8> {
        // The seed is any constant.
        let mut random = Random(0x6772_6164_7769_7265);
        if let Source::Recorded(name, raw) = self.source {
            let mut values = recorded(name, count);
            for value in values.as_chunks_mut::<VALUE_LEN>().0 {
                if random.next() % 100 < raw {
                    *value = (16.0 + 1000.0 * random.unit() as f32).to_le_bytes();
                }
            }
            return values;
        }
        let mut drawn = |draw: &dyn Fn(&mut Random) -> f32| {
            (0..count).flat_map(|_| draw(&mut random).to_le_bytes()).collect()
        };
        match self.source {
            Source::Recorded(..) => unreachable!("returned above"),
            Source::Classes(shares) => drawn(&|random| of_classes(random, shares)),
            Source::Laplace(mean) => drawn(&|random| {
                let magnitude = -mean * (1.0 - random.unit()).ln();
                random.sign() * magnitude as f32
            }),
        }
    }
}

/// Binary exponents of the classes' magnitudes. Those of zero reach down to where half of a trained
/// model's gradients are; those of half begin where both splits have it.
const EXPONENTS: [Range<f64>; 4] = [-30.0..-10.0, -10.0..-5.0, -3.0..0.0, 0.0..4.0];

fn of_classes(random: &mut Random, shares: [u32; 4]) -> f32 {
    let mut left = (random.unit() * 100.0) as u32; // 0..=99
    for (share, exponents) in shares.into_iter().zip(EXPONENTS) {
        if left < share {
            let exponent = exponents.start + random.unit() * (exponents.end - exponents.start);
            // Rounding to f32 must not carry a magnitude over the border above it.
            let magnitude = (exponent.exp2() as f32).min((exponents.end.exp2() as f32).next_down());
            return random.sign() * magnitude;
        }
        left -= share;
    }
    0.0
}

fn recorded(name: &str, count: usize) -> Vec<u8> {
    let file = GRADIENTS.iter().find(|file| file.name == name).expect("it is built in");
    let values = npy::parse(file.name, file.bytes).expect("a test reads every built-in recording");
    let runs = count.div_ceil(RUN);
    let last = values.len() / VALUE_LEN - RUN;
    let start = |run: usize| if runs < 2 { 0 } else { run * last / (runs - 1) * VALUE_LEN };
    let mut taken: Vec<u8> =
        (0..runs).flat_map(|run| &values[start(run)..][..RUN * VALUE_LEN]).copied().collect();
    taken.truncate(count * VALUE_LEN);
    taken
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014, doi:10.1145/2714064.2660195).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// 1 or -1.
    fn sign(&mut self) -> f32 {
        if self.next() & 1 == 0 { 1.0 } else { -1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire::codec::{Params, Split, encode_lane};

    const COUNT: usize = 100_000;

    fn shares(distribution: &Distribution, split: Split) -> [f64; 4] {
        let params = Params::new(10, split, 0).unwrap();
        let values = distribution.values(COUNT);
        assert_eq!(values.len(), COUNT * VALUE_LEN);
        let mut shares = [0.0; 4];
        for value in values.as_chunks().0 {
            shares[encode_lane(u32::from_le_bytes(*value), params).class as usize] += 1.0 / COUNT as f64;
        }
        shares
    }

    #[test]
    fn classes_have_the_shares_of_the_name_in_both_splits() {
        for distribution in ALL {
            let Source::Classes(percent) = distribution.source else { continue };
            assert_eq!(percent.iter().sum::<u32>(), 100);
            for split in [Split::Dense, Split::Paper] {
                for (share, percent) in shares(&distribution, split).into_iter().zip(percent) {
                    assert!(
                        (share - f64::from(percent) / 100.0).abs() < 0.01,
                        "{}: {share}",
                        distribution.name
                    );
                }
            }
        }
    }

    #[test]
    fn a_laplace_shape_has_the_zeros_of_its_distribution() {
        for distribution in ALL {
            let Source::Laplace(mean) = distribution.source else { continue };
            let expected = 1.0 - (-(2f64.powi(-10)) / mean).exp();
            let [zeros, ..] = shares(&distribution, Split::Dense);
            assert!((zeros - expected).abs() < 0.01, "{}: {zeros}, expected {expected}", distribution.name);
        }
    }

    #[test]
    fn every_shape_is_the_same_each_time_and_longer_ones_differ_in_places() {
        for distribution in ALL {
            assert_eq!(distribution.values(1000), distribution.values(1000));
        }
        let values = RECORDED_VALUES.values(2 * RUN);
        assert_ne!(values[..RUN * VALUE_LEN], values[RUN * VALUE_LEN..]);
    }
}
