//! The queues of one thread as a device of the dataplane: sockets on both ports, and the frames
//! that circulate.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use gradwire::forward::{Buffer, Device, Port};
use gradwire::kernels::Kernel;
use gradwire::wire::rewrite::complete_checksum;

use crate::path::mapped::{Chunk, Frames, Lent};
use crate::path::progress::{self, Progress};
use crate::path::xsk::{Binding, HEADROOM, RING_LEN, Sent, Socket};
use crate::telemetry::{Bound, RingStats};

/// Chunks for each socket: its fill and receive rings full, and its transmit and completion rings.
const CHUNKS_PER_SOCKET: u32 = 3 * RING_LEN;
const SMALL_CHUNK: u32 = 2048;
const LARGE_CHUNK: u32 = 4096;

/// A chunk with a frame in it.
#[derive(Debug)]
pub struct Frame {
    chunk: Chunk,
    start: usize,
    len: usize,
}

impl Buffer for Frame {
    fn frame(&self) -> &[u8] {
        self.chunk.bytes().get(self.start..self.start + self.len).unwrap_or(&[])
    }

    fn room(&mut self) -> &mut [u8] {
        self.start = 0;
        self.chunk.bytes_mut()
    }

    fn set_len(&mut self, len: usize) {
        self.len = len;
    }
}

/// Without a copy, always the large ones: of a chunk the kernel leaves a driver all but
/// [`HEADROOM`], and some cards take the size of a buffer in whole KiB (igb, and by its source
/// ixgbe on the 82599). Of 2048 bytes they would use 1024, and lose every frame that is longer.
const fn chunk_size(frame_len: usize, bound: Bound) -> u32 {
    match bound {
        Bound::Copy if frame_len <= (SMALL_CHUNK - HEADROOM) as usize => SMALL_CHUNK,
        Bound::Copy | Bound::ZeroCopy => LARGE_CHUNK,
    }
}

/// Sockets of both ports that one thread serves, and their memory.
#[derive(Debug)]
pub struct Queues {
    frames: Frames,
    /// Never more than all chunks: it does not grow.
    free: Vec<Chunk>,
    /// By port. Frames leave by the first.
    ports: [Vec<Queue>; 2],
    /// By port: the socket whose turn it is.
    turn: [usize; 2],
    /// By port: whether its driver hands over frames whose checksum was left to the card.
    offloads: [bool; 2],
    /// The kernel for checksums.
    kernel: Kernel,
    /// For how long the kernel polls the driver at each call, if the process is to drive it.
    busy_poll: Option<Duration>,
    /// The time that nothing may leave a socket until that is a stall.
    patience: Duration,
}

#[derive(Debug)]
struct Queue {
    number: u32,
    socket: Socket,
    /// The socket has frames that it could not send yet.
    pending: bool,
    progress: Progress,
}

