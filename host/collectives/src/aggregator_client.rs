//! A rank's side of an aggregator in the network: a UDP socket, and the dataplane's [`Worker`]
//! behind it.
//!
//! An aggregator that does not answer, or refuses, is left alone for one exchange, then for two,
//! and so on, up to [`LONGEST_PAUSE`]. That counts exchanges and no time, so that all ranks do the
//! same.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use gradwire::Millis;
use gradwire::aggregate::{Event, Failure, Poll, Worker, WorkerSettings};
use gradwire::kernels::Kernel;
use gradwire::wire::chunk::{Limits, MAX_CHILDREN, PORT, Refusal, TOS};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::agreement::{End, Vote};
use crate::coding::Wire;
use crate::graph::Rank;
use crate::socket::{DATAGRAM_ROOM, set_tos};

/// The most ranks of an aggregator.
pub(crate) const MAX_RANKS: usize = MAX_CHILDREN;
/// Exchanges without the aggregator, at most, before it is tried again.
const LONGEST_PAUSE: u32 = 64;
/// Chunks under way.
const WINDOW: usize = 16;
/// Once the aggregator has taken us, no refusal of its own names an epoch farther ahead than this.
const NEAR: u32 = 1 << 16;
/// The time between two looks whether others gave up on the aggregator.
const LOOK: Duration = Duration::from_millis(5);

/// The name by which an aggregator tells jobs apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobName {
    pub(crate) number: u16,
    pub(crate) key: u64,
}

#[derive(Debug)]
pub(crate) struct AggregatorClient {
    address: SocketAddr,
    wire: Wire,
    job: JobName,
    rank: Rank,
    ranks: usize,
    socket: UdpSocket,
    /// The group to which the aggregator sends results, and the socket that gets them.
    group: Option<(Ipv4Addr, UdpSocket)>,
    began: Instant,
    epochs: Epochs,
    /// None between epochs.
    worker: Option<Box<Worker<WINDOW>>>,
    /// Exchanges to do without the aggregator now, and after its next failure.
    skip: u32,
    pause: u32,
    /// Values that go to the aggregator, and sums that come from it, as the wire has it.
    input: Vec<u8>,
    output: Vec<u8>,
    /// Packets sent, and their bytes behind UDP's header.
    pub(crate) sent_packets: u64,
    pub(crate) sent_bytes: u64,
}

impl AggregatorClient {
    pub(crate) fn new(
        address: SocketAddr,
        wire: Wire,
        rank: Rank,
        ranks: usize,
        job: JobName,
    ) -> io::Result<Self> {
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        socket.set_nonblocking(true)?;
        set_tos(&socket, address, TOS)?;
        Ok(Self {
            address,
            wire,
            job,
            rank,
            ranks,
            socket,
            group: None,
            began: Instant::now(),
            epochs: Epochs::new(),
            worker: None,
            skip: 0,
            pause: 1,
            input: Vec::new(),
            output: Vec::new(),
            sent_packets: 0,
            sent_bytes: 0,
        })
    }

    pub(crate) fn serves(&self, address: SocketAddr, wire: Wire) -> bool {
        (self.address, self.wire) == (address, wire)
    }

    /// Do ranks have to agree on an epoch before they try the aggregator?
    pub(crate) fn needs_epoch(&self) -> bool {
        self.worker.is_none() && self.skip == 0
    }

    /// The epoch that this rank would begin.
    pub(crate) fn proposal(&self) -> u32 {
        self.epochs.proposal()
    }

    /// Begins the epoch that follows from all ranks' proposals.
    pub(crate) fn begin(&mut self, proposals: impl IntoIterator<Item = u32>) {
        let epoch = latest(proposals);
        self.epochs.began(epoch);
        let (child, children) = (self.rank as u8, self.ranks as u8);
        let limits = Limits { window: WINDOW as u8, ..Limits::MOST };
        let settings = WorkerSettings {
            job: self.job.number,
            epoch,
            child,
            children,
            total: children,
            limits,
            key: self.job.key,
        };
        self.worker = Some(Box::new(Worker::new(settings, Kernel::detect())));
    }

    /// Tries to sum `values` with the aggregator, until that is done, the aggregator fails, or the
    /// others have `halted`. Says what came of it.
    pub(crate) fn attempt(&mut self, values: &[f32], mut halted: impl FnMut() -> bool) -> Vote {
        let Some(mut worker) = self.worker.take() else {
            return Vote { end: End::Skipped, epoch: 0, blocks: 0, base: 0, later: 0 };
        };
        self.input.clear();
        self.input.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self.output.clear();
        self.output.resize(self.input.len(), 0);
        let mut too_large = Vec::new();
        let mut started = false;
        let end = self.sum(&mut worker, values.len(), &mut started, &mut too_large, &mut halted);
        let limits = worker.limits();
        let chunks = limits.map_or(0, |limits| values.len().div_ceil(limits.values()));
        let has = |chunk: usize| chunk < chunks && worker.holds(chunk) && !too_large.contains(&chunk);
        // Without a start, the worker holds what the exchange before left.
        let has = |chunk: usize| started && has(chunk);
        let base = (0..chunks).take_while(|&chunk| has(chunk)).count();
        let later = (0..64).filter(|bit| has(base + bit)).fold(0, |later, bit| later | 1 << bit);
        let blocks = limits.map_or(0, |limits| limits.blocks);
        self.worker = Some(worker);
        Vote { end, epoch: 0, blocks, base: base as u32, later }
    }

