//! Verifies a replay: what reached the receiving hosts against what the sending hosts had sent.
//!
//! Where a frame's values start is worked out here from the handshakes in the capture, frames are
//! read by `etherparse`, and errors are computed in `f64`: nothing is taken from the engines but
//! their verdicts.

use std::collections::BTreeMap;

use gradwire::rules::{Alignment, ECN, Framing, Handshake, Rule};
use gradwire::verdict::{Change, PassReason, Verdict};

use crate::input::{Capture, Frame};
use crate::replay::{MIN_FRAME_LEN, Passage, Setup, source_mac};

pub mod capabilities;
mod connections;
pub mod eligible;
#[cfg(feature = "cli")]
pub mod exchange;
mod findings;
pub mod frame;
mod handshake;
mod offload;
pub mod once;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod usefulness;
pub mod values;

pub use findings::{Findings, Kind};

use capabilities::Advertisers;
use connections::{Connections, SegmentPlace, Sent, Suspicion};
use eligible::{counted_len, refusal};
use frame::{Checksum, Segment, Tcp, Transport, View, is_cut_short, type_of_service};
use usefulness::useful;
use values::ErrorTally;

/// Preamble, FCS and gap between frames.
const WIRE_OVERHEAD: usize = 8 + 4 + 12;

/// Compares what was sent (`capture`) with what became of it (`passages`, one for each frame).
#[must_use]
pub fn verify(setup: &Setup, capture: &Capture, passages: &[Passage]) -> Findings {
    verify_reloaded(|_| setup, capture, passages)
}

/// The same if the rules change on the way: `setup_of` has those that were in force for the frame
/// at an index. All rules have the same profile, since a stream has one bound.
#[must_use]
pub fn verify_reloaded<'s>(
    setup_of: impl Fn(usize) -> &'s Setup,
    capture: &Capture,
    passages: &[Passage],
) -> Findings {
    let setup = setup_of(0);
    let mut verifier = Verifier {
        setup,
        tally: ErrorTally::new(setup.profile()),
        connections: Connections::default(),
        advertisers: Advertisers::default(),
        datagrams: Suspicion::default(),
        findings: Findings { codec: setup.profile().codec(), ..Findings::default() },
    };
    for (index, (frame, passage)) in capture.frames.iter().zip(passages).enumerate() {
        verifier.setup = setup_of(index);
        verifier.frame(frame, passage);
    }
    verifier.finish(capture)
}

struct Verifier<'s, 'a> {
    /// In force for the present frame.
    setup: &'s Setup,
    tally: ErrorTally,
    connections: Connections<'a>,
    advertisers: Advertisers,
    datagrams: Suspicion,
    findings: Findings,
}

