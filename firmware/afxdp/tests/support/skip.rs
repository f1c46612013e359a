//! Says that a test was skipped, and why: `cargo test` shows nothing of a test that passes.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Says why a test cannot be done here; a failure with `GRADWIRE_REQUIRE_NET=1`.
pub(crate) fn skip(missing: &str) {
    let required = std::env::var_os("GRADWIRE_REQUIRE_NET").is_some_and(|value| value == "1");
    assert!(!required, "GRADWIRE_REQUIRE_NET=1, but {missing}");
    // Not by a macro: the test harness would keep that to itself.
    let _ = writeln!(io::stderr(), "SKIPPED: {missing}; GRADWIRE_REQUIRE_NET=1 makes this a failure");
    // For xtask's test program `skipped`, which runs last. Programs of one run have one parent,
    // cargo.
    let name = format!("skipped-{}", std::os::unix::process::parent_id());
    let list = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let list = File::options().create(true).append(true).open(&list);
    list.and_then(|mut list| list.write_all(format!("{missing}\n").as_bytes()))
        .expect("a list of skipped tests");
}
