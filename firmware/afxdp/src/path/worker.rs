//! A thread: its queues of both ports, both engines between them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use gradwire::engine::{CapabilityTable, Coded, Millis};
use gradwire::flow::capabilities::Slot;
use gradwire::forward::{Forwarder, Port};
use gradwire::kernels::Kernel;
use gradwire::rules::Rules;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

use crate::path::device::Queues;
use crate::path::program::Kept;
use crate::path::sampler::Sampler;
use crate::telemetry::{Board, Checked, PerPort, QueueReport};

/// Frames that are taken from a port before it is the other's turn: what the kernel's drivers take,
/// too.
pub(super) const BATCH: usize = 64;
/// The time that a thread without frames sleeps, at most: whoever asks for its report waits for it.
pub(super) const IDLE: Duration = Duration::from_millis(25);
/// The time that frames that could not be sent wait for the next attempt.
pub(super) const RETRY: Duration = Duration::from_millis(1);
/// The time that a thread that is to stop waits for frames that are on their way to it, and from
/// it.
pub(super) const DRAIN: Duration = Duration::from_millis(50);
/// The time that it waits, at most, for a port to send.
const LAST_CALL: Duration = Duration::from_secs(1);

/// Places for what far ends said on their SYNs. A connection needs its own until it sends its first
/// payload; who loses it is not compressed.
const CAPABILITY_SLOTS: usize = 1 << 14;

/// The orders for all threads, and their shared state.
#[derive(Debug)]
pub struct ThreadOrders {
    stop: AtomicBool,
    /// The number of times that the rules changed.
    version: AtomicU64,
    /// Threads only read, so that none keeps another one out.
    rules: RwLock<Rules>,
    /// Others, which may follow, and how many were proposed before them: each report says how many
    /// connections they would break.
    proposal: RwLock<(u64, Option<Rules>)>,
    /// The number of the proposal that is neither taken nor withdrawn; 0 if there is none.
    pending: AtomicU64,
    /// A SYN-ACK may come up in another thread than its connection's.
    capabilities: Box<CapabilityTable<[Slot; CAPABILITY_SLOTS]>>,
}

impl ThreadOrders {
    /// To work, by these rules.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        let capabilities = Box::new(CapabilityTable::new(random()));
        let (rules, proposal) = (RwLock::new(rules), RwLock::new((0, None)));
        let (stop, version, pending) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        Self { stop, version, rules, proposal, pending, capabilities }
    }

    /// From now on reports say how many connections these rules would break; they name the proposal
    /// by the number that this returns.
    pub fn propose(&self, rules: Rules) -> u64 {
        let mut proposal = self.proposal.write().unwrap_or_else(PoisonError::into_inner);
        *proposal = (proposal.0 + 1, Some(rules));
        self.pending.store(proposal.0, Ordering::Release);
        proposal.0
    }

    /// Ends a proposal, which was taken ([`Self::set_rules`] comes first) or was not.
    pub fn withdraw(&self) {
        self.proposal.write().unwrap_or_else(PoisonError::into_inner).1 = None;
        self.pending.store(0, Ordering::Release);
    }

    /// Puts other rules in force.
    pub fn set_rules(&self, rules: Rules) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
        self.version.fetch_add(1, Ordering::Release);
    }

    /// To send what is under way, and end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The duties of a thread beside forwarding.
#[derive(Debug)]
pub struct Duties {
    /// The words for its signs of life, for each socket, by port.
    pub beats: [Vec<&'static AtomicU64>; 2],
    /// Within what time it has to give one.
    pub limit: Duration,
    /// Whether it polls without a pause.
    pub busy_poll: bool,
    /// The counts of frames that the XDP program kept from it, for its reports.
    pub kept: Kept,
}

/// The thread's work.
#[derive(Debug)]
pub struct Worker<const SETS: usize> {
    queues: Queues,
    forwarder: Box<Forwarder<SETS>>,
    sampler: Sampler,
    duties: Duties,
    rules_version: u64,
    /// The proposal for which it is quiet; 0 if for none.
    checked: u64,
}

impl<const SETS: usize> Worker<SETS> {
    /// Engines between the ports of `queues`, for IP packets of at most `mtu` bytes.
    #[must_use]
    pub fn new(queues: Queues, rules: Rules, mtu: u16, duties: Duties) -> Self {
        let kernel = Kernel::detect();
        let forwarder = Forwarder::new(rules, kernel, mtu, random());
        let sampler = Sampler::new(kernel, mtu);
        Self { queues, forwarder: Box::new(forwarder), sampler, duties, rules_version: 0, checked: 0 }
    }

