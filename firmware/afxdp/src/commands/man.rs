//! `gradwire-xdp man`: the manual pages.

use std::path::PathBuf;
use std::{fs, io};

/// Writes the manual pages to a folder, which is made if it is missing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  gradwire-xdp man man1 && man -l man1/gradwire-xdp.1")]
pub struct ManArgs {
    /// The folder.
    pub folder: PathBuf,
}

/// The pages could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot write: {source}", folder.display())]
pub struct ManError {
    /// The folder.
    pub folder: PathBuf,
    /// The operating system's answer.
    pub source: io::Error,
}

/// Writes a page for `command`, and one for each of its subcommands.
///
/// # Errors
/// The folder cannot be written to.
pub fn run(args: &ManArgs, command: clap::Command) -> Result<(), ManError> {
    let write =
        || fs::create_dir_all(&args.folder).and_then(|()| clap_mangen::generate_to(command, &args.folder));
    write().map_err(|source| ManError { folder: args.folder.clone(), source })
}