impl Queues {
    /// Memory for `sockets` sockets and frames of `frame_len` bytes, at most
    /// [`largest_mtu`](crate::path::limits::largest_mtu) and link headers. `bound`: whether one of
    /// them may be without a copy.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(sockets: u32, frame_len: usize, bound: Bound) -> io::Result<Self> {
        let (frames, free) = Frames::new(chunk_size(frame_len, bound), sockets * CHUNKS_PER_SOCKET)?;
        Ok(Self {
            frames,
            free,
            ports: [Vec::new(), Vec::new()],
            turn: [0; 2],
            offloads: [true; 2],
            kernel: Kernel::detect(),
            busy_poll: None,
            patience: progress::PATIENCE,
        })
    }

    /// Has the kernel poll the driver for so long at each call, in place of interrupts. For sockets
    /// that are bound later.
    pub const fn poll_busily(&mut self, time: Option<Duration>) {
        self.busy_poll = time;
    }

    /// A thread that may rest for as long as `limit` gives a driver at least as long until it is
    /// said that nothing leaves.
    pub fn rest_for(&mut self, limit: Duration) {
        self.patience = progress::PATIENCE.max(limit);
    }

    /// Bytes of that memory.
    #[must_use]
    pub fn memory(sockets: u32, frame_len: usize, bound: Bound) -> u64 {
        u64::from(sockets) * u64::from(CHUNKS_PER_SOCKET) * u64::from(chunk_size(frame_len, bound))
    }

    /// The memory, for sockets to register.
    #[must_use]
    pub const fn frames(&self) -> &Frames {
        &self.frames
    }

    /// The frames of this port come from a wire, with checksums: [`Device::finish`] leaves them
    /// alone.
    pub const fn has_checksums(&mut self, port: Port) {
        self.offloads[port as usize] = false;
    }

    /// Adds a socket of a queue, which has memory to receive into before it is bound. If the queue
    /// is not free, waits for it, at most for `patience`: the kernel takes its time to take back
    /// what a process that has just ended had.
    ///
    /// # Errors
    /// The kernel's: `EBUSY` if the queue has a socket already. The chunks that the socket got are
    /// lost.
    pub fn bind(&mut self, port: Port, binding: Binding, patience: Duration) -> io::Result<&Socket> {
        let mut socket = Socket::open(&self.frames, self.busy_poll)?;
        stock(&mut self.frames, &mut self.free, &mut socket, 0);
        let end = Instant::now() + patience;
        loop {
            match socket.bind(binding) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < end => {
                    thread::sleep(patience / 100);
                }
                result => break result?,
            }
        }
        let queue = Queue::new(binding.queue, socket);
        Ok(&self.ports[port as usize].push_mut(queue).socket)
    }

    /// The sockets of a port, and the numbers of their queues.
    pub fn sockets(&self, port: Port) -> impl Iterator<Item = (u32, &Socket)> {
        self.ports[port as usize].iter().map(|queue| (queue.number, &queue.socket))
    }

    /// The kernel's counts at the sockets of a port.
    #[must_use]
    pub fn statistics(&self, port: Port) -> RingStats {
        let stalls = self.ports[port as usize].iter().map(|queue| queue.progress.stalls()).sum();
        let statistics = self.sockets(port).filter_map(|(_, socket)| socket.statistics().ok());
        statistics.fold(RingStats { stalls, ..RingStats::default() }, |sum, of| RingStats {
            rx_dropped: sum.rx_dropped + of.rx_dropped,
            rx_ring_full: sum.rx_ring_full + of.rx_ring_full.unwrap_or(0),
            fill_ring_empty: sum.fill_ring_empty + of.rx_fill_ring_empty_descs.unwrap_or(0),
            tx_ring_empty: sum.tx_ring_empty + of.tx_ring_empty_descs.unwrap_or(0),
            rx_invalid: sum.rx_invalid + of.rx_invalid_descs,
            tx_invalid: sum.tx_invalid + of.tx_invalid_descs,
            stalls: sum.stalls,
        })
    }

    /// Frames that wait to leave a port that nothing leaves: none of the other port's are to be
    /// taken then. None if frames leave.
    #[must_use]
    pub fn stalled(&self, port: Port) -> Option<u64> {
        // All frames leave by the first.
        let queue = self.ports[port as usize].first().filter(|queue| queue.progress.is_stalled())?;
        Some(queue.socket.sent().waiting.into())
    }

    /// Takes back what was sent, gives the kernel memory for what is to come, and sends what could
    /// not be sent before; whether all is under way that may get under way soon. `now`:
    /// nanoseconds.
    pub fn service(&mut self, now: u64) -> bool {
        let Self { frames, free, ports, turn, patience, .. } = self;
        for (turn, queues) in turn.iter_mut().zip(&*ports) {
            *turn = (*turn + 1) % queues.len().max(1);
        }
        let mut idle = true;
        for queue in ports.iter_mut().flatten() {
            while let Some(sent) = queue.socket.completed() {
                free.extend(frames.reclaim(sent).map(|(chunk, ..)| chunk));
            }
            // Some stay, for frames that are replaced.
            stock(frames, free, &mut queue.socket, RING_LEN as usize / 2);
            queue.socket.busy_poll();
            if queue.pending {
                queue.pending = !queue.socket.kick();
            }
            queue.look(now, *patience);
            idle &= !queue.pending || queue.progress.is_stalled();
        }
        idle
    }
}

