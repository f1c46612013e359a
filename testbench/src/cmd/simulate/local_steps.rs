//! `gradwire simulate local-steps`: what rounds of local steps do to the time of an iteration.

use std::io::Write;

use gradwire_codecs::Registry;
use gradwire_collectives::{CollectivePlan, Method};
use gradwire_simulator::local_steps::{LocalRow, LocalSteps};
use gradwire_simulator::{Mechanism, Packets, Scenario, picos, seconds};
use rayon::prelude::*;
use serde::Serialize;

use crate::cmd::args::model::{TimesArgs, model};
use crate::cmd::args::quantity::{plain, rate, time};
use crate::error::{Error, Outcome};
use crate::report;
use crate::report::Table;

/// Bytes of values a second for which a rank handles an exchange, as four ranks on two cores did it
/// with the MLP of docs/local-steps.md; `simulator/tests/local_steps.rs` has the calibration.
pub const HANDLED: f64 = 0.08e9;
/// The plan of local steps, and the bits of a value: there, 2.3 with the MLP, 3.2 with the
/// convolutional net.
pub const USUAL: &str = "bounded:4@3";

/// Simulates local steps: ranks train alone for some iterations, and then average what they moved.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
utilisation  compute over iteration
waited       part of the iteration in which ranks wait for an exchange
most         local steps pay if they need fewer than so many times the iterations: an iteration that exchanges by the
             same plan behind its backward pass, whose coding costs nothing, over the local one

