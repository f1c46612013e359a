//! A node that sums in the network, as a member sees it: a UDP socket, and the dataplane's [`Member`] behind it.
//!
//! A node that does not answer, or refuses, is left alone for one exchange, then for two, and so on, up to [`LONGEST_PAUSE`]. That
//! counts exchanges and no time, so that all members do the same.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gradwire::Millis;
use gradwire::aggregate::{Event, Failure, Member, Membership, Poll};
use gradwire::kernels::Kernel;
use gradwire::wire::chunk::{Limits, MAX_MEMBERS, PORT, TOS};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::agreement::{End, Vote};
use crate::coding::Wire;
use crate::graph::Rank;
use crate::socket::{DATAGRAM_ROOM, set_tos};

/// The most members of a node.
pub(crate) const MOST_MEMBERS: usize = MAX_MEMBERS;
/// Exchanges without the node, at most, before it is tried again.
const LONGEST_PAUSE: u32 = 64;
/// Chunks under way.
const WINDOW: usize = 16;
/// How often a member looks whether others gave up on the node.
const LOOK: Duration = Duration::from_millis(5);

/// What a job's members tell a node apart by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobName {
    pub(crate) number: u16,
    pub(crate) key: u64,
}

#[derive(Debug)]
pub(crate) struct Node {
    address: SocketAddr,
    wire: Wire,
    job: JobName,
    rank: Rank,
    members: usize,
    socket: UdpSocket,
    /// The group to which the node sends results, and the socket that gets them.
    group: Option<(Ipv4Addr, UdpSocket)>,
    began: Instant,
    epoch: u32,
    /// None between epochs.
    member: Option<Box<Member<WINDOW>>>,
    /// Exchanges to do without the node now, and after its next failure.
    skip: u32,
    pause: u32,
    /// What goes to the node, and what comes from it, as the wire has it.
    input: Vec<u8>,
    output: Vec<u8>,
    /// Packets sent, and their bytes behind UDP's header.
    pub(crate) sent_packets: u64,
    pub(crate) sent_bytes: u64,
}

