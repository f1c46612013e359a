//! An aggregator, with an address of its own on an interface: its program, sockets and thread.
//!
//! One thread serves all queues of the interface, because all workers of a job meet in one place.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gradwire::Millis;
use gradwire::aggregate::{EthernetAggregator, Settings};
use gradwire::forward::Port;
use gradwire::wire::chunk::{Limits, MAX_BLOCKS};
use rustix::event::{PollFd, PollFlags};

use crate::config::{JOBS, Mode, ZeroCopy};
use crate::path::device::Queues;
use crate::path::program::{AggregatorAddress, Kept, Program};
use crate::path::shim::{PATIENCE, StartError, attach, check_mtu, check_mtu_before, may_bind};
use crate::path::worker::{BATCH, DRAIN, IDLE, RETRY, monotonic_ns, wait};
use crate::path::xsk::Binding;
use crate::system::interface::Interface;
use crate::telemetry::{AggregatorReport, Board, Bound, PortStatus};

/// Chunks of a job that it has room for: two windows.
const SLOTS: usize = 2 * Limits::MOST.window as usize;
type Summing = EthernetAggregator<JOBS, SLOTS, MAX_BLOCKS>;
/// The stack that the thread needs, several times over: the aggregator is made on it before it is
/// boxed.
pub const STACK: usize = 16 * size_of::<Summing>();
/// Workers may leave checksums to offload, as a host does; and nothing that comes in is compressed.
const PORT: Port = Port::Host;

/// Settings of an aggregator's service.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// Its address.
    pub address: AggregatorAddress,
    /// The kernel, packets and groups.
    pub settings: Settings<gradwire::aggregate::Peer>,
    /// The time after its thread's last sign of life until frames go to the kernel.
    pub limit: Duration,
    /// The attachment of the program.
    pub mode: Mode,
    /// The drivers that may write frames into its memory.
    pub zero_copy: ZeroCopy,
}

/// An aggregator, set up; its thread does not run yet.
#[derive(Debug)]
pub struct AggregatorWorker {
    service: Service,
    queues: Queues,
    beats: Vec<&'static AtomicU64>,
    kept: Kept,
}

/// Sets all up on an interface. No frame is taken before the worker runs. Dropping the program
/// detaches it.
///
/// # Errors
/// What is in the way, and what fixes it.
pub fn set_up(
    interface: &Interface,
    service: Service,
) -> Result<(Program, PortStatus, AggregatorWorker), StartError> {
    check_mtu_before(interface, service.mode)?;
    let frame_len = interface.frame_len();
    let mut program =
        Program::load_for_aggregator(service.address, service.limit.as_nanos() as u64, frame_len as u64)?;
    let xdp = attach(&mut program, PORT, interface, service.mode)?;
    let queues_before = interface.queues;
    let interface = &Interface::find(&interface.name)?;
    check_mtu(interface, interface.mtu.into(), xdp)?;
    let bound = may_bind(interface, queues_before, service.zero_copy, xdp);
    let mut queues = Queues::new(interface.queues, frame_len, bound).map_err(|error| StartError::Memory {
        mib: Queues::memory(interface.queues, frame_len, bound) >> 20,
        error,
    })?;
    if interface.has_checksums(xdp) {
        queues.has_checksums(PORT);
    }
    queues.rest_for(service.limit);
    let (mut beats, mut bind) = (Vec::new(), Bound::ZeroCopy);
    for queue in 0..interface.queues {
        let error = |error| StartError::Socket { interface: interface.name.clone(), queue, error };
        let binding = Binding { interface: interface.index, queue, bound };
        let socket = queues.bind(PORT, binding, PATIENCE.max(service.limit)).map_err(error)?;
        if socket.bound() == Bound::Copy {
            bind = Bound::Copy;
        }
        program.add_socket(PORT, queue, socket)?;
        beats.extend(program.beat(PORT, queue));
    }
    let status = PortStatus {
        name: interface.name.clone(),
        index: interface.index,
        mtu: interface.mtu.into(),
        queues: interface.queues,
        xdp,
        refused: program.refused(PORT),
        bind,
    };
    let kept = program.kept(0, 1);
    Ok((program, status, AggregatorWorker { service, queues, beats, kept }))
}

impl AggregatorWorker {
    /// Serves until `stop`, then sends what is under way.
    ///
    /// Whoever asks on the board gets the report after the present turn.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(&mut self, stop: &AtomicBool, board: &Board<AggregatorReport>) -> io::Result<()> {
        let Self { service, queues, beats, kept } = self;
        let Service { address, settings, limit, .. } = *service;
        let mut aggregator: Box<Summing> =
            Box::new(EthernetAggregator::new(address.mac, address.ip, settings));
        aggregator.listen_at(address.port);
        let fds = queues.sockets(PORT).map(|(_, socket)| socket.as_fd().try_clone_to_owned());
        let fds = fds.collect::<io::Result<Vec<OwnedFd>>>()?;
        let mut polled = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect::<Vec<_>>();
        let (mut sent, mut lost) = (0u64, 0u64);
        let mut last = None;
        queues.service(monotonic_ns());
        loop {
            let now = monotonic_ns();
            if last.is_none() && stop.load(Ordering::Relaxed) {
                // From now on frames go to the kernel; those that came before are served.
                last = Some(now + DRAIN.as_nanos() as u64);
            }
            // The kernel gets its frames as well if answers do not leave.
            let beat = if last.is_none() && queues.stalled(PORT).is_none() { now } else { 0 };
            beats.iter().for_each(|to| to.store(beat, Ordering::Relaxed));
            let served = aggregator.serve(queues, PORT, BATCH, Millis(now / 1_000_000));
            sent = sent.wrapping_add(served.sent);
            lost = lost.wrapping_add(served.lost);
            let is_all_sent = queues.service(now);
            board.answer(0, |report| {
                report.fill(&aggregator);
                (report.sent, report.lost) = (sent, lost);
                (report.rings, report.kept) = (queues.statistics(PORT), kept.of(PORT));
            });
            if last.is_some_and(|last| now >= last) {
                return Ok(());
            }
            if served.received == 0 {
                let is_idle = is_all_sent && last.is_none();
                wait(&mut polled, if is_idle { IDLE.min(limit / 4) } else { RETRY })?;
            }
        }
    }
}
