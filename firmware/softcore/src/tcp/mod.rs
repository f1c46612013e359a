//! Services of an aggregator over TCP beside its sums: metrics and a console, with smoltcp as the
//! stack. The aggregator itself answers ARP and ping, and has everything else but TCP.
//!
//! Clients cannot hold up sums: a turn of the main loop gives them one segment in, one segment out
//! and one line each, after the aggregator has had its batch. What they say wrong, leave half open
//! or do not read costs them their place, by a deadline.
//!
//! smoltcp may panic, so this is not part of the images that are proved not to.

mod client;
mod console;
mod http;
mod metrics;
mod segment;
mod wire;

use gradwire::engine::Millis;
use gradwire::forward::{Buffer, Device, Port};
use gradwire::wire::chunk;
use heapless::{Deque, String, Vec};
use smoltcp::iface::{Config, Interface, SocketSet, SocketStorage};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use crate::aggregation::{Beside, IP, SoftAggregator};
use crate::board::{Board, Chip, Nics};
use client::Client;
use metrics::Facts;
pub use metrics::{Counts, write as write_metrics};
use segment::Segment;
use wire::{Neighbour, Wire};

/// The port of the metrics: that of `gradwire-xdp`.
pub const METRICS_PORT: u16 = 9407;
/// The port of the console: the number of the sums' UDP port.
pub const CONSOLE_PORT: u16 = chunk::PORT;

/// The ports that are served at once.
const PORTS: [u16; 5] = [METRICS_PORT, METRICS_PORT, METRICS_PORT, CONSOLE_PORT, CONSOLE_PORT];
const CLIENTS: usize = PORTS.len();
/// Bytes of a client that wait to be read, and bytes for it that wait to be sent or acknowledged.
const RECEIVED: usize = 512;
const SENT: usize = 2048;
/// Segments that wait for their turn; the NIC has buffers for more.
const QUEUE: usize = 8;

/// The longest piece of an answer.
pub type Line = String<256>;

/// The continuation of an answer.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// The line, which may be empty.
    Line,
    /// Nothing until the client says more.
    Wait,
    /// Nothing: the connection ends.
    End,
}

/// Buffers of connections.
#[derive(Debug)]
pub struct Memory {
    received: [[u8; RECEIVED]; CLIENTS],
    sent: [[u8; SENT]; CLIENTS],
}

impl Memory {
    /// All zero.
    pub const NEW: Self = Self { received: [[0; RECEIVED]; CLIENTS], sent: [[0; SENT]; CLIENTS] };
}

