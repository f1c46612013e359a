//! Frames on which the frame path is measured: 1514-byte frames of one TCP stream of gradients.
//!
//! Egress leaves untouched what TCP sends again, so going round a ring of frames must look like a
//! stream that goes on. The ring is therefore four runs of consecutive segments, a quarter of TCP's
//! sequence numbers apart: whoever has sent the last run finds the first ahead of it again, modulo
//! 2^32, for ever. No frame has to be changed between passes, and none is there only to open
//! connections.

use std::hint::black_box;

use etherparse::{IpHeaders, IpNumber, PacketBuilder, TcpOptionElement};
use gradwire::codec::VALUE_LEN;
use gradwire::engine::{Egress, Ingress, Millis, NO_CAPABILITIES};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire::rules::{DEFAULT_MARK, Framing, Rule, Rules};
use gradwire::verdict::{Counters, Verdict};

use super::distributions::RECORDED_VALUES;
use super::payloads::PAYLOAD_LEN;
use super::slots::{PAYLOAD_AT, SLOTS, Slots};
use crate::input::ipv4;

/// Bytes of a frame without FCS: the most that an MTU of 1500 lets through.
pub const FRAME_LEN: usize = PAYLOAD_AT + PAYLOAD_LEN;
/// Frames that one pass handles.
pub const PASS_FRAMES: usize = SLOTS;

/// 512 flows.
const SETS: usize = 64;
const MTU: u16 = 1500;
/// Runs of consecutive segments in the ring.
const RUNS: u32 = 4;

/// Which way frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Host to wire.
    Egress,
    /// Wire to host.
    Ingress,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Egress, Self::Ingress];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Egress => "egress",
            Self::Ingress => "ingress",
        }
    }
}

/// The work on each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The whole path of a tagged frame in routed framing.
    Routed,
    /// The whole path of a tagged frame in in-place framing.
    InPlace,
    /// The payloads of the same frames through the kernel, and nothing else.
    KernelAlone,
    /// The whole path of a frame that no rule matches.
    Untagged,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Routed, Self::InPlace, Self::KernelAlone, Self::Untagged];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Routed => "routed",
            Self::InPlace => "in-place",
            Self::KernelAlone => "kernel",
            Self::Untagged => "untagged",
        }
    }
}

/// A ring of frames and what they go through.
pub struct Frames {
    through: Through,
    /// The frames that come in, and their length.
    frames: Slots,
    lens: [usize; SLOTS],
    out: Slots,
}

enum Through {
    Egress(Box<Egress<SETS>>),
    Ingress(Box<Ingress>),
    Encoder(Kernel, Profile),
    Decoder(Kernel, Profile),
}

impl Frames {
    /// The ring for `kind` in `direction`, under a rule with `profile`.
    #[must_use]
    pub fn new(direction: Direction, kind: Kind, profile: Profile, kernel: Kernel) -> Self {
        let framing = if kind == Kind::InPlace { Framing::InPlace } else { Framing::Routed };
        let rules = Rules::new(&[Rule { framing, profile, ..Rule::STATIC }], DEFAULT_MARK).expect("one rule");
        let tos = if kind == Kind::Untagged { 0 } else { Rule::DEFAULT.tos };

        let mut frames = Slots::new();
        let values = RECORDED_VALUES.values(SLOTS * PAYLOAD_LEN / VALUE_LEN);
        for (index, (slot, payload)) in (0..).zip(frames.iter_mut().zip(values.chunks_exact(PAYLOAD_LEN))) {
            let per_run = SLOTS as u32 / RUNS;
            let seq = (index / per_run) * (u32::MAX / RUNS + 1) + (index % per_run) * PAYLOAD_LEN as u32;
            slot[..FRAME_LEN].copy_from_slice(&frame(tos, seq, false, payload));
        }
        let (lens, mut out) = ([FRAME_LEN; SLOTS], Slots::new());

        let mut egress = Box::new(Egress::new(rules.clone(), kernel, 1500, 0));
        let syn = frame(tos, u32::MAX, true, &[]);
        let _ = egress.process(&syn, &mut [0; FRAME_LEN], Millis(0), &NO_CAPABILITIES);
        let ingress = Through::Ingress(Box::new(Ingress::new(rules, kernel, MTU)));

        match (direction, kind) {
            (Direction::Egress, Kind::KernelAlone) => {
                Self { through: Through::Encoder(kernel, profile), frames, lens, out }
            }
            (Direction::Egress, _) => Self { through: Through::Egress(egress), frames, lens, out },
            (Direction::Ingress, Kind::Untagged) => Self { through: ingress, frames, lens, out },
            (Direction::Ingress, Kind::KernelAlone) => {
                let encode = |frame: &[u8], out: &mut [u8]| {
                    let values = &frame[PAYLOAD_AT..];
                    let len = kernel.encode(values, &mut out[PAYLOAD_AT..], profile);
                    PAYLOAD_AT + len.expect("there is room")
                };
                let lens = send(&frames, &mut out, encode);
                Self { through: Through::Decoder(kernel, profile), frames: out, lens, out: frames }
            }
            (Direction::Ingress, Kind::Routed | Kind::InPlace) => {
                let lens = send(&frames, &mut out, |frame, out| {
                    match egress.process(frame, out, Millis(0), &NO_CAPABILITIES) {
                        Verdict::Changed { len, .. } => len,
                        other => unreachable!("a recorded gradient gets shorter: {other:?}"),
                    }
                });
                Self { through: ingress, frames: out, lens, out: frames }
            }
        }
    }

