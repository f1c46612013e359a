//! The data that goes through the control socket.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gradwire::flow::trust::TrustState;
use gradwire::flow::{Negotiation, Phase};
use gradwire::forward::Losses;
use gradwire::profile::Profile;
use gradwire::rules::Rule;
use gradwire::verdict::{Change, Counters, DropReason, PassReason, TaggedTraffic};
use serde::{Deserialize, Serialize};

use crate::system::interface::Attached;

use super::per_port::PerPort;
use super::report::{FlowReport, KeptStats, QueueReport, RingStats};
use super::sampled::Sampled;

/// The way of frames from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The kernel copies them.
    Copy,
    /// The device writes to the shim's memory.
    ZeroCopy,
}

impl Bound {
    /// By whether all of a port's sockets are bound without a copy.
    #[must_use]
    pub const fn of(zero_copy: bool) -> Self {
        if zero_copy { Self::ZeroCopy } else { Self::Copy }
    }
}

/// One of the ports of a shim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// Name of the interface.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its MTU at start.
    pub mtu: u32,
    /// Its receive queues at start, each of which has a socket.
    pub queues: u32,
    /// The place where its XDP program runs.
    pub xdp: Attached,
    /// Why it does not run in the driver, if it was to; none if nothing was refused.
    pub refused: Option<String>,
    /// The binding of its sockets.
    pub bind: Bound,
}

/// The state of a shim at one moment. All counts are since its start and wrap at 2^64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The time that it has run.
    pub uptime_ms: u64,
    /// The codec kernel in use.
    pub kernel: String,
    /// Its configuration file; none if it runs on defaults.
    pub config: Option<PathBuf>,
    /// The number of times that it was read again and taken over.
    pub reloads: u64,
    /// Its ports.
    pub ports: PerPort<PortStatus>,
    /// Bytes that each port has sent, whoever sent them; none if it does not tell.
    pub sent_bytes: PerPort<Option<u64>>,
    /// The type of service of compressed frames.
    pub mark: u8,
    /// The rules in force, in the order of their precedence.
    pub rules: Vec<RuleStatus>,
    /// Its queues.
    pub queues: Vec<QueueStatus>,
}

/// A rule and its traffic over all queues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleStatus {
    /// The type of service that it looks for.
    pub tos: u8,
    /// Which bits of it count.
    pub mask: u8,
    /// The codec's number.
    pub codec: u8,
    /// The bound exponent: errors stay within 2^(scale - bound).
    pub bound: i16,
    /// The scale exponent; codec 2 has none, and its bound says all.
    pub scale: i8,
    /// `routed` or `in-place`.
    pub framing: String,
    /// `connection` or `payload`.
    pub alignment: String,
    /// `required` or `off`.
    pub handshake: String,
    /// Raw bytes at the start of UDP payloads.
    pub udp_offset: u8,
    /// Frames that matched it on their way to the wire.
    #[serde(with = "TrafficFields")]
    pub traffic: TaggedTraffic,
    /// The loss in some of those that were compressed.
    pub sampled: Sampled,
}

impl RuleStatus {
    pub(super) fn new(rule: &Rule, traffic: TaggedTraffic, sampled: Sampled) -> Self {
        let (bound, scale) = match rule.profile {
            Profile::SizeClass(params) => (params.b().into(), params.x()),
            Profile::BitPlane(bound) => (-i16::from(bound.y()), 0),
        };
        Self {
            tos: rule.tos,
            mask: rule.mask,
            codec: rule.profile.codec(),
            bound,
            scale,
            framing: rule.framing.name().to_owned(),
            alignment: rule.alignment.name().to_owned(),
            handshake: rule.handshake.name().to_owned(),
            udp_offset: rule.udp_offset,
            traffic,
            sampled,
        }
    }
}

/// One queue of both ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Its number.
    pub queue: u32,
    /// Whether its thread answered; if not, the rest is what it told last.
    pub answered: bool,
    /// Host to wire.
    pub egress: Outcomes,
    /// Wire to host.
    pub ingress: Outcomes,
    /// Frames lost outside the engines, by the port that received them.
    pub losses: PerPort<LossStats>,
    /// Statistics of the sockets.
    pub rings: PerPort<RingStats>,
    /// Frames that wait at a port that nothing leaves: the bridge gets those that would go there.
    /// None if frames leave it.
    #[serde(default)]
    pub stalled: PerPort<Option<u64>>,
    /// Frames that the XDP program kept from the engines.
    pub kept: PerPort<KeptStats>,
    /// Flows that have a place in the table, by what was said on their SYNs: `none`, `asked` or
    /// `agreed`.
    pub flows_known: BTreeMap<String, u64>,
    /// The tagged ones with the most bytes, at most [`super::FLOWS_LISTED`].
    pub flows: Vec<FlowStatus>,
}

