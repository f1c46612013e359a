//! `gradwire softcore`: a capture through the firmware, in QEMU.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use super::replay;
use crate::error::{Error, Outcome};
use crate::input::Capture;
use crate::input::recordings::{display, read};
use crate::replay::Setup;
use crate::report::ProgressBar;
use crate::softcore::Pair;
use crate::softcore::interactive::Session;
use crate::softcore::machine::Options;

/// Sends every frame of a capture through two soft cores in QEMU, back to back, and checks what
/// arrives.
///
/// The hosts of the capture are put on the two sides by turns, so frames go both ways. The command
/// checks what `gradwire replay` checks. It also checks that the cores send the same bytes as the
/// engines on this machine, and that the cores' counters agree with the frames.
///
/// Needs qemu-system-riscv32 (Debian: qemu-system-misc) and the firmware: firmware/softcore/cargo
/// build --release
#[derive(Debug, clap::Args)]
// Those of `replay` are a group named `Args` too, and names must differ.
#[group(id = "softcore")]
#[command(after_help = "\
Table and JSON are those of `gradwire replay`. Without --codec, the cores send codec 1.

Examples:
  gradwire softcore testbench/recordings/ring4_loss.pcap
  gradwire softcore ring.pcap --framing in-place --bound 6 --json
  gradwire softcore ring.pcap --interactive --logs core.log
  defmt-print -e target/softcore/build/riscv32imac-unknown-none-elf/release/softcore < core.log")]
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
    /// Sit at the first core's console: lines go to it, and `:send` sends the capture's frames when
    /// you like (`:help`).
    #[arg(long, conflicts_with_all = ["json", "html", "write_wire", "write_restored"])]
    pub interactive: bool,
    /// With --interactive: write the first core's log to this file, for `defmt-print`.
    #[arg(long, value_name = "FILE", requires = "interactive")]
    pub logs: Option<PathBuf>,
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
    if args.replay.engine == replay::Engine::Rtl {
        return Err(Error::Usage("soft cores code themselves: --engine rtl is for `gradwire replay`".into()));
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
    if args.interactive {
        // Whoever pulls a cable does not want to wait long for what it loses.
        pair.patience = Duration::from_secs(2);
        let mut logs = match &args.logs {
            Some(path) => {
                let refused = |source| Error::io(path.display().to_string(), "write", source);
                Some(std::fs::File::create(path).map_err(refused)?)
            }
            None => None,
        };
        let logs = logs.as_mut().map(|file| file as &mut dyn Write);
        Session::new(&mut pair, &capture, logs).run(&mut std::io::stdin().lock(), out)?;
        return Ok(Outcome::Held);
    }
    let progress = ProgressBar::new("frames", capture.frames.len() as u64);
    let (report, passages) = pair.replay(&setup, &capture, || progress.step())?;
    drop(progress);
    super::replay::report(&replay, out, &capture, &report, &passages, None)
}
