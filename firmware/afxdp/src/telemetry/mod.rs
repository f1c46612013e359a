//! What a running shim tells about itself. A queue thread fills a [`QueueReport`] when the [`Board`] asks for it;
//! of all reports together [`Telemetry::snapshot`] makes a [`Snapshot`], which goes through the control socket.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gradwire::engine::Ingress;
use gradwire::flow::trust::TrustState;
use gradwire::flow::{FlowTable, Phase};
use gradwire::forward::{Forwarder, Losses, Port};
use gradwire::rules::{Framing, Grid, MAX_RULES, Rule, Rules};
use gradwire::verdict::{Change, Counters, DropReason, PassReason, Traffic};
use gradwire::wire::frame::FlowKey;
use serde::{Deserialize, Serialize};

/// The most flows that one queue tells about: those with the most bytes.
pub const FLOWS_LISTED: usize = 32;
/// How long a snapshot waits for queue threads. They look at the board at least at every sign of life that they give
/// the XDP program, which is far more often.
pub const PATIENCE: Duration = Duration::from_millis(250);

/// One for each port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerPort<T> {
    /// Towards the host.
    pub host: T,
    /// Towards the wire.
    pub network: T,
}

impl<T> PerPort<T> {
    /// What `of` gives for each port.
    pub fn new(mut of: impl FnMut(Port) -> T) -> Self {
        Self { host: of(Port::Host), network: of(Port::Network) }
    }

    /// That of `port`.
    pub const fn get(&self, port: Port) -> &T {
        match port {
            Port::Host => &self.host,
            Port::Network => &self.network,
        }
    }
}

/// Statistics of an AF_XDP socket, as the kernel counts them (`XDP_STATISTICS`, linux/if_xdp.h).
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
}

impl RingStats {
    /// Each count with its name in reports and metrics.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("rx-dropped", self.rx_dropped),
            ("rx-ring-full", self.rx_ring_full),
            ("fill-ring-empty", self.fill_ring_empty),
            ("tx-ring-empty", self.tx_ring_empty),
            ("rx-invalid", self.rx_invalid),
            ("tx-invalid", self.tx_invalid),
        ]
    }
}

/// Frames that the XDP program left in the kernel's path though their type of service asks for an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptStats {
    /// The queue's thread had given no sign of life for too long.
    pub stale: u64,
    /// The start of the connection was not seen, or another queue has it.
    pub unknown: u64,
    /// Not from one of the two ports to the other.
    pub elsewhere: u64,
}

impl KeptStats {
    /// Each count with its name in reports and metrics.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 3] {
        [("stale", self.stale), ("unknown", self.unknown), ("elsewhere", self.elsewhere)]
    }
}

/// A TCP flow.
#[derive(Clone, Copy, Debug)]
struct FlowReport {
    key: FlowKey,
    phase: Phase,
    trust: TrustState,
    traffic: Traffic,
}

impl FlowReport {
    const NONE: Self = Self {
        key: FlowKey([0; 5]),
        phase: Phase::Vacant,
        trust: TrustState::Trusted,
        traffic: Traffic::NONE,
    };
}

/// What one queue tells. Its size is fixed: filling it allocates nothing.
#[derive(Clone, Debug)]
pub struct QueueReport {
    egress: Counters,
    ingress: Counters,
    losses: PerPort<Losses>,
    rings: PerPort<RingStats>,
    kept: PerPort<KeptStats>,
    traffic: [Traffic; MAX_RULES],
    /// The first `listed` hold flows, those with most bytes first.
    flows: [FlowReport; FLOWS_LISTED],
    listed: usize,
    /// Flows that have a place in the table, listed or not.
    known: usize,
}

