//! The fuzzer's oracle of messages (fuzz/oracles/messages.rs) as a plain test: its corpus, and
//! inputs that chance makes.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

#[path = "../../../fuzz/oracles/messages.rs"]
mod messages;

#[test]
fn the_corpus_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/messages");
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 20, "{} inputs", files.len());
    files.iter().for_each(|path| messages::verify(&fs::read(path).unwrap()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn any_bytes_hold(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        messages::verify(&bytes);
    }

    /// Few values, so that messages are long enough.
    #[test]
    fn any_bytes_for_few_values_hold(codec: u8, n in 0..40u8, message in prop::collection::vec(prop_oneof![any::<u8>(), Just(0)], 0..200)) {
        messages::verify(&[&[codec, n, 0], &message[..]].concat());
    }
}
