//! `gradwire simulate stack`: HiPress' optimizations, one on top of the other.

use std::io::Write;

use gradwire_codecs::Registry;
use gradwire_collectives::{Coding, Strategy};
use gradwire_simulator::stack::{Row, Stack, Step};
use gradwire_simulator::{Mechanism, Packets, Scenario, picos};
use rayon::prelude::*;
use serde::Serialize;

use crate::cmd::args::model::{TimesArgs, model};
use crate::cmd::args::quantity::{pair, plain, rate, time};
use crate::error::{Error, Outcome};
use crate::report;
use crate::report::{ProgressBar, Table};

/// Simulates HiPress' optimizations one on top of the other: a codec on the host, pipelining, bulk
/// and selection.
///
/// none sends f32 in as many partitions as there are ranks. codec encodes each tensor whole, +
/// pipelining cuts it into as many partitions as there are ranks, + bulk sends small tensors
/// together, and + selection compresses only what the planner would, in its partitions.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
efficiency     compute over iteration: what a worker alone would take, as a part of what it takes among others
communication  part of the iteration in which a worker's busiest link is busy; it may overlap compute
uncoordinated  iteration s if all ranks begin with the same partition of a tensor, and so send to one of them
coded          tensors that the codec codes

JSON: {\"per_message_s\", \"small\", \"batch\", \"threshold\", \"rows\": [{\"model\", \"ranks\", \"bandwidth\", \"codec\", \"step\", \"iteration_s\",
\"uncoordinated_s\", \"efficiency\", \"communication\", \"sent_bytes\", \"compressed\", \"exchanges\", \"plan\"}]}; compressed are the
tensors coded, exchanges the tensors and batches of small ones, sent_bytes the most that a worker sends, and plan is
what `gradwire allreduce --model MODEL --plan FILE` runs.

Examples:
  gradwire simulate stack
  gradwire simulate stack --model vgg19 --forward 60ms --backward 120ms --bandwidth 25G
  gradwire simulate stack --model vgg16 --ranks 2,4,8,16,32,64 --bandwidth 10G,100G
  gradwire simulate stack --model resnet101 --ranks 4 --bandwidth 1G --codec dgc:1@1.5,13.4 --strategy ring --json")]
pub struct Args {
    /// Models, as `gradwire simulate --model` takes them.
    #[arg(long, value_delimiter = ',', default_value = "vgg16,resnet101", value_name = "MODEL,..")]
    pub model: Vec<String>,
    /// Codec on the host, and the GB/s of values at which it encodes and decodes; may be given
    /// several times.
    #[arg(long, value_name = "CODEC@ENCODE,DECODE", default_values = MEASURED)]
    pub codec: Vec<String>,
    /// The strategy of exchange: by a ring, or by servers on all ranks.
    #[arg(long, default_value = "servers", value_parser = strategy)]
    pub strategy: Strategy,
    /// The number of ranks that train.
    #[arg(long, value_delimiter = ',', default_value = "16", value_name = "N,..", help_heading = "Cluster")]
    pub ranks: Vec<u32>,
    /// Bit/s of every link, each way.
    #[arg(long, value_delimiter = ',', default_value = "10G", value_parser = rate, value_name = "RATE,..", help_heading = "Cluster")]
    pub bandwidth: Vec<u64>,
    /// Latency of a host's link.
    #[arg(long, default_value = "0s", value_parser = time, help_heading = "Cluster")]
    pub latency: f64,
    /// MTU of the packets, whose headers count.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u64).range(576..=65_535), help_heading = "Cluster")]
    pub mtu: u64,
    /// The time that each message takes its sender, and its receiver, besides what its values take;
    /// the default is half of what fits HiPress' Table 7.
    #[arg(long, value_name = "TIME", default_value = "6us", value_parser = time, help_heading = "Cluster")]
    pub per_message: f64,
    /// Tensors with fewer values are small.
    #[arg(long, value_name = "N", default_value_t = gradwire_collectives::GraphPlan::DEFAULT_SMALL)]
    pub small: usize,
    /// Code small tensors, in one batch, as HiPress does; without this, they go as f32.
    #[arg(long)]
    pub batch: bool,
    /// The smallest part of a tensor's time that compression has to save.
    #[arg(long, default_value_t = 0.1)]
    pub threshold: f64,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub times: TimesArgs,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// HiPress' settings of TernGrad and DGC, at rates that docs/simulator.md has the source of.
const MEASURED: [&str; 3] = ["terngrad:2@4.6,22.7", "dgc:1@1.5,13.4", "dgc:0.1@2.5,89.6"];

fn strategy(text: &str) -> Result<Strategy, String> {
    match text.parse() {
        Ok(strategy @ (Strategy::Ring | Strategy::Servers(None))) => Ok(strategy),
        _ => Err("ring or servers".into()),
    }
}

/// A codec and its rates.
fn coding(text: &str) -> Result<(Coding, [f64; 2]), Error> {
    let bad = |why: String| Error::Usage(format!("--codec {text}: {why}"));
    let (name, rates) = text
        .split_once('@')
        .ok_or_else(|| bad("expected CODEC@ENCODE,DECODE, with the rates in GB/s of values".into()))?;
    let coding = Coding::parse(name, Registry::BUILT_IN).map_err(|why| bad(why.to_string()))?;
    let (encode, decode) = pair(rates, ',', plain::<f64>, plain::<f64>).map_err(bad)?;
    if coding.is_tagged() || !(encode > 0.0 && decode > 0.0) {
        return Err(bad("expected a host codec, and rates above 0".into()));
    }
    Ok((coding, [1e9 * encode, 1e9 * decode]))
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct StackReport {
    per_message_s: f64,
    small: usize,
    batch: bool,
    threshold: f64,
    rows: Vec<Row>,
}

/// Simulates every step of every stack and reports to `out`.
///
/// # Errors
/// An option or a file is refused, or the output cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> Result<Outcome, Error> {
    if !(0.0..1.0).contains(&args.threshold) {
        return Err(Error::Usage("--threshold has to be from 0 to below 1".into()));
    }
    let codecs = args.codec.iter().map(|text| coding(text)).collect::<Result<Vec<_>, _>>()?;
    let mut steps = Vec::new();
    for name in &args.model {
        let model = args.times.of(model(name)?);
        if model.forward + model.backward == 0.0 {
            let what = format!(
                "{name} has no compute times, without which nothing scales: give --forward and --backward"
            );
            return Err(Error::Usage(what));
        }
        for (&workers, &bandwidth) in
            args.ranks.iter().flat_map(|ranks| args.bandwidth.iter().map(move |bandwidth| (ranks, bandwidth)))
        {
            let mut scenario = Scenario {
                workers,
                per_message: picos(args.per_message),
                ..Scenario::new(model.clone(), Mechanism::Graph(args.strategy))
            };
            (scenario.links.bandwidth, scenario.links.latency) = (bandwidth, picos(args.latency));
            scenario.wire.packets = Some(Packets::of_mtu(args.mtu));
            for (at, &(coding, rates)) in codecs.iter().enumerate() {
                let (scenario, strategy) = (scenario.clone(), args.strategy);
                let &Args { small, batch, threshold, .. } = args;
                let stack = Stack { scenario, strategy, coding, rates, small, batch, threshold };
                // Without a codec, all stacks of a model and cluster are the same.
                steps.extend(Step::ALL[usize::from(at > 0)..].iter().map(|&step| (stack.clone(), step)));
            }
        }
    }
    let progress = ProgressBar::new("steps", steps.len() as u64);
    let rows: Result<Vec<Row>, _> =
        steps.into_par_iter().map(|(stack, step)| stack.row(step)).inspect(|_| progress.step()).collect();
    drop(progress);
    let report = StackReport {
        per_message_s: args.per_message,
        small: args.small,
        batch: args.batch,
        threshold: args.threshold,
        rows: rows?,
    };
    report::write(out, args.json, &report, |out| table(out, &report.rows))?;
    Ok(Outcome::Held)
}

fn table(out: &mut impl Write, rows: &[Row]) -> Result<(), Error> {
    let mut table = Table::new(&[
        "model",
        "ranks",
        "Gbit/s",
        "codec",
        "step",
        "iteration s",
        "efficiency",
        "communication",
        "uncoordinated",
        "coded",
        "MB sent",
    ]);
    let percent = |part: f64| format!("{:.1}%", 100.0 * part);
    for row in rows {
        table.row([
            row.model.clone(),
            row.ranks.to_string(),
            format!("{}", row.bandwidth as f64 / 1e9),
            if row.step == Step::None { "f32".into() } else { row.codec.clone() },
            row.step.to_string(),
            format!("{:.4}", row.iteration_s),
            percent(row.efficiency),
            percent(row.communication),
            format!("{:.4}", row.uncoordinated_s),
            row.compressed.to_string(),
            format!("{:.1}", row.sent_bytes as f64 / 1e6),
        ]);
    }
    Ok(table.write(out)?)
}
