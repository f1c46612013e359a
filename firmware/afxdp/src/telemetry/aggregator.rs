//! Telemetry of a running aggregator.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::process;
use std::time::Instant;

use gradwire::aggregate::{Arrival, EthernetAggregator, Outcome};
use serde::{Deserialize, Serialize};

use super::board::{Board, PATIENCE};
use super::report::{KeptStats, RingStats};
use super::snapshot::PortStatus;

/// The most jobs that a report lists.
const LISTED: usize = 64;

/// A report of the aggregator's thread. Its size is fixed: filling it allocates nothing.
#[derive(Clone, Debug)]
pub struct AggregatorReport {
    frames: [u64; Arrival::ALL.len()],
    datagrams: [u64; Outcome::ALL.len()],
    /// The first `open` are jobs: number, and workers that have joined.
    jobs: [(u16, usize); LISTED],
    open: usize,
    /// Frames that the aggregator sent.
    pub sent: u64,
    /// Frames for which there was no room: their workers ask again.
    pub lost: u64,
    /// The statistics of its sockets.
    pub rings: RingStats,
    /// Frames for it that the XDP program left to the kernel.
    pub kept: KeptStats,
}

impl Default for AggregatorReport {
    fn default() -> Self {
        Self {
            frames: [0; Arrival::ALL.len()],
            datagrams: [0; Outcome::ALL.len()],
            jobs: [(0, 0); LISTED],
            open: 0,
            sent: 0,
            lost: 0,
            rings: RingStats::default(),
            kept: KeptStats::default(),
        }
    }
}

impl AggregatorReport {
    /// Takes down what an aggregator counts.
    pub fn fill<const JOBS: usize, const SLOTS: usize, const BLOCKS: usize>(
        &mut self,
        aggregator: &EthernetAggregator<JOBS, SLOTS, BLOCKS>,
    ) {
        const { assert!(JOBS <= LISTED) }
        self.frames.iter_mut().zip(Arrival::ALL).for_each(|(to, arrival)| *to = aggregator.count(*arrival));
        let aggregator = &aggregator.engine;
        self.datagrams
            .iter_mut()
            .zip(Outcome::ALL)
            .for_each(|(to, outcome)| *to = aggregator.count(*outcome));
        self.open = self.jobs.iter_mut().zip(aggregator.jobs()).map(|(to, job)| *to = job).count();
    }
}

/// A job of an aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatus {
    /// Its number.
    pub job: u16,
    /// Workers that have joined its epoch.
    pub children: usize,
}

/// The state of an aggregator at one moment. All counts are since its start and wrap at 2^64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AggregatorSnapshot {
    /// Version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The time that it has run, in milliseconds.
    pub uptime_ms: u64,
    /// The kernel that adds.
    pub kernel: String,
    /// Its interface.
    pub interface: PortStatus,
    /// The address for workers.
    pub address: SocketAddrV4,
    /// Whether its thread answered; if not, the counts are older.
    pub answered: bool,
    /// Jobs that have a place.
    pub jobs: Vec<JobStatus>,
    /// Frames that it got, by what they were ([`Arrival`]).
    pub frames: BTreeMap<String, u64>,
    /// Datagrams among them, by what they did ([`Outcome`]). Those that completed a chunk are the
    /// chunks summed.
    pub datagrams: BTreeMap<String, u64>,
    /// Frames that it sent.
    pub sent: u64,
    /// Frames for which there was no room: their workers ask again.
    pub lost: u64,
    /// The statistics of its sockets.
    pub rings: RingStats,
    /// Frames for it that the XDP program left to the kernel.
    pub kept: KeptStats,
}

impl AggregatorSnapshot {
    /// Chunks of which all workers have the sum, or were sent it.
    #[must_use]
    pub fn chunks_summed(&self) -> u64 {
        self.datagrams.get(Outcome::Completed.name()).copied().unwrap_or(0)
    }
}

/// All that an aggregator tells, and what of it stays the same while it runs.
#[derive(Debug)]
pub struct AggregatorTelemetry {
    started: Instant,
    kernel: &'static str,
    interface: PortStatus,
    address: SocketAddrV4,
    /// The board with its thread's report.
    pub board: Board<AggregatorReport>,
}

impl AggregatorTelemetry {
    /// For an aggregator that starts now; `kernel` is the name of what adds.
    #[must_use]
    pub fn new(interface: PortStatus, address: SocketAddrV4, kernel: &'static str) -> Self {
        Self { started: Instant::now(), kernel, interface, address, board: Board::new(1) }
    }

    /// Asks its thread; at most [`PATIENCE`].
    #[must_use]
    pub fn snapshot(&self) -> AggregatorSnapshot {
        let (answered, report) = self.board.collect(PATIENCE).pop().unwrap_or_default();
        let named = |names: &mut dyn Iterator<Item = &'static str>, counts: &[u64]| {
            names.map(str::to_owned).zip(counts.iter().copied()).collect()
        };
        let jobs = report.jobs.iter().take(report.open);
        AggregatorSnapshot {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: process::id(),
            uptime_ms: self.started.elapsed().as_millis() as u64,
            kernel: self.kernel.to_owned(),
            interface: self.interface.clone(),
            address: self.address,
            answered,
            jobs: jobs.map(|(job, children)| JobStatus { job: *job, children: *children }).collect(),
            frames: named(&mut Arrival::ALL.iter().map(|arrival| arrival.name()), &report.frames),
            datagrams: named(&mut Outcome::ALL.iter().map(|outcome| outcome.name()), &report.datagrams),
            sent: report.sent,
            lost: report.lost,
            rings: report.rings,
            kept: report.kept,
        }
    }
}