impl Queue {
    fn new(number: u32, socket: Socket) -> Self {
        let Sent { handed, left, .. } = socket.sent();
        Self { number, socket, pending: false, progress: Progress::new(handed, left) }
    }

    /// Looks whether frames leave.
    fn look(&mut self, now: u64, patience: Duration) {
        let Self { socket, progress, .. } = self;
        let Sent { handed, waiting, left } = socket.sent();
        progress.look(now, handed, left, patience);
        if waiting == 0 {
            progress.try_again(now);
        } else if progress.is_late(now, patience) {
            socket.nudge();
        }
    }
}

/// Gives a socket chunks to receive into, as many as it has room for; so many stay free.
fn stock(frames: &mut Frames, free: &mut Vec<Chunk>, socket: &mut Socket, stay: usize) {
    let spare = free.len().saturating_sub(stay);
    for _ in 0..spare.min(socket.room_to_fill() as usize) {
        let Some(chunk) = free.pop() else { break };
        if let Err(chunk) = give(frames, chunk, |lent| socket.fill(lent)) {
            free.push(chunk);
            break;
        }
    }
    socket.submit_fill();
}

/// Gives a chunk to the kernel.
///
/// # Errors
/// The chunk, if the socket did not take it.
fn give(frames: &mut Frames, chunk: Chunk, take: impl FnOnce(Lent) -> Result<(), Lent>) -> Result<(), Chunk> {
    match take(frames.lend(chunk)?) {
        Ok(()) => Ok(()),
        // It was lent a moment ago, by the same memory.
        Err(lent) => frames.keep(lent).map_or(Ok(()), Err),
    }
}

impl Device for Queues {
    type Port = Port;
    type Buffer = Frame;

    fn receive(&mut self, from: Port) -> Option<Frame> {
        let (queues, turn) = (&mut self.ports[from as usize], &mut self.turn[from as usize]);
        for _ in 0..queues.len() {
            let queue = queues.get_mut(*turn)?;
            while let Some(received) = queue.socket.receive() {
                // The kernel gives back what it was lent, once.
                if let Some((chunk, start, len)) = self.frames.reclaim(received) {
                    return Some(Frame { chunk, start, len });
                }
            }
            // An empty one passes the turn on; so does the end of a batch.
            *turn = (*turn + 1) % queues.len();
        }
        None
    }

    fn finish(&mut self, from: Port, frame: &mut Frame) {
        // A veth leaves checksums to offload, and AF_XDP does not carry the kernel's note that says
        // so. By chance, one compressed frame in 65536 looks like that, too: if no frame can be,
        // none is taken for one.
        if !self.offloads[from as usize] {
            return;
        }
        let bytes = frame.chunk.bytes_mut().get_mut(frame.start..frame.start + frame.len);
        complete_checksum(bytes.unwrap_or(&mut []), from == Port::Network, self.kernel);
    }

    fn transmit(&mut self, to: Port, frame: Frame) -> Result<(), Frame> {
        let Some(queue) = self.ports[to as usize].first_mut() else { return Err(frame) };
        let Frame { chunk, start, len } = frame;
        give(&mut self.frames, chunk, |lent| queue.socket.transmit(lent, start, len)).map_err(|chunk| Frame {
            chunk,
            start,
            len,
        })
    }

    fn take(&mut self) -> Option<Frame> {
        self.free.pop().map(|chunk| Frame { chunk, start: 0, len: 0 })
    }

    fn release(&mut self, frame: Frame) {
        self.free.push(frame.chunk);
    }