impl<'a> Verifier<'_, 'a> {
    fn frame(&mut self, frame: &'a Frame, passage: &'a Passage) {
        let view = View::of(&frame.bytes);
        let rule = view.as_ref().and_then(|view| self.setup.rule(view.tos));
        let segment = view.as_ref().and_then(|view| view.segment.as_ref());
        let kind = kind(view.as_ref(), rule.is_some());
        self.count(kind, frame, passage);

        let card = source_mac(&frame.bytes);
        let delivered = passage.delivered(&frame.bytes);
        if let Some(Segment { transport: Transport::Udp, payload, flow, .. }) = segment
            && let Some(rule) = rule
        {
            let values = payload.start + usize::from(rule.udp_offset);
            self.datagrams.add(*flow, frame.bytes.get(values..payload.end).unwrap_or(&[]));
        }
        // A segment whose checksum is wrong is dropped by the receiving host: it is no part of the
        // stream.
        let accepted = |segment: &&Segment| {
            segment.checksum != Checksum::Wrong && view.as_ref().is_some_and(|view| view.ip_checksum_ok)
        };
        let place = segment.filter(accepted).and_then(|segment| {
            self.connections.add(&Sent {
                card,
                segment,
                payload: &frame.bytes[segment.payload.clone()],
                delivered: delivered.and_then(|bytes| bytes.get(segment.payload.clone())),
                rule: rule.map(|rule| rule.alignment),
                seen: passage.seen,
            })
        });

        let verdict = match passage.egress {
            Verdict::Changed { change: Change::Compressed, .. } => match (rule, &view, segment) {
                (None, ..) => Err("compressed, though the rule does not match".into()),
                (Some(rule), Some(view), Some(segment)) => {
                    self.compressed_once(card, frame, segment, place);
                    self.compressed(frame, passage, rule, (view, segment), place)
                }
                _ => Err("compressed, though it is not a whole TCP or UDP packet".into()),
            },
            Verdict::Changed { change: Change::OptionAdded, .. } => {
                self.option_added(frame, passage, rule, segment)
            }
            Verdict::Changed { .. } => remarked(frame, passage, view.as_ref(), self.setup),
            _ if delivered == Some(&frame.bytes) => Ok(()),
            _ if delivered.is_none() => Err("dropped".into()),
            _ => Err("left untouched by egress, but not as it was when it arrived".into()),
        };
        if let Err(what) = verdict {
            self.findings.altered_untagged += u64::from(rule.is_none());
            self.findings.fail(format!("frame {} ({}): {what}", frame.number, kind.name()));
        }
    }

    /// A SYN that left with a capability option, which its receiver takes out.
    fn option_added(
        &mut self,
        frame: &Frame,
        passage: &Passage,
        rule: Option<&Rule>,
        segment: Option<&Segment>,
    ) -> Result<(), String> {
        let sent = &frame.bytes[..];
        let (Some(wire), Some(delivered), Some(segment)) =
            (passage.on_wire(sent), passage.delivered(sent), segment)
        else {
            return Err("a capability option, and then dropped".into());
        };
        let answers = matches!(segment.transport, Transport::Tcp(Tcp { ack: Some(_), .. }));
        if rule.map_or(!answers, |rule| rule.handshake == Handshake::Off) {
            return Err("a capability option that no rule asks for".into());
        }
        if answers && !self.advertisers.to(segment.flow) {
            return Err("a capability option in answer to none".into());
        }
        capabilities::added(sent, wire)?;
        capabilities::arrived(sent, delivered)?;
        self.advertisers.insert(segment.flow);
        Ok(())
    }

    /// Whatever its rule and its alignment: no byte of a TCP stream is in two compressed segments.
    fn compressed_once(
        &mut self,
        card: [u8; 6],
        frame: &Frame,
        segment: &Segment,
        place: Option<SegmentPlace>,
    ) {
        if let (Transport::Tcp(Tcp { seq, .. }), Some(place)) = (segment.transport, place)
            && let Err(what) = self.connections.compressed(place, card, seq, segment.payload.len() as u32)
        {
            self.findings.fail(format!("frame {}: {}: {what}", frame.number, segment.flow));
        }
    }

    fn count(&mut self, kind: Kind, frame: &Frame, passage: &Passage) {
        let findings = &mut self.findings;
        findings.frames += 1;
        findings.tagged += u64::from(kind < Kind::Untagged);
        let mut outcome = match passage.egress {
            Verdict::Changed { change, .. } => {
                findings.compressed += u64::from(change == Change::Compressed);
                findings.remarked += u64::from(change == Change::Remarked);
                findings.options_added += u64::from(change == Change::OptionAdded);
                change.name().to_owned()
            }
            Verdict::Untouched(reason) => {
                *findings.untouched.entry(reason.name()).or_default() += 1;
                reason.name().to_owned()
            }
            Verdict::Dropped(_) => String::new(),
        };
        for verdict in [Some(passage.egress), passage.ingress].into_iter().flatten() {
            if let Verdict::Dropped(reason) = verdict {
                *findings.dropped.entry(reason.name()).or_default() += 1;
                outcome = format!("dropped ({reason})");
            }
        }
        *findings.kinds.entry(kind).or_default().entry(outcome).or_default() += 1;
        if matches!(kind, Kind::TaggedTcp | Kind::TaggedUdp) {
            findings.wire_bytes_in += wire_len(&frame.bytes);
            findings.wire_bytes_out += passage.on_wire(&frame.bytes).map_or(0, wire_len);
        }
    }

    /// Checks a frame that egress has compressed under `rule`. TCP has a `place` in its connection.
    fn compressed(
        &mut self,
        frame: &Frame,
        passage: &Passage,
        rule: &Rule,
        (view, segment): (&View, &Segment),
        place: Option<SegmentPlace>,
    ) -> Result<(), String> {
        let sent = &frame.bytes[..];
        if let Some(reason) = refusal(sent) {
            return Err(format!("compressed, though it has {reason}"));
        }
        let payload_at = segment.payload.start;
        let wire = passage.on_wire(sent).ok_or("dropped by egress")?;
        match rule.framing {
            Framing::InPlace if wire.get(..payload_at) != sent.get(..payload_at) => {
                return Err("in-place framing changed a header on the wire".into());
            }
            Framing::InPlace => {}
            Framing::Routed => self.routed_wire(wire, view)?,
        }

        if counted_len(wire) >= counted_len(sent) {
            return Err("compressed, but not shorter on the wire".into());
        }
        let agreed = match segment.transport {
            Transport::Udp => self.setup.datagrams,
            Transport::Tcp(_) => self.advertisers.to(segment.flow),
        };
        if rule.handshake == Handshake::Required && !agreed {
            return Err("compressed, though the far end did not advertise that it restores it".into());
        }

        let got = passage.delivered(sent).ok_or("dropped by ingress")?;
        if !matches!(passage.ingress, Some(Verdict::Changed { change: Change::Restored, .. })) {
            return Err("compressed, but not restored".into());
        }
        if got.len() != sent.len() {
            return Err(format!("{} bytes long when it arrived, {} when sent", got.len(), sent.len()));
        }
        let differs = |at: &usize| sent[*at] != got[*at] && !segment.checksum_at.contains(at);
        if let Some(at) = (0..payload_at).find(differs) {
            return Err(format!("header byte {at} is {:#04x}, was {:#04x}", got[at], sent[at]));
        }
        let got_view = View::of(got).ok_or("no IP packet when it arrived")?;
        let got_checksum = got_view.segment.map(|segment| segment.checksum);
        if !got_view.ip_checksum_ok {
            return Err("wrong IPv4 header checksum when it arrived".into());
        }
        match (segment.checksum, got_checksum) {
            (Checksum::Absent, Some(Checksum::Absent))
            | (Checksum::NotVerified, Some(Checksum::NotVerified)) => {}
            (Checksum::Valid | Checksum::LeftToCard, Some(Checksum::Valid)) => {}
            (before, after) => {
                return Err(format!("checksum {before:?} when sent, {after:?} when it arrived"));
            }
        }

        let head_len = match segment.transport {
            Transport::Udp => usize::from(rule.udp_offset),
            Transport::Tcp(Tcp { seq, .. }) => {
                let place = place.ok_or("no connection")?;
                if place.again {
                    return Err("sent again, but compressed".into());
                }
                if place.binds {
                    return Err("compressed, though its SYN had an option that binds the payload".into());
                }
                let start = match rule.alignment {
                    Alignment::Connection => place.origin,
                    Alignment::Payload => place.alignment,
                };
                let unknown = "compressed, though the capture does not show which SYN opened the connection";
                let head_len = (start.ok_or(unknown)?.wrapping_sub(seq) % 4) as usize;
                if rule.alignment == Alignment::Payload && head_len != 0 {
                    return Err("compressed, though its payload starts within a value".into());
                }
                head_len
            }
        };
        if sent[segment.payload.end..] != got[segment.payload.end..] {
            return Err("a byte behind the packet changed".into());
        }
        let (sent, got) = (&sent[segment.payload.clone()], &got[segment.payload.clone()]);
        let head_len = head_len.min(sent.len());
        let tail_at = sent.len() - (sent.len() - head_len) % 4;
        if sent[..head_len] != got[..head_len] || sent[tail_at..] != got[tail_at..] {
            return Err("a payload byte outside the values changed".into());
        }
        let violations = self.tally.violations;
        self.tally.bytes(&sent[head_len..tail_at], &got[head_len..tail_at]);
        match self.tally.violations - violations {
            0 => Ok(()),
            some => Err(format!("{some} values not within the bound")),
        }
    }

    /// A compressed frame on the wire has to look right to routers, and wrong to a host without a
    /// decompressor.
    fn routed_wire(&self, wire: &[u8], sent: &View) -> Result<(), String> {
        let view = View::of(wire).ok_or("no IP packet on the wire")?;
        let marked = self.setup.mark & !ECN | sent.tos & ECN;
        if view.tos != marked {
            return Err(format!("type of service {:#04x} on the wire, expected {marked:#04x}", view.tos));
        }
        if !view.ip_checksum_ok {
            return Err("wrong IPv4 header checksum on the wire".into());
        }
        match view.segment.map(|segment| segment.checksum) {
            Some(checksum) if !checksum.is_accepted() => Ok(()),
            other => {
                Err(format!("checksum {other:?} on the wire: a host without a decompressor would accept it"))
            }
        }
    }

    fn finish(mut self, capture: &Capture) -> Findings {
        let mut suspicion = self.datagrams;
        let streams = self.connections.verify(&self.tally, &mut suspicion, &mut self.findings);
        let findings = &mut self.findings;
        findings.values = self.tally.values;
        findings.norm_lost = self.tally.norm_lost();
        findings.remarks = self.tally.remarks();
        findings.useful = (findings.values > 0).then(|| useful(&findings.remarks));
        findings.max_error = self.tally.max_error.max(streams.max_error);
        findings.violations = self.tally.violations + streams.violations;
        findings.ok = findings.failed == 0 && findings.violations == 0;
        if capture.cut > 0 {
            let cut = capture.cut;
            findings
                .warnings
                .push(format!("{cut} frames cut by a snap length were left out: capture with a longer one"));
        }
        if let Some(at) = capture.torn {
            findings.warnings.push(format!(
                "the capture ends within a frame, at byte {at}: what is before it was verified"
            ));
        }
        findings.oversized = offload::oversized(capture);
        findings.warnings.extend(offload::warning(findings.oversized));
        findings.mixed.extend(suspicion.mixed());
        let required = self.setup.rules.iter().any(|rule| rule.handshake == Handshake::Required);
        findings.warnings.extend(unagreed(&findings.untouched).filter(|_| required));
        self.findings
    }
}

