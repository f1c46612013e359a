//! `gradwire simulate published`: the cells and claims of Chang et al. beside ours; and the
//! subjects of their figures, which `gradwire simulate figures` draws.

pub mod cells;
pub mod claims;
pub mod figures;
mod setting;
pub mod tables;

use std::io::Write;

use rayon::prelude::*;
use serde::Serialize;

use self::cells::{Comparison, Setting, cells, compare};
use self::claims::{Claim, claims};
use crate::error::{Error, Outcome};
use crate::report;
use crate::report::ProgressBar;
use crate::report::{Table, WIDTH};

/// Prints every published cell beside ours with its tolerance and the verdict, then the claims of
/// the text.
///
/// A cell outside its tolerance is a failure. A claim that does not reproduce is a finding, not a
/// failure.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
JSON: {\"cells\": [{\"table\", \"model\", \"column\", \"published\", \"ours\", \"difference\", \"tolerance\", \"calibrated\",
\"ok\"}], \"tables\": [{\"table\", \"model\", \"what\", \"published\", \"ours\"}], \"claims\": [{\"claim\", \"ours\", \"reproduces\"}], \"ok\"}; a tolerance of null is not checked.")]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A cell as `--json` prints it.
#[derive(Debug, Serialize)]
struct Cell {
    table: String,
    model: String,
    column: String,
    published: f64,
    ours: f64,
    difference: f64,
    tolerance: Option<f64>,
    calibrated: bool,
    ok: bool,
}

#[derive(Debug, Serialize)]
struct PublishedReport {
    cells: Vec<Cell>,
    tables: Vec<tables::Row>,
    claims: Vec<Claim>,
    ok: bool,
}

/// Simulates every cell and claim and reports to `out`.
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &Args, out: &mut impl Write) -> Result<Outcome, Error> {
    let cells = cells()?;
    let progress = ProgressBar::new("cells", cells.len() as u64);
    let comparisons: Result<Vec<Comparison>, _> =
        cells.into_par_iter().map(compare).inspect(|_| progress.step()).collect();
    drop(progress);
    let cells: Vec<Cell> = comparisons?.into_iter().map(cell).collect();
    let ok = cells.iter().all(|cell| cell.ok);
    let report = PublishedReport { cells, tables: tables::rows()?, claims: claims()?, ok };
    if args.json {
        report::json(out, &report)?;
    } else {
        write(out, &report)?;
    }
    Ok(Outcome::from_ok(ok))
}

fn cell(comparison: Comparison) -> Cell {
    Cell {
        ours: comparison.ours,
        difference: comparison.difference(),
        tolerance: comparison.tolerance,
        calibrated: comparison.setting == Setting::Calibrated,
        ok: comparison.holds(),
        published: comparison.cell.published,
        table: comparison.cell.table,
        model: comparison.cell.model,
        column: comparison.cell.column,
    }
}

fn write(out: &mut impl Write, report: &PublishedReport) -> Result<(), Error> {
    let mut table =
        Table::new(&["table", "model", "column", "paper", "ours", "off by", "within", "compute", "verdict"]);
    for cell in &report.cells {
        let verdict = match (cell.tolerance, cell.ok) {
            (None, _) => "unchecked",
            (Some(_), true) => "reproduces",
            (Some(_), false) => "does NOT",
        };
        table.row([
            cell.table.clone(),
            cell.model.clone(),
            cell.column.clone(),
            cell.published.to_string(),
            format!("{:.3}", cell.ours),
            format!("{:+.1}%", 100.0 * cell.difference),
            cell.tolerance.map_or_else(|| "-".into(), |tolerance| format!("{:.0}%", 100.0 * tolerance)),
            if cell.calibrated { "fitted" } else { "Table 3" }.into(),
            verdict.into(),
        ]);
    }
    table.write(out)?;
    writeln!(out, "\ncompute  times of Table 3 as printed, or calibrated: fitted to the ring of Table 8")?;
    writeln!(
        out,
        "\nTables 2 and 7: sizes of models, and shares of servers that are assigned variables in turn\n"
    )?;
    let mut table = Table::new(&["table", "model", "what", "published", "ours", "off by"]);
    for row in &report.tables {
        table.row([
            format!("T{}", row.table),
            row.model.into(),
            row.what.clone(),
            row.published.to_string(),
            if row.ours < 1e-3 { format!("{:.2e}", row.ours) } else { format!("{:.4}", row.ours) },
            format!("{:+.1}%", 100.0 * (row.ours / row.published - 1.0)),
        ]);
    }
    table.write(out)?;
    for reproduces in [true, false] {
        writeln!(out, "\nClaims that {}:", if reproduces { "reproduce" } else { "do NOT reproduce" })?;
        for claim in report.claims.iter().filter(|claim| claim.reproduces == reproduces) {
            wrapped(out, "  ", claim.claim)?;
            wrapped(out, "    ours: ", &claim.ours)?;
        }
    }
    let checked = report.cells.iter().filter(|cell| cell.tolerance.is_some());
    let held = checked.clone().filter(|cell| cell.ok).count();
    writeln!(out, "\n{held} of {} checked cells reproduce", checked.count())?;
    Ok(())
}

/// `text` behind `start`, in lines of at most 100 columns, all but the first indented by six.
fn wrapped(out: &mut impl Write, start: &str, text: &str) -> Result<(), Error> {
    let mut line = start.to_owned();
    for word in text.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(out, "{}", line.trim_end())?;
            line = "      ".to_owned();
        }
        line.push_str(word);
        line.push(' ');
    }
    Ok(writeln!(out, "{}", line.trim_end())?)
}
