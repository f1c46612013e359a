//! The corpora of `fuzz/` as plain tests: every input that the fuzzer was given or kept is verified
//! again.

use gradwire_testbench::oracle::{FUZZED, corpus};
use proptest::prelude::*;

#[test]
fn every_corpus_holds() {
    for (name, oracle) in FUZZED {
        corpus::replay(name, *oracle);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_hold(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        for (_, oracle) in FUZZED {
            oracle(&bytes);
        }
    }
}
