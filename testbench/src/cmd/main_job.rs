//! `gradwire` alone: the main job on the built-in recordings.

use std::io::Write;

use gradwire::codec::Split;
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire::rules::{Framing, Handshake, Rule};

use super::args::codec::Codec;
use super::check::{DEFAULT_BOUNDS, Scale, measure_all};
use super::replay::replay;
use crate::error::{Error, Outcome};
use crate::input::Capture;
use crate::input::recordings::{self, CAPTURES};
use crate::replay::Setup;
use crate::report;

/// Measures every built-in gradient with both codecs, replays every built-in capture in both
/// framings, and reports to `out`.
///
/// # Errors
/// The output cannot be written.
pub fn run(out: &mut impl Write) -> Result<Outcome, Error> {
    let gradients = recordings::builtin()?;
    let (mut ok, mut measurements, mut frames) = (true, 0, 0);
    for (codec, name) in
        [(Codec::BitPlane, "codec 2"), (Codec::Classes(Split::Dense), "codec 1, dense split")]
    {
        writeln!(out, "Gradients: compress, wire, decompress ({name})\n")?;
        let measured = measure_all(&gradients, &DEFAULT_BOUNDS, codec, Scale::Fixed(0), Kernel::detect())?;
        report::measured(out, &measured.recordings, false)?;
        report::remarks(out, &measured.recordings)?;
        writeln!(out)?;
        ok &= measured.ok;
        measurements += measured.recordings.len();
    }

    writeln!(out, "Captures of ring all-reduces: egress, wire, ingress\n")?;
    let bit_plane = Codec::BitPlane.profile(10, 0)?;
    let mut reports = Vec::new();
    for file in CAPTURES {
        let capture = Capture::parse(file.name, file.bytes)?;
        for (framing, profile) in [
            (Framing::Routed, bit_plane),
            (Framing::Routed, Profile::DEFAULT),
            (Framing::InPlace, Profile::DEFAULT),
        ] {
            // Not every listener in the captures is tagged, as a handshake about in-place framing
            // needs.
            let handshake = match framing {
                Framing::Routed => Handshake::Required,
                Framing::InPlace => Handshake::Off,
            };
            let rule = Rule { framing, profile, handshake, ..Rule::DEFAULT };
            let (report, _) = replay(&Setup::new(rule), &capture)?;
            report::replayed(out, file.name, &rule, &report)?;
            writeln!(out)?;
            ok &= report.ok;
            frames += report.frames;
            reports.push(report);
        }
    }
    report::outcomes(out, &reports.iter().collect::<Vec<_>>())?;
    let done = format!("{measurements} measurements, {frames} frames");
    report::conclusion(out, ok, None, &done)?;
    Ok(Outcome::from_ok(ok))
}
