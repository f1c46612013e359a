//! `gradwire-xdp completions`: what a shell needs to complete commands and options.

use std::io::{self, Write};

use clap_complete::Shell;

/// Prints the script that completes commands and options in a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  gradwire-xdp completions bash > /etc/bash_completion.d/gradwire-xdp")]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: Shell,
}

/// Prints the script for `command`.
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &CompletionsArgs, mut command: clap::Command, out: &mut impl Write) -> io::Result<()> {
    // The generator panics if a write fails; a vector does not.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "gradwire-xdp", &mut script);
    out.write_all(&script)
}
