//! `gradwire plan published`: HiPress' Table 7 beside what the planner decides.

use std::io::Write;

use gradwire_simulator::planner::table7::{self, Pair, Row, Threshold};
use serde::Serialize;

use crate::error::{Error, Outcome};
use crate::report;
use crate::report::Table;

/// Prints HiPress' Table 7, of CompLL-onebit, beside what the planner decides, with a verdict for
/// each row.
///
/// The paper has the link, the rate and the factors of Eq. 1 and 2. It has neither the latency nor
/// what onebit takes on its GPUs: those are constants with which all decisions come out. A
/// difference is a finding, not a failure.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
JSON: {\"rows\": [{\"megabytes\", \"strategy\", \"ranks\", \"published\": {\"compress\", \"partitions\"}, \"ours\", \"why\"}],
\"thresholds\": [{\"strategy\", \"ranks\", \"above\", \"up_to\", \"ours\"}]}; why is null if the partitions are as printed.
Thresholds are MB of 2^20 bytes: the largest gradient of the table that is not compressed, the smallest that is, ours.")]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct PublishedReport {
    rows: Vec<Row>,
    thresholds: Vec<Threshold>,
}

/// Compares, and reports to `out`.
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> Result<Outcome, Error> {
    let costs = table7::costs();
    let report = PublishedReport { rows: table7::rows(&costs), thresholds: table7::thresholds(&costs) };
    report::write(out, args.json, &report, |out| table(out, &report))?;
    Ok(Outcome::Held)
}

fn pair(Pair { compress, partitions }: Pair) -> String {
    format!("{}, {partitions}", if compress { "yes" } else { "no" })
}

fn table(out: &mut impl Write, report: &PublishedReport) -> Result<(), Error> {
    let verdict = |same: bool| if same { "reproduces" } else { "differs" }.to_owned();
    let mut table = Table::new(&["MB", "CaSync", "ranks", "published", "ours", "decision", "K"]);
    for Row { megabytes, strategy, ranks, published, ours, .. } in &report.rows {
        table.row([
            megabytes.to_string(),
            (*strategy).to_owned(),
            ranks.to_string(),
            pair(*published),
            pair(*ours),
            verdict(published.compress == ours.compress),
            verdict(published.partitions == ours.partitions),
        ]);
    }
    table.write(out)?;
    writeln!(out, "\npublished, ours   whether to compress, and partitions")?;
    for Row { megabytes, strategy, ranks, why, .. } in &report.rows {
        if let Some(why) = why {
            writeln!(out, "{megabytes} MB, {strategy}, {ranks} ranks: {why}")?;
        }
    }
    writeln!(out)?;
    let mut table = Table::new(&["CaSync", "ranks", "compresses from, MB", "ours, MB", "verdict"]);
    for threshold in &report.thresholds {
        let Threshold { strategy, ranks, above, up_to, ours } = threshold;
        let published = if *above == 0 { format!("{up_to} or less") } else { format!("{above} to {up_to}") };
        table.row([
            (*strategy).to_owned(),
            ranks.to_string(),
            published,
            format!("{ours:.2}"),
            verdict(threshold.reproduces()),
        ]);
    }
    table.write(out)?;
    let count = |same: &dyn Fn(&Row) -> bool| report.rows.iter().filter(|row| same(row)).count();
    let decisions = count(&|row| row.published.compress == row.ours.compress);
    let partitions = count(&|row| row.published.partitions == row.ours.partitions);
    let all = report.rows.len();
    writeln!(out, "\n{decisions} of {all} decisions and {partitions} of {all} partitions are as published")?;
    Ok(())
}
