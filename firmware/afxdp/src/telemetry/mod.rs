//! Telemetry of a running shim. A queue thread fills a [`QueueReport`] when the [`Board`] asks for
//! it; of all reports together [`Telemetry::snapshot`] makes a [`Snapshot`]. It goes through the
//! [`control`] socket, and out as [`metrics`]; [`watch`] compares it with the one before, and logs
//! changes.

use std::ops::Add as _;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use gradwire::rules::{Rule, Rules};
use gradwire::verdict::TaggedTraffic;

use crate::system::interface::sent_bytes;

mod aggregator;
mod board;
pub mod control;
pub mod logging;
pub mod metrics;
mod per_port;
mod report;
mod sampled;
mod server;
mod snapshot;
mod verdict;
pub mod watch;

pub use aggregator::{AggregatorReport, AggregatorSnapshot, AggregatorTelemetry, JobStatus};
pub use board::{Board, PATIENCE};
pub use per_port::PerPort;
pub use report::{Checked, FLOWS_LISTED, KeptStats, QueueReport, RingStats};
pub use sampled::{Sampled, percent_lost};
pub use snapshot::{Bound, FlowStatus, LossStats, Outcomes, PortStatus, QueueStatus, RuleStatus, Snapshot};
pub use verdict::Usefulness;

/// All that a shim tells, and what of it stays the same while it runs.
#[derive(Debug)]
pub struct Telemetry {
    started: Instant,
    ports: PerPort<PortStatus>,
    kernel: &'static str,
    config: Option<PathBuf>,
    rules: Mutex<Rules>,
    reloads: AtomicU64,
    /// The board with the queue threads' reports.
    pub board: Board<QueueReport>,
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
            let sampled = reports.iter().map(|(_, report)| report.sampled[place]);
            RuleStatus::new(
                rule,
                of_queues.fold(TaggedTraffic::NONE, sum),
                sampled.fold(Sampled::NONE, Sampled::add),
            )
        };
        Snapshot {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: process::id(),
            uptime_ms: self.started.elapsed().as_millis() as u64,
            kernel: self.kernel.to_owned(),
            config: self.config.clone(),
            reloads: self.reloads.load(Ordering::Relaxed),
            ports: self.ports.clone(),
            sent_bytes: PerPort::new(|port| sent_bytes(&self.ports.get(port).name).ok()),
            mark: rules.mark(),
            rules: rules.as_slice().iter().enumerate().map(rule).collect(),
            queues: (0..)
                .zip(&reports)
                .map(|(queue, (answered, report))| QueueStatus::new(queue, *answered, report))
                .collect(),
        }
    }
}

