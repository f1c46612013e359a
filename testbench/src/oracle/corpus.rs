//! The fuzzer's corpora, for tests that replay them.

use std::fs;
use std::path::Path;

/// Gives `oracle` every input of the corpus `name` under `fuzz/corpus`.
///
/// # Panics
/// The oracle does, and the input is shown; or there is no input.
pub fn replay(name: &str, oracle: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let mut inputs = 0;
    for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("a file of the corpus").path();
        let input = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        eprintln!("{}", path.display()); // shown where it fails
        oracle(&input);
        inputs += 1;
    }
    assert!(inputs > 0, "no input in {}", folder.display());
}
