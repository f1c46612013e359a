//! `gradwire` alone: the main job on the built-in recordings.

use std::io::Write;

use gradwire::codec::Split;
use gradwire::kernels::Kernel;
use gradwire::rules::{Framing, Rule};

use super::check::{DEFAULT_BOUNDS, Scale, measure_all};
use super::replay::replay;
use crate::error::{Error, Outcome};
use crate::input::Capture;
use crate::input::recordings::{self, CAPTURES};
use crate::replay::Setup;
use crate::report;

/// Measures every built-in gradient, replays every built-in capture in both framings, and reports to `out`.
///
/// # Errors
/// The output cannot be written.
pub fn run(out: &mut impl Write) -> Result<Outcome, Error> {
    writeln!(out, "Gradients: compress, wire, decompress (dense split)\n")?;
    let measured = measure_all(
        &recordings::builtin()?,
        &DEFAULT_BOUNDS,
        Split::Dense,
        Scale::Fixed(0),
        Kernel::detect(),
    )?;
    report::measured(out, &measured.recordings)?;
    let mut ok = measured.ok;

    writeln!(out, "\nCaptures of ring all-reduces: egress, wire, ingress\n")?;
    let mut frames = 0;
    for file in CAPTURES {
        let capture = Capture::parse(file.name, file.bytes)?;
        for framing in [Framing::InPlace, Framing::Routed] {
            let rule = Rule { framing, ..Rule::DEFAULT };
            let (report, _) = replay(&Setup::new(rule), &capture)?;
            report::replayed(out, file.name, &rule, &report)?;
            writeln!(out)?;
            ok &= report.ok;
            frames += report.frames;
        }
    }
    let done = format!("{} measurements, {frames} frames", measured.recordings.len());
    report::conclusion(out, ok, &done)?;
    Ok(Outcome::from_ok(ok))
}
