//! A capture that was taken on the wire, behind the card that compresses: the receiver's ingress
//! restores what it can.
//!
//! What the sender's host sent is not in such a capture, so no error can be verified. What can be
//! parts: which frames a receiver restores and which it refuses, what the ends advertised on their
//! SYNs, and what that saved.

use std::collections::BTreeMap;

use gradwire::engine::{CapabilityTable, Ingress};
use gradwire::flow::capabilities::Slot;
use gradwire::profile::Profile;
use gradwire::rules::{Alignment, Framing, Rule, RulesError};
use gradwire::verdict::{Change, Verdict};
use gradwire::wire::capability::Capability;
use gradwire::wire::frame::MAX_LINK_LEN;
use serde::Serialize;

use crate::input::Capture;
use crate::replay::{MIN_FRAME_LEN, Setup};
use crate::verify::frame::{Checksum, Segment, Transport, View};
use crate::verify::values::bound_exponent;

/// The bytes that a frame takes of the wire beside itself: preamble, FCS and the gap.
const AROUND: u64 = 24;
/// One slot will do: nobody asks for a capability.
const SLOTS: usize = 1;
/// So many failures are listed one by one.
const MAX_FAILURES: usize = 8;

/// The outcomes of a capture's frames.
#[derive(Debug, Default, Serialize)]
pub struct FromWire {
    /// Frames that were whole in the capture.
    pub frames: u64,
    /// Frames that a snap length cut.
    pub cut: u64,
    /// Compressed frames that a receiver restores.
    pub restored: u64,
    /// Compressed frames that a receiver drops, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Frames that a receiver passes untouched, by reason.
    pub untouched: BTreeMap<&'static str, u64>,
    /// Tagged frames with payload among them: their sender did not compress them.
    pub tagged: u64,
    /// Restored frames by framing, codec and bound.
    pub profiles: BTreeMap<String, u64>,
    /// The capabilities that ends of connections advertised on their SYNs, and how many did.
    pub handshakes: BTreeMap<String, u64>,
    /// Restored frames as their hosts sent them: bytes on the wire, with preamble, FCS and gap.
    pub wire_bytes_in: u64,
    /// The same frames compressed.
    pub wire_bytes_out: u64,
    /// Restored values.
    pub values: u64,
    /// Restored values that are zero.
    pub zeros: u64,
    /// Restored values that are infinite or NaN.
    pub non_finite: u64,
    /// The largest finite magnitude of a restored value.
    pub largest: f64,
    /// Restored frames that another parser does not accept, up to a few.
    pub failures: Vec<String>,
    /// Whether every compressed frame was restored, and rightly.
    pub ok: bool,
}

impl FromWire {
    /// Compressed frames: what there is to verify.
    #[must_use]
    pub fn compressed(&self) -> u64 {
        self.restored + self.dropped.values().sum::<u64>()
    }

    /// The ratio of the restored frames.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.wire_bytes_out == 0 { 1.0 } else { self.wire_bytes_in as f64 / self.wire_bytes_out as f64 }
    }
}

/// The rule that a capture's own SYNs ask for, if an end advertised in-place framing; `rule`
/// otherwise.
#[must_use]
pub fn rule_of(capture: &Capture, rule: Rule) -> Rule {
    let in_place = capture.frames.iter().find_map(|frame| capability(&frame.bytes)?.in_place());
    let Some([codec, first, second, alignment]) = in_place else { return rule };
    let Ok(profile) = Profile::from_bytes([codec, first, second]) else { return rule };
    let alignment = if alignment == 0 { Alignment::Connection } else { Alignment::Payload };
    Rule { framing: Framing::InPlace, profile, alignment, ..rule }
}

/// Sends all of a capture to a receiver's ingress.
///
/// # Errors
/// The rule contradicts itself.
pub fn from_wire(setup: &Setup, capture: &Capture) -> Result<FromWire, RulesError> {
    let mut ingress = Ingress::new(setup.rules()?, setup.kernel, u16::MAX);
    let capabilities = CapabilityTable::<[Slot; SLOTS]>::new(0);
    let mut out = vec![0; usize::from(u16::MAX) + MAX_LINK_LEN];
    let mut report =
        FromWire { frames: capture.frames.len() as u64, cut: capture.cut, ..FromWire::default() };
    for frame in &capture.frames {
        if let Some(capability) = capability(&frame.bytes) {
            *report.handshakes.entry(describe(capability)).or_default() += 1;
        }
        match ingress.process(&frame.bytes, &mut out, &capabilities) {
            Verdict::Changed { change: Change::Restored, len } => {
                report.restored(setup, frame.number, &frame.bytes, out.get(..len).unwrap_or(&out));
            }
            Verdict::Changed { .. } => {}
            Verdict::Dropped(reason) => *report.dropped.entry(reason.name()).or_default() += 1,
            Verdict::Untouched(reason) => {
                let view = View::of(&frame.bytes);
                let has_payload = view
                    .as_ref()
                    .and_then(|view| view.segment.as_ref())
                    .is_some_and(|s| !s.payload.is_empty());
                if has_payload && view.is_some_and(|view| setup.rule(view.tos).is_some()) {
                    report.tagged += 1;
                }
                *report.untouched.entry(reason.name()).or_default() += 1;
            }
        }
    }
    report.ok = report.dropped.is_empty() && report.failures.is_empty();
    Ok(report)
}

