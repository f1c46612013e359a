//! Line charts and bars as SVG, and from that as PNG.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Points of one line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// (x, y), in the order they are joined.
    pub points: Vec<(f64, f64)>,
}

/// A chart of lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Its title.
    pub title: String,
    /// The label of x, with its unit.
    pub x: String,
    /// The label of y, with its unit.
    pub y: String,
    /// Space x by its logarithm; x must be positive.
    pub log_x: bool,
    /// The lines.
    pub series: Vec<Series>,
}

/// Colours that people with any colour vision can tell apart (Okabe and Ito).
pub(super) const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// Dashes, each of a rhythm of its own: where lines coincide, the ones below show in the gaps.
const DASHES: [&str; 5] = ["", "10 5", "4 4", "12 3 3 3", "2 5"];
/// If the largest value is so many times the smallest, a plain axis would press the small ones onto
/// zero.
const DECADES: f64 = 20.0;

pub(super) const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
/// The area of the data: left, top, right, bottom.
const AREA: (f64, f64, f64, f64) = (64.0, 46.0, 500.0, 350.0);

/// The chart as an SVG document: lines, from y = 0 up, or by their logarithm if they differ by
/// decades.
#[must_use]
pub fn lines(chart: &Chart) -> String {
    let (left, top, right, bottom) = AREA;
    let all = || chart.series.iter().flat_map(|series| &series.points);
    let scale = |x: f64| if chart.log_x { x.ln() } else { x };
    let low = all().map(|point| scale(point.0)).fold(f64::INFINITY, f64::min);
    let high = all().map(|point| scale(point.0)).fold(f64::NEG_INFINITY, f64::max);
    let x_at =
        |x: f64| left + (right - left) * if high > low { (scale(x) - low) / (high - low) } else { 0.5 };
    let y_axis = Axis::of(all().map(|point| point.1));
    let y_at = |y: f64| bottom - (bottom - top) * y_axis.share(y);

    let mut svg = head(&chart.title, HEIGHT);
    let mut xs: Vec<f64> = all().map(|point| point.0).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let mut free_from = f64::NEG_INFINITY;
    for x in xs {
        let at = x_at(x);
        // Labels keep a distance, or they would cover each other.
        if at >= free_from {
            text(&mut svg, at, bottom + 16.0, "middle", &number(x));
            free_from = at + 36.0;
        }
    }
    for y in y_axis.marks() {
        let at = y_at(y);
        let _ = writeln!(svg, r##"<path class="grid" d="M{left:.0} {at:.1}H{right:.0}" stroke="#ddd"/>"##);
        text(&mut svg, left - 6.0, at + 4.0, "end", &number(y));
    }
    text(&mut svg, (left + right) / 2.0, bottom + 36.0, "middle", &chart.x);
    text(&mut svg, 8.0, top - 8.0, "start", &chart.y);
    for (at, series) in chart.series.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let dash = match DASHES[at % DASHES.len()] {
            "" => String::new(),
            dash => format!(r#" stroke-dasharray="{dash}""#),
        };
        let points: Vec<String> =
            series.points.iter().map(|&(x, y)| format!("{:.1},{:.1}", x_at(x), y_at(y))).collect();
        let points = points.join(" ");
        let style = format!(r#"fill="none" stroke="{colour}" stroke-width="2"{dash}"#);
        let _ = writeln!(svg, r#"<polyline points="{points}" {style}/>"#);
        let y = top + 18.0 * at as f64;
        let _ = writeln!(svg, r#"<path d="M{:.0} {y:.0}h24" {style}/>"#, right + 12.0);
        text(&mut svg, right + 42.0, y + 4.0, "start", &series.name);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The place of values between the bottom of a chart and its top.
enum Axis {
    /// From zero to `top` in steps.
    Plain { top: f64, step: f64 },
    /// From one power of ten to another.
    Logarithmic { low: i32, high: i32 },
}

impl Axis {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (least, most) =
            values.fold((f64::INFINITY, 0.0f64), |(least, most), y| (least.min(y), most.max(y)));
        if least > 0.0 && most >= DECADES * least {
            return Self::Logarithmic { low: least.log10().floor() as i32, high: most.log10().ceil() as i32 };
        }
        let step = round_step(most / 5.0);
        Self::Plain { top: (most / step).ceil().max(1.0) * step, step }
    }

    /// 0 at the bottom, 1 at the top.
    fn share(&self, y: f64) -> f64 {
        match *self {
            Self::Plain { top, .. } => y / top,
            Self::Logarithmic { low, high } => (y.log10() - f64::from(low)) / f64::from(high - low),
        }
    }

    /// The values that have a line and a label.
    fn marks(&self) -> Vec<f64> {
        match *self {
            Self::Plain { top, step } => {
                (0..=(top / step).round() as u32).map(|line| f64::from(line) * step).collect()
            }
            Self::Logarithmic { low, high } if high - low <= 2 => {
                let decade = |power: i32| [1.0, 2.0, 5.0].map(|factor| factor * 10f64.powi(power));
                (low..high).flat_map(decade).chain([10f64.powi(high)]).collect()
            }
            Self::Logarithmic { low, high } => (low..=high).map(|power| 10f64.powi(power)).collect(),
        }
    }
}

/// Horizontal bars, one for each name, of the values given.
#[must_use]
pub fn bars(title: &str, unit: &str, values: &[(String, f64)]) -> String {
    const ROW: f64 = 22.0;
    let longest = values.iter().map(|value| value.1).fold(f64::MIN_POSITIVE, f64::max);
    let mut svg = head(title, 50.0 + ROW * values.len() as f64);
    for (at, (name, value)) in values.iter().enumerate() {
        let y = 40.0 + ROW * at as f64;
        let width = 330.0 * value / longest;
        text(&mut svg, 290.0, y + 14.0, "end", name);
        let colour = COLOURS[0];
        let _ = writeln!(svg, r#"<rect x="300" y="{y:.0}" width="{width:.1}" height="16" fill="{colour}"/>"#);
        text(&mut svg, 306.0 + width, y + 14.0, "start", &format!("{} {unit}", number(*value)));
    }
    svg.push_str("</svg>\n");
    svg
}

/// The format of a plot.
#[derive(Clone, Copy)]
enum Format {
    Svg,
    Png,
}

/// The format that the ending of a file's name asks for.
fn format_of(path: &Path) -> Result<Format, String> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("svg") => Ok(Format::Svg),
        Some("png") => Ok(Format::Png),
        _ => Err("a plot is .svg or .png".into()),
    }
}

/// The path of a plot, as an option has it: refused now rather than when all the work is done.
///
/// # Errors
/// [`write()`] could not write this format, or there is no such folder.
pub fn path(text: &str) -> Result<PathBuf, String> {
    format_of(Path::new(text)).and_then(|_| super::output(text))
}

/// Writes an SVG document to `path`, or its picture if the name ends in `.png`.
///
/// # Errors
/// The name has another ending, the picture cannot be drawn, or the file not be written.
pub fn write(path: &Path, svg: &str) -> Result<(), Error> {
    let name = path.display();
    let bytes = match format_of(path).map_err(|error| Error::Usage(format!("{name}: {error}")))? {
        Format::Svg => svg.as_bytes().to_vec(),
        Format::Png => png(svg).map_err(Error::Usage)?,
    };
    std::fs::write(path, bytes).map_err(|source| Error::io(name.to_string(), "write", source))
}

fn png(svg: &str) -> Result<Vec<u8>, String> {
    use resvg::{tiny_skia, usvg};
    /// Pixels for each SVG unit.
    const DENSITY: f32 = 2.0;
    let mut options = usvg::Options::default();
    let fonts = options.fontdb_mut();
    fonts.load_system_fonts();
    // The generic family means Arial here, which many systems do not have.
    let families: Vec<&str> =
        fonts.faces().flat_map(|face| &face.families).map(|family| &*family.0).collect();
    let family = families.iter().find(|family| family.contains("Sans")).or(families.first());
    let family = (*family.ok_or("PNG needs a font, and this system has none; SVG does not")?).to_owned();
    fonts.set_sans_serif_family(family);
    let tree = usvg::Tree::from_str(svg, &options).map_err(|error| error.to_string())?;
    let size = tree.size().to_int_size().scale_by(DENSITY).ok_or("an empty picture")?;
    let mut pixels = tiny_skia::Pixmap::new(size.width(), size.height()).ok_or("an empty picture")?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(DENSITY, DENSITY), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| error.to_string())
}

pub(super) fn head(title: &str, height: f64) -> String {
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0} {height:.0}" width="{WIDTH:.0}" height="{height:.0}" font-family="sans-serif" font-size="12">
<rect class="paper" width="100%" height="100%" fill="#fff"/>
"##
    );
    // Text of a picture is about half as wide as high; a title that is too long for a line has two.
    match title.char_indices().nth(110).and_then(|(at, _)| title[..at].rfind(", ")) {
        Some(comma) => {
            text(&mut svg, WIDTH / 2.0, 13.0, "middle", &title[..=comma]);
            text(&mut svg, WIDTH / 2.0, 27.0, "middle", title[comma + 1..].trim_start());
        }
        None => text(&mut svg, WIDTH / 2.0, 16.0, "middle", title),
    }
    svg
}

pub(super) fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#);
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: f64) -> f64 {
    if least <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|&step| step >= least)
        .unwrap_or(10.0 * power)
}

