//! Sends a gradient through the codec as the wire would carry it, and measures what comes back.
//!
//! The payloads are [`PAYLOAD_LEN`] bytes: the 45 whole bursts that fit into a TCP segment of 1448
//! bytes (MTU 1500 with timestamps). With whole bursts the ratio is that of the format itself, 32 /
//! (2 + mean vector bits), up to the vector's last burst.

use std::time::{Duration, Instant};

use gradwire::codec::bit_plane::{Bound, Coded, encode_value};
use gradwire::codec::{Class, LANES, TAGS_LEN};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use serde::Serialize;

use crate::input::recordings::Recording;
use crate::verify::usefulness::Remark;
use crate::verify::values::{ErrorTally, bound_exponent};

/// Bytes of values in a payload.
pub const PAYLOAD_LEN: usize = 1440;

/// A speed is measured over at least this long, so that short recordings do not measure the clock.
const TIMED: Duration = Duration::from_millis(20);

/// Shares of a recording's values by the codec's classes, from nothing kept to everything kept;
/// they sum to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Shares {
    /// Codec 1: 0, 8, 16 or 32 bits are kept.
    Classes {
        /// Nothing kept.
        zero: f64,
        /// 8 bits kept.
        byte: f64,
        /// 16 bits kept.
        half: f64,
        /// All 32 bits kept.
        raw: f64,
    },
    /// Codec 2.
    BitPlane {
        /// Nothing kept.
        zero: f64,
        /// The sign and the bin's number kept.
        coded: f64,
        /// All 32 bits kept.
        raw: f64,
    },
}

/// One recording at one bound. The serialised fields are those of `gradwire check --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Name of the recording.
    pub name: String,
    /// The number of values it has.
    pub values: u64,
    /// The codec's number.
    pub codec: u8,
    /// The bound as its exponent b: errors stay within 2^(x-b).
    pub bound: i16,
    /// Bytes of values by bytes of groups.
    pub ratio: f64,
    /// Shares of the classes, as the code has them.
    pub classes: Shares,
    /// The largest error. It is infinite, and so `null` in JSON, if a NaN or infinity was not
    /// restored.
    pub max_error: f64,
    /// The root of the mean squared error.
    pub rms_error: f64,
    /// `1 - ||f'|| / ||f||`: the share of the Euclidean norm that is gone.
    pub norm_lost: f64,
    /// Values that are NaN or infinite.
    pub non_finite: u64,
    /// Values whose error is beyond the bound, and payloads that did not decode to the length they
    /// had.
    pub violations: u64,
    /// The scale exponent, if the user left it to the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<i8>,
    /// Remarks for a user beside the bound.
    #[serde(skip)]
    pub remarks: Vec<Remark>,
    /// The profile of the measurement.
    #[serde(skip)]
    pub profile: Profile,
    /// Bytes of values a second through the encoder, and through the decoder.
    #[serde(skip)]
    pub speed: (f64, f64),
}

/// Measures `recording` with `profile`, scale exponent `x` included, and `kernel`.
#[must_use]
pub fn measure(recording: &Recording, profile: Profile, x: i8, kernel: Kernel) -> Measured {
    let values = &recording.values[..];
    let room = values.chunks(PAYLOAD_LEN).map(|payload| profile.max_encoded_len(payload.len())).sum();
    let mut coded = vec![0; room];
    let mut lens = Vec::with_capacity(values.len().div_ceil(PAYLOAD_LEN));
    let encode_speed = timed(values.len(), || {
        lens.clear();
        let mut at = 0;
        for payload in values.chunks(PAYLOAD_LEN) {
            // There is room for the longest code, and the values are whole.
            let len = kernel.encode(payload, &mut coded[at..], profile).unwrap_or(0);
            lens.push(len);
            at += len;
        }
    });
    coded.truncate(lens.iter().sum());

    let mut restored = vec![0; values.len()];
    let mut refused = 0;
    let decode_speed = timed(values.len(), || {
        refused = 0;
        let mut wire = &coded[..];
        for (payload, &len) in restored.chunks_mut(PAYLOAD_LEN).zip(&lens) {
            let (encoded, rest) = wire.split_at(len);
            wire = rest;
            refused += u64::from(kernel.decode(encoded, payload, profile) != Ok(len));
        }
    });

    let mut tally = ErrorTally::new(profile);
    tally.bytes(values, &restored);
    Measured {
        name: recording.name.clone(),
        values: tally.values,
        codec: profile.codec(),
        bound: i16::from(x) - bound_exponent(profile),
        ratio: values.len() as f64 / coded.len() as f64,
        classes: match profile {
            Profile::SizeClass(_) => classes(&coded, &lens, tally.values),
            Profile::BitPlane(bound) => bit_plane_classes(values, bound),
        },
        max_error: tally.max_error,
        rms_error: tally.rms_error(),
        norm_lost: tally.norm_lost(),
        non_finite: tally.non_finite(),
        remarks: tally.remarks(),
        violations: tally.violations + refused,
        scale: None,
        profile,
        speed: (encode_speed, decode_speed),
    }
}