    /// Sends every frame through.
    pub fn pass(&mut self) {
        // `black_box`: no length, and no result, may be known to the compiler.
        let frames = self.frames.iter().zip(self.lens);
        let frames = frames.map(|(frame, len)| black_box(&frame[..len])).zip(self.out.iter_mut());
        match &mut self.through {
            // The clock may stand still.
            Through::Egress(engine) => frames.for_each(|(frame, out)| {
                let _ = black_box(engine.process(frame, black_box(out), Millis(0), &NO_CAPABILITIES));
            }),
            Through::Ingress(engine) => frames.for_each(|(frame, out)| {
                let _ = black_box(engine.process(frame, black_box(out), &NO_CAPABILITIES));
            }),
            Through::Encoder(kernel, profile) => frames.for_each(|(frame, out)| {
                let (values, groups) = (&frame[PAYLOAD_AT..], &mut out[PAYLOAD_AT..]);
                let _ = black_box(kernel.encode(values, black_box(groups), *profile));
            }),
            Through::Decoder(kernel, profile) => frames.for_each(|(frame, out)| {
                let (groups, values) = (&frame[PAYLOAD_AT..], &mut out[PAYLOAD_AT..FRAME_LEN]);
                let _ = black_box(kernel.decode(groups, black_box(values), *profile));
            }),
        }
        black_box(self);
    }

    /// The counters of the engine; nothing of a kernel alone.
    #[must_use]
    pub fn counters(&self) -> Option<&Counters> {
        match &self.through {
            Through::Egress(engine) => Some(engine.counters()),
            Through::Ingress(engine) => Some(engine.counters()),
            Through::Encoder(..) | Through::Decoder(..) => None,
        }
    }
}

/// Does `work` to every frame; the lengths of what came out.
fn send(frames: &Slots, out: &mut Slots, mut work: impl FnMut(&[u8], &mut [u8]) -> usize) -> [usize; SLOTS] {
    let mut lens = [0; SLOTS];
    for ((frame, out), len) in frames.iter().zip(out.iter_mut()).zip(&mut lens) {
        *len = work(&frame[..FRAME_LEN], out);
    }
    lens
}

/// A TCP segment with timestamps, or the SYN before it.
fn frame(tos: u8, seq: u32, syn: bool, payload: &[u8]) -> Vec<u8> {
    let mut ip = ipv4(tos, IpNumber::TCP, [10, 40, 0, 1], [10, 40, 0, 2]);
    ip.dont_fragment = true;
    let segment = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ip(IpHeaders::Ipv4(ip, Default::default()))
        .tcp(40_000, 5400, seq, 512);
    let segment = if syn { segment.syn() } else { segment.ack(1) };
    let options = [TcpOptionElement::Noop, TcpOptionElement::Noop, TcpOptionElement::Timestamp(1, 2)];
    let segment = segment.options(&options).expect("12 of 40 bytes");
    let mut frame = Vec::new();
    segment.write(&mut frame, payload).expect("a Vec takes any bytes");
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::profiles;
    use gradwire::verdict::{Change, PassReason};

    /// A time is of use only if every frame of every pass takes the path that it is the time of.
    #[test]
    fn every_frame_takes_its_path_however_often_the_ring_goes_round() {
        const PASSES: u64 = 50;
        let paths = || {
            Direction::ALL.into_iter().flat_map(|direction| profiles().map(|profile| (direction, profile)))
        };
        for kind in [Kind::Routed, Kind::InPlace, Kind::Untagged] {
            for (direction, profile) in paths() {
                let mut frames = Frames::new(direction, kind, profile, Kernel::detect());
                let count = |frames: &Frames| {
                    let counters = frames.counters().unwrap();
                    match (direction, kind) {
                        (Direction::Egress, Kind::Untagged) => counters.passed(PassReason::NoRule),
                        (Direction::Ingress, Kind::Untagged) => counters.passed(PassReason::NotCompressed),
                        (Direction::Egress, _) => counters.changed(Change::Compressed),
                        (Direction::Ingress, _) => counters.changed(Change::Restored),
                    }
                };
                let before = count(&frames);
                (0..PASSES).for_each(|_| frames.pass());
                assert_eq!(count(&frames) - before, PASSES * SLOTS as u64, "{direction:?} {kind:?}");
            }
        }
    }

    #[test]
    fn a_frame_is_as_long_as_the_mtu_allows() {
        assert_eq!(FRAME_LEN, usize::from(MTU) + 14);
        assert_eq!(frame(0, 0, false, &[0; PAYLOAD_LEN]).len(), FRAME_LEN);
    }
}