impl Node {
    pub(crate) fn new(
        address: SocketAddr,
        wire: Wire,
        rank: Rank,
        members: usize,
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
            members,
            socket,
            group: None,
            began: Instant::now(),
            epoch: 0,
            member: None,
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

    /// Do members have to agree on an epoch before they try the node?
    pub(crate) fn needs_epoch(&self) -> bool {
        self.member.is_none() && self.skip == 0
    }

    /// The epoch that this member would begin: later than its last one, and than those of an earlier run of the job.
    pub(crate) fn proposal(&self) -> u32 {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        (seconds as u32).max(self.epoch.wrapping_add(1))
    }

    /// Begins an epoch that all have agreed on.
    pub(crate) fn begin(&mut self, epoch: u32) {
        self.epoch = epoch;
        let (worker, members) = (self.rank as u8, self.members as u8);
        let limits = Limits { window: WINDOW as u8, ..Limits::MOST };
        let membership = Membership {
            job: self.job.number,
            epoch,
            worker,
            members,
            total: members,
            limits,
            key: self.job.key,
        };
        self.member = Some(Box::new(Member::new(membership, Kernel::detect())));
    }

    /// Tries to sum `values` with the node, until that is done, the node fails, or the others have `halted`. Says what came of it.
    pub(crate) fn attempt(&mut self, values: &[f32], mut halted: impl FnMut() -> bool) -> Vote {
        let Some(mut member) = self.member.take() else {
            return Vote { end: End::Skipped, epoch: 0, blocks: 0, base: 0, later: 0 };
        };
        self.input.clear();
        self.input.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self.output.clear();
        self.output.resize(self.input.len(), 0);
        let mut too_large = Vec::new();
        let mut started = false;
        let end = self.sum(&mut member, values.len(), &mut started, &mut too_large, &mut halted);
        let limits = member.limits();
        let chunks = limits.map_or(0, |limits| values.len().div_ceil(limits.values()));
        let has = |chunk: usize| chunk < chunks && member.holds(chunk) && !too_large.contains(&chunk);
        // Without a start, the member holds what the exchange before left.
        let has = |chunk: usize| started && has(chunk);
        let base = (0..chunks).take_while(|&chunk| has(chunk)).count();
        let later = (0..64).filter(|bit| has(base + bit)).fold(0, |later, bit| later | 1 << bit);
        let blocks = limits.map_or(0, |limits| limits.blocks);
        self.member = Some(member);
        Vote { end, epoch: 0, blocks, base: base as u32, later }
    }

    /// The results of a range of the values that were summed.
    pub(crate) fn results(&self, values: std::ops::Range<usize>, to: &mut [f32]) {
        let from = self.output[4 * values.start..4 * values.end].as_chunks().0;
        to.iter_mut().zip(from).for_each(|(to, from)| *to = f32::from_le_bytes(*from));
    }

    /// All have voted: is the node to be tried next time?
    pub(crate) fn ended(&mut self, votes: &[Vote]) {
        if votes.iter().all(|vote| matches!(vote.end, End::Complete | End::TooLarge)) {
            self.pause = 1;
        } else if votes.iter().all(|vote| vote.end == End::Skipped) {
            self.skip -= 1;
        } else {
            self.member = None;
            self.skip = self.pause;
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        }
    }

    fn now(&self) -> Millis {
        Millis(self.began.elapsed().as_millis() as u64)
    }

    fn sum(
        &mut self,
        member: &mut Member<WINDOW>,
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
                match member.poll(&self.input, self.now(), &mut packet) {
                    Poll::Send(len) => self.send(&packet[..len]),
                    Poll::Wait(until) => break until,
                    Poll::Done if *started => {
                        return if too_large.is_empty() { End::Complete } else { End::TooLarge };
                    }
                    Poll::Done => *started = member.start(values, self.wire.summable()),
                    Poll::Failed(Failure::Silent) => return End::Silent,
                    Poll::Failed(Failure::Dropped) => return End::Refused,
                    Poll::Failed(Failure::Refused { epoch, .. }) => {
                        self.epoch = self.epoch.max(epoch);
                        return End::Refused;
                    }
                }
            };
            let mut any = false;
            // What has arrived by now, and no more: what it lets leave is not to wait.
            for _ in 0..2 * WINDOW {
                let Some(len) = self.receive(&mut packet) else { break };
                any = true;
                let now = self.now();
                match member.handle(&packet[..len], &mut self.output, now) {
                    Event::Rescale { chunk, .. } => too_large.push(chunk),
                    Event::Joined { group } => self.join(group.map(Ipv4Addr::from)),
                    _ => {}
                }
            }
            if !any {
                let wait = Duration::from_millis(until.0.saturating_sub(self.now().0).max(1)).min(LOOK);
                wait_for(self.sockets(), PollFlags::IN, wait);
            }
        }
    }

    /// Joins the job's group, and leaves another one. If the system refuses, each result comes only when it is asked for.
    fn join(&mut self, group: Option<Ipv4Addr>) {
        if self.group.as_ref().map(|(group, _)| *group) != group {
            self.group = group.and_then(|group| Some((group, self.socket_of(group).ok()?)));
        }
    }

    /// A socket that gets what the node sends to a group, and nothing from elsewhere.
    fn socket_of(&self, group: Ipv4Addr) -> io::Result<UdpSocket> {
        let IpAddr::V4(local) = self.socket.local_addr()?.ip() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        // Members on one host share the port.
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

    /// A packet that has arrived. An error is an ICMP message that nobody listens at the node, which is no answer either.
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

/// Waits until a socket is ready, at most so long.
fn wait_for<'a>(sockets: impl Iterator<Item = &'a UdpSocket>, flags: PollFlags, time: Duration) {
    let time = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
    let mut sockets = sockets.map(|socket| PollFd::new(socket, flags)).collect::<Vec<_>>();
    _ = poll(&mut sockets, Some(&time));
}
