//! Says at the end of `cargo test --workspace` which tests were skipped: cargo runs this program
//! behind all others, and only the documentation's examples after it. Each test that was skipped
//! wrote a line (firmware/afxdp/tests/support/skip.rs).

use std::fs;
use std::os::unix::process::parent_id;
use std::path::Path;

fn main() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let of = |parent: &str| folder.join(format!("skipped-{parent}"));
    let own = of(&parent_id().to_string());
    let list = fs::read_to_string(&own).unwrap_or_default();
    print!("\n{}\n", xtask::skipped::summary(&list));
    // Those of runs that ended before they came here: another run may get their number.
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    for parent in names.filter_map(|name| name.strip_prefix("skipped-").map(str::to_owned)) {
        if of(&parent) == own || !Path::new("/proc").join(&parent).exists() {
            let _ = fs::remove_file(of(&parent));
        }
    }
}
