//! The fuzzer's oracle of a rank's protocol (fuzz/oracles/ranks.rs) as a plain test: its corpus,
//! and inputs drawn by chance.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

#[path = "../../../fuzz/oracles/ranks.rs"]
mod ranks;

#[test]
fn the_corpus_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ranks");
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 10, "{} inputs", files.len());
    for path in files {
        eprintln!("{}", path.display()); // shown if it fails
        ranks::check(&fs::read(&path).unwrap());
    }
}

/// A step that the oracle knows, of any kind.
fn step() -> impl Strategy<Value = Vec<u8>> {
    let bytes = |most| prop::collection::vec(any::<u8>(), 0..most);
    let kind = |kinds: std::ops::Range<u8>| (kinds, 0u8..6).prop_map(|(kind, at)| kind | at << 4);
    prop_oneof![
        (kind(0..3), bytes(40)).prop_map(|(kind, bytes)| [&[kind, bytes.len() as u8], &bytes[..]].concat()),
        (kind(3..5), any::<[u8; 2]>(), 100u8.., any::<[u8; 3]>()).prop_map(|(kind, part, odd, rest)| [
            &[kind],
            &part[..],
            &[odd],
            &rest[..]
        ]
        .concat()),
        (kind(5..8), 0u8..15, bytes(60)).prop_map(|(kind, frame, bytes)| [
            &[kind, frame, bytes.len() as u8],
            &bytes[..]
        ]
        .concat()),
        kind(8..9).prop_map(|kind| vec![kind]),
        (kind(9..12), any::<u8>()).prop_map(|(kind, choice)| vec![kind, choice]),
        (kind(12..16), any::<u8>()).prop_map(|(kind, choice)| vec![kind, choice]),
        (kind(12..16), any::<u8>()).prop_map(|(kind, choice)| vec![kind, choice]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_hold(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        ranks::check(&bytes);
    }

    #[test]
    fn any_steps_hold(job: [u8; 4], steps in prop::collection::vec(step(), 0..40)) {
        ranks::check(&[&job[..], &[12, 0], &steps.concat()].concat());
    }
}
