//! `gradwire simulate`: a cluster larger than the desk.

pub mod figures;
pub mod local_steps;
pub mod pipe_sgd;
pub mod published;
pub mod runs;
pub mod stack;

use std::io::Write;

use clap::parser::ValueSource;
use clap::{ArgMatches, Subcommand};
use serde::Serialize;

use self::runs::{Runs, SimulatedRun};
use crate::error::{Error, Outcome};
use crate::report;
use crate::report::Table;
use crate::report::page::{Cell, Page};
use crate::report::plot::{self, Chart, Series};

/// Simulates training on a cluster: what each way to exchange gradients, and compression on it,
/// does to the time of an iteration. Every result is compared with f32 and with truncation to 16
/// bits.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Mechanisms: ps, ps-rr, ps-block, ps-async, agg, mc, mc+agg, ring, ring-whole, ring+mc, butterfly, hier-agg[:GROUP];
graph:STRATEGY runs the graph of `gradwire allreduce --strategy`, on ranks. ina[:rack] sums in aggregators
of --aggregator-rate and --aggregator-cores in the switch's place, or also in that of each rack; mc+agg is a switch that
sums at once, and sends to a server.

Compression: in-nic:RATIOS runs at the rate of the link; on-host:RATIOS@ENCODE,DECODE at these GB/s of values.
RATIOS is GRADIENT[/PARTIAL_SUM[/PARAMETERS]], or b10, b8, b6 for what was recorded at that bound. The rates of
on-host:bB@measured are measured on this machine.

JSON: {\"runs\": [{\"model\", \"mechanism\", \"compression\", \"ranks\", \"bandwidth\", \"sweep\", \"iteration_s\",
\"gain_f32\", \"gain_16bit\", \"sent_bytes\", \"events\"}]}; sent_bytes is what worker 0 sent.

Examples:
  gradwire simulate --mechanism ring,ps,mc+agg --compress in-nic:b10 --mtu 1500
  gradwire simulate --model resnet200 --sweep ranks=8..1024 --plot ring.svg
  gradwire simulate --mechanism ring,ina,mc+agg --bandwidth 1G --ranks 16 --sweep aggregator-cores=1..16
  gradwire simulate --mechanism ring --link 3=1G --jitter 0.1 --seed 7 --json
  gradwire simulate published
  gradwire simulate stack --model resnet101 --bandwidth 25G
  gradwire simulate local-steps --model resnet101 --bandwidth 200M
  gradwire simulate pipe-sgd --model resnet101 --ranks 2,4,8,16,32,64"
)]
pub struct Args {
    /// Something else than runs of your own.
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub runs: Runs,
}

/// The files that are prepared; documented where the arguments are.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "documentation here would take the place of that of the arguments")]
pub enum Command {
    Published(published::Args),
    Figures(figures::Args),
    Stack(stack::Args),
    LocalSteps(local_steps::Args),
    PipeSgd(pipe_sgd::Args),
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
pub struct SimulateReport {
    /// All runs.
    pub runs: Vec<SimulatedRun>,
}

/// Why these options are refused: one that is swept was given a value, too, which would be ignored.
#[must_use]
pub fn swept_and_given(matches: &ArgMatches) -> Option<String> {
    let (swept, _) = matches.get_one::<String>("sweep")?.split_once('=')?;
    let id = swept.replace('-', "_");
    let known = matches.ids().any(|known| known.as_str() == id);
    (known && matches.value_source(&id) == Some(ValueSource::CommandLine))
        .then(|| format!("--sweep {swept}=.. goes without --{swept}"))
}

/// Simulates what `args` say and reports to `out`.
///
/// # Errors
/// An option or a file is refused, or an output cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> Result<Outcome, Error> {
    match &args.command {
        Some(Command::Published(args)) => return published::run(args, out),
        Some(Command::Figures(args)) => return figures::run(args, out),
        Some(Command::Stack(args)) => return stack::run(args, out),
        Some(Command::LocalSteps(args)) => return local_steps::run(args, out),
        Some(Command::PipeSgd(args)) => return pipe_sgd::run(args, out),
        None => {}
    }
    let report = SimulateReport { runs: args.runs.simulate()? };
    report::write(out, args.runs.json, &report, |out| table(out, &report.runs))?;
    let x = args.runs.sweep.as_deref().and_then(|sweep| sweep.split('=').next());
    let drawn = || draw(&report.runs, x, &args.runs.fixed(x));
    if let Some(path) = &args.runs.plot {
        plot::write(path, &drawn())?;
    }
    if let Some(path) = &args.runs.html {
        page(&report.runs, &drawn(), &args.runs.fixed(x)).write(path, &report)?;
    }
    Ok(Outcome::Held)
}

