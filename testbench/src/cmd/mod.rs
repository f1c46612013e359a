//! The subcommands of `gradwire`, one file each, and in `args` what several of them take. Data goes
//! to the output given, talk to standard error.

use std::io::Write;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::error::{Error, Outcome};

pub mod advise;
pub mod aggregate;
pub mod allreduce;
pub mod args;
pub mod bench;
pub mod check;
pub mod completions;
pub mod decode;
pub mod encode;
pub mod main_job;
pub mod man;
pub mod plan;
pub mod replay;
pub mod simulate;
pub mod softcore;

/// Sends recorded gradients and gradient traffic through gradwire's dataplane and checks every
/// value.
///
/// Without a subcommand it does the main job on the recordings that are built in: every gradient
/// through compress, wire and decompress, then every capture through both engines, in both
/// framings.
#[derive(Debug, Parser)]
#[command(
    name = "gradwire",
    version,
    after_help = "\
Exit codes: 0 every bound and check held, 1 one did not, 2 the tool could not do its work, or nothing was there to verify.

Examples:
  gradwire                                        the main job, on built-in recordings
  gradwire advise gradients/ --bandwidth 25G --ranks 16    bound, scale and codec, and whether they pay
  gradwire check gradients/ --bounds 8 --json     all .npy files of a folder, for a program to read
  gradwire replay ring.pcap --framing in-place    a capture of your own
  gradwire softcore ring.pcap                     the same through the firmware, in QEMU
  gradwire encode values.f32 -o values.gw         a file that `gradwire decode` reads without options
  gradwire simulate --sweep ranks=8..1024       iteration time on clusters larger than the desk
  gradwire allreduce --local 4 --codec q8:256     gradients exchanged between ranks, and checked
  gradwire plan vgg16 --ranks 16                  whether compression pays, tensor by tensor"
)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Every subcommand; each is documented where its arguments are, and the help shows that.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "documentation here would take the place of that of the arguments")]
pub enum Command {
    Advise(Box<advise::Args>),
    Check(check::Args),
    Replay(replay::Args),
    Allreduce(Box<allreduce::Args>),
    Aggregate(aggregate::Args),
    Bench(bench::Args),
    Encode(encode::Args),
    Decode(decode::Args),
    Plan(Box<plan::Args>),
    Simulate(Box<simulate::Args>),
    Softcore(softcore::Args),
    Man(man::Args),
    Completions(completions::Args),
}

impl Cli {
    /// The command line of this process, which ends if the line is wrong.
    #[must_use]
    pub fn from_command_line() -> Self {
        let matches = Self::command().get_matches();
        let refused = matches.subcommand_matches("simulate").and_then(simulate::swept_and_given);
        if let Some(why) = refused {
            Self::command().error(ErrorKind::ArgumentConflict, why).exit()
        }
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

/// Does what `cli` says.
///
/// # Errors
/// The work could not be done.
pub fn run(cli: &Cli, out: &mut impl Write) -> Result<Outcome, Error> {
    match &cli.command {
        None => main_job::run(out),
        Some(Command::Advise(args)) => advise::run(args, out),
        Some(Command::Check(args)) => check::run(args, out),
        Some(Command::Replay(args)) => replay::run(args, out),
        Some(Command::Allreduce(args)) => allreduce::run(args, out),
        Some(Command::Aggregate(args)) => aggregate::run(args, out),
        Some(Command::Bench(args)) => bench::run(args, out),
        Some(Command::Encode(args)) => encode::run(args, &mut std::io::stdin().lock(), out),
        Some(Command::Decode(args)) => decode::run(args, &mut std::io::stdin().lock(), out),
        Some(Command::Plan(args)) => plan::run(args, out),
        Some(Command::Simulate(args)) => simulate::run(args, out),
        Some(Command::Softcore(args)) => softcore::run(args, out),
        Some(Command::Man(args)) => man::run(args, Cli::command()),
        Some(Command::Completions(args)) => completions::run(args, Cli::command(), out),
    }
}
