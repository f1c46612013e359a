//! The queues of one thread as a device of the dataplane: sockets on both ports, and the frames that circulate.

use std::io;

use gradwire::forward::{Buffer, Device, Port};
use gradwire::kernels::Kernel;
use gradwire::wire::rewrite::complete_checksum;

use crate::mapped::{Chunk, Frames};
use crate::xsk::{HEADROOM, RING_LEN, Socket};

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

const fn chunk_size(frame_len: usize) -> u32 {
    if frame_len <= (SMALL_CHUNK - HEADROOM) as usize { SMALL_CHUNK } else { LARGE_CHUNK }
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
    /// What sums for checksums.
    kernel: Kernel,
}

#[derive(Debug)]
struct Queue {
    number: u32,
    socket: Socket,
    /// The socket has frames that it could not send yet.
    pending: bool,
}

impl Queues {
    /// Memory for `sockets` sockets and frames of `frame_len` bytes, at most [`crate::interface::MAX_MTU`] and
    /// link headers.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(sockets: u32, frame_len: usize) -> io::Result<Self> {
        let (frames, free) = Frames::new(chunk_size(frame_len), sockets * CHUNKS_PER_SOCKET)?;
        Ok(Self { frames, free, ports: [Vec::new(), Vec::new()], turn: [0; 2], kernel: Kernel::detect() })
    }

    /// Bytes of that memory.
    #[must_use]
    pub fn memory(sockets: u32, frame_len: usize) -> u64 {
        u64::from(sockets) * u64::from(CHUNKS_PER_SOCKET) * u64::from(chunk_size(frame_len))
    }

    /// The memory, for sockets to register.
    #[must_use]
    pub const fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Adds the socket of a queue, which was bound with this memory.
    pub fn add(&mut self, port: Port, number: u32, socket: Socket) {
        self.ports[port as usize].push(Queue { number, socket, pending: false });
    }

    /// The sockets of a port, and the numbers of their queues.
    pub fn sockets(&self, port: Port) -> impl Iterator<Item = (u32, &Socket)> {
        self.ports[port as usize].iter().map(|queue| (queue.number, &queue.socket))
    }

    /// Takes back what was sent, gives the kernel memory for what is to come, and sends what could not be sent
    /// before; whether all is under way.
    pub fn service(&mut self) -> bool {
        let Self { frames, free, ports, turn, .. } = self;
        for (turn, queues) in turn.iter_mut().zip(&*ports) {
            *turn = (*turn + 1) % queues.len().max(1);
        }
        let mut idle = true;
        for queue in ports.iter_mut().flatten() {
            while let Some(address) = queue.socket.completed() {
                free.extend(frames.reclaim(address));
            }
            // Some stay, for frames that are replaced.
            let reserve = RING_LEN as usize / 2;
            let spare = free.len().saturating_sub(reserve);
            for _ in 0..spare.min(queue.socket.room_to_fill() as usize) {
                let Some(chunk) = free.pop() else { break };
                queue.socket.fill(frames.lend(chunk));
            }
            queue.socket.submit_fill();
            queue.socket.busy_poll();
            if queue.pending {
                queue.pending = !queue.socket.kick();
            }
            idle &= !queue.pending;
        }
        idle
    }
}

impl Device for Queues {
    type Buffer = Frame;

    fn receive(&mut self, from: Port) -> Option<Frame> {
        let (queues, turn) = (&mut self.ports[from as usize], &mut self.turn[from as usize]);
        for _ in 0..queues.len() {
            let queue = queues.get_mut(*turn)?;
            while let Some((address, len)) = queue.socket.receive() {
                let start = (address % u64::from(self.frames.chunk_size())) as usize;
                // The kernel gives back what it was lent, once.
                if let Some(chunk) = self.frames.reclaim(address) {
                    return Some(Frame { chunk, start, len });
                }
            }
            // An empty one passes the turn on; so does the end of a batch.
            *turn = (*turn + 1) % queues.len();
        }
        None
    }

    fn finish(&mut self, from: Port, frame: &mut Frame) {
        // A veth leaves checksums to offload, and the note that says so is lost on the way here.
        let bytes = frame.chunk.bytes_mut().get_mut(frame.start..frame.start + frame.len);
        complete_checksum(bytes.unwrap_or(&mut []), from == Port::Network, self.kernel);
    }

    fn transmit(&mut self, to: Port, frame: Frame) -> Result<(), Frame> {
        let Some(queue) = self.ports[to as usize].first_mut() else { return Err(frame) };
        if queue.socket.room_to_transmit() == 0 {
            return Err(frame);
        }
        let (start, len) = (frame.start as u64, frame.len);
        let address = self.frames.lend(frame.chunk);
        queue.socket.transmit(address + start, len);
        Ok(())
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
