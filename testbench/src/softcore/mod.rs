//! Soft cores in QEMU, and a capture through two of them, back to back.
//!
//! ```text
//!  hosts of one side ──► core A ──► wire ──► core B ──► hosts of the other side
//!                    ◄──        ◄──      ◄──        ◄──
//! ```
//!
//! Frames go one by one, so each that arrives is known by its turn. The engines of the host go the
//! same way beside it: what the cores make of a frame has to be, byte for byte, what they make.

pub mod interactive;
pub mod machine;
pub mod serial;

use std::collections::BTreeMap;
use std::time::Duration;

use gradwire::forward::Port;
use gradwire::profile::Profile;
use gradwire::rules::Rule;

use crate::error::Error;
use crate::input::Capture;
use crate::replay::{Engines, Passage, Setup, source_mac};
use crate::verify::frame::{Segment, View};
use crate::verify::{self, Findings};
use machine::{Machine, Options, PATIENCE};

/// The console's command for a rule.
///
/// # Errors
/// The console has no words for its parameters: their split has no name.
pub fn rule_command(rule: &Rule) -> Result<String, Error> {
    let Rule { tos, mask, profile, framing, alignment, handshake, heuristic, udp_offset } = *rule;
    let (bound, split, scale) = match profile {
        Profile::SizeClass(params) => {
            let split = params.split().ok_or_else(|| Error::Usage("a split that has no name".into()))?;
            (params.b().into(), split.name(), params.x())
        }
        Profile::BitPlane(bound) => (-i16::from(bound.y()), "none", 0),
    };
    let codec = profile.codec();
    let (framing, alignment, handshake, heuristic) =
        (framing.name(), alignment.name(), handshake.name(), heuristic.name());
    Ok(format!(
        "rule add tos={tos} mask={mask} codec={codec} bound={bound} split={split} scale={scale} framing={framing} alignment={alignment} handshake={handshake} heuristic={heuristic} udp-offset={udp_offset}"
    ))
}

/// Puts one rule in force, in place of all others.
///
/// # Errors
/// The console refuses it.
pub fn set_rule(core: &mut Machine, rule: &Rule) -> Result<(), Error> {
    for _ in core.command("rules")?.lines().filter(|line| line.starts_with("rule ")) {
        core.command("rule remove 0")?;
    }
    let answer = core.command(&rule_command(rule)?)?;
    if answer.is_empty() { Ok(()) } else { Err(Error::Usage(format!("the soft core's console: {answer}"))) }
}

/// The core that has a frame's sender. The ends of a connection have one each, whoever else their
/// hosts talk to: a core believes an end only what comes from the network.
fn side(frame: &[u8]) -> usize {
    let first_sends = match View::of(frame).and_then(|view| view.segment) {
        Some(Segment { flow, .. }) => flow.source < flow.destination,
        None => source_mac(frame) < frame.first_chunk().copied().unwrap_or_default(),
    };
    usize::from(!first_sends)
}

/// Two cores whose network NICs are connected.
#[derive(Debug)]
pub struct Pair {
    /// Core A and core B.
    pub cores: [Machine; 2],
    /// A frame that takes longer is lost.
    pub patience: Duration,
}

impl Pair {
    /// Starts both with one rule.
    ///
    /// # Errors
    /// An emulator cannot be started, or a console refuses the rule.
    pub fn start(options: &Options, rule: &Rule) -> Result<Self, Error> {
        let mut cores = [Machine::start(options)?, Machine::start(options)?];
        for core in &mut cores {
            set_rule(core, rule)?;
        }
        Ok(Self { cores, patience: PATIENCE })
    }

    /// Sends a frame from a host of core `from` to those of the other: what was on the wire, and
    /// what arrived.
    ///
    /// # Errors
    /// An emulator has gone.
    pub fn send(&mut self, from: usize, frame: &[u8]) -> Result<[Option<Vec<u8>>; 2], Error> {
        let [a, b] = &mut self.cores;
        let (near, far) = if from == 0 { (a, b) } else { (b, a) };
        near.send(Port::Host, frame)?;
        let Some(wire) = near.receive(Port::Network, self.patience)? else { return Ok([None, None]) };
        far.send(Port::Network, &wire)?;
        let arrived = far.receive(Port::Host, self.patience)?;
        Ok([Some(wire), arrived])
    }

    /// Sends all of a capture, and verifies what arrives; calls `step` for each frame. If the
    /// cores' frames are not those of the host's engines, or their counters not those of the
    /// frames, the report says so.
    ///
    /// # Errors
    /// An emulator has gone, or the rule contradicts itself.
    pub fn replay(
        &mut self,
        setup: &Setup,
        capture: &Capture,
        step: impl Fn(),
    ) -> Result<(Findings, Vec<Passage>), Error> {
        // Of the cores, nobody knows that both ends are here.
        let setup = &Setup { datagrams: false, ..setup.clone() };
        let mut engines =
            Engines::new(setup, capture).map_err(|refused| Error::Usage(refused.to_string()))?;
        let mut differing = Vec::new();
        let mut passages = Vec::new();
        for frame in &capture.frames {
            step();
            let mut passage = engines.send(frame);
            let [wire, arrived] = self.send(side(&frame.bytes), &frame.bytes)?;
            let expected = (passage.on_wire(&frame.bytes), passage.delivered(&frame.bytes));
            if (wire.as_deref(), arrived.as_deref()) != expected {
                differing.push(frame.number);
                // The run has failed: those that are lost behind this one need not take as long.
                self.patience = self.patience.min(Duration::from_secs(2));
            }
            passage.changed_wire = wire;
            passage.changed_delivered = arrived;
            passages.push(passage);
        }
        let mut report = verify::verify(setup, capture, &passages);
        for number in differing {
            report.fail(format!(
                "frame {number}: the soft cores made other bytes of it than the host's engines"
            ));
        }
        self.check_counters(&mut report)?;
        report.ok = report.failed == 0 && report.violations == 0;
        Ok((report, passages))
    }

    /// The counters of both cores, which were zero before, against the frames.
    fn check_counters(&mut self, report: &mut Findings) -> Result<(), Error> {
        let mut sums = BTreeMap::<String, u64>::new();
        for core in &mut self.cores {
            for (name, count) in core.counters()? {
                *sums.entry(name).or_default() += count;
            }
        }
        let mut expected = BTreeMap::from([
            ("egress compressed".to_owned(), report.compressed),
            ("egress remarked".to_owned(), report.remarked),
            ("ingress restored".to_owned(), report.compressed),
            ("egress option-added".to_owned(), report.options_added),
            ("ingress option-stripped".to_owned(), report.options_added),
        ]);
        let untouched =
            report.untouched.iter().map(|(reason, count)| (format!("egress untouched {reason}"), *count));
        expected.extend(untouched);
        let lost = ["overrun", "oversize", "runt", "violation", "link-lost", "no-queue", "no-buffer"];
        for port in ["host", "network"] {
            expected.extend(lost.map(|what| (format!("{port} {what}"), 0)));
        }
        for (name, frames) in expected {
            let counted = sums.get(&name).copied().unwrap_or(0);
            if counted != frames {
                report.fail(format!("the soft cores counted {counted} '{name}', the frames say {frames}"));
            }
        }
        Ok(())
    }
}
