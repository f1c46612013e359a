//! Traffic between the hosts, and its checks.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gradwire_testbench::input::npy;
use gradwire_testbench::input::recordings::GRADIENTS;
use gradwire_testbench::input::{Capture, Frame};
use gradwire_testbench::replay::{Engines, Setup};
use gradwire_testbench::verify::once;
use rustix::net::sockopt::Timeout;
use rustix::net::sockopt::{
    set_ip_tos, set_ipv6_tclass, set_socket_recv_buffer_size_force, set_socket_timeout,
};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, connect, eth, recv, socket_with};

use super::Lab;

/// The tag of gradient sockets.
pub const TAG: u8 = 0x28;
/// The time that a transfer may stand still: longer than any machine, however busy, keeps its
/// processes waiting.
const STALL: Duration = Duration::from_secs(120);

/// Recorded gradients, so many bytes: the four recordings over and over.
pub fn gradients(len: usize) -> Vec<u8> {
    let parsed = GRADIENTS.iter().flat_map(|file| npy::parse(file.name, file.bytes).unwrap());
    let all = parsed.copied().collect::<Vec<u8>>();
    all.iter().copied().cycle().take(len - len % 4).collect()
}

/// Every value within 2^-10 of what was sent; checked in `f64`, which shares no rounding with the
/// codec.
pub fn assert_within_bound(sent: &[u8], got: &[u8]) {
    assert_eq!(sent.len(), got.len(), "bytes that arrived");
    let values = |bytes: &[u8]| {
        bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect::<Vec<_>>()
    };
    let mut changed = 0;
    for (place, (sent, got)) in values(sent).into_iter().zip(values(got)).enumerate() {
        let error = (f64::from(sent) - f64::from(got)).abs();
        assert!(
            sent.to_bits() == got.to_bits() || error < 1.0 / 1024.0,
            "value {place}: {sent} became {got}"
        );
        changed += usize::from(sent.to_bits() != got.to_bits());
    }
    eprintln!("  {} values, {changed} of them changed, all within the bound", sent.len() / 4);
}

/// One transfer from host A to host B.
pub struct Transfer {
    received: Arc<AtomicUsize>,
    /// Data that is sent only when it is waited for, and its destination.
    rest: Option<(Sender<Vec<u8>>, Vec<u8>)>,
    sender: JoinHandle<io::Result<()>>,
    receiver: JoinHandle<io::Result<Vec<u8>>>,
    start: Instant,
}

impl Transfer {
    /// Starts to send `data` to B's `address`, with this type of service at both ends. It is
    /// written in pieces of `piece` bytes.
    pub fn start(lab: &Lab, address: &str, tos: u8, data: Vec<u8>, piece: usize) -> Self {
        let pieces = data.chunks(piece).map(<[u8]>::to_vec).collect::<Vec<_>>();
        Self::start_in_pieces(lab, address, tos, pieces)
    }

    /// As [`Transfer::start`], but sends only the first so many bytes before [`Transfer::finish`]:
    /// what happens in between happens within the connection, however late.
    pub fn start_held(lab: &Lab, address: &str, tos: u8, data: &[u8], first: usize) -> Self {
        let (sender, pieces) = channel();
        let (first, rest) = data.split_at(first);
        sender.send(first.to_vec()).unwrap();
        let transfer = Self::start_in_pieces(lab, address, tos, pieces);
        Self { rest: Some((sender, rest.to_vec())), ..transfer }
    }

    /// As [`Transfer::start`], with a piece for each that `pieces` gives.
    pub fn start_in_pieces<P>(lab: &Lab, address: &str, tos: u8, pieces: P) -> Self
    where
        P: IntoIterator<Item = Vec<u8>> + Send + 'static,
    {
        let address: IpAddr = address.parse().unwrap();
        let received = Arc::new(AtomicUsize::new(0));
        let (tx, rx) = channel();
        let progress = Arc::clone(&received);
        let receiver = lab.enter("hb", move || {
            let listener = TcpListener::bind((address, 0))?;
            set_tos(&listener, address, tos)?;
            tx.send(listener.local_addr()?).unwrap();
            let (mut stream, _) = listener.accept()?;
            set_tos(&stream, address, tos)?;
            stream.set_read_timeout(Some(STALL))?;
            let mut got = Vec::new();
            let mut buffer = vec![0; 1 << 16];
            loop {
                let len = stream.read(&mut buffer)?;
                if len == 0 {
                    return Ok(got);
                }
                got.extend(&buffer[..len]);
                progress.store(got.len(), Ordering::Relaxed);
            }
        });
        let to = rx.recv_timeout(STALL).expect("the receiver does not listen");
        let sender = lab.enter("ha", move || {
            let mut stream = connect_tagged(to, tos)?;
            stream.set_write_timeout(Some(STALL))?;
            stream.set_nodelay(true)?;
            for piece in pieces {
                stream.write_all(&piece)?;
            }
            stream.shutdown(Shutdown::Write)?;
            // Until the other end has all.
            stream.set_read_timeout(Some(STALL))?;
            stream.read(&mut [0; 1]).map(|_| ())
        });
        Self { received, rest: None, sender, receiver, start: Instant::now() }
    }

