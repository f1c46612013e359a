//! `gradwire man`: manual pages.

use std::fs;
use std::path::PathBuf;

use crate::error::{Error, Outcome};

/// Writes the manual pages of gradwire and its subcommands to a folder, and makes the folder if it
/// is missing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  gradwire man man1 && man -l man1/gradwire.1")]
pub struct Args {
    /// The folder.
    pub folder: PathBuf,
}

/// Writes the pages of `gradwire`.
///
/// # Errors
/// The folder cannot be made or written to.
pub fn run(args: &Args, gradwire: clap::Command) -> Result<Outcome, Error> {
    let written =
        fs::create_dir_all(&args.folder).and_then(|()| clap_mangen::generate_to(gradwire, &args.folder));
    written.map_err(|source| Error::io(args.folder.display().to_string(), "write", source))?;
    Ok(Outcome::Held)
}