    fn kick(&mut self, to: Port) {
        if let Some(queue) = self.ports[to as usize].first_mut() {
            queue.pending = !queue.socket.kick();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::xsk::tests::socket;

    /// A frame over IPv4 and TCP whose checksum field has the pseudo-header's sum: what a veth
    /// hands over if the checksum was left to the card.
    const OFFLOADED: &[u8] = b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0\
        \x45\x28\0\x30\0\0\x40\0\x40\x06\0\0\x0a\0\0\x01\x0a\0\0\x02\
        \x9c\x40\x15\x18\0\0\0\x01\0\0\0\x01\x50\x18\x01\0\x14\x25\0\0gradient";
    const CHECKSUM: std::ops::Range<usize> = 50..52;

    /// As by a ring that is full: the chunk is the process's again, to be given once more.
    #[test]
    fn a_chunk_that_a_socket_refuses_is_not_lost() {
        let (mut frames, mut chunks) = Frames::new(2048, 1).unwrap();
        let mut chunk = chunks.remove(0);
        chunk.bytes_mut()[7] = 7;
        for _ in 0..2 {
            chunk = give(&mut frames, chunk, Err).unwrap_err();
            assert_eq!(chunk.bytes()[7], 7);
        }
    }

    /// As a driver sees it: what is left of a chunk, in whole KiB. With an XDP program, igb and
    /// ixgbe refuse an MTU beyond 3046.
    #[test]
    fn a_card_that_counts_in_kib_gets_room_for_every_frame() {
        for mtu in 60..=3046 {
            let frame_len = mtu + 14;
            let room = (chunk_size(frame_len, Bound::ZeroCopy) - HEADROOM) as usize / 1024 * 1024;
            assert!(frame_len <= room, "MTU {mtu}: a card would use {room} bytes of a chunk");
            assert!(frame_len <= (chunk_size(frame_len, Bound::Copy) - HEADROOM) as usize);
        }
        assert_eq!(Queues::memory(2, 1522, Bound::Copy) >> 20, 24);
        assert_eq!(Queues::memory(2, 1522, Bound::ZeroCopy) >> 20, 48);
    }

    /// A socket that is bound first and filled later starts with a driver that found no memory, and
    /// may wait for a call that nobody makes.
    #[test]
    fn a_socket_has_memory_before_it_is_bound() {
        let mut queues = Queues::new(1, 1500, Bound::Copy).unwrap();
        let (mut socket, mut kernel) = socket(&queues.frames);
        stock(&mut queues.frames, &mut queues.free, &mut socket, 0);
        assert_eq!(kernel.filled(), 4, "all that this ring has room for");
    }

    /// The kernel's end of the rings takes no frame, as a driver that hangs: the port has stalled,
    /// until it takes some.
    #[test]
    fn a_port_that_nothing_leaves_is_told_until_something_does() {
        let mut queues = Queues::new(1, 1500, Bound::Copy).unwrap();
        let (socket, mut kernel) = socket(&queues.frames);
        queues.ports[Port::Network as usize].push(Queue::new(0, socket));
        let mut now = 1_000_000_000;
        let mut pass = |queues: &mut Queues, ms: u64| {
            for _ in 0..ms {
                now += 1_000_000;
                queues.service(now);
            }
            Port::ALL.map(|port| queues.stalled(port))
        };
        assert_eq!(pass(&mut queues, 3_000), [None; 2]);
        for frame in 1..=2 {
            let frame = Frame { len: 60 * frame, ..queues.take().unwrap() };
            queues.transmit(Port::Network, frame).unwrap();
        }
        queues.kick(Port::Network);
        assert_eq!(pass(&mut queues, 900), [None; 2]);
        assert_eq!(pass(&mut queues, 200), [None, Some(2)]);
        assert_eq!(queues.statistics(Port::Network).stalls, 1);
        assert!(queues.service(2_200_000_000), "nothing that more haste would help");
        assert_eq!(kernel.take(), 2);
        assert_eq!(pass(&mut queues, 1), [None; 2]);
        assert_eq!(queues.statistics(Port::Network).stalls, 1);
    }

    #[test]
    fn checksums_are_completed_where_a_driver_leaves_them() {
        let mut queues = Queues::new(1, 1500, Bound::Copy).unwrap();
        queues.has_checksums(Port::Network);
        let mut frame = queues.take().unwrap();
        for (port, completed) in [(Port::Host, true), (Port::Network, false)] {
            frame.room()[..OFFLOADED.len()].copy_from_slice(OFFLOADED);
            frame.set_len(OFFLOADED.len());
            queues.finish(port, &mut frame);
            assert_eq!(frame.frame()[CHECKSUM] != OFFLOADED[CHECKSUM], completed, "{port:?}");
        }
    }
}
