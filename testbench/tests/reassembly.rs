//! Reassembly against a model that keeps one byte a position.

use std::collections::BTreeMap;

use gradwire_testbench::verify::stream::{Policy, Reassembler};
use proptest::prelude::*;

/// Every byte by its position; the plainest way to say what a policy means.
fn naive(policy: Policy, segments: &[(i32, Vec<u8>)]) -> BTreeMap<i64, u8> {
    let mut bytes = BTreeMap::new();
    for (start, payload) in segments {
        for (position, byte) in (i64::from(*start)..).zip(payload) {
            match policy {
                Policy::FirstWins => drop(bytes.entry(position).or_insert(*byte)),
                Policy::LastWins => drop(bytes.insert(position, *byte)),
            }
        }
    }
    bytes
}

proptest! {
    #[test]
    fn agrees_with_the_model(
        origin: u32,
        segments in prop::collection::vec((-60..60i32, prop::collection::vec(any::<u8>(), 0..20)), 0..24),
    ) {
        for policy in [Policy::FirstWins, Policy::LastWins] {
            let mut reassembler = Reassembler::new(policy, origin);
            for (start, payload) in &segments {
                reassembler.push(origin.wrapping_add_signed(*start), payload);
            }
            let runs = reassembler.finish();
            for pair in runs.windows(2) {
                prop_assert!(pair[0].start + (pair[0].bytes.len() as i64) < pair[1].start, "a gap between runs");
            }
            let bytes: BTreeMap<i64, u8> =
                runs.iter().flat_map(|run| (run.start..).zip(run.bytes.iter().copied())).collect();
            prop_assert_eq!(bytes, naive(policy, &segments));
        }
    }

    /// Any order of arrival of a stream that is cut anywhere gives the stream back, across the wrap
    /// as well.
    #[test]
    fn restores_a_shuffled_stream(
        origin: u32,
        stream in prop::collection::vec(any::<u8>(), 1..400),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 1..50usize), 0..40),
    ) {
        let mut segments: Vec<(usize, usize)> =
            cuts.iter().map(|(at, len)| { let at = at.index(stream.len()); (at, (at + len).min(stream.len())) }).collect();
        segments.push((0, stream.len()));
        for policy in [Policy::FirstWins, Policy::LastWins] {
            let mut reassembler = Reassembler::new(policy, origin);
            for (start, end) in &segments {
                reassembler.push(origin.wrapping_add(*start as u32), &stream[*start..*end]);
            }
            let runs = reassembler.finish();
            prop_assert_eq!(runs.len(), 1);
            prop_assert_eq!((runs[0].start, &runs[0].bytes), (0, &stream));
        }
    }
}
