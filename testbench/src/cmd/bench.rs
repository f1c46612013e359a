//! `gradwire bench`: speed.

use std::io::Write;

use gradwire::kernels::Kernel;

use super::args::kernel::KernelArg;
use crate::bench::{self, Effort, HAS_PEERS};
use crate::error::{Error, Outcome};
use crate::report;

/// Measures every kernel against memcpy, sums in the network, and the whole path of a frame.
///
/// Payloads are 1448 bytes in the second-level cache, at the bound 2^-10; speeds count bytes of raw
/// gradient. memcpy copies the same buffers in the same run. The bench times everything in turn, in
/// short slices, and keeps the best slice of each: on a busy machine, trust the ratios more than
/// the speeds. Takes 25 seconds of one core, with peers 45.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
JSON: {\"memcpy_gbps\", \"kernels\": [{\"name\", \"codec\", \"distribution\", \"encode_gbps\", \"decode_gbps\"}],
\"sums\": [{\"name\", \"codec\", \"distribution\", \"encode_gvalues\", \"decode_gvalues\", \"add_gvalues\", \"sums_gvalues\"}],
\"frame_path\": [{\"codec\", \"direction\", \"kind\", \"ns\", \"gbps\"}], \"peers\": [{\"name\", \"ratio\", \"max_error\",
\"compress_gbps\", \"decompress_gbps\"}]}.
gvalues of sums are billions of values a second, in blocks of 128 that an aggregator adds and sums that it encodes.
gbps of memcpy, kernels and peers are GB/s of raw gradient. Those of frame_path are Gbit/s of payload as the
hosts see it. Its kinds are routed, in-place and untagged frames, and kernel: the kernel alone on the same payloads.
A peer's name is CODEC/RECORDING; each gets a whole recording at once, gradwire a payload at a time. zfp is there
where its command is installed: timed from start to end, so on a busy machine it seems slower than it is.

Examples:
  gradwire bench
  gradwire bench --codec 2 --kernel portable --json
  cargo run --release --features peers -- bench --peers")]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub kernel: KernelArg,
    /// Measure this codec only: 1, with the dense split, or 2.
    #[arg(long, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub codec: Option<u8>,
    /// Measure other codecs on the same recordings (cargo feature `peers`).
    #[arg(long)]
    pub peers: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// One pass of everything: for tests of the output, not of the speed.
    #[arg(long, hide = true)]
    pub hasty: bool,
}

/// Measures, and reports to `out`.
///
/// # Errors
/// Peers were asked for and are not built in, or the output cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> Result<Outcome, Error> {
    if args.peers && !HAS_PEERS {
        let how = "--peers: this gradwire was built without other codecs; build it with --features peers";
        return Err(Error::Usage(how.into()));
    }
    let kernels: Vec<Kernel> =
        args.kernel.kernel.map_or_else(|| Kernel::available().collect(), |kernel| vec![kernel]);
    let effort = if args.hasty { Effort::NONE } else { Effort::DEFAULT };
    let profiles = bench::profiles()
        .into_iter()
        .filter(|profile| args.codec.is_none_or(|codec| codec == profile.codec()));
    let report = bench::run(&kernels, &profiles.collect::<Vec<_>>(), args.peers, effort);
    if args.json {
        report::json(out, &report)?;
    } else {
        bench::write(out, &report, args.kernel.kernel().name())?;
    }
    Ok(Outcome::Held)
}