    /// The results of a range of the values that were summed.
    pub(crate) fn results(&self, values: std::ops::Range<usize>, to: &mut [f32]) {
        let from = self.output[4 * values.start..4 * values.end].as_chunks().0;
        to.iter_mut().zip(from).for_each(|(to, from)| *to = f32::from_le_bytes(*from));
    }

    /// All have voted: is the aggregator to be tried next time?
    pub(crate) fn ended(&mut self, votes: &[Vote]) {
        if votes.iter().all(|vote| matches!(vote.end, End::Complete | End::TooLarge)) {
            self.pause = 1;
        } else if votes.iter().all(|vote| vote.end == End::Skipped) {
            self.skip -= 1;
        } else {
            self.worker = None;
            self.skip = self.pause;
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        }
    }

    fn now(&self) -> Millis {
        Millis(self.began.elapsed().as_millis() as u64)
    }

    fn sum(
        &mut self,
        worker: &mut Worker<WINDOW>,
        values: usize,
        started: &mut bool,
        too_large: &mut Vec<usize>,
        halted: &mut dyn FnMut() -> bool,
    ) -> End {
        let mut packet = [0; DATAGRAM_ROOM];
        loop {
            if halted() {
                return End::Stopped;
            }
            let until = loop {
                match worker.poll(&self.input, self.now(), &mut packet) {
                    Poll::Send(len) => self.send(&packet[..len]),
                    Poll::Wait(until) => break until,
                    Poll::Done if *started => {
                        return if too_large.is_empty() { End::Complete } else { End::TooLarge };
                    }
                    Poll::Done => *started = worker.start(values, self.wire.summable()),
                    Poll::Failed(Failure::Silent) => return End::Silent,
                    Poll::Failed(Failure::Refused { reason, epoch }) => {
                        if reason == Refusal::OldEpoch {
                            self.epochs.refused(epoch);
                        }
                        return End::Refused;
                    }
                    Poll::Failed(Failure::Dropped) => return End::Refused,
                }
            };
            let mut any = false;
            // What has arrived by now, and no more: what it lets leave is not to wait.
            for _ in 0..2 * WINDOW {
                let Some(len) = self.receive(&mut packet) else { break };
                any = true;
                let now = self.now();
                match worker.handle(&packet[..len], &mut self.output, now) {
                    Event::Rescale { chunk, .. } => too_large.push(chunk),
                    Event::Joined { group } => {
                        self.epochs.joined();
                        self.join(group.map(Ipv4Addr::from));
                    }
                    _ => {}
                }
            }
            if !any {
                let wait = Duration::from_millis(until.0.saturating_sub(self.now().0).max(1)).min(LOOK);
                wait_for(self.sockets(), PollFlags::IN, wait);
            }
        }
    }

    /// Joins the job's group, and leaves another one. If the system refuses, each result comes only
    /// when it is asked for.
    fn join(&mut self, group: Option<Ipv4Addr>) {
        if self.group.as_ref().map(|(group, _)| *group) != group {
            self.group = group.and_then(|group| Some((group, self.socket_of(group).ok()?)));
        }
    }

    /// A socket that gets what the aggregator sends to a group, and nothing from elsewhere.
    fn socket_of(&self, group: Ipv4Addr) -> io::Result<UdpSocket> {
        let IpAddr::V4(local) = self.socket.local_addr()?.ip() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        // Ranks on one host share the port.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &SocketAddrV4::new(group, PORT))?;
        let socket = UdpSocket::from(socket);
        socket.connect(self.address)?;
        socket.join_multicast_v4(&group, &local)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// The sockets that packets come from.
    fn sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        std::iter::once(&self.socket).chain(self.group.iter().map(|(_, socket)| socket))
    }

    /// A packet that has arrived. An error is an ICMP message that nobody listens at the
    /// aggregator, which is no answer either.
    fn receive(&self, packet: &mut [u8]) -> Option<usize> {
        self.sockets().find_map(|socket| socket.recv(packet).ok())
    }

    /// Sends a packet. If the system does not take it, it is lost like any other.
    fn send(&mut self, packet: &[u8]) {
        (self.sent_packets, self.sent_bytes) = (self.sent_packets + 1, self.sent_bytes + packet.len() as u64);
        if matches!(self.socket.send(packet), Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            wait_for(std::iter::once(&self.socket), PollFlags::OUT, LOOK);
            _ = self.socket.send(packet);
        }
    }
}

