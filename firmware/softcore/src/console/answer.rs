//! The answers of the console, line by line: a long answer holds up no frame.

use core::fmt::Write;

use gradwire::codec::Split;
use gradwire::flow::Phase;
use gradwire::flow::trust::TrustState;
use gradwire::forward::{Forwarder, Port};
use gradwire::profile::Profile;
use gradwire::rules::Rule;
use gradwire::verdict::{Change, Counters, DropReason, PassReason};
use heapless::String;

use super::command::HELP;
use crate::board::Nics;
use crate::{SETS, logs};

/// Bytes of a line of an answer. Longer ones are cut.
pub const LINE: usize = 160;

/// An answer under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Help,
    Rules,
    Counters,
    Flows,
}

/// A line of an answer.
pub(super) enum Line {
    Text(String<LINE>),
    /// There is nothing to say at this place, a counter that is zero for example.
    Skip,
    End,
}

/// The line at place `at` of an answer.
pub(super) fn line<N: Nics>(subject: Subject, at: usize, forwarder: &Forwarder<SETS>, nics: &N) -> Line {
    match subject {
        Subject::Help => HELP.get(at).map_or(Line::End, |text| text_line(format_args!("{text}"))),
        Subject::Rules => rule_line(at, forwarder),
        Subject::Counters => counter_line(at, forwarder, nics),
        Subject::Flows => flow_line(at, forwarder),
    }
}

fn text_line(text: core::fmt::Arguments<'_>) -> Line {
    let mut line = String::new();
    // What does not fit is left out.
    let _ = line.write_fmt(text);
    Line::Text(line)
}

fn rule_line(at: usize, forwarder: &Forwarder<SETS>) -> Line {
    let rules = forwarder.egress().rules();
    let Some(at) = at.checked_sub(1) else { return text_line(format_args!("mark {:#04x}", rules.mark())) };
    let Some(Rule { tos, mask, profile, framing, alignment, handshake, heuristic, udp_offset }) =
        rules.as_slice().get(at)
    else {
        return Line::End;
    };
    let codec = profile.codec();
    let (b, split, x) = match profile {
        Profile::SizeClass(params) => {
            (params.b().into(), params.split().map_or("unnamed", Split::name), params.x())
        }
        // Its one parameter is the bound itself.
        Profile::BitPlane(bound) => (-i16::from(bound.y()), "none", 0),
    };
    let (framing, alignment, handshake, heuristic) =
        (framing.name(), alignment.name(), handshake.name(), heuristic.name());
    text_line(format_args!(
        "rule {at} tos={tos:#04x} mask={mask:#04x} codec={codec} bound={b} split={split} scale={x} framing={framing} alignment={alignment} handshake={handshake} heuristic={heuristic} udp-offset={udp_offset}"
    ))
}

fn counter_line<N: Nics>(at: usize, forwarder: &Forwarder<SETS>, nics: &N) -> Line {
    let mut at = at;
    for (direction, counters) in
        [("egress", forwarder.egress().counters()), ("ingress", forwarder.ingress().counters())]
    {
        match engine_line(&mut at, direction, counters) {
            Line::End => {}
            line => return line,
        }
    }
    for (port, name) in [(Port::Host, "host"), (Port::Network, "network")] {
        let (faults, losses) = (nics.faults(port), forwarder.losses(port));
        let counts = [
            ("overrun", u64::from(faults.overruns)),
            ("oversize", u64::from(faults.oversize)),
            ("runt", u64::from(faults.runts)),
            ("violation", u64::from(faults.violations)),
            ("link-lost", u64::from(faults.links_lost)),
            ("no-queue", losses.no_queue),
            ("no-buffer", losses.no_buffer),
        ];
        if let Some((what, count)) = counts.get(at) {
            return counted(format_args!("{name} {what}"), *count);
        }
        at = at.wrapping_sub(counts.len());
        if at == 0 {
            return text_line(format_args!("{name} link {}", if nics.link(port) { "up" } else { "down" }));
        }
        at = at.wrapping_sub(1);
    }
    let traffic = forwarder.egress().traffic(at);
    if at < forwarder.egress().rules().as_slice().len() {
        return text_line(format_args!(
            "rule {at} frames {} bytes {} compressed {} saved {}",
            traffic.frames, traffic.bytes, traffic.compressed, traffic.saved
        ));
    }
    if at == forwarder.egress().rules().as_slice().len() {
        return counted(format_args!("logs lost"), u64::from(logs::lost()));
    }
    Line::End
}

/// The engine's counter at place `at`; past the last one `at` counts from there.
fn engine_line(at: &mut usize, direction: &str, counters: &Counters) -> Line {
    if let Some(change) = Change::ALL.get(*at) {
        return counted(format_args!("{direction} {}", change.name()), counters.changed(*change));
    }
    *at = at.wrapping_sub(Change::ALL.len());
    if let Some(reason) = PassReason::ALL.get(*at) {
        return counted(format_args!("{direction} untouched {}", reason.name()), counters.passed(*reason));
    }
    *at = at.wrapping_sub(PassReason::ALL.len());
    if let Some(reason) = DropReason::ALL.get(*at) {
        return counted(format_args!("{direction} dropped {}", reason.name()), counters.dropped(*reason));
    }
    *at = at.wrapping_sub(DropReason::ALL.len());
    if *at == 0 {
        let (before, after) = counters.changed_bytes();
        return match before {
            0 => Line::Skip,
            _ => text_line(format_args!("{direction} changed bytes {before} to {after}")),
        };
    }
    *at = at.wrapping_sub(1);
    Line::End
}

fn counted(name: core::fmt::Arguments<'_>, count: u64) -> Line {
    match count {
        0 => Line::Skip,
        _ => text_line(format_args!("{name} {count}")),
    }
}

fn flow_line(at: usize, forwarder: &Forwarder<SETS>) -> Line {
    let Some((key, flow)) = forwarder.egress().flows().iter().nth(at) else { return Line::End };
    let phase = match flow.phase() {
        Phase::Vacant => "vacant",
        Phase::Opening => "opening",
        Phase::Open => "open",
        Phase::Doubtful => "doubtful",
        Phase::Closed => "closed",
    };
    let trust = match flow.trust() {
        TrustState::Trusted => "trusted",
        TrustState::Probing => "probing",
        TrustState::Bypassed => "bypassed",
    };
    let traffic = flow.traffic();
    text_line(format_args!(
        "{key} {phase} {} {trust} frames {} compressed {} saved {}",
        flow.handshake().name(),
        traffic.frames,
        traffic.compressed,
        traffic.saved
    ))
}