JSON: {\"handle_gb_s\", \"rows\": [{\"model\", \"plan\", \"ranks\", \"bandwidth\", \"every\", \"delay\", \"fragments\", \"iteration_s\",
\"utilisation\", \"exchange_s\", \"waited_s\", \"sent_bytes\", \"synchronous_s\", \"most_iterations\"}]}; exchange_s and
sent_bytes are those of a round.

Examples:
  gradwire simulate local-steps --model gpt2 --forward 50ms --backward 100ms --bandwidth 50M,200M,1G --every 4,16,32
  gradwire simulate local-steps --every 16 --delay 4 --fragments 4 --plan f32,bounded:4@2.5 --ranks 4,16 --json")]
pub struct Args {
    /// Models, as `gradwire simulate --model` takes them.
    #[arg(long, value_delimiter = ',', default_value = "vgg16", value_name = "MODEL,..")]
    pub model: Vec<String>,
    /// Plans of `gradwire.LocalSteps`, and bits of a value if these depend on the values; without,
    /// the most that the codec makes.
    #[arg(long, value_delimiter = ',', default_values = ["f32", USUAL], value_name = "PLAN[@BITS],..")]
    pub plan: Vec<String>,
    /// Iterations of a round.
    #[arg(long, value_delimiter = ',', default_value = "4,8,16,32", value_name = "N,..")]
    pub every: Vec<u32>,
    /// Iterations that ranks go on for while an exchange is under way.
    #[arg(long, default_value_t = 0)]
    pub delay: u32,
    /// Parts of the model, exchanged at different iterations of a round.
    #[arg(long, default_value_t = 1)]
    pub fragments: u32,
    /// GB/s of values for which a rank's processor handles an exchange: coding, residuals, the
    /// weights' move.
    #[arg(long, value_name = "GB/S", default_value_t = HANDLED / 1e9)]
    pub handle: f64,
    /// The number of ranks that train.
    #[arg(long, value_delimiter = ',', default_value = "4", value_name = "N,..", help_heading = "Cluster")]
    pub ranks: Vec<u32>,
    /// Bit/s of every link, each way.
    #[arg(long, value_delimiter = ',', default_value = "10M,50M,200M,1G", value_parser = rate, value_name = "RATE,..", help_heading = "Cluster")]
    pub bandwidth: Vec<u64>,
    /// Latency of a host's link.
    #[arg(long, default_value = "0s", value_parser = time, help_heading = "Cluster")]
    pub latency: f64,
    /// MTU of the packets, whose headers count.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u64).range(576..=65_535), help_heading = "Cluster")]
    pub mtu: u64,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub times: TimesArgs,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct LocalReport {
    handle_gb_s: f64,
    rows: Vec<Row>,
}

/// A run, and what it was.
#[derive(Debug, Serialize)]
struct Row {
    model: String,
    plan: String,
    ranks: u32,
    bandwidth: u64,
    every: u32,
    delay: u32,
    fragments: u32,
    #[serde(flatten)]
    local: LocalRow,
    synchronous_s: f64,
    most_iterations: f64,
}

/// A plan, and the bits of a value, as options have them.
///
/// # Errors
/// There is no such plan, or it is none of graphs.
pub fn plan(text: &str) -> Result<(CollectivePlan, Option<f64>), Error> {
    let bad = |why: String| Error::Usage(format!("--plan {text}: {why}"));
    let (name, bits) = match text.split_once('@') {
        Some((name, bits)) => (name, Some(plain::<f64>(bits).map_err(bad)?)),
        None => (text, None),
    };
    match Method::parse(name, Registry::BUILT_IN).map_err(|why| bad(why.to_string()))? {
        Method::Plan(plan) if plan.graph().is_some() && plan.tagged().is_none() => Ok((plan, bits)),
        _ => Err(bad("expected f32, or a host codec".into())),
    }
}

/// `scenario` with the exchange of such a plan.
#[must_use]
pub fn planned(scenario: Scenario, plan: &CollectivePlan, coded_bits: Option<f64>) -> Scenario {
    let strategy = plan.graph().map_or(gradwire_collectives::Strategy::Ring, |plan| plan.others.strategy);
    Scenario { mechanism: Mechanism::Graph(strategy), plan: Some(plan.clone()), coded_bits, ..scenario }
}

/// Simulates every combination and reports to `out`.
///
/// # Errors
/// An option or a file is refused, or the output cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> Result<Outcome, Error> {
    let plans = args.plan.iter().map(|text| plan(text)).collect::<Result<Vec<_>, _>>()?;
    let mut settings = Vec::new();
    for name in &args.model {
        let model = args.times.of(model(name)?);
        if model.forward + model.backward == 0.0 {
            let what = format!("{name} has no compute times: give --forward and --backward");
            return Err(Error::Usage(what));
        }
        for (said, (plan, bits)) in args.plan.iter().zip(&plans) {
            for (&workers, &bandwidth) in
                args.ranks.iter().flat_map(|ranks| args.bandwidth.iter().map(move |rate| (ranks, rate)))
            {
                let mut scenario = planned(
                    Scenario { workers, ..Scenario::new(model.clone(), Mechanism::RING) },
                    plan,
                    *bits,
                );
                (scenario.links.bandwidth, scenario.links.latency) = (bandwidth, picos(args.latency));
                scenario.wire.packets = Some(Packets::of_mtu(args.mtu));
                settings.push((said, scenario));
            }
        }
    }
    let of = |(said, scenario): &(&String, Scenario)| {
        let synchronous_s = seconds(scenario.run()?.iteration);
        let row = |&every: &u32| {
            let (delay, fragments) = (args.delay, args.fragments);
            let steps = LocalSteps {
                scenario: scenario.clone(),
                every,
                delay,
                fragments,
                handled: 1e9 * args.handle,
            };
            let local = steps.run()?;
            Ok(Row {
                model: scenario.model.name.clone(),
                plan: (*said).clone(),
                ranks: scenario.workers,
                bandwidth: scenario.links.bandwidth,
                every,
                delay,
                fragments,
                local,
                synchronous_s,
                most_iterations: synchronous_s / local.iteration_s,
            })
        };
        args.every.iter().map(row).collect::<Result<Vec<_>, Error>>()
    };
    let rows: Result<Vec<Vec<Row>>, Error> = settings.par_iter().map(of).collect();
    let rows: Vec<Row> = rows?.into_iter().flatten().collect();
    let report = LocalReport { handle_gb_s: args.handle, rows };
    report::write(out, args.json, &report, |out| table(out, &report.rows))?;
    Ok(Outcome::Held)
}

fn table(out: &mut impl Write, rows: &[Row]) -> Result<(), Error> {
    let mut table = Table::new(&[
        "model",
        "plan",
        "ranks",
        "Mbit/s",
        "every",
        "iteration s",
        "utilisation",
        "waited",
        "MB a round",
        "synchronous s",
        "most",
    ]);
    let percent = |part: f64| format!("{:.1}%", 100.0 * part);
    for row in rows {
        table.row([
            row.model.clone(),
            row.plan.clone(),
            row.ranks.to_string(),
            format!("{}", row.bandwidth as f64 / 1e6),
            row.every.to_string(),
            format!("{:.4}", row.local.iteration_s),
            percent(row.local.utilisation),
            percent(row.local.waited_s / row.local.iteration_s),
            format!("{:.2}", row.local.sent_bytes as f64 / 1e6),
            format!("{:.4}", row.synchronous_s),
            format!("{:.2}x", row.most_iterations),
        ]);
    }
    Ok(table.write(out)?)
}
