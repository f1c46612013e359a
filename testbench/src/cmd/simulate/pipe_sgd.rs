//! `gradwire simulate pipe-sgd`: Pipe-SGD's model of the time of an iteration.

use std::io::Write;

use gradwire_simulator::Model;
use gradwire_simulator::planner::collectives::{Linear, ring};
use gradwire_simulator::planner::pipe_sgd::{
    Stages, pipelined_gradients, scaling_efficiency, sequential_gradients, synchronous,
};
use serde::Serialize;

use crate::cmd::args::model::{TimesArgs, model};
use crate::cmd::args::quantity::{plain, rate, time};
use crate::error::{Error, Outcome};
use crate::report;
use crate::report::Table;

/// Computes the time of an iteration by the equations of Pipe-SGD (Li et al., NeurIPS 2018): with
/// an exchange behind the next iteration's compute, and without.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
exchange    ring all-reduce: 2(p-1) messages, their bytes and sums
D-Sync      Eq. 2: compute, then the exchange
Pipe-SGD    Eq. 4 and 5: the longer of both, whatever the width is, from 2 on
segments    Eq. 6: gradients leave in --segments parts while the backward pass goes on
efficiency  Eq. 7: compute over Pipe-SGD's iteration; at 100% throughput is linear in the ranks
The model leaves out that late gradients need more iterations: docs/papers.md has how many were measured.

