//! An aggregator among hosts with smoltcp's stack, which knows nothing of ours: they look the
//! aggregator up, ping it, and sum with it over UDP, by copies and by a multicast group. Time is
//! simulated.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use gradwire::aggregate::{
    Arrival, EthernetAggregator, Event, MAX_FRAME_LEN, Outcome, Poll, Served, Settings, Worker,
};
use gradwire::codec::bit_plane::Bound;
use gradwire::engine::Millis;
use gradwire::forward::{self, Buffer};
use gradwire::kernels::Kernel;
use gradwire::wire::chunk::{Limits, MAX_PACKET_LEN, PORT};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::{icmp, udp};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, Icmpv4Packet, Icmpv4Repr, IpAddress, IpCidr};

use crate::common::aggregation::{exact_sum, le_bytes, worker_settings};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Any but the protocol's.
const OTHER_PORT: u16 = 40_001;
const IDENT: u16 = 0x1234;
const VALUES: usize = 9000;
const HOSTS: u8 = 3;
/// Milliseconds that an exchange gets: many times what it takes.
const END: u64 = 2000;

type Frames = VecDeque<Vec<u8>>;

#[derive(Default)]
struct Port {
    received: Frames,
    sent: Frames,
}

struct Rx(Vec<u8>);
struct Tx<'a>(&'a mut Frames);

impl RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.push_back(frame);
        result
    }
}

impl Device for Port {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Rx, Tx<'_>)> {
        self.received.pop_front().map(|frame| (Rx(frame), Tx(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Tx<'_>> {
        Some(Tx(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = MAX_FRAME_LEN;
        capabilities
    }
}

/// A host with a stack, and a worker on it.
struct Host {
    mac: [u8; 6],
    port: Port,
    interface: Interface,
    sockets: SocketSet<'static>,
    udp: SocketHandle,
    icmp: SocketHandle,
    worker: Worker<16>,
    input: Vec<u8>,
    output: Vec<u8>,
    is_started: bool,
    is_done: bool,
    group: Option<[u8; 4]>,
}

impl Host {
    fn new(number: u8, local_port: u16) -> Self {
        let mac = [2, 0, 0, 0, 1, number];
        let mut port = Port::default();
        let config = Config::new(EthernetAddress(mac).into());
        let mut interface = Interface::new(config, &mut port, Instant::ZERO);
        let address = IpCidr::new(IpAddress::v4(10, 0, 0, 100 + number), 24);
        interface.update_ip_addrs(|addresses| addresses.push(address).unwrap());
        let mut sockets = SocketSet::new(vec![]);
        let buffer =
            || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; 64], vec![0; 64 * MAX_FRAME_LEN]);
        let mut socket = udp::Socket::new(buffer(), buffer());
        socket.bind(local_port).unwrap();
        let udp = sockets.add(socket);
        let buffer = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 4], vec![0; 4096]);
        let mut socket = icmp::Socket::new(buffer(), buffer());
        socket.bind(icmp::Endpoint::Ident(IDENT)).unwrap();
        let icmp = sockets.add(socket);
        let value = |at: usize| (at % 101) as f32 / 40.0 - f32::from(number);
        let input = le_bytes((0..VALUES).map(value));
        Self {
            mac,
            port,
            interface,
            sockets,
            udp,
            icmp,
            worker: Worker::new(worker_settings(number, HOSTS), Kernel::detect()),
            output: vec![0x55; input.len()],
            input,
            is_started: false,
            is_done: false,
            group: None,
        }
    }

    /// The stack does what it can.
    fn poll(&mut self, now: Millis) {
        self.interface.poll(Instant::from_millis(now.0 as i64), &mut self.port, &mut self.sockets);
    }

