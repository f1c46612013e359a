//! `AF_XDP` sockets: frames of one queue of an interface, in memory that the process shares with
//! the kernel.
//!
//! Every socket registers the same memory for itself. Frames so pass from port to port without a
//! copy, and each port has the mode that its driver offers: sockets that share one registration
//! share its mode, so a veth (copy) would take zero-copy from the card.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
    set_xdp_umem_fill_ring_size, set_xdp_umem_reg, xdp_mmap_offsets, xdp_options, xdp_statistics,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags, XdpStatistics, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

use crate::path::mapped::{Frames, Lent, Memory, Returned, prefer_busy_poll};
use crate::telemetry::Bound;

mod ring;

use ring::{Consumer, Producer};

/// Entries of each ring: the frames of 2 ms at 1 million a second.
pub const RING_LEN: u32 = 2048;
/// Bytes that the kernel leaves free before a received frame (`XDP_PACKET_HEADROOM`).
pub const HEADROOM: u32 = 256;
/// Frames that one call to the kernel sends in copy mode (`TX_BATCH_SIZE` in `net/xdp/xsk.c`).
const SEND_BATCH: u32 = 32;
/// Frames that one busy poll may take.
const BUSY_POLL_BUDGET: u32 = 64;

/// The binding of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Index of the interface.
    pub interface: u32,
    /// The queue.
    pub queue: u32,
    /// Whether the driver may read and write the process's memory itself, if it can.
    pub bound: Bound,
}

/// A socket of one queue.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    /// The memory that it registered.
    memory: Memory,
    receive: Consumer<2>,
    transmit: Producer<2>,
    fill: Producer<1>,
    completion: Consumer<1>,
    busy_poll: bool,
    /// Whether the driver reads and writes the process's memory itself.
    zero_copy: bool,
    /// Frames that the kernel took from the transmit ring and dropped: the link has no carrier, or
    /// the driver no room.
    refused: u32,
}

/// The fate of a socket's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Those that it was handed. All counts wrap.
    pub handed: u32,
    /// Those that it has not done with.
    pub waiting: u32,
    /// Those that left.
    pub left: u32,
}