JSON: {\"rows\": [{\"model\", \"ranks\", \"bandwidth\", \"bits\", \"compute_s\", \"exchange_s\", \"synchronous_s\", \"pipelined_s\",
\"segments_s\", \"gain\", \"efficiency\"}]}; gain is synchronous_s over pipelined_s.

Examples:
  gradwire simulate pipe-sgd --model resnet101 --ranks 2,4,8,16,32,64 --bandwidth 10G
  gradwire simulate pipe-sgd --model mlp.csv --forward 4ms --backward 9ms --update 2ms --bandwidth 200M,1G --json")]
pub struct Args {
    /// Models, as `gradwire simulate --model` takes them.
    #[arg(long, value_delimiter = ',', default_value = "vgg16", value_name = "MODEL,..")]
    pub model: Vec<String>,
    /// Bits of a value on the wire: 32 for f32, 16 and 8 for the paper's truncation and
    /// quantisation.
    #[arg(long, value_delimiter = ',', default_value = "32,16,8", value_parser = plain::<f64>, value_name = "BITS,..")]
    pub bits: Vec<f64>,
    /// Parts in which gradients leave, of Eq. 6.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub segments: u32,
    /// Time in which the ranks of an exchange find each other.
    #[arg(long, default_value = "0s", value_parser = time, value_name = "TIME")]
    pub sync: f64,
    /// The number of ranks that train.
    #[arg(long, value_delimiter = ',', default_value = "4", value_parser = clap::value_parser!(u32).range(2..=1_000_000), value_name = "N,..", help_heading = "Cluster")]
    pub ranks: Vec<u32>,
    /// Bit/s of every link, each way.
    #[arg(long, value_delimiter = ',', default_value = "1G,10G", value_parser = rate, value_name = "RATE,..", help_heading = "Cluster")]
    pub bandwidth: Vec<u64>,
    /// The time that each message takes besides its bytes.
    #[arg(long, default_value = "50us", value_parser = time, help_heading = "Cluster")]
    pub latency: f64,
    /// GB/s of values that a rank sums.
    #[arg(long, value_name = "GB/S", default_value_t = 4.0, help_heading = "Cluster")]
    pub sum: f64,
    /// Time of the optimizer's update.
    #[arg(long, default_value = "0s", value_parser = time, value_name = "TIME", help_heading = "Compute and model")]
    pub update: f64,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub times: TimesArgs,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct PipeReport {
    rows: Vec<Row>,
}

/// An iteration's times, in seconds, and what they are of.
#[derive(Debug, Serialize)]
struct Row {
    model: String,
    ranks: u32,
    bandwidth: u64,
    bits: f64,
    compute_s: f64,
    exchange_s: f64,
    synchronous_s: f64,
    pipelined_s: f64,
    segments_s: f64,
    gain: f64,
    efficiency: f64,
}

/// Computes every combination and reports to `out`.
///
/// # Errors
/// An option or a file is refused, or the output cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> Result<Outcome, Error> {
    let refused = |what: &str| Err(Error::Usage(what.to_owned()));
    if !args.bits.iter().all(|bits| *bits > 0.0 && *bits <= 32.0) {
        return refused("--bits: expected more than 0, and at most 32");
    }
    if !(args.sum > 0.0 && args.sum.is_finite()) {
        return refused("--sum: expected more than 0 GB/s");
    }
    if args.bandwidth.contains(&0) {
        return refused("--bandwidth: expected more than 0");
    }
    let mut rows = Vec::new();
    for name in &args.model {
        let model = args.times.of(model(name)?);
        let stages = Stages { update: args.update, forward: model.forward, backward: model.backward };
        if stages.compute() == 0.0 {
            let what = format!("{name} has no compute times: give --forward and --backward");
            return Err(Error::Usage(what));
        }
        for &ranks in &args.ranks {
            for &bandwidth in &args.bandwidth {
                let row = |&bits: &f64| args.row(&model, stages, ranks, bandwidth, bits);
                rows.extend(args.bits.iter().map(row));
            }
        }
    }
    let report = PipeReport { rows };
    report::write(out, args.json, &report, |out| table(out, &report.rows))?;
    Ok(Outcome::Held)
}

impl Args {
    /// The equations for one iteration.
    fn row(&self, model: &Model, stages: Stages, ranks: u32, bandwidth: u64, bits: f64) -> Row {
        let machine = Linear {
            alpha: self.latency,
            beta: 8.0 / bandwidth as f64,
            // Sums are of f32, whatever their bytes on the wire are.
            gamma: 32.0 / bits / (1e9 * self.sum),
        };
        let bytes = model.bits() as f64 / 32.0 * bits / 8.0;
        let exchange_s = ring(machine, ranks, bytes) + self.sync;
        let synchronous_s = synchronous(1.0, stages, exchange_s);
        let pipelined_s = sequential_gradients(1.0, stages, machine, ranks, bytes, self.sync);
        let segments = f64::from(self.segments);
        let parts = (segments, stages.backward / segments);
        Row {
            model: model.name.clone(),
            ranks,
            bandwidth,
            bits,
            compute_s: stages.compute(),
            exchange_s,
            synchronous_s,
            pipelined_s,
            segments_s: pipelined_gradients(1.0, stages, machine, ranks, bytes, self.sync, parts),
            gain: synchronous_s / pipelined_s,
            efficiency: scaling_efficiency(stages, exchange_s),
        }
    }
}

fn table(out: &mut impl Write, rows: &[Row]) -> Result<(), Error> {
    let mut table = Table::new(&[
        "model",
        "ranks",
        "Mbit/s",
        "bits",
        "compute s",
        "exchange s",
        "D-Sync s",
        "Pipe-SGD s",
        "segments s",
        "gain",
        "efficiency",
    ]);
    for row in rows {
        table.row([
            row.model.clone(),
            row.ranks.to_string(),
            format!("{}", row.bandwidth as f64 / 1e6),
            format!("{}", row.bits),
            format!("{:.4}", row.compute_s),
            format!("{:.4}", row.exchange_s),
            format!("{:.4}", row.synchronous_s),
            format!("{:.4}", row.pipelined_s),
            format!("{:.4}", row.segments_s),
            format!("{:.2}x", row.gain),
            format!("{:.1}%", 100.0 * row.efficiency),
        ]);
    }
    Ok(table.write(out)?)
}