/// Epochs of the job at the aggregator, as far as a worker knows them.
///
/// Nobody proves a refusal. What it says may cost an exchange, but must not keep the job from the
/// aggregator from then on: a number that is half the circle ahead would make all later proposals
/// *earlier* than the aggregator's epoch.
#[derive(Debug)]
struct Epochs {
    /// The aggregator's, as far as is known: one in which it took us, or a later one near it;
    /// before that, what it last refused with, or a number by chance.
    known: u32,
    is_known: bool,
    /// The latest one that workers began.
    begun: u32,
    /// The number that they have begun since `known` changed.
    tries: u32,
}

impl Epochs {
    /// The first one is drawn by chance: who cannot read the path would have to guess it to
    /// contribute in a worker's name.
    fn new() -> Self {
        let known = RandomState::new().build_hasher().finish() as u32;
        Self { known, is_known: false, begun: known, tries: 0 }
    }

    fn proposal(&self) -> u32 {
        self.known.wrapping_add(1).wrapping_add(self.tries)
    }

    fn began(&mut self, epoch: u32) {
        (self.begun, self.tries) = (epoch, self.tries.wrapping_add(1));
    }

    /// The aggregator has taken us in the epoch that began last.
    fn joined(&mut self) {
        (self.known, self.is_known, self.tries) = (self.begun, true, 0);
    }

    /// The aggregator's epoch is said to be a later one than ours.
    fn refused(&mut self, epoch: u32) {
        if !self.is_known || (1..NEAR).contains(&epoch.wrapping_sub(self.begun)) {
            (self.known, self.tries) = (epoch, 0);
        }
    }
}

/// The latest of some epochs (RFC 1982), seen from the first one: all ranks have the same ones in
/// the same order.
fn latest(epochs: impl IntoIterator<Item = u32>) -> u32 {
    let mut epochs = epochs.into_iter();
    let first = epochs.next().unwrap_or_default();
    epochs.fold(first, |latest, epoch| {
        let ahead = |epoch: u32| epoch.wrapping_sub(first).cast_signed();
        if ahead(epoch) > ahead(latest) { epoch } else { latest }
    })
}

/// Waits until a socket is ready, at most so long.
fn wait_for<'a>(sockets: impl Iterator<Item = &'a UdpSocket>, flags: PollFlags, time: Duration) {
    let time = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
    let mut sockets = sockets.map(|socket| PollFd::new(socket, flags)).collect::<Vec<_>>();
    _ = poll(&mut sockets, Some(&time));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The aggregator's rule (docs/aggregation-protocol.md section 4): whether it takes an epoch.
    fn takes(aggregator: &mut Option<u32>, epoch: u32) -> bool {
        let is_new = aggregator
            .is_none_or(|aggregator| epoch != aggregator && epoch.wrapping_sub(aggregator) < 1 << 31);
        if is_new {
            *aggregator = Some(epoch);
        }
        is_new || *aggregator == Some(epoch)
    }

    /// Workers begin an epoch; which of them the aggregator takes, unless it refuses all.
    fn begin(workers: &mut [Epochs], aggregator: &mut Option<u32>) -> bool {
        let epoch = latest(workers.iter().map(Epochs::proposal));
        workers.iter_mut().for_each(|worker| worker.began(epoch));
        let is_taken = takes(aggregator, epoch);
        for worker in workers {
            match *aggregator {
                Some(aggregator) if !is_taken => worker.refused(aggregator),
                _ => worker.joined(),
            }
        }
        is_taken
    }

    fn three() -> [Epochs; 3] {
        [(); 3].map(|()| Epochs::new())
    }

    /// Whatever one of them is told once, and whatever the aggregator knows the job by.
    #[test]
    fn a_refusal_does_not_keep_a_job_from_its_aggregator() {
        const FAR: [u32; 11] = [
            0,
            1,
            5,
            NEAR - 1,
            NEAR,
            1 << 20,
            (1 << 31) - 2,
            (1 << 31) - 1,
            1 << 31,
            (1 << 31) + 1,
            u32::MAX,
        ];
        for far in FAR {
            // The aggregator knows an earlier run of the job.
            let mut workers = three();
            let mut aggregator = Some(workers[0].known.wrapping_add(far));
            let tries = (0..3).take_while(|_| !begin(&mut workers, &mut aggregator)).count();
            assert!(tries <= 1, "{far}");
            for who in 0..3 {
                // The next exchange fails because of one packet, and the one after it does not.
                let epoch = workers[who].begun;
                workers[who].refused(epoch.wrapping_add(far));
                assert!(begin(&mut workers, &mut aggregator), "{far}");
                assert!(workers.iter().all(|worker| Some(worker.known) == aggregator));
            }
            // One is told so before the aggregator has ever taken it. The others know better, or
            // the aggregator says so.
            let (mut workers, mut aggregator) = (three(), None);
            let epoch = latest(workers.iter().map(Epochs::proposal));
            workers.iter_mut().for_each(|worker| worker.began(epoch));
            assert!(takes(&mut aggregator, epoch));
            workers[1].joined();
            workers[2].joined();
            workers[0].refused(epoch.wrapping_add(far));
            let tries = (0..4).take_while(|_| !begin(&mut workers, &mut aggregator)).count();
            assert!(tries <= 1, "{far}");
        }
    }
}
