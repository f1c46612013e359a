//! Columns and shares as SVG: how many values there are of each size, and what is kept of them.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::plot::{COLOURS, WIDTH, head, number, text};

const LEFT: f64 = 64.0;
const RIGHT: f64 = 690.0;

/// A column for each of `values`, by their logarithm, since sizes differ by decades; labels stand
/// below, and a line before the first column whose label is at least `mark` is named `marked`.
#[must_use]
pub fn columns(title: &str, unit: &str, values: &[(i32, u64)], mark: (i32, &str)) -> String {
    const TOP: f64 = 56.0;
    const BOTTOM: f64 = 250.0;
    let most = values.iter().map(|value| value.1).max().unwrap_or(1).max(1);
    let height = |count: u64| (BOTTOM - TOP) * ((count + 1) as f64).ln() / ((most + 1) as f64).ln();
    let step = (RIGHT - LEFT) / values.len().max(1) as f64;
    let x = |at: usize| LEFT + step * at as f64;
    let mut svg = head(title, 300.0);
    let mut decade = 1u64;
    while decade <= most {
        let y = BOTTOM - height(decade);
        let _ = writeln!(svg, r##"<path class="grid" d="M{LEFT:.0} {y:.1}H{RIGHT:.0}" stroke="#ddd"/>"##);
        text(&mut svg, LEFT - 6.0, y + 4.0, "end", &number(decade as f64));
        decade = decade.saturating_mul(100);
    }
    let mut free_from = f64::NEG_INFINITY;
    for (at, &(label, count)) in values.iter().enumerate() {
        let (kept, tall) = (label >= mark.0, height(count));
        let colour = if kept { COLOURS[0] } else { COLOURS[4] };
        let (y, width) = (BOTTOM - tall, (step - 1.0).max(1.0));
        if count > 0 {
            let _ = writeln!(
                svg,
                r#"<rect x="{:.1}" y="{y:.1}" width="{width:.1}" height="{tall:.1}" fill="{colour}"/>"#,
                x(at)
            );
        }
        if x(at) >= free_from {
            text(&mut svg, x(at), BOTTOM + 16.0, "middle", &label.to_string());
            free_from = x(at) + 30.0;
        }
    }
    let at = values.iter().position(|&(label, _)| label >= mark.0).unwrap_or(values.len());
    let _ = writeln!(
        svg,
        r##"<path d="M{0:.1} {1:.0}V{BOTTOM:.0}" stroke="#000000" stroke-width="2"/>"##,
        x(at),
        TOP - 12.0
    );
    let side = if x(at) > 400.0 { "end" } else { "start" };
    text(&mut svg, x(at) + if side == "end" { -6.0 } else { 6.0 }, TOP - 4.0, side, mark.1);
    text(&mut svg, (LEFT + RIGHT) / 2.0, BOTTOM + 38.0, "middle", unit);
    svg.push_str("</svg>\n");
    svg
}

/// Counts of the values of `bytes`, little-endian `f32`s, from 2^e up to 2^(e+1), for each e from
/// the smallest that has any.
#[must_use]
pub fn histogram(bytes: &[u8]) -> Vec<(i32, u64)> {
    let mut counts = BTreeMap::<i32, u64>::new();
    let values = bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
    for value in values.filter(|value| value.is_finite() && *value != 0.0) {
        *counts.entry(f64::from(value.abs()).log2().floor() as i32).or_default() += 1;
    }
    let (Some(&low), Some(&high)) = (counts.keys().next(), counts.keys().next_back()) else {
        return Vec::new();
    };
    // What is far below everything else would make columns too thin to see.
    (low.max(high - 60)..=high).map(|e| (e, counts.get(&e).copied().unwrap_or(0))).collect()
}

/// A bar of full width for each row, divided by its shares, which sum to 1; `names` are those of
/// the parts.
#[must_use]
pub fn shares(title: &str, names: &[&str], rows: &[(String, Vec<f64>)]) -> String {
    const ROW: f64 = 22.0;
    const FROM: f64 = 230.0;
    // Of nothing kept, something, and all.
    const PARTS: [usize; 4] = [4, 5, 0, 1];
    let mut svg = head(title, 80.0 + ROW * rows.len() as f64);
    let mut x = FROM;
    for (at, name) in names.iter().enumerate() {
        let colour = COLOURS[PARTS[at % PARTS.len()]];
        let _ = writeln!(svg, r#"<rect x="{x:.0}" y="30" width="14" height="14" fill="{colour}"/>"#);
        text(&mut svg, x + 20.0, 42.0, "start", name);
        x += 90.0;
    }
    for (row, (name, parts)) in rows.iter().enumerate() {
        let y = 58.0 + ROW * row as f64;
        text(&mut svg, FROM - 8.0, y + 13.0, "end", name);
        let mut from = FROM;
        for (at, part) in parts.iter().enumerate() {
            let (width, colour) = ((WIDTH - 20.0 - FROM) * part, COLOURS[PARTS[at % PARTS.len()]]);
            let _ = writeln!(
                svg,
                r#"<rect x="{from:.1}" y="{y:.0}" width="{width:.1}" height="17" fill="{colour}"/>"#
            );
            from += width;
        }
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_magnitudes_by_powers_of_two() {
        let bytes: Vec<u8> =
            [1.0f32, -1.5, 0.25, 0.0, f32::NAN, 2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(histogram(&bytes), [(-2, 1), (-1, 0), (0, 2), (1, 1)]);
    }

    /// Verified by another crate's parser, and by how many rectangles there are.
    #[test]
    fn every_column_and_share_is_drawn() {
        let options = resvg::usvg::Options::default();
        let svg = columns("a < b", "log2 |g|", &[(-3, 1), (-2, 0), (-1, 1000)], (-2, "bound"));
        resvg::usvg::Tree::from_str(&svg, &options).unwrap();
        assert_eq!(svg.matches("<rect").count(), 1 + 2, "the paper, and columns that are not empty");
        let svg = shares("t", &["zero", "coded"], &[("x".into(), vec![0.25, 0.75])]);
        resvg::usvg::Tree::from_str(&svg, &options).unwrap();
        assert!(svg.contains(r#"width="117.5""#) && svg.contains(r#"width="352.5""#), "{svg}");
    }
}