/// Runs `work`, which handles `bytes`, until [`TIMED`] is over; bytes a second.
fn timed(bytes: usize, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut rounds = 0u32;
    loop {
        work();
        rounds += 1;
        let elapsed = start.elapsed();
        if elapsed >= TIMED {
            return bytes as f64 * f64::from(rounds) / elapsed.as_secs_f64();
        }
    }
}

/// Counts the tags of payloads of `lens` bytes that hold `values` values in all.
fn classes(groups: &[u8], lens: &[usize], values: u64) -> Shares {
    let mut counts = [0u64; 4];
    let mut rest = groups;
    for &len in lens {
        let (mut payload, next) = rest.split_at(len);
        rest = next;
        while let Some((tags, vectors)) = payload.split_first_chunk::<TAGS_LEN>() {
            let tags = u16::from_le_bytes(*tags);
            let classes = (0..LANES).map(|lane| Class::from_tag(tags >> (2 * lane)));
            let mut group_len = 0;
            for class in classes {
                counts[class as usize] += 1;
                group_len += class.vector_len();
            }
            payload = vectors.get(group_len..).unwrap_or(&[]);
        }
    }
    // Absent lanes have tag 0 and are not values.
    let absent = counts.iter().sum::<u64>().saturating_sub(values);
    counts[0] = counts[0].saturating_sub(absent);
    let share = |class: Class| counts[class as usize] as f64 / values as f64;
    Shares::Classes {
        zero: share(Class::Zero),
        byte: share(Class::Byte),
        half: share(Class::Half),
        raw: share(Class::Raw),
    }
}

/// Counts what codec 2 keeps of each value.
fn bit_plane_classes(values: &[u8], bound: Bound) -> Shares {
    let mut counts = [0u64; 3];
    for value in values.as_chunks::<4>().0 {
        let class = match encode_value(u32::from_le_bytes(*value), bound) {
            Coded::Zero => 0,
            Coded::Bin { .. } => 1,
            Coded::Raw(_) => 2,
        };
        counts[class] += 1;
    }
    let all: u64 = counts.iter().sum();
    let [zero, coded, raw] = counts.map(|count| count as f64 / all as f64);
    Shares::BitPlane { zero, coded, raw }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire::codec::{Params, Split};

    fn recording(values: &[f32]) -> Recording {
        Recording { name: "x".into(), values: values.iter().flat_map(|value| value.to_le_bytes()).collect() }
    }

    #[test]
    fn a_recording_of_each_class_measures_as_computed_by_hand() {
        // Dense at 2^-10: byte from 2^-10, half from 2^-3, raw from 1.
        let values = [0.0, 0.01, 0.3, 1.5, -0.0, -0.01, -0.3, f32::NAN];
        let measured = measure(&recording(&values), Params::DEFAULT.into(), 0, Kernel::detect());
        assert_eq!(measured.classes, Shares::Classes { zero: 0.25, byte: 0.25, half: 0.25, raw: 0.25 });
        assert_eq!((measured.codec, measured.bound), (1, 10));
        assert_eq!(measured.ratio, 32.0 / (2 + 2 * (1 + 2 + 4)) as f64);
        assert_eq!(measured.violations, 0);
        assert!(measured.max_error > 0.0 && measured.max_error < 2f64.powi(-10));
    }

    #[test]
    fn absent_lanes_are_not_counted() {
        let profile = Params::new(6, Split::Paper, 0).unwrap().into();
        let measured = measure(&recording(&[1.0; 9]), profile, 0, Kernel::detect());
        assert_eq!(measured.classes, Shares::Classes { zero: 0.0, byte: 0.0, half: 0.0, raw: 1.0 });
        assert_eq!(measured.values, 9);
    }

    #[test]
    fn a_recording_under_codec_2_measures_as_computed_by_hand() {
        // At 2^-10, coded from 2^-10, raw from 2^4.
        let values = [0.0, 0.0005, 0.3, 1.5, -0.0, -0.01, -0.3, f32::NAN];
        let measured = measure(&recording(&values), Bound::new(-10).unwrap().into(), 2, Kernel::detect());
        assert_eq!(measured.classes, Shares::BitPlane { zero: 0.375, coded: 0.5, raw: 0.125 });
        assert_eq!((measured.codec, measured.bound, measured.violations), (2, 12, 0));
        // Mode, map, sign byte, code byte; raw mask, width, 10 planes of the bin of 1.5, and the
        // NaN.
        assert_eq!(measured.ratio, 32.0 / f64::from(1 + 1 + 1 + 1 + 1 + 1 + 10 + 4));
    }
}