fn kind(view: Option<&View>, tagged: bool) -> Kind {
    match view {
        None => Kind::NotIp,
        Some(_) if !tagged => Kind::Untagged,
        Some(View { segment: None, .. }) => Kind::TaggedOther,
        Some(View { segment: Some(segment), .. }) => match segment.transport {
            _ if segment.payload.is_empty() => Kind::TaggedEmpty,
            Transport::Tcp(_) => Kind::TaggedTcp,
            Transport::Udp => Kind::TaggedUdp,
        },
    }
}

/// Remarks on what the capture does not show of the handshakes, with remedies.
fn unagreed(untouched: &BTreeMap<&'static str, u64>) -> impl Iterator<Item = String> {
    let counted = |reason: PassReason| untouched.get(reason.name()).copied().filter(|count| *count > 0);
    [
        (
            PassReason::NotNegotiated,
            "the far end did not say on its SYN that it restores them; a capture of one direction only has no such SYN: replay \
             it with --handshake off",
        ),
        (
            PassReason::TaggedLate,
            "their connection was tagged after its SYN: tag sockets before connect and listen",
        ),
        (
            PassReason::ParametersDiffer,
            "in-place framing needs the type of service in both directions, and the far end's SYN does not have it",
        ),
        (PassReason::AlignmentUnknown, "the capture begins after the SYN of their connection, or behind its end"),
    ]
    .map(|(reason, why)| counted(reason).map(|count| format!("{count} segments went untouched: {why}")))
    .into_iter()
    .flatten()
}

