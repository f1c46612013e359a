//! `gradwire softcore`: a capture through the firmware, in QEMU.

use std::io::Write;
use std::path::PathBuf;

use super::replay;
use crate::error::{Error, Outcome};
use crate::input::Capture;
use crate::input::recordings::{display, read};
use crate::replay::Setup;
use crate::softcore::Pair;
use crate::softcore::machine::Options;

/// Sends every frame of a capture through two soft cores in QEMU, back to back, and checks what arrives.
///
/// The hosts of the capture are put on the two sides by turns, so frames go both ways. The command checks what
/// `gradwire replay` checks. It also checks that the cores send the same bytes as the engines on this machine, and that
/// the cores' counters agree with the frames.
///
/// Needs qemu-system-riscv32 (Debian: qemu-system-misc) and the firmware: firmware/softcore/cargo build --release
#[derive(Debug, clap::Args)]
// Those of `replay` are a group named `Args` too, and names must differ.
#[group(id = "softcore")]
#[command(after_help = "\
Table and JSON are those of `gradwire replay`. Without --codec, the cores send codec 1.

Examples:
  gradwire softcore testbench/recordings/ring4_loss.pcap
  gradwire softcore ring.pcap --framing in-place --bound 6 --json")]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub replay: replay::Args,
    /// The firmware.
    #[arg(
        long,
        value_name = "ELF",
        default_value = "target/softcore/build/riscv32imac-unknown-none-elf/release/softcore"
    )]
    pub image: PathBuf,
}

/// Replays what `args` name through two soft cores and reports to `out`.
///
/// # Errors
/// The capture cannot be read, an output not be written, the emulator not be started.
pub fn run(args: &Args, out: &mut impl Write) -> Result<Outcome, Error> {
    if args.replay.from_wire {
        let why = "soft cores compress what hosts send: --from-wire is for `gradwire replay`";
        return Err(Error::Usage(why.into()));
    }
    let mut replay = args.replay.clone();
    // Soft cores send codec 1 unless they are told otherwise.
    if replay.codec.choice.profile.is_none() {
        replay.codec.choice.codec.get_or_insert(1);
    }
    let rule = replay.rule()?;
    let setup = Setup { kernel: replay.codec.kernel(), ..Setup::new(rule) };
    let capture = Capture::parse(&display(&replay.capture), &read(&replay.capture)?)?;
    let mut pair = Pair::start(&Options::new(&args.image), &rule)?;
    let (report, passages) = pair.replay(&setup, &capture)?;
    super::replay::report(&replay, out, &capture, &report, &passages)
}