const fn sum(a: TaggedTraffic, b: TaggedTraffic) -> TaggedTraffic {
    TaggedTraffic {
        frames: a.frames.wrapping_add(b.frames),
        bytes: a.bytes.wrapping_add(b.bytes),
        compressed: a.compressed.wrapping_add(b.compressed),
        saved: a.saved.wrapping_add(b.saved),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, LazyLock};
    use std::thread;
    use std::time::Duration;

    use gradwire::codec::bit_plane;
    use gradwire::forward::{Forwarder, Port};
    use gradwire::kernels::Kernel;
    use gradwire::rules::{DEFAULT_MARK, MAX_RULES};
    use gradwire::verdict::{Change, DropReason, PassReason};

    use super::*;
    use crate::system::interface::Attached;

    fn port(name: &str, index: u32) -> PortStatus {
        PortStatus {
            name: name.to_owned(),
            index,
            mtu: 1500,
            queues: 2,
            xdp: Attached::Native,
            refused: None,
            bind: Bound::Copy,
        }
    }

    fn telemetry(queues: usize) -> Telemetry {
        let ports = PerPort { host: port("veth0", 3), network: port("eth0", 2) };
        let rule = Rule { profile: bit_plane::Bound::new(-10).unwrap().into(), ..Rule::DEFAULT };
        let rules = Rules::new(&[rule], DEFAULT_MARK).unwrap();
        Telemetry::new(ports, queues, "portable", Some("/etc/xdp.toml".into()), rules)
    }

    /// A snapshot of two queues with counts that differ: queue 0 answered, queue 1 did not.
    pub(crate) fn example() -> Snapshot {
        // Made once: it waits for queues that do not answer.
        static EXAMPLE: LazyLock<Snapshot> = LazyLock::new(make_example);
        EXAMPLE.clone()
    }

    fn make_example() -> Snapshot {
        let mut snapshot = telemetry(2).snapshot();
        snapshot.uptime_ms = 90_061_000;
        snapshot.rules[0].traffic =
            TaggedTraffic { frames: 120, bytes: 171_000, compressed: 100, saved: 90_000 };
        snapshot.rules[0].sampled =
            Sampled { frames: 2, values: 200, zeroed: 50, non_finite: 1, squares: 4.0, squares_kept: 3.24 };
        snapshot.queues[0].answered = true;
        snapshot.queues[1].stalled.network = Some(3);
        for (queue, status) in (1..).zip(&mut snapshot.queues) {
            status.egress.changed.insert("compressed".to_owned(), 50 * queue);
            status.egress.untouched.insert("resent".to_owned(), queue);
            status.ingress.dropped.insert("l4-checksum".to_owned(), 7);
            status.egress.changed_bytes_in = 75_000 * queue;
            status.egress.changed_bytes_out = 30_000 * queue;
            status.rings.network.rx_ring_full = 4;
            status.losses.host.no_queue = 2;
            status.kept.host.stale = 5;
            status.flows_known.insert("negotiated".to_owned(), 9);
            status.flows.push(FlowStatus {
                flow: format!("10.0.0.1:4000{queue} > 10.0.0.2:5400"),
                phase: "open".to_owned(),
                handshake: "negotiated".to_owned(),
                trust: "trusted".to_owned(),
                traffic: TaggedTraffic { frames: 60, bytes: 80_000, compressed: 50, saved: 45_000 * queue },
            });
        }
        snapshot
    }

    /// An aggregator that has summed for a job of four.
    pub(crate) fn aggregator_example() -> AggregatorSnapshot {
        let address = "10.0.0.9:59255".parse().unwrap();
        let telemetry = AggregatorTelemetry::new(port("eth0", 2), address, "portable");
        let mut aggregator = telemetry.snapshot();
        (aggregator.answered, aggregator.sent, aggregator.lost) = (true, 36, 2);
        (aggregator.kept.stale, aggregator.rings.rx_ring_full) = (3, 5);
        aggregator.jobs = vec![JobStatus { job: 7, children: 4 }];
        aggregator.frames.insert("arp".to_owned(), 4);
        aggregator.datagrams.insert("completed".to_owned(), 9);
        aggregator
    }

    #[test]
    fn an_aggregators_snapshot_survives_json() {
        let aggregator = aggregator_example();
        let json = serde_json::to_string(&aggregator).unwrap();
        assert_eq!(serde_json::from_str::<AggregatorSnapshot>(&json).unwrap(), aggregator);
        assert_eq!(aggregator.frames.len(), gradwire::aggregate::Arrival::ALL.len());
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
                        report.known = [turns, 0, 0];
                    });
                    thread::yield_now();
                }
            }
        });
        let (mut asked, mut seen, end) = (0, 0, Instant::now() + Duration::from_secs(120));
        for _ in 0..2 {
            // A thread that waits for its processor longer than a snapshot for it seems to hang.
            let answer = loop {
                let snapshot = telemetry.snapshot();
                asked += 1;
                assert!(!snapshot.queues[1].answered);
                if snapshot.queues[0].answered {
                    break snapshot.queues[0].flows_known["none"];
                }
                assert!(Instant::now() < end, "no answer");
            };
            // A new report, and never two of them for one question.
            assert!((seen + 1..=asked).contains(&answer), "{answer}");
            seen = answer;
        }
        assert!(!telemetry.board.all_answer(Duration::ZERO));
        stop.store(true, Ordering::Relaxed);
        queue.join().unwrap();
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
        let mut sampled = [Sampled::NONE; MAX_RULES];
        sampled[0].values = 4;
        let telemetry = telemetry(1);
        // Asked, and not waited for.
        let _ = telemetry.board.collect(Duration::ZERO);
        telemetry.board.answer(0, |report| report.fill(&engines, &sampled, rings, kept));
        let snapshot = telemetry.snapshot();
        assert_eq!(snapshot.rules[0].sampled.values, 4);
        let queue = &snapshot.queues[0];
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
