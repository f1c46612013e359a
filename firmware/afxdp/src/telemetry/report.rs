//! The report of a queue thread.

use gradwire::flow::trust::TrustState;
use gradwire::flow::{FlowTable, Negotiation, Phase};
use gradwire::forward::{Forwarder, Losses};
use gradwire::rules::MAX_RULES;
use gradwire::verdict::{Counters, PassReason, TaggedTraffic};
use gradwire::wire::flow_key::FlowKey;
use serde::{Deserialize, Serialize};

use super::per_port::PerPort;
use super::sampled::Sampled;

/// The most flows that one queue tells about: those with the most bytes.
pub const FLOWS_LISTED: usize = 32;

/// Statistics of an AF_XDP socket: the kernel's (`XDP_STATISTICS`, linux/if_xdp.h), and one of the
/// thread's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingStats {
    /// Received, and dropped for other reasons than a full ring.
    pub rx_dropped: u64,
    /// Received, and dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// The driver looked for a buffer to receive into, and found none.
    pub fill_ring_empty: u64,
    /// The driver looked for a frame to send, and found none: no fault.
    pub tx_ring_empty: u64,
    /// Descriptors of the fill ring that the kernel refused.
    pub rx_invalid: u64,
    /// Descriptors of the transmit ring that the kernel refused.
    pub tx_invalid: u64,
    /// The number of times that frames were taken to leave there, and none left for a second or
    /// more: the bridge then got those that came later.
    #[serde(default)]
    pub stalls: u64,
}

impl RingStats {
    /// Each count with its name in reports and metrics.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("rx-dropped", self.rx_dropped),
            ("rx-ring-full", self.rx_ring_full),
            ("fill-ring-empty", self.fill_ring_empty),
            ("tx-ring-empty", self.tx_ring_empty),
            ("rx-invalid", self.rx_invalid),
            ("tx-invalid", self.tx_invalid),
            ("stalls", self.stalls),
        ]
    }
}

/// Frames that the XDP program left in the kernel's path though their type of service asks for an
/// engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptStats {
    /// The queue's thread had given no sign of life for too long.
    pub stale: u64,
    /// The start of the connection was not seen, or another queue has it.
    pub unknown: u64,
    /// Not from one of the two ports to the other.
    pub elsewhere: u64,
    /// Longer than the MTU that the ports had at start allows: the MTU was raised, or an offload
    /// merged segments.
    pub too_long: u64,
    /// With payload, of connections whose far end did not advertise that it restores, as the rule
    /// asks.
    pub not_negotiated: u64,
    /// The same, if the host's own SYN was not tagged either.
    pub tagged_late: u64,
}

impl KeptStats {
    /// Each count with its name in reports and metrics.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 6] {
        let [not_negotiated, tagged_late] = self.for_the_engine();
        [
            ("stale", self.stale),
            ("unknown", self.unknown),
            ("elsewhere", self.elsewhere),
            ("too-long", self.too_long),
            not_negotiated,
            tagged_late,
        ]
    }

    /// Those that an engine would have left untouched, by its names.
    #[must_use]
    pub const fn for_the_engine(&self) -> [(&'static str, u64); 2] {
        [
            (PassReason::NotNegotiated.name(), self.not_negotiated),
            (PassReason::TaggedLate.name(), self.tagged_late),
        ]
    }
}

/// A TCP flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowReport {
    pub(super) key: FlowKey,
    pub(super) phase: Phase,
    pub(super) handshake: Negotiation,
    pub(super) trust: TrustState,
    pub(super) traffic: TaggedTraffic,
}

impl FlowReport {
    const NONE: Self = Self {
        key: FlowKey([0; 5]),
        phase: Phase::Vacant,
        handshake: Negotiation::None,
        trust: TrustState::Trusted,
        traffic: TaggedTraffic::NONE,
    };
}

/// The report of one queue. Its size is fixed: filling it allocates nothing.
#[derive(Clone, Debug)]
pub struct QueueReport {
    pub(super) egress: Counters,
    pub(super) ingress: Counters,
    pub(super) losses: PerPort<Losses>,
    pub(super) rings: PerPort<RingStats>,
    pub(super) kept: PerPort<KeptStats>,
    pub(super) traffic: [TaggedTraffic; MAX_RULES],
    pub(super) sampled: [Sampled; MAX_RULES],
    /// The first `listed` hold flows, those with most bytes first.
    pub(super) flows: [FlowReport; FLOWS_LISTED],
    pub(super) listed: usize,
    /// Flows that have a place in the table, listed or not, by what was said on their SYNs.
    pub(super) known: [u64; Negotiation::ALL.len()],
    /// Frames that wait at a port that nothing leaves; none if frames leave it.
    pub stalled: PerPort<Option<u64>>,
    /// Its answer about rules that were proposed; none if it saw no proposal.
    pub checked: Option<Checked>,
}