    /// Forwards until it is told to stop; then sends what is under way.
    ///
    /// Whoever asks on the board for the report of this `number` gets it after the present turn.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(
        &mut self,
        orders: &ThreadOrders,
        board: &Board<QueueReport>,
        number: usize,
    ) -> io::Result<()> {
        let sockets = Port::ALL.iter().flat_map(|port| self.queues.sockets(*port));
        let fds = sockets
            .map(|(_, socket)| socket.as_fd().try_clone_to_owned())
            .collect::<io::Result<Vec<OwnedFd>>>()?;
        let mut polled = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect::<Vec<_>>();
        self.queues.service(monotonic_ns());
        while !orders.stop.load(Ordering::Relaxed) {
            let now = monotonic_ns();
            self.give_signs(now);
            self.follow(orders);
            let (frames, all_sent) = self.turn(now, orders);
            board.answer(number, |report| self.report(report, orders, Millis(now / 1_000_000)));
            if frames == 0 && !self.duties.busy_poll {
                wait(&mut polled, if all_sent { IDLE.min(self.duties.limit / 4) } else { RETRY })?;
            }
        }
        self.drain(&mut polled, orders)
    }

    /// Has frames taken, but for those of a port whose other port nothing leaves: they are better
    /// off with the bridge.
    fn give_signs(&self, now: u64) {
        for (from, beats) in Port::ALL.into_iter().zip(&self.duties.beats) {
            let beat = if self.queues.stalled(from.other()).is_some() { 0 } else { now };
            beats.iter().for_each(|to| to.store(beat, Ordering::Relaxed));
        }
    }

    /// Takes over rules that changed.
    fn follow(&mut self, orders: &ThreadOrders) {
        // First: who sees that a proposal is over then sees what came of it.
        let pending = orders.pending.load(Ordering::Acquire);
        let version = orders.version.load(Ordering::Acquire);
        // A lock that is held is one that changes the rules: they are taken in the next turn.
        if version != self.rules_version
            && let Ok(rules) = orders.rules.try_read()
        {
            self.forwarder.set_rules(rules.clone());
            self.sampler.clear();
            self.rules_version = version;
        }
        if self.checked != 0 && self.checked != pending && self.rules_version == version {
            self.forwarder.set_quiet_in_place(false);
            self.checked = 0;
        }
    }

    /// A batch from each port; how many frames it were, and whether all are sent.
    fn turn(&mut self, now_ns: u64, orders: &ThreadOrders) -> (usize, bool) {
        let now = Millis(now_ns / 1_000_000);
        let Self { queues, forwarder, sampler, .. } = self;
        let forward = |port| {
            let observe = |coded: Coded<'_>| sampler.observe(coded);
            forwarder.forward_observed(queues, port, BATCH, now, &*orders.capabilities, observe)
        };
        let frames = Port::ALL.map(forward).iter().sum();
        (frames, self.queues.service(now_ns))
    }

    fn report(&mut self, report: &mut QueueReport, orders: &ThreadOrders, now: Millis) {
        let rings = PerPort::new(|port| self.queues.statistics(port));
        // Who proposes asks for the report after that, and holds no lock then. A report that was
        // under way is none of this proposal.
        report.checked = orders.proposal.try_read().ok().and_then(|proposal| {
            let (number, rules) = (proposal.0, proposal.1.as_ref()?);
            Some(Checked { number, broken: self.forwarder.egress().would_break(rules, now) })
        });
        if let Some(Checked { number, .. }) = report.checked {
            // What is checked must still be true when the rules change.
            self.forwarder.set_quiet_in_place(true);
            self.checked = number;
        }
        let sampled = self.sampler.sampled();
        report.fill(&self.forwarder, sampled, rings, PerPort::new(|port| self.duties.kept.of(port)));
        report.stalled = PerPort::new(|port| self.queues.stalled(port));
    }

    /// From now on frames go to the bridge; those that came before are sent.
    fn drain(&mut self, polled: &mut [PollFd<'_>], orders: &ThreadOrders) -> io::Result<()> {
        self.duties.beats.iter().flatten().for_each(|beat| beat.store(0, Ordering::Relaxed));
        let start = monotonic_ns();
        loop {
            let now = monotonic_ns();
            let (frames, all_sent) = self.turn(now, orders);
            let elapsed = Duration::from_nanos(now - start);
            if elapsed >= LAST_CALL || (elapsed >= DRAIN && frames == 0 && all_sent) {
                return Ok(());
            }
            if frames == 0 {
                wait(polled, RETRY)?;
            }
        }
    }
}

/// The standard library's hash keys are random.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

pub(super) fn wait(polled: &mut [PollFd<'_>], time: Duration) -> io::Result<()> {
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    match poll(polled, Some(&timeout)) {
        Err(error) if error != rustix::io::Errno::INTR => Err(error.into()),
        _ => Ok(()),
    }
}

/// The clock that the XDP program reads, too.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