/// Three significant digits, and no zeros that say nothing.
pub(super) fn number(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { (2 - value.abs().log10().floor() as i32).max(0) };
    let text = format!("{value:.*}", digits as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [0.0, 0.1, 1.5, 12.34, 1024.0, 0.004].map(number),
            ["0", "0.1", "1.5", "12.3", "1024", "0.004"]
        );
        assert_eq!([0.0, 0.03, 0.6, 3.0, 51.0].map(round_step), [1.0, 0.05, 1.0, 5.0, 100.0]);
    }

    #[test]
    fn values_that_differ_by_decades_have_an_axis_of_their_own() {
        let plain = Axis::of([0.3, 1.0].into_iter());
        assert_eq!((plain.share(0.5), plain.marks().len()), (0.5, 6));
        let wide = Axis::of([0.001, 10.0].into_iter());
        assert_eq!((wide.share(0.001), wide.share(0.1), wide.share(10.0)), (0.0, 0.5, 1.0));
        assert_eq!(wide.marks(), [1e-3, 1e-2, 1e-1, 1.0, 10.0]);
        // Zero has no logarithm.
        assert!(matches!(Axis::of([0.0, 10.0].into_iter()), Axis::Plain { .. }));
    }

    /// Verified by another crate's parser: it is SVG, and has a line for each series.
    #[test]
    fn a_chart_is_valid_svg() {
        let series = |name: &str| Series { name: name.into(), points: vec![(8.0, 1.0), (1024.0, 0.5)] };
        let chart = Chart {
            title: "a < b & c".into(),
            x: "workers".into(),
            y: "s".into(),
            log_x: true,
            series: vec![series("one"), series("two")],
        };
        let svg = lines(&chart);
        let options = resvg::usvg::Options::default();
        let tree = resvg::usvg::Tree::from_str(&svg, &options).unwrap();
        assert_eq!((tree.size().width(), tree.size().height()), (720.0, 400.0));
        assert_eq!(svg.matches("<polyline").count(), 2);
        resvg::usvg::Tree::from_str(&bars("t", "s", &[("x".into(), 1.0)]), &options).unwrap();
    }
}