impl QueueReport {
    const fn new() -> Self {
        let none = Losses { no_queue: 0, no_buffer: 0 };
        let rings = RingStats {
            rx_dropped: 0,
            rx_ring_full: 0,
            fill_ring_empty: 0,
            tx_ring_empty: 0,
            rx_invalid: 0,
            tx_invalid: 0,
        };
        let kept = KeptStats { stale: 0, unknown: 0, elsewhere: 0 };
        Self {
            egress: Counters::new(),
            ingress: Counters::new(),
            losses: PerPort { host: none, network: none },
            rings: PerPort { host: rings, network: rings },
            kept: PerPort { host: kept, network: kept },
            traffic: [Traffic::NONE; MAX_RULES],
            flows: [FlowReport::NONE; FLOWS_LISTED],
            listed: 0,
            known: 0,
        }
    }

    /// Takes down all that the engines of a queue count, the statistics of its sockets, and what the XDP program
    /// kept from it.
    pub fn fill<const SETS: usize>(
        &mut self,
        engines: &Forwarder<SETS>,
        rings: PerPort<RingStats>,
        kept: PerPort<KeptStats>,
    ) {
        let ingress: &Ingress = engines.ingress();
        self.egress.clone_from(engines.egress().counters());
        self.ingress.clone_from(ingress.counters());
        self.losses = PerPort::new(|port| engines.losses(port));
        self.rings = rings;
        self.kept = kept;
        for (rule, traffic) in self.traffic.iter_mut().enumerate() {
            *traffic = engines.egress().traffic(rule);
        }
        self.list(engines.egress().flows());
    }

    /// Lists the tagged flows with the most bytes.
    fn list<const SETS: usize>(&mut self, table: &FlowTable<SETS>) {
        (self.listed, self.known) = (0, 0);
        for (key, flow) in table.iter() {
            self.known += 1;
            let traffic = *flow.traffic();
            let place =
                self.flows[..self.listed].partition_point(|other| other.traffic.bytes >= traffic.bytes);
            if traffic.frames == 0 || place == FLOWS_LISTED {
                continue;
            }
            self.listed = (self.listed + 1).min(FLOWS_LISTED);
            let behind = &mut self.flows[place..self.listed];
            behind.rotate_right(1);
            behind[0] = FlowReport { key: *key, phase: flow.phase(), trust: flow.trust(), traffic };
        }
    }
}

/// Where readers ask for reports and queue threads leave them. A queue thread never waits for a reader.
#[derive(Debug)]
pub struct Board {
    queues: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    asked: AtomicBool,
    /// How many reports were left, and the last of them.
    report: Mutex<(u64, QueueReport)>,
    left: Condvar,
}

impl Board {
    /// A board for so many queues.
    #[must_use]
    pub fn new(queues: usize) -> Self {
        let slot = || Slot {
            asked: AtomicBool::new(false),
            report: Mutex::new((0, QueueReport::new())),
            left: Condvar::new(),
        };
        Self { queues: (0..queues).map(|_| slot()).collect() }
    }

    /// The queue thread's part, at every turn of its loop: where somebody asked for the report of `queue`, and
    /// nobody reads it right now, `fill` is called. Otherwise it costs one load.
    pub fn answer(&self, queue: usize, fill: impl FnOnce(&mut QueueReport)) {
        let Some(slot) = self.queues.get(queue) else { return };
        if !slot.asked.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut report) = slot.report.try_lock() else { return };
        slot.asked.store(false, Ordering::Relaxed);
        fill(&mut report.1);
        report.0 = report.0.wrapping_add(1);
        slot.left.notify_all();
    }

    /// A new report of every queue; of one that does not answer within `patience` the last one, and `false`.
    #[must_use]
    pub fn collect(&self, patience: Duration) -> Vec<(bool, QueueReport)> {
        let end = Instant::now() + patience;
        let asked: Vec<u64> = self.queues.iter().map(Slot::ask).collect();
        let wait = |(slot, before): (&Slot, u64)| {
            let report = slot.report.lock().unwrap_or_else(PoisonError::into_inner);
            let left = end.saturating_duration_since(Instant::now());
            let (report, _) = slot
                .left
                .wait_timeout_while(report, left, |(count, _)| *count == before)
                .unwrap_or_else(PoisonError::into_inner);
            (report.0 != before, report.1.clone())
        };
        self.queues.iter().zip(asked).map(wait).collect()
    }

    /// Whether every queue thread answers within `patience`: what a watchdog wants to know.
    #[must_use]
    pub fn all_answer(&self, patience: Duration) -> bool {
        self.collect(patience).iter().all(|(answered, _)| *answered)
    }
}

