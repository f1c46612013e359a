//! An aggregator in the network, on a UDP socket: the dataplane's aggregator with a clock and a
//! system around it.
//!
//! It knows ranks by the addresses that their packets come from, and sends each a copy of every
//! result.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gradwire::Millis;
use gradwire::aggregate::{Aggregator as Engine, Emitted, Outcome, Settings, To};
use gradwire::kernels::Kernel;
use gradwire::wire::chunk::{Limits, MAX_BLOCKS, PORT, TOS};
use rustix::net::sockopt;

use crate::socket::{DATAGRAM_ROOM, set_tos};

/// Jobs at a time.
const JOBS: usize = 4;
/// Chunks of a job that it has room for: two windows.
const SLOTS: usize = 2 * Limits::MOST.window as usize;
/// Several times what it needs.
const STACK: usize = 16 * size_of::<Engine<SocketAddr, JOBS, SLOTS, MAX_BLOCKS>>();
/// The time between two looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes that the system keeps of packets that wait: all ranks' windows.
const QUEUE: usize = 4 << 20;

/// Sums what the ranks of up to four jobs send it.
pub struct Aggregator {
    socket: UdpSocket,
    engine: Box<Engine<SocketAddr, JOBS, SLOTS, MAX_BLOCKS>>,
}

impl Aggregator {
    /// Listens at `address`, IPv4 or IPv6. Port 0 lets the system choose.
    ///
    /// # Errors
    /// The system refuses.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_read_timeout(Some(LOOK))?;
        set_tos(&socket, address, TOS)?;
        // The system may allow less; then more is lost, and sent again.
        _ = sockopt::set_socket_recv_buffer_size(&socket, QUEUE);
        let secret = [(); 2].map(|()| RandomState::new().build_hasher().finish());
        let settings =
            Settings { kernel: Kernel::detect(), limits: Limits::MOST, group: None, parent: None, secret };
        // It is made on a stack before it is boxed, and is larger than those of most threads.
        let make = thread::Builder::new().stack_size(STACK).spawn(move || Box::new(Engine::new(settings)))?;
        let engine = make.join().map_err(|_| io::Error::other("no room for its memory"))?;
        Ok(Self { socket, engine })
    }

    /// Its address.
    ///
    /// # Errors
    /// The system refuses.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The number of packets that had this outcome.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.engine.count(outcome)
    }

    /// Serves until `stop` is true.
    ///
    /// # Errors
    /// The system's, of the socket itself. What one rank's address makes of a packet is no such
    /// error.
    pub fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let began = Instant::now();
        let (mut packet, mut out) = ([0; DATAGRAM_ROOM], [0; DATAGRAM_ROOM]);
        while !stop.load(Ordering::Relaxed) {
            let (len, from) = match self.socket.recv_from(&mut packet) {
                Ok(received) => received,
                Err(error) if is_passing(&error) => continue,
                Err(error) => return Err(error),
            };
            self.engine.process(&packet[..len], from, Millis(began.elapsed().as_millis() as u64));
            while let Some(Emitted { to, len }) = self.engine.emit(&mut out) {
                let out = &out[..len];
                match to {
                    To::One(address) => self.send(out, address),
                    To::Group(group) => self.send(out, SocketAddr::from((group, PORT))),
                    To::Each { job } => self.engine.children(job).for_each(|address| self.send(out, address)),
                }
            }
        }
        Ok(())
    }

    fn send(&self, packet: &[u8], to: SocketAddr) {
        // A packet that the system does not take is lost like any other: its rank asks again.
        _ = self.socket.send_to(packet, to);
    }
}

/// Nothing came in time, or an ICMP message says that some rank is gone.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable, TimedOut, WouldBlock,
    };
    let passing = [WouldBlock, TimedOut, Interrupted, ConnectionRefused, HostUnreachable, NetworkUnreachable];
    passing.contains(&error.kind())
}