impl Socket {
    /// A socket with rings that is not bound yet, so that its fill ring can have memory when it is:
    /// a driver that finds none may wait for a call that nobody knows of.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(frames: &Frames, busy_poll: Option<Duration>) -> io::Result<Self> {
        let fd = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        set_xdp_umem_reg(
            &fd,
            XdpUmemReg {
                addr: frames.address(),
                len: frames.len(),
                chunk_size: frames.chunk_size(),
                headroom: 0,
                flags: XdpUmemRegFlags::empty(),
                tx_metadata_len: 0,
            },
        )?;
        set_xdp_umem_fill_ring_size(&fd, RING_LEN)?;
        set_xdp_umem_completion_ring_size(&fd, RING_LEN)?;
        set_xdp_rx_ring_size(&fd, RING_LEN)?;
        set_xdp_tx_ring_size(&fd, RING_LEN)?;
        let at = xdp_mmap_offsets(&fd)?;
        let receive = Consumer::map(&fd, XDP_PGOFF_RX_RING, &at.rx, RING_LEN)?;
        let transmit = Producer::map(&fd, XDP_PGOFF_TX_RING, &at.tx, RING_LEN)?;
        let fill = Producer::map(&fd, XDP_UMEM_PGOFF_FILL_RING, &at.fr, RING_LEN)?;
        let completion = Consumer::map(&fd, XDP_UMEM_PGOFF_COMPLETION_RING, &at.cr, RING_LEN)?;
        if let Some(time) = busy_poll {
            prefer_busy_poll(&fd, time.as_micros().try_into().unwrap_or(u32::MAX), BUSY_POLL_BUDGET)?;
        }
        let (memory, busy_poll) = (frames.memory(), busy_poll.is_some());
        Ok(Self { fd, memory, receive, transmit, fill, completion, busy_poll, zero_copy: false, refused: 0 })
    }

    /// Binds it to a queue; frames come only when an XDP program sends them. If that fails, it may
    /// be tried again.
    ///
    /// # Errors
    /// The kernel's: `EBUSY` if the queue has a socket already.
    pub fn bind(&mut self, binding: Binding) -> io::Result<()> {
        // Without either flag the kernel tries zero-copy first.
        let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        flags.set(SocketAddrXdpFlags::XDP_COPY, binding.bound == Bound::Copy);
        bind(&self.fd, &SocketAddrXdp::new(flags, binding.interface, binding.queue))?;
        self.zero_copy = xdp_options(&self.fd)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY);
        Ok(())
    }

    /// The next frame received.
    pub fn receive(&mut self) -> Option<Returned> {
        let [address, len_and_options] = self.receive.pop()?;
        Some(self.memory.returned(address, len_and_options as u32 as usize))
    }

    /// Queues a frame for sending: `len` bytes from byte `start` of the chunk on.
    ///
    /// # Errors
    /// The chunk comes back if there is no room, if it does not have these bytes, and if it is of
    /// other memory than the socket was bound with.
    pub fn transmit(&mut self, chunk: Lent, start: usize, len: usize) -> Result<(), Lent> {
        if self.transmit.room() == 0 {
            return Err(chunk);
        }
        let address = self.memory.address(chunk, start, len)?;
        // The upper half are options: none.
        self.transmit.push([address, u64::from(len as u32)]);
        Ok(())
    }

    /// Memory for received frames that the kernel can be given.
    pub fn room_to_fill(&mut self) -> u32 {
        self.fill.room()
    }

    /// Gives the kernel memory for a received frame.
    ///
    /// # Errors
    /// The chunk comes back if there is no room, and if it is of other memory than the socket was
    /// bound with.
    pub fn fill(&mut self, chunk: Lent) -> Result<(), Lent> {
        if self.fill.room() == 0 {
            return Err(chunk);
        }
        self.fill.push([self.memory.address(chunk, 0, 1)?]);
        Ok(())
    }

    /// Shows the kernel the memory it was given.
    pub fn submit_fill(&mut self) {
        self.receive.release();
        self.fill.submit();
        // A driver that ran out of memory waits for a call; there is nothing to do about one that
        // fails. Also if nothing is new: the driver may have said so just after the last look, and
        // then no frame comes, and nothing new either.
        if self.fill.needs_wakeup() && self.fill.is_pending() {
            let _ = recv(&self.fd, &mut [0; 0][..], RecvFlags::DONTWAIT);
        }
    }

    /// The next frame that was sent.
    pub fn completed(&mut self) -> Option<Returned> {
        self.completion.pop().map(|[address]| self.memory.returned(address, 0))
    }

    /// Has the queued frames sent; whether all are under way. If not, the driver was busy, and this
    /// is to be called again when completed frames were taken back.
    pub fn kick(&mut self) -> bool {
        self.transmit.submit();
        if !self.transmit.is_pending() {
            return true;
        }
        // In copy mode one call sends a batch and then says EAGAIN.
        for _ in 0..RING_LEN / SEND_BATCH {
            if !self.transmit.needs_wakeup() {
                return !self.transmit.is_pending();
            }
            match send(&self.fd, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN) if self.transmit.is_pending() => {}
                // In copy mode: the last frame that it took was dropped (`NET_XMIT_DROP`).
                Err(Errno::BUSY) if !self.zero_copy => {
                    self.refused = self.refused.wrapping_add(1);
                    break;
                }
                _ => break,
            }
        }
        !self.transmit.is_pending()
    }

    /// Has the driver look at its queue, whether or not it asked for that: some tell which frames
    /// they sent only then.
    pub fn nudge(&self) {
        let _ = send(&self.fd, &[], SendFlags::DONTWAIT);
    }

    /// The fate of its frames. With a copy, one has left when the kernel took it from the ring and
    /// did not drop it; without, when the driver gives its memory back.
    #[must_use]
    pub fn sent(&self) -> Sent {
        let handed = self.transmit.written();
        if self.zero_copy {
            let left = self.completion.read();
            return Sent { handed, waiting: handed.wrapping_sub(left), left };
        }
        let taken = self.transmit.taken();
        Sent { handed, waiting: handed.wrapping_sub(taken), left: taken.wrapping_sub(self.refused) }
    }

    /// Lets the driver work now, if the process is to poll it.
    pub fn busy_poll(&self) {
        if self.busy_poll {
            let _ = recv(&self.fd, &mut [0; 0][..], RecvFlags::DONTWAIT);
        }
    }

    /// Its binding.
    #[must_use]
    pub const fn bound(&self) -> Bound {
        Bound::of(self.zero_copy)
    }

    /// The kernel's counts.
    ///
    /// # Errors
    /// The kernel's.
    pub fn statistics(&self) -> io::Result<XdpStatistics> {
        Ok(xdp_statistics(&self.fd)?)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs::File;

    use super::ring::tests::ring;
    use super::*;

    /// Gives chunks to a ring of four entries; one more comes back whole, until an entry is free
    /// again.
    fn fill_up<const WORDS: usize>(
        mut give: impl FnMut(&mut Socket, Lent) -> Result<(), Lent>,
        submit: impl Fn(&Socket),
        kernel: impl Fn(Kernel) -> Consumer<WORDS>,
    ) {
        let (mut frames, mut chunks) = Frames::new(2048, 6).unwrap();
        let (mut socket, ends) = socket(&frames);
        let mut kernel = kernel(ends);
        let mut last = chunks.pop().unwrap();
        last.bytes_mut()[7] = 7;
        for chunk in chunks.drain(..4) {
            give(&mut socket, frames.lend(chunk).unwrap()).unwrap();
        }
        submit(&socket);
        for _ in 0..2 {
            let refused = give(&mut socket, frames.lend(last).unwrap()).unwrap_err();
            last = frames.keep(refused).unwrap();
            assert_eq!(last.bytes()[7], 7);
        }
        assert_eq!(kernel.pop().unwrap()[0], 0);
        kernel.release();
        give(&mut socket, frames.lend(last).unwrap()).unwrap();
        submit(&socket);
        // None of those before was written over.
        let rest = [(); 4].map(|()| kernel.pop().unwrap()[0]);
        assert_eq!(rest, [2048, 4096, 6144, 5 * 2048]);
    }

    /// The kernel's ends of the rings.
    pub(in crate::path) struct Kernel {
        transmit: Consumer<2>,
        fill: Consumer<1>,
        completed: Producer<1>,
    }

    impl Kernel {
        /// The number of chunks it was shown to receive into.
        pub(in crate::path) fn filled(&mut self) -> usize {
            std::iter::from_fn(|| self.fill.pop()).count()
        }

        /// Takes all frames from the transmit ring; how many.
        pub(in crate::path) fn take(&mut self) -> usize {
            let taken = std::iter::from_fn(|| self.transmit.pop()).count();
            self.transmit.release();
            taken
        }

        /// Gives back the memory of a frame.
        fn complete(&mut self, address: u64) {
            self.completed.push([address]);
            self.completed.submit();
        }
    }

    /// A socket with rings of four entries, and a test in the kernel's place.
    pub(in crate::path) fn socket(frames: &Frames) -> (Socket, Kernel) {
        let ((transmit, transmitted), (fill, filled)) = (ring(4), ring(4));
        let (completed, completion) = ring(4);
        let socket = Socket {
            fd: File::open("/dev/null").unwrap().into(),
            memory: frames.memory(),
            receive: ring(4).1,
            transmit,
            fill,
            completion,
            busy_poll: false,
            zero_copy: false,
            refused: 0,
        };
        (socket, Kernel { transmit: transmitted, fill: filled, completed })
    }

    #[test]
    fn a_full_transmit_ring_hands_the_chunk_back() {
        fill_up(
            |socket, lent| socket.transmit(lent, 0, 60),
            |socket| assert!(socket.transmit.submit()),
            |kernel| kernel.transmit,
        );
    }

    #[test]
    fn a_full_fill_ring_hands_the_chunk_back() {
        fill_up(Socket::fill, |socket| assert!(socket.fill.submit()), |kernel| kernel.fill);
    }

    #[test]
    fn a_frame_has_left_when_the_kernel_took_it_or_without_a_copy_when_its_memory_is_back() {
        for zero_copy in [false, true] {
            let (mut frames, chunks) = Frames::new(2048, 2).unwrap();
            let (mut socket, mut kernel) = socket(&frames);
            socket.zero_copy = zero_copy;
            let start = socket.sent();
            let of = |socket: &Socket| {
                let Sent { handed, waiting, left } = socket.sent();
                (handed.wrapping_sub(start.handed), waiting, left.wrapping_sub(start.left))
            };
            for chunk in chunks {
                socket.transmit(frames.lend(chunk).unwrap(), 0, 60).unwrap();
            }
            // Nobody answers behind this socket.
            assert!(!socket.kick());
            assert_eq!(of(&socket), (2, 2, 0));
            assert_eq!(kernel.take(), 2);
            assert_eq!(of(&socket), if zero_copy { (2, 2, 0) } else { (2, 0, 2) });
            kernel.complete(0);
            let _ = socket.completed().unwrap();
            assert_eq!(of(&socket), if zero_copy { (2, 1, 1) } else { (2, 0, 2) });
            if !zero_copy {
                socket.refused = 1;
                assert_eq!(of(&socket), (2, 0, 1), "one was dropped");
            }
        }
    }
}