    /// Waits until B has so many bytes.
    pub fn wait_for(&self, bytes: usize) {
        let end = Instant::now() + STALL;
        while self.received.load(Ordering::Relaxed) < bytes {
            assert!(!self.receiver.is_finished() && Instant::now() < end, "the transfer stands still");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The data that B got, and the time that it took.
    pub fn finish(mut self) -> (Vec<u8>, Duration) {
        if let Some((sender, rest)) = self.rest.take() {
            // If the connection failed, the receiver says so.
            let _ = sender.send(rest);
        }
        let got = self.receiver.join().unwrap().unwrap_or_else(|error| panic!("receiving: {error}"));
        let time = self.start.elapsed();
        self.sender.join().unwrap().unwrap_or_else(|error| panic!("sending: {error}"));
        (got, time)
    }
}

/// Sends `data` from A to B; what B got.
pub fn transfer(lab: &Lab, address: &str, tos: u8, data: &[u8]) -> (Vec<u8>, Duration) {
    Transfer::start(lab, address, tos, data.to_vec(), usize::MAX).finish()
}

/// A connection whose SYN carries the tag, too.
pub fn connect_tagged(to: SocketAddr, tos: u8) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket: OwnedFd = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_tos(&socket, to.ip(), tos)?;
    connect(&socket, &to)?;
    Ok(socket.into())
}

pub fn set_tos(socket: impl AsFd, address: IpAddr, tos: u8) -> io::Result<()> {
    Ok(match address {
        IpAddr::V4(_) => set_ip_tos(socket, tos),
        IpAddr::V6(_) => set_ipv6_tclass(socket, tos.into()),
    }?)
}

/// Takes down all frames that come and go in a namespace.
pub struct Capturing {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Capture>,
}

impl Capturing {
    pub fn start(lab: &Lab, place: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = channel();
        let stopped = Arc::clone(&stop);
        let thread = lab.enter(place, move || {
            let protocol = Some(eth::ALL);
            let socket =
                socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, protocol).unwrap();
            set_socket_recv_buffer_size_force(&socket, 256 << 20).unwrap();
            set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(20))).unwrap();
            ready.send(()).unwrap();
            let start = Instant::now();
            let mut capture = Capture::default();
            let mut buffer = vec![0; 1 << 16];
            loop {
                match recv(&socket, &mut buffer[..], RecvFlags::empty()) {
                    Ok((len, _)) => {
                        let number = capture.frames.len() as u64 + 1;
                        let bytes = buffer[..len].to_vec();
                        capture.frames.push(Frame { number, time: start.elapsed(), bytes });
                    }
                    // What is on its way arrives before the time is over.
                    Err(_) if stopped.load(Ordering::Relaxed) => return capture,
                    Err(_) => {}
                }
            }
        });
        is_ready.recv().unwrap();
        Self { stop, thread }
    }

    pub fn finish(self) -> Capture {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Bytes and frames that `gradwire replay` puts on the wire for the frames of a capture that this
/// MAC address sent.
pub fn predicted(setup: &Setup, capture: &Capture, source: [u8; 6]) -> (u64, u64) {
    let mut engines = Engines::new(setup, capture).unwrap();
    let mut sum = (0, 0);
    for frame in &capture.frames {
        let passage = engines.send(frame);
        if frame.bytes[6..12] != source {
            continue;
        }
        let wire = passage.on_wire(&frame.bytes).unwrap();
        sum = (sum.0 + wire.len() as u64, sum.1 + 1);
    }
    sum
}

/// No byte of a stream is in two compressed segments; how many compressed segments there were.
pub fn assert_compressed_once(capture: &Capture) -> usize {
    // The wire's ends and its bridge all show a frame: it counts once. One that was sent again has
    // another identification.
    let mut seen = BTreeSet::new();
    let frames = capture.frames.iter().map(|frame| frame.bytes.as_slice());
    let segments =
        once::on_wire(frames.filter(|frame| seen.insert(*frame))).unwrap_or_else(|twice| panic!("{twice}"));
    assert!(segments > 0, "nothing was compressed at all");
    segments
}
