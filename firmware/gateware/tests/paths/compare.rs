//! Frames through the RTL, compared with what the engines in Rust make of them.

use std::fmt::Write;

use gradwire::flow::Millis;
use gradwire::kernels::Kernel;
use gradwire::rules::{Alignment, Framing, Rules};
use gradwire::verdict::{PassReason, Verdict};
use gradwire::wire::frame::{Ip, IpFrame, Transport};
use gradwire::{Egress, Ingress, NO_CAPABILITIES};
use gradwire_gateware::{Batch, Frame, Outcome, Pauses, Simulation};

use super::settings::{name, place};

/// A frame, and what is to become of it.
#[derive(Clone, Debug)]
pub struct Expected {
    pub bytes: Vec<u8>,
    pub user: u64,
    pub place: u8,
    pub out: Option<Vec<u8>>,
}

fn expected(bytes: Vec<u8>, user: u64, verdict: Verdict, out: &[u8]) -> Expected {
    let out = match verdict {
        Verdict::Untouched(_) => Some(bytes.clone()),
        Verdict::Changed { len, .. } => Some(out[..len].to_vec()),
        Verdict::Dropped(_) => None,
    };
    Expected { place: place(verdict), bytes, user, out }
}

/// IPv6 with an extension header that the engines in Rust step over, and the gateware does not.
fn is_extended(ip_frame: &IpFrame<'_>) -> bool {
    ip_frame.ip() == Ip::V6 && matches!(ip_frame.frame()[ip_frame.ip_at() + 6], 0 | 43 | 60)
}

/// The verdict of [`Ingress`], and `protocol` of a frame behind an extension header. None if the
/// gateware is not made for the frame: a SYN with the capability option, or a segment of codec 2.
pub fn ingress(rules: &Rules, mtu: u16, bytes: &[u8]) -> Option<Expected> {
    let mut out = vec![0; 70_000];
    let mut verdict =
        Ingress::new(rules.clone(), Kernel::detect(), mtu).process(bytes, &mut out, &NO_CAPABILITIES);
    if let Ok(ip_frame) = IpFrame::parse(bytes) {
        let in_place = rules.find(ip_frame.tos()).is_some_and(|rule| rule.framing == Framing::InPlace);
        if is_extended(&ip_frame) && (rules.is_mark(ip_frame.tos()) || in_place) {
            verdict = PassReason::Protocol.into();
        }
        if rules.is_mark(ip_frame.tos())
            && ip_frame.packet().is_ok_and(|packet| matches!(packet.payload(), [1, 2, ..]))
        {
            return None;
        }
    }
    Some(expected(bytes.to_vec(), 0, verdict, &out))
}

/// The engine of one host, with its flows.
pub struct Host {
    engine: Box<Egress<64>>,
    now: u64,
}

/// Reasons of the flow's owner.
const OWNERS: [PassReason; 8] = [
    PassReason::AlignmentUnknown,
    PassReason::AlignmentDoubtful,
    PassReason::NotNegotiated,
    PassReason::TaggedLate,
    PassReason::ParametersDiffer,
    PassReason::Resent,
    PassReason::Bypassed,
    PassReason::TableFull,
];

impl Host {
    pub fn new(rules: &Rules) -> Self {
        Self { engine: Box::new(Egress::new(rules.clone(), Kernel::detect(), u16::MAX, 7)), now: 0 }
    }

    /// The verdict of [`Egress`], and the knowledge of its flow table.
    pub fn classify(&mut self, bytes: &[u8]) -> Expected {
        let mut out = vec![0; bytes.len() + 100];
        self.now += 1;
        let mut verdict = self.engine.process(bytes, &mut out, Millis(self.now), &NO_CAPABILITIES);
        let mut user = 0;
        if let Ok(ip_frame) = IpFrame::parse(bytes) {
            let rules = self.engine.rules();
            let tagged = !rules.is_mark(ip_frame.tos()) && rules.find(ip_frame.tos()).is_some();
            if is_extended(&ip_frame) && tagged {
                verdict = PassReason::Protocol.into();
            } else if let Ok(packet) = ip_frame.packet()
                && let Transport::Tcp { seq, .. } = packet.transport()
            {
                let key = packet.flow_key();
                let flow = self.engine.flows().iter().find(|(other, _)| **other == key);
                let head_len =
                    flow.and_then(|(_, flow)| flow.head_len(seq, Alignment::Connection).ok()).unwrap_or(0);
                user = match verdict {
                    Verdict::Untouched(reason) if OWNERS.contains(&reason) => place(verdict) - 8,
                    Verdict::Untouched(PassReason::Misaligned) => 0x80 | head_len.max(1) as u8,
                    _ => 0x80 | head_len as u8,
                };
            }
        }
        expected(bytes.to_vec(), user.into(), verdict, &out)
    }
}

/// A batch of these frames: for each a verdict comes out, and a frame unless it is dropped.
pub fn batch(cases: &[Expected], pauses: Pauses, seed: u64) -> Batch {
    let frame = |case: &Expected| Frame {
        port: 0,
        user: case.user,
        bytes: case.bytes.clone(),
        empty_last: seed.is_multiple_of(3),
    };
    let expected = (cases.len() + cases.iter().filter(|case| case.out.is_some()).count()) as u32;
    let frames = cases.iter().map(frame).collect();
    Batch { pauses, seed, noise: true, expected, ..Batch::of(frames) }
}

/// Sends a batch through; what is wrong with it, in words.
pub fn run(
    simulation: &mut Simulation,
    expected: &[Expected],
    pauses: Pauses,
    seed: u64,
) -> Result<Outcome, String> {
    let outcome = simulation.run(&batch(expected, pauses, seed)).unwrap();
    let mut wrong = outcome.broken.clone();
    let mut frames = outcome.frames.iter().filter(|frame| frame.port == 0);
    let mut verdicts = outcome.frames.iter().filter(|frame| frame.port == 1);
    for (number, expected) in expected.iter().enumerate() {
        let verdict = verdicts.next().map(|frame| frame.bytes[0]);
        if verdict != Some(expected.place) {
            let got = verdict.map_or("none".into(), name);
            writeln!(
                wrong,
                "frame {number}: {got}, expected {}: {:02x?}",
                name(expected.place),
                expected.bytes
            )
            .unwrap();
        }
        let Some(out) = &expected.out else { continue };
        let got = frames.next().map(|frame| &frame.bytes);
        if got != Some(out) {
            let name = name(expected.place);
            writeln!(
                wrong,
                "frame {number} ({name}):\n   in {:02x?}\n  got {got:02x?}\n want {out:02x?}",
                expected.bytes
            )
            .unwrap();
        }
        if wrong.len() > 10_000 {
            break;
        }
    }
    if frames.next().is_some() || verdicts.next().is_some() {
        wrong += "too many frames or verdicts came out\n";
    }
    if wrong.is_empty() { Ok(outcome) } else { Err(wrong) }
}
