//! The output of `gradwire replay --from-wire` for people.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};

use super::percent;
use crate::from_wire::FromWire;

/// The findings of a receiver on a capture's compressed frames.
///
/// # Errors
/// Those of `out`.
pub fn from_wire(out: &mut impl Write, name: &str, found: &FromWire) -> io::Result<()> {
    writeln!(out, "{name}, as it was on the wire: {} frames", found.frames)?;
    if found.cut > 0 {
        writeln!(out, "  {:<20} {:>7}  a snap length cut them: capture with -s 0", "cut", found.cut)?;
    }
    let mut row = |kind: &str, counts: &BTreeMap<_, u64>| row(&mut *out, kind, counts);
    let capabilities: BTreeMap<&str, u64> =
        found.handshakes.iter().map(|(capabilities, count)| (capabilities.as_str(), *count)).collect();
    row("SYNs that advertise", &capabilities)?;
    let profiles: BTreeMap<&str, u64> =
        found.profiles.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
    row("restored", &profiles)?;
    row("dropped", &found.dropped)?;
    row("untouched", &found.untouched)?;
    if found.tagged > 0 {
        writeln!(
            out,
            "  {:<20} {:>7}  tagged, with payload, and not compressed by their sender",
            "of these", found.tagged
        )?;
    }
    let (sent, wire) = (found.wire_bytes_in, found.wire_bytes_out);
    writeln!(out, "  restored frames: {sent} bytes were {wire} on the wire, ratio {:.2}", found.ratio())?;
    let zeros = if found.values == 0 { 0.0 } else { found.zeros as f64 / found.values as f64 };
    writeln!(
        out,
        "  {} values, {} of them zero, {} infinite or NaN, the largest {:.3e}; what they were before is not in this capture",
        found.values,
        percent(zeros),
        found.non_finite,
        found.largest
    )?;
    for failure in &found.failures {
        writeln!(out, "  FAILED: {failure}")?;
    }
    let (compressed, restored) = (found.compressed(), found.restored);
    if found.ok {
        writeln!(out, "a receiver restores every compressed frame: {restored}")
    } else {
        writeln!(out, "NOT every compressed frame is restored: {restored} of {compressed}")
    }
}

/// Counts by name, the largest first; nothing if there are none.
fn row(out: &mut impl Write, kind: &str, counts: &BTreeMap<impl Display, u64>) -> io::Result<()> {
    if counts.is_empty() {
        return Ok(());
    }
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let each: Vec<String> = sorted.iter().map(|(name, count)| format!("{count} {name}")).collect();
    writeln!(out, "  {kind:<20} {:>7}  {}", counts.values().sum::<u64>(), each.join("; "))
}