/// A frame that the far end would take for a compressed one may lose its type of service and
/// nothing else.
fn remarked(frame: &Frame, passage: &Passage, view: Option<&View>, setup: &Setup) -> Result<(), String> {
    let marked = view.is_some_and(|view| view.tos & !ECN == setup.mark & !ECN);
    let in_place = type_of_service(&frame.bytes)
        .and_then(|tos| setup.rule(tos))
        .is_some_and(|rule| rule.framing == Framing::InPlace);
    let short = in_place && is_cut_short(&frame.bytes);
    if !marked && !short {
        return Err("re-marked, though it did not look compressed".into());
    }
    let got = passage.delivered(&frame.bytes).ok_or("re-marked, and then dropped")?;
    // In IPv4 the type of service and the header checksum differ, in IPv6 the traffic class.
    let differing = frame.bytes.iter().zip(got).filter(|(sent, got)| sent != got).count();
    let right = view.map(|view| View { tos: view.tos & ECN, ..view.clone() });
    if View::of(got) != right || got.get(..frame.bytes.len()).is_none() || differing > 3 {
        return Err("re-marked, and changed in other ways".into());
    }
    Ok(())
}

fn wire_len(frame: &[u8]) -> u64 {
    (frame.len().max(MIN_FRAME_LEN) + WIRE_OVERHEAD) as u64
}