    /// The worker takes what has come, and sends what it has.
    fn sum(&mut self, now: Millis) {
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.udp);
        while let Ok((datagram, from)) = socket.recv() {
            assert_eq!((from.endpoint.addr, from.endpoint.port), (IpAddress::from(IP), PORT));
            match self.worker.handle(datagram, &mut self.output, now) {
                Event::Joined { group } => {
                    self.group = group;
                    group.iter().for_each(|group| {
                        self.interface.join_multicast_group(Ipv4Addr::from(*group)).unwrap();
                    });
                }
                Event::Ignored(reason) => panic!("{reason:?}"),
                _ => {}
            }
        }
        let mut out = [0; MAX_PACKET_LEN];
        loop {
            match self.worker.poll(&self.input, now, &mut out) {
                Poll::Send(len) => socket.send_slice(&out[..len], (IpAddress::from(IP), PORT)).unwrap(),
                Poll::Wait(_) => return,
                Poll::Done if self.is_started => {
                    self.is_done = true;
                    return;
                }
                Poll::Done => self.is_started = self.worker.start(VALUES, Bound::new(-10).unwrap()),
                Poll::Failed(failure) => panic!("{failure:?}"),
            }
        }
    }

    fn ping(&mut self, data: &[u8]) {
        let echo = Icmpv4Repr::EchoRequest { ident: IDENT, seq_no: 7, data };
        let mut request = vec![0; echo.buffer_len()];
        echo.emit(&mut Icmpv4Packet::new_unchecked(&mut request), &ChecksumCapabilities::default());
        self.sockets.get_mut::<icmp::Socket<'_>>(self.icmp).send_slice(&request, IP.into()).unwrap();
    }

    /// The data of an answer to a ping; the stack has checked it.
    fn pong(&mut self) -> Option<Vec<u8>> {
        let (reply, from) = self.sockets.get_mut::<icmp::Socket<'_>>(self.icmp).recv().ok()?;
        assert_eq!(from, IpAddress::from(IP));
        let packet = Icmpv4Packet::new_checked(reply).unwrap();
        match Icmpv4Repr::parse(&packet, &ChecksumCapabilities::default()).unwrap() {
            Icmpv4Repr::EchoReply { ident: IDENT, seq_no: 7, data } => Some(data.to_vec()),
            other => panic!("{other:?}"),
        }
    }
}

/// A frame in a buffer of the aggregator's port.
struct Held(Vec<u8>);

impl Buffer for Held {
    fn frame(&self) -> &[u8] {
        &self.0
    }

    fn room(&mut self) -> &mut [u8] {
        self.0.resize(MAX_FRAME_LEN, 0);
        &mut self.0
    }

    fn set_len(&mut self, len: usize) {
        self.0.truncate(len);
    }
}

/// The aggregator's port.
#[derive(Default)]
struct AggregatorPort {
    received: Frames,
    sent: Frames,
    kicked: bool,
    is_full: bool,
    is_out_of_buffers: bool,
}

impl forward::Device for AggregatorPort {
    type Port = ();
    type Buffer = Held;

    fn receive(&mut self, (): ()) -> Option<Held> {
        self.received.pop_front().map(Held)
    }

    fn transmit(&mut self, (): (), frame: Held) -> Result<(), Held> {
        if self.is_full {
            return Err(frame);
        }
        self.sent.push_back(frame.0);
        Ok(())
    }

    fn take(&mut self) -> Option<Held> {
        (!self.is_out_of_buffers).then(|| Held(Vec::new()))
    }

    fn release(&mut self, _: Held) {}

    fn kick(&mut self, (): ()) {
        self.kicked = true;
    }
}

/// A switch with the aggregator and all hosts.
struct Network {
    aggregator: Box<EthernetAggregator<1, 32, 16>>,
    port: AggregatorPort,
    hosts: Vec<Host>,
}

impl Network {
    fn new(group: Option<[u8; 4]>, local_port: u16) -> Self {
        let settings =
            Settings { kernel: Kernel::detect(), limits: Limits::MOST, group, parent: None, secret: [3, 5] };
        Self {
            aggregator: Box::new(EthernetAggregator::new(MAC, IP, settings)),
            port: AggregatorPort::default(),
            hosts: (0..HOSTS).map(|number| Host::new(number, local_port)).collect(),
        }
    }

