//! The payloads of a capture through the gateware's engines, in simulation.
//!
//! The engines of the host decide: which frames are compressed, where values start, what the
//! headers say. Each frame that they compressed goes through `gw_compressor`, and what that gives
//! through `gw_decompressor`, with the host's layouts in `tuser`. Both have to give the bytes that
//! the host's engines gave. Frames follow each other without a gap, as on a busy wire.

use gradwire::codec::Params;
use gradwire::profile::Profile;
use gradwire::rules::Framing;
use gradwire::verdict::{Change, Verdict};
use gradwire_gateware::{Batch, Coding, Design, Frame, Outcome, REFUSED};
use serde::Serialize;

use crate::error::Error;
use crate::input::Capture;
use crate::replay::{Passage, Setup};
use crate::verify::Findings;
use crate::verify::frame::View;

/// Bytes of a segment header (FORMAT.md section 5.2).
const HEADER_LEN: usize = 8;
/// Bytes of a beat.
const BEAT: usize = 32;

/// The cost of the frames in an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Frames that went through.
    pub frames: u64,
    /// Beats of 32 bytes of those frames, before compression.
    pub beats: u64,
    /// Clocks from the first beat in to the last beat out.
    pub clocks: u64,
    /// Clocks in which a beat waited for the engine.
    pub stalls: u64,
    /// Clocks from a frame's first beat in to its first beat out, at most.
    pub latency: u64,
}

/// The cost of the frames in both engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Costs {
    /// The sending direction.
    pub compressor: Cost,
    /// The receiving direction.
    pub decompressor: Cost,
}

/// A compressed frame as the host's engines made it, in terms of the gateware's.
struct Coded {
    number: u64,
    user: u64,
    /// Up to the end of the payload.
    sent: Vec<u8>,
    /// The same headers, the groups, and the bytes around them.
    compressed: Vec<u8>,
    /// The same headers and the restored payload.
    restored: Vec<u8>,
}

/// Sends the frames that `passages` compressed through both engines. What differs is a failure in
/// `findings`.
///
/// # Errors
/// The codec is not codec 1, there is no Verilator, or the simulation cannot be run.
pub fn code(
    setup: &Setup,
    capture: &Capture,
    passages: &[Passage],
    findings: &mut Findings,
) -> Result<Costs, Error> {
    let rule = setup.rules.first().ok_or_else(|| Error::Usage("there is no rule".into()))?;
    let Profile::SizeClass(params) = rule.profile else {
        return Err(Error::Usage("the gateware codes codec 1 alone".into()));
    };
    let mut coded = Vec::new();
    for (frame, passage) in capture.frames.iter().zip(passages) {
        if let Verdict::Changed { change: Change::Compressed, len } = passage.egress {
            match of_passage(&frame.bytes, passage, len, rule.framing, params) {
                Some(mut parts) => {
                    parts.number = frame.number;
                    coded.push(parts);
                }
                None => findings.fail(format!("frame {}: not taken apart for the gateware", frame.number)),
            }
        }
    }
    let compressor = through("gw_compressor", &coded, |frame| (&frame.sent, &frame.compressed), findings)?;
    let decompressor =
        through("gw_decompressor", &coded, |frame| (&frame.compressed, &frame.restored), findings)?;
    findings.ok = findings.failed == 0 && findings.violations == 0;
    Ok(Costs { compressor, decompressor })
}

/// The frames that the host's engines made of one; none if it is not a frame that they compressed
/// and restored.
fn of_passage(
    sent: &[u8],
    passage: &Passage,
    wire_len: usize,
    framing: Framing,
    params: Params,
) -> Option<Coded> {
    let payload = View::of(sent)?.segment?.payload;
    let wire = passage.on_wire(sent)?;
    let (head_len, compressed) = match framing {
        Framing::InPlace => (0, wire.get(..wire_len)?.to_vec()),
        Framing::Routed => {
            let wire_payload = wire.get(View::of(wire)?.segment?.payload)?;
            let (header, groups) = wire_payload.split_first_chunk::<HEADER_LEN>()?;
            // The header's fourth byte says how many bytes stand before the first value.
            (usize::from(header[3]), [sent.get(..payload.start)?, groups].concat())
        }
    };
    let delivered = passage.delivered(sent)?;
    let restored = delivered.get(View::of(delivered)?.segment?.payload)?;
    let (bypass, values) = (payload.start + head_len, (payload.len() - head_len) / 4);
    let (b, k, x) = (params.b(), params.k(), params.x());
    let coding = Coding { bypass: u16::try_from(bypass).ok()?, values: u16::try_from(values).ok()?, b, k, x };
    Some(Coded {
        number: 0,
        user: coding.user(),
        sent: sent.get(..payload.end)?.to_vec(),
        compressed,
        restored: [sent.get(..payload.start)?, restored].concat(),
    })
}

/// Sends all frames through one engine, and compares.
fn through<'a>(
    engine: &str,
    coded: &'a [Coded],
    sides: impl Fn(&'a Coded) -> (&'a [u8], &'a [u8]),
    findings: &mut Findings,
) -> Result<Cost, Error> {
    let refused = |error: gradwire_gateware::Error| Error::Usage(error.to_string());
    let mut simulation = Design::new(engine).start().map_err(refused)?;
    let frames = coded.iter().map(|frame| Frame::new(frame.user, sides(frame).0.to_vec())).collect();
    let outcome = simulation.run(&Batch::of(frames)).map_err(refused)?;
    for line in outcome.broken.lines() {
        findings.fail(format!("{engine}: {line}"));
    }
    if outcome.frames.len() != coded.len() {
        findings.fail(format!("{engine}: {} frames in, {} out", coded.len(), outcome.frames.len()));
    }
    for (frame, got) in coded.iter().zip(&outcome.frames) {
        if got.user & REFUSED != 0 {
            findings.fail(format!("frame {}: {engine} refused it", frame.number));
        } else if got.bytes != sides(frame).1 {
            findings.fail(format!(
                "frame {}: {engine} made other bytes of it than the host's engines",
                frame.number
            ));
        }
    }
    let beats = coded.iter().map(|frame| frame.sent.len().div_ceil(BEAT) as u64).sum();
    Ok(cost(beats, &outcome))
}

fn cost(beats: u64, outcome: &Outcome) -> Cost {
    let first = outcome.sent.first().map_or(0, |times| times.first);
    let last = outcome.frames.last().map_or(first, |frame| frame.last);
    let latencies = outcome.sent.iter().zip(&outcome.frames).map(|(sent, got)| got.first - sent.first);
    Cost {
        frames: outcome.frames.len() as u64,
        beats,
        clocks: (last + 1).saturating_sub(first),
        stalls: outcome.stalls,
        latency: latencies.max().unwrap_or(0),
    }
}