/// The answer of one thread about rules that were proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The proposal's number.
    pub number: u64,
    /// Connections that these rules would break.
    pub broken: usize,
}

impl Default for QueueReport {
    fn default() -> Self {
        let none = Losses { no_queue: 0, no_buffer: 0 };
        Self {
            egress: Counters::new(),
            ingress: Counters::new(),
            losses: PerPort { host: none, network: none },
            rings: PerPort::new(|_| RingStats::default()),
            kept: PerPort::new(|_| KeptStats::default()),
            traffic: [TaggedTraffic::NONE; MAX_RULES],
            sampled: [Sampled::NONE; MAX_RULES],
            flows: [FlowReport::NONE; FLOWS_LISTED],
            listed: 0,
            known: [0; Negotiation::ALL.len()],
            stalled: PerPort { host: None, network: None },
            checked: None,
        }
    }
}

impl QueueReport {
    /// Takes down all that the engines of a queue count, what some of its compressed frames lost,
    /// the statistics of its sockets, and what the XDP program kept from it.
    pub fn fill<const SETS: usize>(
        &mut self,
        engines: &Forwarder<SETS>,
        sampled: &[Sampled; MAX_RULES],
        rings: PerPort<RingStats>,
        kept: PerPort<KeptStats>,
    ) {
        self.egress.clone_from(engines.egress().counters());
        self.ingress.clone_from(engines.ingress().counters());
        self.losses = PerPort::new(|port| engines.losses(port));
        self.sampled = *sampled;
        self.rings = rings;
        self.kept = kept;
        for (rule, traffic) in self.traffic.iter_mut().enumerate() {
            *traffic = engines.egress().traffic(rule);
        }
        self.list(engines.egress().flows());
    }

    /// Lists the tagged flows with the most bytes; with none, those that asked and have no answer,
    /// whose payload may go another way.
    fn list<const SETS: usize>(&mut self, table: &FlowTable<SETS>) {
        (self.listed, self.known) = (0, [0; Negotiation::ALL.len()]);
        for (key, flow) in table.iter() {
            self.known[flow.handshake() as usize] += 1;
            let traffic = *flow.traffic();
            let place =
                self.flows[..self.listed].partition_point(|other| other.traffic.bytes >= traffic.bytes);
            let is_waiting = flow.handshake() == Negotiation::Advertised;
            if (traffic.frames == 0 && !is_waiting) || place == FLOWS_LISTED {
                continue;
            }
            self.listed = (self.listed + 1).min(FLOWS_LISTED);
            let behind = &mut self.flows[place..self.listed];
            behind.rotate_right(1);
            behind[0] = FlowReport {
                key: *key,
                phase: flow.phase(),
                handshake: flow.handshake(),
                trust: flow.trust(),
                traffic,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use gradwire::engine::Millis;
    use gradwire::flow::Syn;

    use super::*;

    #[test]
    fn the_flows_with_most_bytes_are_listed() {
        let mut table = FlowTable::<64>::new(1);
        let syn = Syn { isn: 0, tagged: true, doubtful: false };
        let key = |flow: u64| FlowKey([flow, 0, 0, 0, 0]);
        for flow in 0..100 {
            table.syn(&key(flow), syn, Millis(0)).unwrap();
        }
        // Flows 30..=99 have sent; the order in which the table holds them is its own.
        for flow in 30..100 {
            table.find(&key(flow)).unwrap().admit(1, flow as u32, Millis(0)).unwrap();
        }
        let mut report = QueueReport::default();
        for _ in 0..2 {
            report.list(&table);
            assert_eq!(report.known, [table.iter().count() as u64, 0, 0]);
            let mut expected: Vec<u64> = table.iter().map(|(_, flow)| flow.traffic().bytes).collect();
            expected.sort_unstable_by(|a, b| b.cmp(a));
            let listed: Vec<u64> = report.flows.iter().map(|flow| flow.traffic.bytes).collect();
            assert_eq!(listed, expected[..FLOWS_LISTED]);
            assert_eq!(report.listed, FLOWS_LISTED);
        }
    }
}