impl FromWire {
    fn restored(&mut self, setup: &Setup, number: u64, wire: &[u8], restored: &[u8]) {
        self.restored += 1;
        let on_wire = |frame: &[u8]| frame.len().max(MIN_FRAME_LEN) as u64 + AROUND;
        self.wire_bytes_in += on_wire(restored);
        self.wire_bytes_out += on_wire(wire);
        let view = View::of(restored);
        let Some(View { ip_checksum_ok: true, segment: Some(segment), .. }) = view else {
            return self.fail(format!("frame {number}: restored, and no right IP packet"));
        };
        if segment.checksum == Checksum::Wrong {
            return self.fail(format!("frame {number}: restored with a wrong checksum"));
        }
        // The headers in front of the payload are as long as on the wire.
        let header = wire.get(segment.payload.start..).and_then(|bytes| bytes.first_chunk::<8>());
        let rule = setup.rules.first().filter(|rule| rule.framing == Framing::InPlace);
        let marked = View::of(wire).is_some_and(|view| (view.tos ^ setup.mark) & 0xfc == 0);
        let (framing, profile, head) = match (header, rule) {
            (Some(&[_, codec, _, head, _, _, first, second]), _) if marked => {
                (Framing::Routed, Profile::from_bytes([codec, first, second]).ok(), usize::from(head))
            }
            (_, Some(rule)) => {
                let head = if segment.transport == Transport::Udp { rule.udp_offset } else { 0 };
                (Framing::InPlace, Some(rule.profile), head.into())
            }
            _ => (Framing::Routed, None, 0),
        };
        let Some(profile) = profile else {
            return self.fail(format!("frame {number}: restored, and its segment header has no parameters"));
        };
        let kind = format!("{}, {}", framing.name(), named(profile));
        *self.profiles.entry(kind).or_default() += 1;
        for value in values(restored, &segment, head) {
            self.values += 1;
            self.zeros += u64::from(value == 0.0);
            self.non_finite += u64::from(!value.is_finite());
            if value.is_finite() {
                self.largest = self.largest.max(f64::from(value).abs());
            }
        }
    }

    fn fail(&mut self, failure: String) {
        if self.failures.len() < MAX_FAILURES {
            self.failures.push(failure);
        }
    }
}

/// The whole values behind the head of a restored payload.
fn values<'a>(frame: &'a [u8], segment: &Segment, head: usize) -> impl Iterator<Item = f32> + use<'a> {
    let payload = frame.get(segment.payload.start + head..segment.payload.end).unwrap_or_default();
    payload.chunks_exact(4).map(|value| f32::from_le_bytes([value[0], value[1], value[2], value[3]]))
}

/// The handshake's option on a SYN.
fn capability(frame: &[u8]) -> Option<Capability> {
    let segment = View::of(frame)?.segment?;
    if !matches!(segment.transport, Transport::Tcp(tcp) if tcp.syn) {
        return None;
    }
    // The checksum stands in the last four of the twenty bytes in front of the options.
    let options = frame.get(segment.checksum_at.start + 4..segment.payload.start)?;
    Capability::find(options).map(|(capability, _)| capability)
}

/// A capability in words.
fn describe(capability: Capability) -> String {
    let codecs: Vec<String> = (1..=8)
        .filter(|codec| capability.codecs() >> (codec - 1) & 1 == 1)
        .map(|codec| codec.to_string())
        .collect();
    let mut parts = Vec::new();
    if capability.routed() {
        parts.push(format!("routed, codecs {}", codecs.join(" and ")));
    }
    if let Some([codec, first, second, _]) = capability.in_place() {
        let profile = Profile::from_bytes([codec, first, second]);
        parts.push(format!("in-place, {}", profile.map_or("no codec that is known".into(), named)));
    }
    if parts.is_empty() { "nothing".into() } else { parts.join("; ") }
}

fn named(profile: Profile) -> String {
    format!("codec {}, bound 2^{}", profile.codec(), bound_exponent(profile))
}
