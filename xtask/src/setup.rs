//! A new contributor's machine.

use std::process::Command;

use crate::Result;
use crate::tools::{root, run};

/// Subcommands of cargo, and the step of `.ci/run` that needs each.
const SUBCOMMANDS: [(&str, &str); 3] = [
    ("cargo-deny", "licences and sources of dependencies"),
    ("cargo-fuzz", "fuzzing"),
    ("cargo-mutants", "mutants"),
];

/// Installs what the checks need and this machine lacks. A nightly toolchain is only looked for.
///
/// # Errors
/// Something cannot be installed.
pub fn setup() -> Result {
    println!("Debian's packages (.ci/packages --all)");
    run(Command::new(root().join(".ci/packages")).arg("--all"))?;
    for (name, step) in SUBCOMMANDS {
        if Command::new(name).arg("--version").output().is_err() {
            println!("{name}, for the step '{step}'");
            run(Command::new(root().join(".ci/cargo-tool")).arg(name))?;
        }
    }
    let nightly = Command::new("rustup").args(["run", "nightly", "rustc", "--version"]).output();
    if !nightly.is_ok_and(|output| output.status.success()) {
        println!("Missing: a nightly toolchain, for fuzzing (rustup toolchain install nightly)");
    }
    println!("Next: cargo test --workspace, then .ci/run quick");
    Ok(())
}
