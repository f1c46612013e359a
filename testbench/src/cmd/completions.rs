//! `gradwire completions`: for the shell.

use std::io::Write;

use clap_complete::Shell;

use crate::error::{Error, Outcome};

/// Prints the script that completes gradwire's commands and options in a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  gradwire completions bash > ~/.local/share/bash-completion/completions/gradwire")]
pub struct Args {
    /// The shell.
    pub shell: Shell,
}

/// Prints the script for the command line of `gradwire` to `out`.
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &Args, mut gradwire: clap::Command, out: &mut impl Write) -> Result<Outcome, Error> {
    // The generator panics if a write fails; a vector does not.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut gradwire, "gradwire", &mut script);
    out.write_all(&script)?;
    Ok(Outcome::Held)
}
