//! What people read: tables, plots and progress. Programs read JSON, which `serde` makes of the figures themselves.

use std::io::{self, Write};

use gradwire::codec::{Params, Split};
use gradwire::profile::Profile;
use gradwire::rules::Rule;

use crate::check::{Measured, PAYLOAD_LEN, Shares};
use crate::judge::Findings;
use crate::judge::values;

pub mod plot;
mod progress_bar;
mod table;

pub use progress_bar::ProgressBar;
pub(crate) use table::Table;

/// Columns of the bar that shows class shares.
const BAR: usize = 16;
/// One sign for each class, from nothing kept to everything kept.
const SIGNS: [char; 4] = ['.', '-', '+', '#'];

/// The table of `gradwire check`.
///
/// # Errors
/// Those of `out`.
pub fn measured(out: &mut impl Write, rows: &[Measured]) -> io::Result<()> {
    let mut table = Table::new(&[
        "recording",
        "values",
        "bound",
        "ratio",
        "zero",
        "byte",
        "half",
        "raw",
        "classes",
        "max error",
        "rms error",
        "norm lost",
        "encode",
        "decode",
        "over",
    ]);
    for row in rows {
        let bound = values::bound(row.params);
        let Shares { zero, byte, half, raw } = row.classes;
        table.row(vec![
            row.name.clone(),
            row.values.to_string(),
            bound_name(row.params),
            format!("{:.2}", row.ratio),
            percent(zero),
            percent(byte),
            percent(half),
            percent(raw),
            bar(row.classes),
            of_bound(row.max_error, bound),
            of_bound(row.rms_error, bound),
            percent(row.norm_lost),
            format!("{:.2}", row.speed.0 / 1e9),
            format!("{:.2}", row.speed.1 / 1e9),
            row.violations.to_string(),
        ]);
    }
    table.write(out)?;
    let [zero, byte, half, raw] = SIGNS;
    writeln!(out)?;
    writeln!(
        out,
        "classes    share of values of which 0 ({zero}), 8 ({byte}), 16 ({half}) and 32 ({raw}) bits are kept"
    )?;
    writeln!(out, "errors     as a part of the bound; `over` counts values at or above it")?;
    writeln!(out, "norm lost  1 - ||restored|| / ||recorded||")?;
    writeln!(out, "speed      GB of values a second, one core, payloads of {PAYLOAD_LEN} bytes")
}

/// What a replay did and found, for one capture.
///
/// # Errors
/// Those of `out`.
pub fn replayed(out: &mut impl Write, name: &str, rule: &Rule, findings: &Findings) -> io::Result<()> {
    let framing = rule.framing.name();
    let Profile::Classes(params) = rule.profile;
    let split = params.split().map_or("unnamed", Split::name);
    writeln!(out, "{name}, {framing} framing, bound {}, {split} split", bound_name(params))?;
    for (kind, outcomes) in &findings.kinds {
        let frames: u64 = outcomes.values().sum();
        let mut outcomes: Vec<_> = outcomes.iter().collect();
        outcomes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let outcomes: Vec<String> =
            outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        writeln!(out, "  {:<20} {frames:>7}  {}", kind.name(), outcomes.join(", "))?;
    }
    let (sent, wire) = (findings.wire_bytes_in, findings.wire_bytes_out);
    let shorter = if wire == 0 { 1.0 } else { sent as f64 / wire as f64 };
    writeln!(out, "  tagged payload on the wire: {sent} bytes became {wire}, ratio {shorter:.2}")?;
    let error = of_bound(findings.max_error, values::bound(params));
    writeln!(
        out,
        "  {} values, largest error {error} of the bound, {} over it; {} TCP streams reassembled twice",
        findings.values, findings.violations, findings.streams
    )?;
    for failure in &findings.failures {
        writeln!(out, "  FAILED: {failure}")?;
    }
    if findings.failed > findings.failures.len() as u64 {
        writeln!(out, "  FAILED: {} more", findings.failed - findings.failures.len() as u64)?;
    }
    Ok(())
}

/// The last line: whether everything held.
///
/// # Errors
/// Those of `out`.
pub fn conclusion(out: &mut impl Write, ok: bool, of_what: &str) -> io::Result<()> {
    let verdict = if ok { "every bound and check held" } else { "NOT every bound and check held" };
    writeln!(out, "{verdict}: {of_what}")
}

/// `2^(x-b)` in words.
#[must_use]
pub fn bound_name(params: Params) -> String {
    format!("2^{}", i16::from(params.x()) - i16::from(params.b()))
}

/// An error as a part of the bound, cut after four digits: only what reaches the bound shows as 1.
fn of_bound(error: f64, bound: f64) -> String {
    format!("{:.4}", (error / bound * 1e4).floor() / 1e4)
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// The shares as a bar. Rounding goes by the cumulative share, so the bar always has its full width.
fn bar(shares: Shares) -> String {
    let mut bar = String::new();
    let mut cumulative = 0.0;
    for (share, sign) in [shares.zero, shares.byte, shares.half, shares.raw].into_iter().zip(SIGNS) {
        cumulative += share;
        let to = (cumulative * BAR as f64).round() as usize;
        bar.extend(std::iter::repeat_n(sign, to.saturating_sub(bar.len())));
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_always_full() {
        let shares = Shares { zero: 0.33, byte: 0.33, half: 0.33, raw: 0.01 };
        assert_eq!(bar(shares), ".....------+++++");
        assert_eq!(bar(Shares { zero: 1.0, ..Shares::default() }), "................");
    }
}