impl Slot {
    /// How many reports were left before.
    fn ask(&self) -> u64 {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        self.asked.store(true, Ordering::Relaxed);
        report.0
    }
}

/// How an XDP program was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attached {
    /// In the driver.
    Native,
    /// In the kernel's generic path.
    Generic,
}

/// How frames come from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The kernel copies them.
    Copy,
    /// The device writes to the shim's memory.
    ZeroCopy,
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
    /// Where its XDP program runs.
    pub xdp: Attached,
    /// How its sockets are bound.
    pub bind: Bound,
}

/// All that a shim tells, and what of it stays the same while it runs.
#[derive(Debug)]
pub struct Telemetry {
    started: Instant,
    ports: PerPort<PortStatus>,
    kernel: &'static str,
    config: Option<PathBuf>,
    rules: Mutex<Rules>,
    reloads: AtomicU64,
    /// Where queue threads leave their reports.
    pub board: Board,
}

impl Telemetry {
    /// For a shim that starts now, with so many queues; `kernel` is the codec kernel's name.
    #[must_use]
    pub fn new(
        ports: PerPort<PortStatus>,
        queues: usize,
        kernel: &'static str,
        config: Option<PathBuf>,
        rules: Rules,
    ) -> Self {
        let (rules, reloads) = (Mutex::new(rules), AtomicU64::new(0));
        Self { started: Instant::now(), ports, kernel, config, rules, reloads, board: Board::new(queues) }
    }

    /// Other rules are in force.
    pub fn reloaded(&self, rules: Rules) {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules;
        self.reloads.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks every queue; at most [`PATIENCE`].
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let reports = self.board.collect(PATIENCE);
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let rule = |(place, rule): (usize, &Rule)| {
            let of_queues = reports.iter().map(|(_, report)| report.traffic[place]);
            RuleStatus::new(rule, of_queues.fold(Traffic::NONE, sum))
        };
        Snapshot {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: process::id(),
            uptime_ms: self.started.elapsed().as_millis() as u64,
            kernel: self.kernel.to_owned(),
            config: self.config.clone(),
            reloads: self.reloads.load(Ordering::Relaxed),
            ports: self.ports.clone(),
            mark: rules.mark(),
            rules: rules.as_slice().iter().enumerate().map(rule).collect(),
            queues: (0..)
                .zip(&reports)
                .map(|(queue, (answered, report))| QueueStatus::new(queue, *answered, report))
                .collect(),
        }
    }
}

const fn sum(a: Traffic, b: Traffic) -> Traffic {
    Traffic {
        frames: a.frames.wrapping_add(b.frames),
        bytes: a.bytes.wrapping_add(b.bytes),
        compressed: a.compressed.wrapping_add(b.compressed),
        saved: a.saved.wrapping_add(b.saved),
    }
}

/// What a shim tells at one moment. All counts are since its start and wrap at 2^64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// How long it has run.
    pub uptime_ms: u64,
    /// The codec kernel in use.
    pub kernel: String,
    /// Its configuration file; none where it runs on defaults.
    pub config: Option<PathBuf>,
    /// How often that was read again and taken over.
    pub reloads: u64,
    /// Its ports.
    pub ports: PerPort<PortStatus>,
    /// The type of service of compressed frames.
    pub mark: u8,
    /// The rules in force, in the order of their precedence.
    pub rules: Vec<RuleStatus>,
    /// Its queues.
    pub queues: Vec<QueueStatus>,
}

