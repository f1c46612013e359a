//! The corpora of `fuzz/` as plain tests: every input that the fuzzer was given or kept is judged again.

use std::fs;
use std::path::Path;

use gradwire_testbench::oracle::FUZZED;
use proptest::prelude::*;

#[test]
fn every_corpus_holds() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (name, judge) in FUZZED {
        let folder = corpora.join(name);
        let mut inputs = 0;
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            eprintln!("{}", path.display()); // shown where it fails
            judge(&fs::read(&path).unwrap());
            inputs += 1;
        }
        assert!(inputs > 0, "no input in {}", folder.display());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_hold(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        for (_, judge) in FUZZED {
            judge(&bytes);
        }
    }
}