fn table(out: &mut impl Write, runs: &[SimulatedRun]) -> Result<(), Error> {
    let mut table = Table::new(&[
        "model",
        "mechanism",
        "codec",
        "ranks",
        "Gbit/s",
        "swept",
        "iteration s",
        "vs f32",
        "vs 16 bit",
        "MB sent",
    ]);
    for run in runs {
        table.row([
            run.model.clone(),
            run.mechanism.clone(),
            run.compression.clone(),
            run.ranks.to_string(),
            format!("{}", run.bandwidth as f64 / 1e9),
            run.sweep.map_or_else(|| "-".into(), |value| value.to_string()),
            format!("{:.4}", run.iteration_s),
            format!("{:.2}x", run.gain_f32),
            format!("{:.2}x", run.gain_16bit),
            format!("{:.1}", run.sent_bytes as f64 / 1e6),
        ]);
    }
    Ok(table.write(out)?)
}

/// The runs as a page, with the plot of their times and what was the same in all.
fn page(runs: &[SimulatedRun], drawn: &str, fixed: &str) -> Page {
    let mut page = Page::new("gradwire simulate: iteration times");
    page.text(&format!(
        "Fixed: {fixed}. Simulated, not measured: without loss, congestion control or collisions in the switch."
    ));
    page.picture(drawn, "Time of an iteration: as f32, truncated to 16 bits, and with compression.");
    let head = [
        "model",
        "mechanism",
        "codec",
        "swept",
        "iteration s",
        "against f32",
        "against 16 bit",
        "bytes sent",
    ];
    let cells = |(at, run): (usize, &SimulatedRun)| {
        let figure = |text: String, name: &str| Cell::figure(text, format!("/runs/{at}/{name}"));
        vec![
            run.model.as_str().into(),
            run.mechanism.as_str().into(),
            run.compression.as_str().into(),
            run.sweep.map_or_else(|| "-".to_owned(), |value| value.to_string()).into(),
            figure(format!("{:.4}", run.iteration_s), "iteration_s"),
            figure(format!("{:.2}", run.gain_f32), "gain_f32"),
            figure(format!("{:.2}", run.gain_16bit), "gain_16bit"),
            figure(run.sent_bytes.to_string(), "sent_bytes"),
        ]
    };
    page.table(&head, &runs.iter().enumerate().map(cells).collect::<Vec<_>>());
    page
}

/// A line for each mechanism and codec over what was swept, or a bar for each.
fn draw(runs: &[SimulatedRun], swept: Option<&str>, fixed: &str) -> String {
    let several = runs.iter().any(|run| run.model != runs[0].model);
    let name = |run: &SimulatedRun| {
        let model = if several { format!("{} ", run.model) } else { String::new() };
        format!("{model}{} {}", run.mechanism, run.compression)
    };
    let model = if several { String::new() } else { format!("{}, ", runs[0].model) };
    let title = format!("Iteration time, {model}{fixed}");
    let Some(swept) = swept else {
        return plot::bars(
            &title,
            "s",
            &runs.iter().map(|run| (name(run), run.iteration_s)).collect::<Vec<_>>(),
        );
    };
    let mut series: Vec<Series> = Vec::new();
    for run in runs {
        let point = (run.sweep.unwrap_or(0.0), run.iteration_s);
        match series.iter_mut().find(|series| series.name == name(run)) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name: name(run), points: vec![point] }),
        }
    }
    let log_x = series.iter().flat_map(|series| &series.points).all(|point| point.0 > 0.0);
    plot::lines(&Chart { title, x: swept.to_owned(), y: "seconds".into(), log_x, series })
}