    /// Carries what hosts have sent, and what the aggregator sends in return.
    fn carry(&mut self, now: Millis) {
        for host in &mut self.hosts {
            self.port.received.append(&mut host.port.sent);
        }
        let frames = self.port.received.len();
        self.port.kicked = false;
        let served = self.aggregator.serve(&mut self.port, (), usize::MAX, now);
        assert_eq!((served.received, served.lost), (frames, 0));
        assert_eq!((served.sent as usize, served.sent > 0), (self.port.sent.len(), self.port.kicked));
        for frame in self.port.sent.drain(..) {
            let is_to_many = frame[0] & 1 == 1;
            let mut takers = 0;
            for host in self.hosts.iter_mut().filter(|host| is_to_many || frame[..6] == host.mac) {
                host.port.received.push_back(frame.clone());
                takers += 1;
            }
            assert!(takers > 0, "{frame:02x?}");
        }
    }

    fn sum(&mut self) {
        for now in (0..END).map(Millis) {
            for host in &mut self.hosts {
                host.poll(now);
                host.sum(now);
                host.poll(now);
            }
            self.carry(now);
            if self.hosts.iter().all(|host| host.is_done) {
                return;
            }
        }
        panic!("no sums");
    }
}

#[test]
fn hosts_find_the_aggregator_and_ping_it() {
    let mut network = Network::new(None, OTHER_PORT);
    for len in [0, 1, 56, 1000] {
        let data: Vec<u8> = (0..len).map(|at| at as u8).collect();
        for host in &mut network.hosts {
            host.ping(&data);
        }
        // The request for the address and its answer, the ping and its answer.
        for now in [0, 1, 2].map(Millis) {
            network.hosts.iter_mut().for_each(|host| host.poll(now));
            network.carry(now);
        }
        for host in &mut network.hosts {
            host.poll(Millis(3));
            assert_eq!(host.pong().as_deref(), Some(&data[..]), "{len}");
        }
    }
    let counts = [Arrival::Arp, Arrival::Echo].map(|arrival| network.aggregator.count(arrival));
    assert_eq!(counts, [u64::from(HOSTS), 4 * u64::from(HOSTS)], "each host looked the aggregator up once");
}

/// Frames of hosts that ask for the aggregator's address wait at its port.
fn asked() -> Network {
    let mut network = Network::new(None, OTHER_PORT);
    for host in &mut network.hosts {
        host.ping(&[]);
        host.poll(Millis(0));
        network.port.received.append(&mut host.port.sent);
    }
    assert_eq!(network.port.received.len(), usize::from(HOSTS));
    network
}

#[test]
fn a_batch_takes_no_more_frames_than_its_budget() {
    let Network { mut aggregator, mut port, .. } = asked();
    for received in [2, 1, 0] {
        let served = aggregator.serve(&mut port, (), 2, Millis(0));
        assert_eq!(served, Served { received, sent: received as u64, lost: 0 });
    }
}

/// A frame's own buffer carries its first answer, and a second buffer is asked for.
#[test]
fn frames_without_room_or_buffer_are_counted() {
    for (is_full, is_out_of_buffers, sent, lost) in
        [(true, false, 0, 3), (false, true, 3, 3), (true, true, 0, 6)]
    {
        let Network { mut aggregator, mut port, .. } = asked();
        (port.is_full, port.is_out_of_buffers) = (is_full, is_out_of_buffers);
        let served = aggregator.serve(&mut port, (), usize::MAX, Millis(0));
        assert_eq!(served, Served { received: 3, sent, lost });
        assert_eq!((port.sent.len() as u64, port.kicked), (sent, sent > 0));
    }
}

/// By copies, and by a group, which hosts join when the aggregator names it.
#[test]
fn hosts_get_the_exact_sum() {
    for (group, local_port) in [(None, OTHER_PORT), (Some([239, 129, 2, 3]), PORT)] {
        let mut network = Network::new(group, local_port);
        network.sum();
        let inputs: Vec<Vec<u8>> = network.hosts.iter().map(|host| host.input.clone()).collect();
        let expected = exact_sum(&inputs, Bound::new(-10).unwrap());
        for host in &network.hosts {
            assert!(host.output == expected);
            assert_eq!(host.group, group);
        }
        assert_eq!(network.aggregator.engine.count(Outcome::Completed), VALUES.div_ceil(2048) as u64);
        assert_eq!(network.aggregator.count(Arrival::Arp), u64::from(HOSTS));
    }
}
