//! `gradwire check`: gradients through the codec.

use std::io::Write;
use std::path::PathBuf;

use gradwire::kernels::Kernel;
use serde::Serialize;

use super::args::codec::{Codec, CodecChoice, exponent};
use super::args::kernel::KernelArg;
use crate::check::{Measured, measure};
use crate::error::{Error, Outcome};
use crate::input::recordings::{self, Recording};
use crate::report;
use crate::report::{ProgressBar, page, pages};
use crate::verify::usefulness::useful;
use crate::verify::values::scale_to_peak;

/// Sends every gradient through compress, wire and decompress, and measures what comes back.
///
/// The wire carries payloads of 1440 bytes, the whole bursts that fit into a TCP segment. Each
/// error is computed in f64 and has to be below 2^(X-B); of codec 2, at most 2^(X-B).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
JSON: {\"recordings\": [{\"name\", \"values\", \"codec\", \"bound\", \"ratio\", \"classes\": {\"zero\", \"coded\", \"raw\"},
\"max_error\", \"rms_error\", \"norm_lost\", \"non_finite\", \"violations\"}], \"ok\", \"useful\"}; bound is B, classes are
shares of 1. `ok`: every bound held. `useful`: at least half of every norm is left. The exit code is 1 if one of the two is false.
The classes of codec 1 are {\"zero\", \"byte\", \"half\", \"raw\"}.
With --scale auto each recording also has \"scale\".

Examples:
  gradwire check                                     the built-in gradients
  gradwire check grad.npy --bounds 6 --scale auto    bound relative to the largest gradient
  gradwire check a.npy folder/ --split paper --json")]
pub struct Args {
    /// .npy files of little-endian f32, folders of them, or - for standard input [default: built
    /// in].
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Error bounds, each measured: 10, 2^-10 or 0.001, which is rounded down to a power of two.
    /// Codec 1: 1 to 14.
    #[arg(
        long,
        value_name = "B,..",
        value_delimiter = ',',
        default_value = "10,8,6",
        allow_hyphen_values = true,
        value_parser = exponent
    )]
    pub bounds: Vec<i16>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub codec: CodecChoice,
    /// Scale exponent (codec 1: -80 to 127; codec 2: X-B from -94 to 111): the codec runs on f *
    /// 2^-X. `auto`: for each recording the one that brings its largest magnitude into [0.5, 1).
    #[arg(long, value_name = "X", default_value = "0", allow_hyphen_values = true, value_parser = parse_scale)]
    pub scale: Scale,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub kernel: KernelArg,
    /// Print all columns, and not those that fit into 100.
    #[arg(long)]
    pub long: bool,
    /// Write one self-contained page with the plots.
    #[arg(long, value_name = "FILE.html", value_parser = page::path)]
    pub html: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The bounds measured by default, as exponents.
pub const DEFAULT_BOUNDS: [i16; 3] = [10, 8, 6];

/// The choice of the scale exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// By the peak of each recording.
    Auto,
    /// This one for all.
    Fixed(i8),
}

fn parse_scale(text: &str) -> Result<Scale, String> {
    match text {
        "auto" => Ok(Scale::Auto),
        number => {
            number.parse().map(Scale::Fixed).map_err(|_| "expected a number from -128 to 127, or auto".into())
        }
    }
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
pub struct CheckReport {
    /// One for each recording and bound.
    pub recordings: Vec<Measured>,
    /// Whether every error is within its bound.
    pub ok: bool,
    /// Whether at least half of every recording's norm is left.
    pub useful: bool,
}

/// Measures what `args` name and reports to `out`.
///
/// # Errors
/// A recording cannot be read, or the output not be written.
pub fn run(args: &Args, out: &mut impl Write) -> Result<Outcome, Error> {
    let (recordings, refused) = recordings::load_or_builtin(&args.paths)?;
    for error in &refused {
        eprintln!("gradwire: {error}");
    }
    let (bad, all) = (refused.len(), refused.len() + recordings.len());
    let left_out = || Error::Usage(format!("{bad} of {all} files are no gradients, and were left out"));
    if recordings.is_empty() {
        return Err(left_out());
    }
    let report =
        measure_all(&recordings, &args.bounds, args.codec.codec()?, args.scale, args.kernel.kernel())?;
    if let Some(path) = &args.html {
        let page = pages::measured(&recordings, &report.recordings, report.ok, report.useful);
        page.write(path, &report)?;
    }
    if args.json {
        report::json(out, &report)?;
    } else {
        report::measured(out, &report.recordings, args.long)?;
        report::remarks(out, &report.recordings)?;
        report::conclusion(
            out,
            report.ok,
            Some(report.useful),
            &format!("{} measurements", report.recordings.len()),
        )?;
    }
    if bad > 0 { Err(left_out()) } else { Ok(Outcome::from_ok(report.ok && report.useful)) }
}

/// Measures each of `recordings` at each of `bounds` with `kernel`.
///
/// # Errors
/// The codec refuses the parameters.
pub fn measure_all(
    recordings: &[Recording],
    bounds: &[i16],
    codec: Codec,
    scale: Scale,
    kernel: Kernel,
) -> Result<CheckReport, Error> {
    let progress = ProgressBar::new("gradients", (recordings.len() * bounds.len()) as u64);
    let mut rows = Vec::new();
    for recording in recordings {
        let x = match scale {
            Scale::Auto => scale_to_peak(&recording.values),
            Scale::Fixed(x) => x,
        };
        for &bound in bounds {
            let mut row = measure(recording, codec.profile(bound, x)?, x, kernel);
            row.scale = (scale == Scale::Auto).then_some(x);
            rows.push(row);
            progress.step();
        }
    }
    let ok = rows.iter().all(|row| row.violations == 0);
    let useful = rows.iter().all(|row| useful(&row.remarks));
    Ok(CheckReport { recordings: rows, ok, useful })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn the_default_bounds_of_the_option_are_those_of_the_main_job() {
        let cli = Cli::try_parse_from(["check"]).unwrap();
        assert_eq!(cli.args.bounds, DEFAULT_BOUNDS);
    }
}
