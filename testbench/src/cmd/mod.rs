//! The subcommands of `gradwire`, one file each. Data goes to the output given, talk to standard error.

use std::io::Write;

use clap::{Parser, Subcommand};

use crate::error::{Error, Outcome};

pub mod check;
pub mod codec;
pub mod completions;
pub mod decode;
pub mod encode;
pub mod figures;
pub mod main_job;
pub mod man;
pub mod plan;
pub mod published;
pub mod quantity;
pub mod replay;
pub mod simulate;

/// Sends recorded gradients and gradient traffic through gradwire's dataplane and checks every value.
///
/// Without a subcommand it does the main job on the recordings that are built in: every gradient through
/// compress, wire and decompress, then every capture through both engines, in both framings.
#[derive(Debug, Parser)]
#[command(
    name = "gradwire",
    version,
    after_help = "\
Exit codes: 0 every bound and check held, 1 one did not, 2 the tool could not do its work.

Examples:
  gradwire                                        the main job, on built-in recordings
  gradwire check gradients/ --bounds 8 --json     all .npy files of a folder, for a program to read
  gradwire replay ring.pcap --framing in-place    a capture of your own
  gradwire encode < values.f32 > values.groups    the bytes of the format, for an RTL testbench"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Every subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compress and restore gradients, and measure ratio, errors and speed.
    Check(check::Args),
    /// Send a capture through both engines and check every frame, value and stream.
    Replay(replay::Args),
    /// Little-endian f32 on standard input, groups on standard output.
    Encode(encode::Args),
    /// Groups on standard input, little-endian f32 on standard output.
    Decode(decode::Args),
    /// Decide, tensor by tensor, whether compression pays.
    Plan(Box<plan::Args>),
    /// Simulate training on a cluster.
    Simulate(Box<simulate::Args>),
    /// Write manual pages.
    Man(man::Args),
    /// Print shell completions.
    Completions(completions::Args),
}

/// Does what `cli` says.
///
/// # Errors
/// The work could not be done.
pub fn run(cli: &Cli, out: &mut impl Write) -> Result<Outcome, Error> {
    match &cli.command {
        None => main_job::run(out),
        Some(Command::Check(args)) => check::run(args, out),
        Some(Command::Replay(args)) => replay::run(args, out),
        Some(Command::Encode(args)) => encode::run(args, &mut std::io::stdin().lock(), out),
        Some(Command::Decode(args)) => decode::run(args, &mut std::io::stdin().lock(), out),
        Some(Command::Plan(args)) => plan::run(args, out),
        Some(Command::Simulate(args)) => simulate::run(args, out),
        Some(Command::Man(args)) => man::run(args),
        Some(Command::Completions(args)) => completions::run(args, out),
    }
}