/// A rule and its traffic over all queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleStatus {
    /// The type of service that it looks for.
    pub tos: u8,
    /// Which bits of it count.
    pub mask: u8,
    /// The bound exponent.
    pub bound: u8,
    /// The scale exponent.
    pub scale: i8,
    /// `routed` or `in-place`.
    pub framing: String,
    /// `connection` or `payload`.
    pub grid: String,
    /// Raw bytes at the start of UDP payloads.
    pub udp_offset: u8,
    /// Frames that matched it on their way to the wire.
    #[serde(with = "TrafficFields")]
    pub traffic: Traffic,
}

impl RuleStatus {
    fn new(rule: &Rule, traffic: Traffic) -> Self {
        let framing = match rule.framing {
            Framing::Routed => "routed",
            Framing::InPlace => "in-place",
        };
        let grid = match rule.grid {
            Grid::Connection => "connection",
            Grid::Payload => "payload",
        };
        Self {
            tos: rule.tos,
            mask: rule.mask,
            bound: rule.params.b(),
            scale: rule.params.x(),
            framing: framing.to_owned(),
            grid: grid.to_owned(),
            udp_offset: rule.udp_offset,
            traffic,
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
    /// What the XDP program kept from the engines.
    pub kept: PerPort<KeptStats>,
    /// Flows that have a place in the table.
    pub flows_known: u64,
    /// The tagged ones with the most bytes, at most [`FLOWS_LISTED`].
    pub flows: Vec<FlowStatus>,
}

impl QueueStatus {
    fn new(queue: u32, answered: bool, report: &QueueReport) -> Self {
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
            kept: report.kept,
            flows_known: report.known as u64,
            flows: report.flows[..report.listed].iter().map(FlowStatus::new).collect(),
        }
    }
}

/// What an engine did with frames: counts by the stable names of `gradwire::verdict`, and all of them.
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
    /// How far the connection is.
    pub phase: String,
    /// Whether its peer restores what it is sent.
    pub trust: String,
    /// Tagged segments; bytes are those of payloads.
    #[serde(with = "TrafficFields")]
    pub traffic: Traffic,
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
            trust: trust.to_owned(),
            traffic: report.traffic,
        }
    }
}

/// The fields of [`Traffic`] for serde, which the dataplane does not know.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Traffic")]
struct TrafficFields {
    frames: u64,
    bytes: u64,
    compressed: u64,
    saved: u64,
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::thread;

    use gradwire::engine::Millis;
    use gradwire::flow::Syn;
    use gradwire::kernels::Kernel;
    use gradwire::rules::DEFAULT_MARK;

    use super::*;

    fn port(name: &str, index: u32) -> PortStatus {
        PortStatus { name: name.to_owned(), index, mtu: 1500, xdp: Attached::Native, bind: Bound::Copy }
    }

    fn telemetry(queues: usize) -> Telemetry {
        let ports = PerPort { host: port("veth0", 3), network: port("eth0", 2) };
        let rules = Rules::new(&[Rule::DEFAULT], DEFAULT_MARK).unwrap();
        Telemetry::new(ports, queues, "portable", Some("/etc/xdp.toml".into()), rules)
    }

    /// A snapshot of two queues with counts that differ: queue 0 answered, queue 1 did not.
    pub(crate) fn example() -> Snapshot {
        let mut snapshot = telemetry(2).snapshot();
        snapshot.uptime_ms = 90_061_000;
        snapshot.rules[0].traffic = Traffic { frames: 120, bytes: 171_000, compressed: 100, saved: 90_000 };
        snapshot.queues[0].answered = true;
        for (queue, status) in (1..).zip(&mut snapshot.queues) {
            status.egress.changed.insert("compressed".to_owned(), 50 * queue);
            status.egress.untouched.insert("resent".to_owned(), queue);
            status.ingress.dropped.insert("l4-checksum".to_owned(), 7);
            status.egress.changed_bytes_in = 75_000 * queue;
            status.egress.changed_bytes_out = 30_000 * queue;
            status.rings.network.rx_ring_full = 4;
            status.losses.host.no_queue = 2;
            status.kept.host.stale = 5;
            status.flows_known = 9;
            status.flows.push(FlowStatus {
                flow: format!("10.0.0.1:4000{queue} > 10.0.0.2:5400"),
                phase: "open".to_owned(),
                trust: "trusted".to_owned(),
                traffic: Traffic { frames: 60, bytes: 80_000, compressed: 50, saved: 45_000 * queue },
            });
        }
        snapshot
    }

