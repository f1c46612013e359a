//! Reports for people: tables, plots and progress. Programs read JSON, which `serde` makes of the
//! figures themselves.

use std::io::{self, Write};
use std::path::PathBuf;

use gradwire::codec::Split;
use gradwire::profile::Profile;
use gradwire::rules::Rule;
use serde::Serialize;

use crate::check::{Measured, PAYLOAD_LEN, Shares};
use crate::error::Error;
use crate::rtl::{Cost, Costs};
use crate::verify::Findings;
use crate::verify::values;

pub mod columns;
mod from_wire;
pub mod graph;
pub mod legend;
pub mod page;
pub mod pages;
pub mod plot;
mod progress_bar;
mod table;

pub use from_wire::from_wire;
pub use progress_bar::ProgressBar;
pub(crate) use table::{Table, WIDTH};

/// The path of an output, as an option has it: refused now rather than when all the work is done.
///
/// # Errors
/// It is a folder, or there is none that it could be in.
pub fn output(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.parent() {
        _ if path.is_dir() => Err(format!("{text} is a folder")),
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            Err(format!("there is no folder {}", folder.display()))
        }
        _ => Ok(path),
    }
}

/// Output for programs: a line of JSON.
///
/// # Errors
/// Those of `out`.
pub fn json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}

/// A report as programs want it, or by `table` as people do.
///
/// # Errors
/// Those of `out`.
pub fn write<W: Write>(
    out: &mut W,
    as_json: bool,
    report: &impl Serialize,
    table: impl FnOnce(&mut W) -> Result<(), Error>,
) -> Result<(), Error> {
    if as_json { Ok(json(out, report)?) } else { table(out) }
}

/// Columns of the bar that shows class shares.
const BAR: usize = 16;

/// The table of `gradwire check`; all rows are of one codec. A `long` one has the classes as bars,
/// the mean error and speeds, too.
///
/// # Errors
/// Those of `out`.
pub fn measured(out: &mut impl Write, rows: &[Measured], long: bool) -> io::Result<()> {
    let classes = rows.first().map_or(&[][..], |row| signs(row.classes));
    let mut columns = vec!["recording", "values", "bound", "ratio"];
    columns.extend(classes.iter().map(|(name, ..)| name));
    columns.extend(match long {
        true => &["classes", "max error", "rms error", "norm lost", "encode", "decode", "over"][..],
        false => &["max error", "norm lost", "over"],
    });
    let mut table = Table::new(&columns);
    for row in rows {
        let bound = values::bound(row.profile);
        let shares = shares(row.classes);
        let mut cells = vec![
            row.name.clone(),
            row.values.to_string(),
            bound_name(row.profile),
            format!("{:.2}", row.ratio),
        ];
        cells.extend(shares.iter().map(|share| percent(*share)));
        let (max_error, norm_lost) = (of_bound(row.max_error, bound), percent(row.norm_lost));
        if long {
            let speed = |speed: f64| format!("{:.2}", speed / 1e9);
            let rms_error = of_bound(row.rms_error, bound);
            cells.extend([bar(row.classes), max_error, rms_error, norm_lost]);
            cells.extend([speed(row.speed.0), speed(row.speed.1)]);
        } else {
            cells.extend([max_error, norm_lost]);
        }
        cells.push(row.violations.to_string());
        table.row(cells);
    }
    if long {
        table.write_long(out)?;
    } else {
        table.write(out)?;
    }
    writeln!(out)?;
    let name_of = |name: &str, sign: char| if long { format!("{name} ({sign})") } else { name.to_owned() };
    let kept: Vec<String> =
        classes.iter().map(|(name, sign, kept)| format!("{} {kept}", name_of(name, *sign))).collect();
    writeln!(out, "classes    shares by what codec {} keeps: {}", codec(rows), kept.join(", "))?;
    writeln!(out, "errors     as a part of the bound; `over` counts values {}", beyond(rows))?;
    writeln!(out, "norm lost  1 - ||restored|| / ||recorded||")?;
    if long {
        writeln!(out, "speed      GB of values a second, one core, payloads of {PAYLOAD_LEN} bytes")?;
    }
    Ok(())
}

fn codec(rows: &[Measured]) -> u8 {
    rows.first().map_or_else(|| Profile::DEFAULT.codec(), |row| row.codec)
}

fn beyond(rows: &[Measured]) -> &'static str {
    match rows.first().map(|row| row.profile) {
        Some(Profile::BitPlane(_)) => "beyond it",
        Some(Profile::SizeClass(_)) | None => "at or above it",
    }
}

/// The classes in words: name, sign in a bar, what is kept. From nothing kept to everything kept.
const fn signs(shares: Shares) -> &'static [(&'static str, char, &'static str)] {
    match shares {
        Shares::Classes { .. } => &[
            ("zero", '.', "nothing"),
            ("byte", '-', "8 bits"),
            ("half", '+', "16 bits"),
            ("raw", '#', "all 32"),
        ],
        Shares::BitPlane { .. } => {
            &[("zero", '.', "nothing"), ("coded", '+', "sign and bin"), ("raw", '#', "all 32 bits")]
        }
    }
}

