//! The pages of `gradwire check` and `gradwire replay`.

use super::columns::{self, histogram};
use super::page::{Cell, Page};
use super::plot::{self, Chart, Series};
use super::{bound_name, legend, shares, signs};
use crate::check::Measured;
use crate::input::recordings::Recording;
use crate::verify::Findings;
use crate::verify::values::bound_exponent;

/// Of gradients that went through the codec: `rows`, of one codec, are what came of `recordings` at
/// each bound.
#[must_use]
pub fn measured(recordings: &[Recording], rows: &[Measured], ok: bool, useful: bool) -> Page {
    let mut page = Page::new("gradwire check: gradients through the codec");
    page.verdict(
        ok && useful,
        match (ok, useful) {
            (false, _) => "A bound did not hold",
            (true, false) => "Every bound held, but less than half of a gradient's norm is left",
            (true, true) => "Every bound held, and at least half of every gradient's norm is left",
        },
    );
    for row in rows {
        for remark in &row.remarks {
            page.text(&format!("{} at {}: {remark}", row.name, bound_name(row.profile)));
        }
    }
    let cells = |(at, row): (usize, &Measured)| {
        let figure = |text: String, name: &str| Cell::figure(text, format!("/recordings/{at}/{name}"));
        vec![
            row.name.as_str().into(),
            bound_name(row.profile).into(),
            figure(row.values.to_string(), "values"),
            figure(format!("{:.2}", row.ratio), "ratio"),
            figure(format!("{:.3e}", row.max_error), "max_error"),
            figure(format!("{:.2}%", 100.0 * row.norm_lost), "norm_lost"),
            figure(row.violations.to_string(), "violations"),
        ]
    };
    let head = ["recording", "bound", "values", "ratio", "largest error", "norm lost", "beyond the bound"];
    page.table(&head, &rows.iter().enumerate().map(cells).collect::<Vec<_>>());

    page.heading("Ratio by bound");
    let line = |recording: &Recording| {
        let of = rows.iter().filter(|row| row.name == recording.name);
        let mut points: Vec<(f64, f64)> =
            of.map(|row| (f64::from(bound_exponent(row.profile)), row.ratio)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name: recording.name.clone(), points }
    };
    page.picture(
        &plot::lines(&Chart {
            title: format!("Ratio of values by bound, codec {}", rows.first().map_or(0, |row| row.codec)),
            x: "exponent of the bound".into(),
            y: "ratio".into(),
            log_x: false,
            series: recordings.iter().map(line).collect(),
        }),
        "A wider bound saves more bytes and loses more of the norm.",
    );
    page.heading("What is kept");
    let names: Vec<&str> =
        rows.first().map_or(&[][..], |row| signs(row.classes)).iter().map(|sign| sign.0).collect();
    let bars: Vec<(String, Vec<f64>)> = rows
        .iter()
        .map(|row| (format!("{} {}", row.name, bound_name(row.profile)), shares(row.classes)))
        .collect();
    page.picture(&columns::shares("Shares of values", &names, &bars), "From nothing kept to all 32 bits.");
    page.heading("Magnitudes");
    for recording in recordings {
        let of = rows.iter().filter(|row| row.name == recording.name);
        let widest = of.map(|row| bound_exponent(row.profile)).max().unwrap_or(0);
        let counts = histogram(&recording.values);
        if !counts.is_empty() {
            let title = format!("{}: how many values have which magnitude", recording.name);
            let mark = (i32::from(widest), "the widest bound");
            let svg = columns::columns(&title, "log2 |g|; zeros are left out", &counts, mark);
            page.picture(&svg, "Values left of the bound become zero, or a value within the bound.");
        }
    }
    page
}

/// Of a capture, `name`, that went through both engines.
#[must_use]
pub fn replayed(name: &str, findings: &Findings) -> Page {
    let mut page = Page::new(format!("gradwire replay: {name}"));
    page.verdict(
        findings.ok && findings.useful == Some(true),
        match (findings.ok, findings.useful) {
            (false, _) => "A bound or a check did not hold",
            (true, None) => "No value was compressed, so no bound was verified; every other check held",
            (true, Some(false)) => "Every bound held, but less than half of the norm is left",
            (true, Some(true)) => "Every bound and check held",
        },
    );
    let texts = findings.warnings.iter().cloned().chain(findings.remarks.iter().map(ToString::to_string));
    for text in texts.chain(findings.failures.iter().map(|failure| format!("Failed: {failure}"))) {
        page.text(&text);
    }
    let row = |name: &str, text: String, at: &str| vec![name.into(), Cell::figure(text, at)];
    page.table(
        &["", ""],
        &[
            row("frames", findings.frames.to_string(), "/frames"),
            row("tagged", findings.tagged.to_string(), "/tagged"),
            row("compressed", findings.compressed.to_string(), "/compressed"),
            row(
                "bytes of tagged payload frames, as sent",
                findings.wire_bytes_in.to_string(),
                "/wire_bytes_in",
            ),
            row("the same on the wire", findings.wire_bytes_out.to_string(), "/wire_bytes_out"),
            row("values", findings.values.to_string(), "/values"),
            row("largest error", format!("{:.3e}", findings.max_error), "/max_error"),
            row("values beyond the bound", findings.violations.to_string(), "/violations"),
            row("norm lost", format!("{:.2}%", 100.0 * findings.norm_lost), "/norm_lost"),
        ],
    );
    page.heading("What became of the frames");
    let mut bars = Vec::new();
    let mut rows = Vec::new();
    for (kind, outcomes) in &findings.kinds {
        for (outcome, count) in outcomes {
            bars.push((format!("{}: {outcome}", kind.name()), *count as f64));
            let meaning = legend::of(outcome).unwrap_or("");
            rows.push([kind.name(), outcome, &count.to_string(), meaning].map(Cell::from).to_vec());
        }
    }
    page.picture(
        &plot::bars("Frames by kind and outcome", "frames", &bars),
        "As egress and ingress left them.",
    );
    page.table(&["frames", "outcome", "count", "what it means"], &rows);
    page
}
