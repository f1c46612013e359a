//! Running other programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::Result;

/// The repository.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository")
}

/// The folder where cargo builds.
#[must_use]
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The cargo that runs this program.
#[must_use]
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs it, with what it says on standard error shown.
///
/// # Errors
/// It cannot be started, or fails.
pub fn run(command: &mut Command) -> Result {
    let status = command.status().map_err(|error| format!("{}: {error}", name(command)))?;
    if !status.success() {
        return Err(format!("{}: {status}", name(command)).into());
    }
    Ok(())
}

/// Its standard output.
///
/// # Errors
/// It cannot be started, or fails, or says no UTF-8.
pub fn output(command: &mut Command) -> Result<String> {
    let Output { status, stdout, .. } =
        command.stderr(Stdio::inherit()).output().map_err(|error| format!("{}: {error}", name(command)))?;
    if !status.success() {
        return Err(format!("{}: {status}", name(command)).into());
    }
    Ok(String::from_utf8(stdout)?)
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}