/// The shares in the order of [`signs`].
fn shares(shares: Shares) -> Vec<f64> {
    match shares {
        Shares::Classes { zero, byte, half, raw } => vec![zero, byte, half, raw],
        Shares::BitPlane { zero, coded, raw } => vec![zero, coded, raw],
    }
}

/// The findings of a replay, for one capture.
///
/// # Errors
/// Those of `out`.
pub fn replayed(out: &mut impl Write, name: &str, rule: &Rule, findings: &Findings) -> io::Result<()> {
    let framing = rule.framing.name();
    let bound = bound_name(rule.profile);
    write!(out, "{name}, {framing} framing, codec {}, bound {bound}", rule.profile.codec())?;
    if let Profile::SizeClass(params) = rule.profile {
        write!(out, ", {} split", params.split().map_or("unnamed", Split::name))?;
    }
    writeln!(out)?;
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
    let high = if findings.oversized > 0 { ", which is too high: see the warnings" } else { "" };
    writeln!(out, "  tagged payload on the wire: {sent} bytes became {wire}, ratio {shorter:.2}{high}")?;
    let error = of_bound(findings.max_error, values::bound(rule.profile));
    writeln!(
        out,
        "  {} values, largest error {error} of the bound, {} over it, {} of the norm lost",
        findings.values,
        findings.violations,
        percent(findings.norm_lost)
    )?;
    writeln!(
        out,
        "  {} TCP streams, each reassembled with the first and the last copy of every byte",
        findings.streams
    )?;
    for failure in &findings.failures {
        writeln!(out, "  FAILED: {failure}")?;
    }
    if findings.failed > findings.failures.len() as u64 {
        writeln!(out, "  FAILED: {} more", findings.failed - findings.failures.len() as u64)?;
    }
    Ok(())
}

/// The clocks of the gateware for a capture's compressed frames.
///
/// # Errors
/// Those of `out`.
pub fn coded_by_rtl(out: &mut impl Write, costs: &Costs) -> io::Result<()> {
    for (name, cost) in [("compressor", &costs.compressor), ("decompressor", &costs.decompressor)] {
        let Cost { frames, beats, clocks, stalls, latency } = *cost;
        writeln!(
            out,
            "  RTL {name:<12} {frames:>7} frames of {beats} beats in {clocks} clocks, {stalls} stalls, latency {latency} at most"
        )?;
    }
    Ok(())
}

/// The meanings of the outcomes in `reports`, each once.
///
/// # Errors
/// Those of `out`.
pub fn outcomes(out: &mut impl Write, reports: &[&Findings]) -> io::Result<()> {
    let names =
        reports.iter().flat_map(|findings| findings.kinds.values()).flat_map(|outcomes| outcomes.keys());
    for name in names.collect::<std::collections::BTreeSet<_>>() {
        if let Some(meaning) = legend::of(name) {
            writeln!(out, "{name:<22} {meaning}")?;
        }
    }
    writeln!(out)
}

/// The remarks on each recording beside its row.
///
/// # Errors
/// Those of `out`.
pub fn remarks(out: &mut impl Write, rows: &[Measured]) -> io::Result<()> {
    for row in rows {
        for remark in &row.remarks {
            writeln!(out, "{} at {}: {remark}", row.name, bound_name(row.profile))?;
        }
    }
    Ok(())
}

/// The last line: whether everything held, and if it was asked whether the values are of use: what
/// holds of values that are lost is no good news.
///
/// # Errors
/// Those of `out`.
pub fn conclusion(out: &mut impl Write, ok: bool, useful: Option<bool>, of_what: &str) -> io::Result<()> {
    let verdict = match (ok, useful) {
        (false, _) => "NOT every bound and check held",
        (true, Some(false)) => {
            "NOT useful: every bound held, but less than half of a gradient's norm is left"
        }
        (true, Some(true) | None) => "every bound and check held",
    };
    writeln!(out, "{verdict}: {of_what}")
}

/// The bound in words.
#[must_use]
pub fn bound_name(profile: Profile) -> String {
    format!("2^{}", values::bound_exponent(profile))
}

/// An error as a part of the bound, cut after four digits: only what reaches the bound shows as 1.
fn of_bound(error: f64, bound: f64) -> String {
    format!("{:.4}", (error / bound * 1e4).floor() / 1e4)
}

fn percent(share: f64) -> String {
    // No zero has a sign: a norm may grow by less than what is shown.
    format!("{:.1}%", (1000.0 * share).round() / 10.0 + 0.0)
}

/// The shares as a bar. Rounding goes by the cumulative share, so the bar always has its full
/// width.
fn bar(classes: Shares) -> String {
    let mut bar = String::new();
    let mut cumulative = 0.0;
    for (share, (_, sign, _)) in shares(classes).into_iter().zip(signs(classes)) {
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
        let shares = Shares::Classes { zero: 0.33, byte: 0.33, half: 0.33, raw: 0.01 };
        assert_eq!(bar(shares), ".....------+++++");
        assert_eq!(bar(Shares::BitPlane { zero: 0.5, coded: 0.5, raw: 0.0 }), "........++++++++");
    }
}