    #[test]
    fn a_snapshot_survives_json() {
        let snapshot = example();
        let json = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot);
    }

    #[test]
    fn every_reason_is_told_even_if_it_never_happened() {
        let queue = &telemetry(1).snapshot().queues[0];
        for outcomes in [&queue.egress, &queue.ingress] {
            assert_eq!(outcomes.changed.len(), Change::ALL.len());
            assert_eq!(outcomes.untouched.len(), PassReason::ALL.len());
            assert_eq!(outcomes.dropped.len(), DropReason::ALL.len());
        }
    }

    #[test]
    fn a_queue_that_answers_is_told_from_one_that_hangs() {
        let telemetry = Arc::new(telemetry(2));
        let stop = Arc::new(AtomicBool::new(false));
        let queue = thread::spawn({
            let (telemetry, stop) = (Arc::clone(&telemetry), Arc::clone(&stop));
            move || {
                let mut turns = 0;
                while !stop.load(Ordering::Relaxed) {
                    telemetry.board.answer(0, |report| {
                        turns += 1;
                        report.known = turns;
                    });
                    thread::yield_now();
                }
            }
        });
        for turn in 1..=2 {
            let snapshot = telemetry.snapshot();
            let answered: Vec<_> = snapshot.queues.iter().map(|queue| queue.answered).collect();
            assert_eq!(answered, [true, false]);
            assert_eq!(snapshot.queues[0].flows_known, turn);
        }
        assert!(!telemetry.board.all_answer(Duration::ZERO));
        stop.store(true, Ordering::Relaxed);
        queue.join().unwrap();
    }

    #[test]
    fn nobody_asked_means_nothing_is_written() {
        Board::new(1).answer(0, |_| panic!("nobody asked"));
        Board::new(1).answer(1, |_| panic!("there is no such queue"));
    }

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
            table.find(&key(flow)).unwrap().send(1, flow as u32, Millis(0)).unwrap();
        }
        let mut report = QueueReport::new();
        for _ in 0..2 {
            report.list(&table);
            assert_eq!(report.known, table.iter().count());
            let mut expected: Vec<u64> = table.iter().map(|(_, flow)| flow.traffic().bytes).collect();
            expected.sort_unstable_by(|a, b| b.cmp(a));
            let listed: Vec<u64> = report.flows.iter().map(|flow| flow.traffic.bytes).collect();
            assert_eq!(listed, expected[..FLOWS_LISTED]);
            assert_eq!(report.listed, FLOWS_LISTED);
        }
    }

    #[test]
    fn a_queue_tells_what_its_engines_count() {
        let rules = Rules::new(&[Rule::DEFAULT], DEFAULT_MARK).unwrap();
        let engines = Forwarder::<1>::new(rules, Kernel::detect(), 1500, 1);
        let rings = PerPort::new(|port| RingStats {
            rx_dropped: if port == Port::Host { 1 } else { 2 },
            ..RingStats::default()
        });
        let kept = PerPort::new(|_| KeptStats { stale: 3, ..KeptStats::default() });
        let telemetry = telemetry(1);
        telemetry.board.queues[0].ask();
        telemetry.board.answer(0, |report| report.fill(&engines, rings, kept));
        let queue = &telemetry.snapshot().queues[0];
        assert_eq!((queue.rings.host.rx_dropped, queue.rings.network.rx_dropped), (1, 2));
        assert_eq!(queue.kept.network.stale, 3);
        assert!(queue.flows.is_empty());
    }

    #[test]
    fn other_rules_show_after_a_reload() {
        let telemetry = telemetry(1);
        telemetry.reloaded(Rules::new(&[], 0x48).unwrap());
        let snapshot = telemetry.snapshot();
        assert_eq!((snapshot.reloads, snapshot.mark, snapshot.rules.len()), (1, 0x48, 0));
    }
}