impl QueueStatus {
    pub(super) fn new(queue: u32, answered: bool, report: &QueueReport) -> Self {
        Self {
            queue,
            answered,
            egress: Outcomes::new(&report.egress),
            ingress: Outcomes::new(&report.ingress),
            losses: PerPort::new(|port| {
                let Losses { no_queue, no_buffer } = *report.losses.get(port);
                LossStats { no_queue, no_buffer }
            }),
            rings: report.rings,
            stalled: report.stalled,
            kept: report.kept,
            flows_known: Negotiation::ALL
                .into_iter()
                .zip(report.known)
                .map(|(negotiation, flows)| (negotiation.name().to_owned(), flows))
                .collect(),
            flows: report.flows[..report.listed].iter().map(FlowStatus::new).collect(),
        }
    }

    /// The outcomes of the host's frames: what the engine did with them, and what it would have
    /// done with payload of connections that the XDP program kept from it for the engine's own
    /// reasons.
    #[must_use]
    pub fn from_host(&self) -> Outcomes {
        let mut outcomes = self.egress.clone();
        for (reason, count) in self.kept.host.for_the_engine() {
            let sum = outcomes.untouched.entry(reason.to_owned()).or_default();
            *sum = sum.wrapping_add(count);
        }
        outcomes
    }
}

/// Outcomes of frames in an engine: counts by the stable names of `gradwire::verdict`, and all of
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// By [`Change`].
    pub changed: BTreeMap<String, u64>,
    /// By [`PassReason`].
    pub untouched: BTreeMap<String, u64>,
    /// By [`DropReason`].
    pub dropped: BTreeMap<String, u64>,
    /// Bytes of the changed frames as they came.
    pub changed_bytes_in: u64,
    /// And as they left.
    pub changed_bytes_out: u64,
}

impl Outcomes {
    fn new(counters: &Counters) -> Self {
        let (changed_bytes_in, changed_bytes_out) = counters.changed_bytes();
        Self {
            changed: Change::ALL.iter().map(|of| (of.to_string(), counters.changed(*of))).collect(),
            untouched: PassReason::ALL.iter().map(|of| (of.to_string(), counters.passed(*of))).collect(),
            dropped: DropReason::ALL.iter().map(|of| (of.to_string(), counters.dropped(*of))).collect(),
            changed_bytes_in,
            changed_bytes_out,
        }
    }

    /// Adds those of another queue.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.changed, &other.changed),
            (&mut self.untouched, &other.untouched),
            (&mut self.dropped, &other.dropped),
        ];
        for (mine, others) in pairs {
            for (name, count) in others {
                let sum = mine.entry(name.clone()).or_default();
                *sum = sum.wrapping_add(*count);
            }
        }
        self.changed_bytes_in = self.changed_bytes_in.wrapping_add(other.changed_bytes_in);
        self.changed_bytes_out = self.changed_bytes_out.wrapping_add(other.changed_bytes_out);
    }
}

/// [`Losses`], by their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossStats {
    /// Dropped: the other port's queue was full, or its link gone.
    pub no_queue: u64,
    /// No buffer was free to write their replacement to.
    pub no_buffer: u64,
}

impl LossStats {
    /// Each count with its name in reports and metrics.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 2] {
        [("no-queue", self.no_queue), ("no-buffer", self.no_buffer)]
    }
}

/// One direction of a TCP connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowStatus {
    /// Both ends, source first, and VLANs.
    pub flow: String,
    /// The state of the connection.
    pub phase: String,
    /// The state of its handshake: `none`, `asked` or `agreed`.
    pub handshake: String,
    /// Whether its peer restores what it is sent.
    pub trust: String,
    /// Tagged segments; bytes are those of payloads.
    #[serde(with = "TrafficFields")]
    pub traffic: TaggedTraffic,
}

impl FlowStatus {
    fn new(report: &FlowReport) -> Self {
        let phase = match report.phase {
            Phase::Vacant => "vacant",
            Phase::Opening => "opening",
            Phase::Open => "open",
            Phase::Doubtful => "doubtful",
            Phase::Closed => "closed",
        };
        let trust = match report.trust {
            TrustState::Trusted => "trusted",
            TrustState::Bypassed => "bypassed",
            TrustState::Probing => "probing",
        };
        Self {
            flow: report.key.to_string(),
            phase: phase.to_owned(),
            handshake: report.handshake.name().to_owned(),
            trust: trust.to_owned(),
            traffic: report.traffic,
        }
    }
}

/// The fields of [`TaggedTraffic`] for serde, which the dataplane does not know.
#[derive(Serialize, Deserialize)]
#[serde(remote = "TaggedTraffic")]
struct TrafficFields {
    frames: u64,
    bytes: u64,
    compressed: u64,
    saved: u64,
}