/// The state of connections.
pub type Places = [SocketStorage<'static>; CLIENTS];

/// Without any connection.
pub const NO_PLACES: Places = [SocketStorage::EMPTY; CLIENTS];

/// Metrics and console. `B` are the buffers of the board's NICs.
pub struct Management<B> {
    interface: Interface,
    sockets: SocketSet<'static>,
    clients: Vec<Client, CLIENTS>,
    /// The places of clients, in their order, and behind them the sender of the last segment.
    neighbours: [Option<Neighbour>; CLIENTS + 1],
    /// Segments that wait.
    queue: Deque<B, QUEUE>,
    counts: Counts,
    panics: u32,
}

impl<B: Buffer> Management<B> {
    /// Listens. The `seed` is for sequence numbers; `panics` are shown.
    #[must_use]
    pub fn new(memory: &'static mut Memory, places: &'static mut Places, seed: u64, panics: u32) -> Self {
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut wire::Unconnected, Instant::ZERO);
        // Whom it may speak to is nothing that it decides: it answers.
        interface.update_ip_addrs(|addresses| {
            let _ = addresses.push(IpCidr::new(IpAddress::Ipv4(IP), 0)); // there is a place for two
        });
        let Memory { received, sent } = memory;
        let mut sockets = SocketSet::new(&mut places[..]);
        let mut clients = Vec::new();
        for ((port, received), sent) in PORTS.into_iter().zip(received).zip(sent) {
            let buffer = |bytes: &'static mut [u8]| tcp::SocketBuffer::new(bytes);
            let handle = sockets.add(tcp::Socket::new(buffer(received), buffer(sent)));
            let mut client = Client::new(handle, port);
            client.listen(sockets.get_mut(handle));
            let _ = clients.push(client); // there is a place for each
        }
        Self {
            interface,
            sockets,
            clients,
            neighbours: [None; CLIENTS + 1],
            queue: Deque::new(),
            counts: Counts::default(),
            panics,
        }
    }

    /// Keeps a frame with a segment, and gives back any other.
    pub fn receive(&mut self, frame: B, nics: &mut impl Nics<Buffer = B>) -> Option<B> {
        if Segment::parse(frame.frame()).is_none() {
            return Some(frame);
        }
        if let Err(frame) = self.queue.push_back(frame) {
            self.counts.no_queue += 1;
            nics.release(frame);
        }
        None
    }

    /// One segment in, at most one out for each client beside its answer, and a line for each;
    /// whether there is more to do.
    pub fn step(
        &mut self,
        nics: &mut impl Nics<Buffer = B>,
        aggregator: &SoftAggregator,
        now: Millis,
    ) -> bool {
        let frame = self.queue.pop_front();
        if frame.is_none() && self.clients.iter().all(Client::is_listening) {
            return false;
        }
        self.exchange(frame.as_ref().and_then(|frame| Segment::parse(frame.frame())), nics, now);
        if let Some(frame) = frame {
            nics.release(frame);
        }
        let facts = Facts {
            aggregator,
            now,
            faults: nics.faults(Port::Network),
            link: nics.link(Port::Network),
            panics: self.panics,
            counts: self.counts,
        };
        let mut is_busy = !self.queue.is_empty();
        for client in &mut self.clients {
            let socket = self.sockets.get_mut(client.handle);
            is_busy |= client.serve(socket, &facts, &mut self.counts, now);
        }
        is_busy
    }

    /// Gives the stack a segment, if there is one, and sends what is due.
    fn exchange(&mut self, segment: Option<Segment<'_>>, nics: &mut impl Nics<Buffer = B>, now: Millis) {
        let now = Instant::from_millis(now.0 as i64);
        let Self { interface, sockets, clients, neighbours, counts, .. } = self;
        if let Some(segment) = &segment {
            counts.segments += 1;
            neighbours[CLIENTS] = Some(segment.from);
            if segment.is_syn {
                make_room(clients, sockets, counts, segment.port);
            }
        }
        let mut wire =
            Wire::new(nics, neighbours, segment.as_ref().map(|segment| segment.packet), &mut counts.no_room);
        interface.poll_ingress_single(now, &mut wire, sockets);
        if let Some(segment) = segment {
            // Answers go back to where segments came from, as the aggregator's own do.
            for (client, neighbour) in clients.iter().zip(&mut *wire.neighbours) {
                let remote = sockets.get::<tcp::Socket<'_>>(client.handle).remote_endpoint();
                if remote.is_some_and(|remote| remote.addr == IpAddress::Ipv4(segment.from.ip)) {
                    *neighbour = Some(segment.from);
                }
            }
        }
        interface.poll_egress(now, &mut wire, sockets);
        wire.finish();
    }
}

/// If nobody listens at the port of a SYN any more, the oldest connection that is half open makes
/// room: a client that means it has sent its acknowledgement by then.
fn make_room(clients: &mut [Client], sockets: &mut SocketSet<'_>, counts: &mut Counts, port: u16) {
    let at_port = || clients.iter().enumerate().filter(|(_, client)| client.port == port);
    if at_port().any(|(_, client)| client.is_listening()) {
        return;
    }
    let is_half_open =
        |client: &Client| sockets.get::<tcp::Socket<'_>>(client.handle).state() == tcp::State::SynReceived;
    let oldest =
        at_port().filter(|(_, client)| is_half_open(client)).min_by_key(|(_, client)| client.until());
    if let Some(client) = oldest.map(|(at, _)| at).and_then(|at| clients.get_mut(at)) {
        counts.displaced += 1;
        client.listen(sockets.get_mut(client.handle));
    }
}

impl<C: Chip> Beside<C> for &mut Management<<C::Nics as Device>::Buffer> {
    fn receive(
        &mut self,
        frame: <C::Nics as Device>::Buffer,
        nics: &mut C::Nics,
    ) -> Option<<C::Nics as Device>::Buffer> {
        Management::receive(self, frame, nics)
    }

    fn sent(&mut self) {
        self.counts.sent += 1;
    }

    fn step(&mut self, board: &mut Board<C>, aggregator: &SoftAggregator, now: Millis) -> bool {
        Management::step(self, &mut board.nics, aggregator, now)
    }
}
