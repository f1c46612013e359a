//! `gradwire advise`: the settings for a job, and whether they pay, in eleven lines.

pub mod advice;
pub mod cluster;
pub mod local;
mod page;
mod sizes;

use std::io::Write;
use std::path::PathBuf;

use self::advice::{Advice, advise};
use super::args::model::TimesArgs;
use super::args::quantity::{rate, time};
use super::simulate::local_steps::HANDLED;
use crate::error::{Error, Outcome};
use crate::report;
use crate::report::page as html;

/// Says which bound, scale and codec suit recorded gradients, and whether compression pays on a
/// cluster: the iteration's time against f32 and 16 bit, and how much of the norm is lost. Also
/// whether local steps would pay instead.
///
/// The bound is the widest power of two at which 1% of the norm or less is lost, and 10% or less of
/// each tensor's. The times are simulated, on the network alone: an estimate, which a measurement
/// goes before.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
JSON: {\"gradients\", \"bound\", \"scale\", \"codec\", \"ratio\", \"norm_lost\", \"job\", \"iteration\", \"gain_f32\", \"gain_16bit\", \"pays\",
\"why\", \"local_steps\", \"by_bound\", \"by_bandwidth\", \"by_ranks\", \"histogram\", \"classes\"}. bound is B and scale X of the bound 2^(X-B). ratio: of
\"values\", on the \"wire\" with headers, of \"sums\" of all ranks, and of \"codec_1\" at this bound.
iteration: seconds as \"f32_s\", \"bits16_s\", with the codec \"in_nic_s\" and \"on_host_s\", and \"compute_s\" alone. local_steps: as
\"simulate local-steps\", against the best of these; null without compute.

Examples:
  gradwire advise gradients/ --bandwidth 25G --latency 5us --ranks 16 --model vgg16
  gradwire advise grad.npy --bandwidth 100G --ranks 8 --forward 50ms --backward 100ms --html report.html
  gradwire advise gradients/ --bandwidth 10G --ranks 4 --trace trace.jsonl --json")]
pub struct Args {
    /// .npy files of little-endian f32, a tensor each, or folders of them [default: built in].
    #[arg(value_name = "PATH")]
    pub gradients: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub times: TimesArgs,
    /// Write one self-contained page with the plots.
    #[arg(long, value_name = "FILE.html", value_parser = html::path)]
    pub html: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The cluster and the job on it.
#[derive(Clone, Debug, clap::Args)]
pub struct ClusterArgs {
    /// Bit/s of every host's link, as 25G or 25Gbit/s.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub bandwidth: u64,
    /// The time that each message on a link takes besides its bytes.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    pub latency: f64,
    /// Ranks, which exchange gradients round a ring.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=4096))]
    pub ranks: u32,
    /// MTU, for the headers on the wire.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u64).range(576..=65_535))]
    pub mtu: u64,
    /// Model that the job trains, for its size and times: a name that `simulate` knows or a CSV
    /// file [default: the gradients are the model].
    #[arg(long, value_name = "MODEL", conflicts_with = "trace")]
    pub model: Option<String>,
    /// Recorded trace, for sizes and times; given several times, each rank's own.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["forward", "backward"])]
    pub trace: Vec<PathBuf>,
    /// GB/s of values for which a rank's processor handles an exchange of local steps; the default
    /// is that of four ranks on two cores.
    #[arg(long, value_name = "GB/S", default_value_t = HANDLED / 1e9)]
    pub handle: f64,
}

/// Works the advice out and reports it to `out`. That nothing pays is an answer, not a failure.
///
/// # Errors
/// A file or an option is refused, all gradients are zero, or an output cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> Result<Outcome, Error> {
    let advice = advise(args)?;
    if let Some(path) = &args.html {
        page::page(&advice).write(path, &advice)?;
    }
    if args.json {
        report::json(out, &advice)?;
    } else {
        for (name, text, _) in lines(&advice) {
            writeln!(out, "{name:<10} {text}")?;
        }
    }
    Ok(Outcome::Held)
}

/// The lines: a name, the text, and the JSON pointer of the first figure in it.
fn lines(advice: &Advice) -> [(&'static str, String, &'static str); 11] {
    let Advice { gradients, ratio, norm_lost, job, iteration, .. } = advice;
    let percent = |share: f64| format!("{:.2}%", 100.0 * share.max(0.0));
    let source = match job.source {
        advice::Source::Model => format!("model {}", job.name),
        advice::Source::Trace => format!("trace {}", job.name),
        advice::Source::Gradients => "the gradients themselves".into(),
    };
    let non_finite = match gradients.non_finite {
        0 => String::new(),
        values => format!("; {values} NaN or infinite"),
    };
    let codec_1 = ratio.codec_1.map_or_else(
        || "codec 1 has no such bound".into(),
        |ratio| format!("codec 1, for soft cores, {ratio:.2}"),
    );
    let (tensors, values) = (gradients.tensors, gradients.values);
    [
        (
            "gradients",
            format!("{tensors} tensors, {values} values, the largest {:.3e}{non_finite}", gradients.peak),
            "/gradients/tensors",
        ),
        (
            "bound",
            format!(
                "{:.3e} = 2^{}: --bound {} --scale {}",
                advice.bound_value(),
                advice.exponent(),
                advice.bound,
                advice.scale
            ),
            "/bound_value",
        ),
        ("codec", format!("{}; its ratio here is {:.2}, {codec_1}", advice.codec, ratio.values), "/codec"),
        (
            "norm lost",
            format!(
                "{} in all; at most {} of a tensor, {}",
                percent(norm_lost.all),
                percent(norm_lost.most),
                norm_lost.tensor
            ),
            "",
        ),
        (
            "ratio",
            format!(
                "{:.2} on the wire with headers of MTU {}; {:.2} of values, {:.2} of sums of {} ranks (estimated)",
                ratio.wire, job.mtu, ratio.values, ratio.sums, job.ranks
            ),
            "/ratio/wire",
        ),
        (
            "job",
            format!(
                "{} ranks, ring, {} Gbit/s, {:.1} us; {source}: {:.1} MB, {:.4} s of compute",
                job.ranks,
                job.bandwidth as f64 / 1e9,
                1e6 * job.latency_s,
                job.bytes as f64 / 1e6,
                iteration.compute_s
            ),
            "/job/ranks",
        ),
        (
            "iteration",
            format!("{:.4} s as f32, {:.4} s as 16 bit", iteration.f32_s, iteration.bits16_s),
            "/iteration/f32_s",
        ),
        (
            "gradwire",
            format!(
                "{:.4} s with the codec in the NIC, {:.4} s on one core of a host such as this",
                iteration.in_nic_s, iteration.on_host_s
            ),
            "/iteration/in_nic_s",
        ),
        (
            "gain",
            format!(
                "{:.2}x against f32, {:.2}x against 16 bit, in the NIC",
                advice.gain_f32, advice.gain_16bit
            ),
            "/gain_f32",
        ),
        ("local", local(advice), ""),
        ("verdict", advice.why.clone(), ""),
    ]
}

/// The line about local steps.
fn local(advice: &Advice) -> String {
    let Some(steps) = &advice.local_steps else {
        return "for local steps, say --forward and --backward, or give a --trace".into();
    };
    format!(
        "in rounds of {} by {}: {:.4} s an iteration, {:.0}% of it compute, {:.2}x as fast as the best above; they {}",
        steps.every,
        steps.plan,
        steps.iteration_s,
        100.0 * steps.utilisation,
        steps.most_iterations,
        steps.why
    )
}
