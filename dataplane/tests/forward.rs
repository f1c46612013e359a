//! Receive, process, transmit, over a device made of queues.

use std::collections::VecDeque;
use std::marker::PhantomData;

use gradwire::codec::decode_payload;
use gradwire::engine::{Millis, NO_CAPABILITIES};
use gradwire::forward::{Buffer, Device, Forwarder, Losses, Port, forward_batch};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire::rules::{DEFAULT_MARK, Framing, Rule, Rules};
use gradwire::verdict::{Change, Counters, DropReason, PassReason, Verdict};
use gradwire::wire::rewrite::complete_checksum;

use crate::common::{
    ACK, IpSpec, Spec, TransportSpec, gradient, host_accepts, le_bytes, repair_ipv4_checksum,
};

const MTU: u16 = 1500;
const NOW: Millis = Millis(0);

#[derive(Debug)]
struct Memory {
    /// Which buffer it is.
    name: usize,
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer for Memory {
    fn frame(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn set_len(&mut self, len: usize) {
        assert!(len <= self.bytes.len());
        self.len = len;
    }
}

/// The names of ports here.
trait Name: Copy + PartialEq {
    fn index(self) -> usize;
}

impl Name for Port {
    fn index(self) -> usize {
        self as usize
    }
}

/// A switch's ports have numbers.
impl Name for usize {
    fn index(self) -> usize {
        self
    }
}

struct Ports<P, const PORTS: usize> {
    free: Vec<Memory>,
    received: [VecDeque<Memory>; PORTS],
    sent: [Vec<Memory>; PORTS],
    kicks: [usize; PORTS],
    /// The number of frames a port takes.
    depth: usize,
    /// Whether checksums are left to it.
    completes: bool,
    ports: PhantomData<P>,
}

/// The device of a [`Forwarder`].
type Queues = Ports<Port, 2>;

impl<P: Name, const PORTS: usize> Ports<P, PORTS> {
    fn new(buffers: usize, depth: usize) -> Self {
        let memory = |name| Memory { name, bytes: vec![0; 2048], len: 0 };
        Self {
            free: (0..buffers).map(memory).collect(),
            received: [(); PORTS].map(|()| VecDeque::new()),
            sent: [(); PORTS].map(|()| Vec::new()),
            kicks: [0; PORTS],
            depth,
            completes: false,
            ports: PhantomData,
        }
    }

    /// A frame arrives; which buffer has it.
    fn arrive(&mut self, at: P, frame: &[u8]) -> usize {
        let mut memory = self.free.pop().unwrap();
        memory.bytes[..frame.len()].copy_from_slice(frame);
        memory.len = frame.len();
        let name = memory.name;
        self.received[at.index()].push_back(memory);
        name
    }

    /// The frames that a port sent since it was asked last; its buffers are free again.
    fn sent(&mut self, by: P) -> Vec<(usize, Vec<u8>)> {
        let sent = self.sent[by.index()].drain(..).collect::<Vec<_>>();
        let frames = sent.iter().map(|memory| (memory.name, memory.frame().to_vec())).collect();
        self.free.extend(sent);
        frames
    }
}

impl<P: Name, const PORTS: usize> Device for Ports<P, PORTS> {
    type Port = P;
    type Buffer = Memory;

    fn receive(&mut self, from: P) -> Option<Memory> {
        self.received[from.index()].pop_front()
    }

    fn transmit(&mut self, to: P, frame: Memory) -> Result<(), Memory> {
        let queue = &mut self.sent[to.index()];
        if queue.len() == self.depth {
            return Err(frame);
        }
        queue.push(frame);
        Ok(())
    }

    fn finish(&mut self, from: P, frame: &mut Memory) {
        if self.completes {
            complete_checksum(
                &mut frame.bytes[..frame.len],
                from.index() == Port::Network.index(),
                Kernel::detect(),
            );
        }
    }

    fn take(&mut self) -> Option<Memory> {
        self.free.pop()
    }

    fn release(&mut self, buffer: Memory) {
        self.free.push(buffer);
    }

    fn kick(&mut self, to: P) {
        self.kicks[to.index()] += 1;
    }
}

fn forwarder() -> Forwarder<2> {
    let rules = Rules::new(&[Rule::STATIC], DEFAULT_MARK).unwrap();
    Forwarder::new(rules, Kernel::detect(), MTU, 1)
}

fn segment(number: u32) -> Spec {
    Spec::tcp(1000 + 400 * number, ACK, &le_bytes(&gradient(100)))
}

fn untagged() -> Vec<u8> {
    Spec { tos: 0, ..segment(0) }.bytes()
}

#[test]
fn frames_cross_in_order_in_the_buffers_they_came_in_and_changed_ones_in_the_spare() {
    let mut device = Queues::new(8, 8);
    let mut forwarder = forwarder();
    let segments = [segment(0).bytes(), segment(1).bytes()];
    let syn = device.arrive(Port::Host, &segment(0).syn(1000).bytes());
    let first = device.arrive(Port::Host, &segments[0]);
    let other = device.arrive(Port::Host, &untagged());
    device.arrive(Port::Host, &segments[1]);
    assert_eq!(forwarder.forward(&mut device, Port::Host, 64, NOW, &NO_CAPABILITIES), 4);
    let wire = device.sent(Port::Network);
    assert_eq!(device.kicks, [0, 1]);
    assert_eq!(wire.len(), 4);
    assert_eq!(wire[0], (syn, segment(0).syn(1000).bytes()));
    assert_eq!(wire[2], (other, untagged()));
    assert_eq!(wire[3].0, first, "the buffer of a frame that was replaced is the next spare");
    assert_eq!(forwarder.egress().counters().changed(Change::Compressed), 2);
    for (sent, (_, on_wire)) in segments.iter().zip([&wire[1], &wire[3]]) {
        assert!(on_wire.len() < sent.len());
        assert_eq!(host_accepts(on_wire), None, "only a gradwire can take it");
    }

    // The wire's other end is the same machine here.
    for (_, frame) in &wire {
        device.arrive(Port::Network, frame);
    }
    assert_eq!(forwarder.forward(&mut device, Port::Network, 64, NOW, &NO_CAPABILITIES), 4);
    let host = device.sent(Port::Host);
    assert_eq!(forwarder.ingress().counters().changed(Change::Restored), 2);
    assert_eq!(host[2].1, untagged());
    for (frame, (_, restored)) in segments.iter().zip([&host[1], &host[3]]) {
        let (sent, got) = (host_accepts(frame).unwrap(), host_accepts(restored).unwrap());
        assert_eq!(sent.len(), got.len());
        for (sent, got) in sent.chunks_exact(4).zip(got.chunks_exact(4)) {
            let value = |bytes: &[u8]| f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
            assert!((value(sent) - value(got)).abs() < 1.0 / 1024.0);
        }
    }
    assert_eq!(device.free.len(), 8, "every buffer came back");
    assert_eq!(forwarder.losses(Port::Host), Losses::default());
    assert_eq!(forwarder.losses(Port::Network), Losses::default());
}

/// The observed groups are decoded by the definition, and have to be what the far end restores.
#[test]
fn an_observer_sees_the_values_of_each_compressed_frame_and_their_groups() {
    for framing in [Framing::Routed, Framing::InPlace] {
        let rule = Rule { framing, ..Rule::STATIC };
        let rules = Rules::new(&[Rule { tos: 0x48, ..rule }, rule], DEFAULT_MARK).unwrap();
        let mut forwarder = Forwarder::<2>::new(rules, Kernel::detect(), MTU, 1);
        let mut device = Queues::new(8, 8);
        device.arrive(Port::Host, &segment(0).syn(1000).bytes());
        let sent = segment(0);
        let payload = sent.payload.clone();
        device.arrive(Port::Host, &sent.bytes());
        device.arrive(Port::Host, &untagged());
        let mut seen = Vec::new();
        forwarder.forward_observed(&mut device, Port::Host, 64, NOW, &NO_CAPABILITIES, |coded| {
            let Profile::SizeClass(params) = coded.profile else { panic!("codec 1") };
            let mut restored = vec![0; coded.values.len()];
            assert_eq!(decode_payload(coded.groups, &mut restored, params), Ok(coded.groups.len()));
            seen.push((coded.rule, coded.values.to_vec(), restored));
        });
        let [(1, values, restored)] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!(*values, payload);
        for (_, frame) in device.sent(Port::Network) {
            device.arrive(Port::Network, &frame);
        }
        forwarder
            .forward_observed(&mut device, Port::Network, 64, NOW, &NO_CAPABILITIES, |_| panic!("restored"));
        let host = device.sent(Port::Host);
        assert_eq!(host_accepts(&host[1].1).unwrap(), &restored[..]);
    }
}

#[test]
fn a_budget_ends_a_batch_and_an_idle_port_is_not_kicked() {
    let mut device = Queues::new(8, 8);
    let mut forwarder = forwarder();
    assert_eq!(forwarder.forward(&mut device, Port::Host, 64, NOW, &NO_CAPABILITIES), 0);
    for _ in 0..3 {
        device.arrive(Port::Host, &untagged());
    }
    assert_eq!(forwarder.forward(&mut device, Port::Host, 2, NOW, &NO_CAPABILITIES), 2);
    assert_eq!(forwarder.forward(&mut device, Port::Host, 2, NOW, &NO_CAPABILITIES), 1);
    assert_eq!(forwarder.forward(&mut device, Port::Host, 2, NOW, &NO_CAPABILITIES), 0);
    assert_eq!(device.kicks, [0, 2]);
    assert_eq!(device.sent(Port::Network).len(), 3);
}

/// A switch of three ports whose frames say in their first byte where they leave.
#[test]
fn a_frame_leaves_at_the_port_that_it_was_told_to() {
    let mut device = Ports::<usize, 3>::new(8, 3);
    let mut losses = Losses::default();
    for (number, to) in [1, 1, 2, 1, 0xff, 0, 1].into_iter().enumerate() {
        device.arrive(0, &[to, number as u8]);
    }
    let received = forward_batch(&mut device, 0, 64, &mut losses, |frame, out| match frame[0] {
        0xff => (Verdict::Dropped(DropReason::Malformed), 0),
        // One that is changed.
        2 => {
            out[..3].copy_from_slice(&[2, frame[1], 0x77]);
            (Verdict::Changed { change: Change::Restored, len: 3 }, 2)
        }
        to => (Verdict::Untouched(PassReason::NoRule), usize::from(to)),
    });
    assert_eq!(received, 7);
    let mut sent = |port| device.sent(port).into_iter().map(|(_, frame)| frame).collect::<Vec<_>>();
    assert_eq!(sent(0), [[0, 5]]);
    // The fourth for port 1 finds its queue full.
    assert_eq!(sent(1), [[1, 0], [1, 1], [1, 3]]);
    assert_eq!(sent(2), [[2, 2, 0x77]]);
    assert_eq!(losses, Losses { no_queue: 1, no_buffer: 0 });
    // Each time that the batch turns to another port, and at its end.
    assert_eq!(device.kicks, [1, 2, 1]);
    assert_eq!(device.free.len(), 8);
}

#[test]
fn a_frame_refused_by_a_full_queue_is_counted_and_its_buffer_is_free_again() {
    let mut device = Queues::new(8, 1);
    let mut forwarder = forwarder();
    for frame in [segment(0).syn(1000).bytes(), segment(0).bytes(), untagged()] {
        device.arrive(Port::Host, &frame);
    }
    assert_eq!(forwarder.forward(&mut device, Port::Host, 64, NOW, &NO_CAPABILITIES), 3);
    assert_eq!(device.sent(Port::Network).len(), 1);
    assert_eq!(forwarder.losses(Port::Host).no_queue, 2);
    assert_ne!(*forwarder.egress().counters(), Counters::new());
    forwarder.reset(2);
    assert_eq!(forwarder.losses(Port::Host), Losses::default());
    assert_eq!(*forwarder.egress().counters(), Counters::new());
    assert_eq!(device.free.len(), 8);
}

#[test]
fn without_a_spare_buffer_frames_leave_as_they_came_and_compressed_ones_are_dropped() {
    let mut forwarder = forwarder();
    let mut device = Queues::new(2, 8);
    device.arrive(Port::Host, &segment(0).syn(1000).bytes());
    device.arrive(Port::Host, &segment(0).bytes());
    forwarder.forward(&mut device, Port::Host, 64, NOW, &NO_CAPABILITIES);
    assert_eq!(device.sent(Port::Network)[1].1, segment(0).bytes());
    assert_eq!(forwarder.egress().counters().passed(PassReason::NoRoom), 1);
    assert_eq!(forwarder.losses(Port::Host).no_buffer, 2);

    let mut device = Queues::new(2, 8);
    device.arrive(Port::Host, &segment(1).bytes());
    forwarder.forward(&mut device, Port::Host, 64, NOW, &NO_CAPABILITIES);
    let compressed = device.sent(Port::Network).remove(0).1;
    assert_eq!(forwarder.egress().counters().changed(Change::Compressed), 1);
    let mut device = Queues::new(1, 8);
    device.arrive(Port::Network, &compressed);
    assert_eq!(forwarder.forward(&mut device, Port::Network, 64, NOW, &NO_CAPABILITIES), 1);
    assert!(device.sent(Port::Host).is_empty());
    assert_eq!(forwarder.ingress().counters().dropped(DropReason::NoRoom), 1);
    assert_eq!(device.free.len(), 1);
}

#[test]
fn new_rules_hold_in_both_directions_and_keep_flows() {
    let mut device = Queues::new(8, 8);
    let mut forwarder = forwarder();
    device.arrive(Port::Host, &segment(0).syn(1000).bytes());
    forwarder.forward(&mut device, Port::Host, 64, NOW, &NO_CAPABILITIES);
    forwarder.set_rules(Rules::new(&[Rule { tos: 0x50, ..Rule::STATIC }], 0x60).unwrap());
    device.sent(Port::Network);
    let tagged = Spec { tos: 0x50, ..segment(0) }.bytes();
    device.arrive(Port::Host, &tagged);
    device.arrive(Port::Host, &segment(1).bytes());
    forwarder.forward(&mut device, Port::Host, 64, NOW, &NO_CAPABILITIES);
    let wire = device.sent(Port::Network);
    assert!(wire[0].1.len() < tagged.len());
    assert_eq!(wire[1].1, segment(1).bytes(), "its type of service means nothing any more");
    device.arrive(Port::Network, &wire[0].1);
    forwarder.forward(&mut device, Port::Network, 64, NOW, &NO_CAPABILITIES);
    assert!(host_accepts(&device.sent(Port::Host)[0].1).is_some());
}

/// The sum of the pseudo-header in the frame's checksum field, as a host leaves it to offload.
fn offloaded(spec: &Spec) -> Vec<u8> {
    let mut frame = spec.bytes();
    let (at, sum) = (spec.l4_checksum_at(), pseudo_sum(spec, frame.len()));
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn pseudo_sum(spec: &Spec, frame_len: usize) -> u16 {
    let (addresses, ip_len) = match &spec.ip {
        IpSpec::V4 { .. } => (26..34, 20),
        IpSpec::V6 { .. } => (22..54, 40),
    };
    let protocol = if matches!(spec.transport, TransportSpec::Tcp { .. }) { 6 } else { 17 };
    let frame = spec.bytes();
    let words = frame[addresses].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum = words.sum::<u32>() + protocol + (frame_len - 14 - ip_len) as u32;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[test]
fn checksums_left_to_offload_are_completed_where_the_ports_do_not() {
    let values = le_bytes(&gradient(100));
    let v6 = || IpSpec::V6 { extensions: vec![] };
    let tcp = Spec { tos: 0, ..Spec::tcp(1000, ACK, &values) };
    let udp = Spec { tos: 0, ..Spec::udp(&values) };
    for spec in [tcp.clone(), udp.clone(), Spec { ip: v6(), ..tcp.clone() }, Spec { ip: v6(), ..udp }] {
        let frame = offloaded(&spec);
        assert_eq!(host_accepts(&frame), None, "a host that sees the metadata no more drops it");
        for from in Port::ALL {
            let mut device = Queues::new(4, 4);
            device.arrive(from, &frame);
            forwarder().forward(&mut device, from, 4, NOW, &NO_CAPABILITIES);
            assert_eq!(device.sent(from.other())[0].1, frame, "nobody asked for it");
            device.completes = true;
            device.arrive(from, &frame);
            device.arrive(from, &spec.bytes());
            forwarder().forward(&mut device, from, 4, NOW, &NO_CAPABILITIES);
            let sent = device.sent(from.other());
            assert_eq!(sent[0].1, spec.bytes());
            assert_eq!(sent[1].1, spec.bytes());
        }
    }

    // The host's own frame with the mark loses its type of service, and has no right checksum
    // before.
    let mut device = Queues { completes: true, ..Queues::new(4, 4) };
    device.arrive(Port::Host, &offloaded(&Spec { tos: DEFAULT_MARK, ..tcp.clone() }));
    forwarder().forward(&mut device, Port::Host, 4, NOW, &NO_CAPABILITIES);
    assert_eq!(device.sent(Port::Network)[0].1, tcp.bytes());

    // What is cut short, has no checksum or is no packet stays as it is.
    let cut = offloaded(&tcp)[..200].to_vec();
    let none =
        Spec { transport: TransportSpec::Udp { checksum: false }, tos: 0, ..Spec::udp(&values) }.bytes();
    for frame in [cut, none, vec![0; 60]] {
        let mut device = Queues { completes: true, ..Queues::new(4, 4) };
        device.arrive(Port::Host, &frame);
        forwarder().forward(&mut device, Port::Host, 4, NOW, &NO_CAPABILITIES);
        assert_eq!(device.sent(Port::Network)[0].1, frame);
    }
}

#[test]
fn a_compressed_frame_is_not_completed_though_its_checksum_looks_left_to_offload() {
    // Of 65536 frames that differ in 16 raw bits, one has the checksum that looks so.
    let (mut plain, mut completing) = (forwarder(), forwarder());
    let mut device = Queues::new(4, 4);
    for forwarder in [&mut plain, &mut completing] {
        // Tagged late: one of them sees nothing of the stream but what stands in its middle.
        device.arrive(Port::Host, &Spec { tos: 0, ..segment(0).syn(1000) }.bytes());
        forwarder.forward(&mut device, Port::Host, 4, NOW, &NO_CAPABILITIES);
        device.sent(Port::Network);
    }
    let mut seen = 0;
    for bits in 0..=u16::MAX {
        let mut values = gradient(24);
        values[0] = f32::from_bits(0x4000_0000 | u32::from(bits));
        let spec = Spec::tcp(1000 + 96 * u32::from(bits), ACK, &le_bytes(&values));
        device.arrive(Port::Host, &spec.bytes());
        plain.forward(&mut device, Port::Host, 4, NOW, &NO_CAPABILITIES);
        let wire = device.sent(Port::Network).remove(0).1;
        let (mark, at) = (Spec { tos: DEFAULT_MARK, ..spec.clone() }, spec.l4_checksum_at());
        if wire[at..at + 2] == pseudo_sum(&mark, wire.len()).to_be_bytes() {
            device.completes = true;
            device.arrive(Port::Host, &spec.bytes());
            completing.forward(&mut device, Port::Host, 4, NOW, &NO_CAPABILITIES);
            device.completes = false;
            assert_eq!(device.sent(Port::Network)[0].1, wire);
            assert_eq!(completing.egress().counters().changed(Change::Compressed), seen + 1);
            seen += 1;
            // A switch on the way takes its mark away: a host must not take it for data.
            for tos in [0x28, 0] {
                let mut remarked = wire.clone();
                remarked[15] = tos;
                repair_ipv4_checksum(&mut remarked);
                device.completes = true;
                device.arrive(Port::Network, &remarked);
                completing.forward(&mut device, Port::Network, 4, NOW, &NO_CAPABILITIES);
                device.completes = false;
                assert_eq!(device.sent(Port::Host)[0].1, remarked);
                assert_eq!(host_accepts(&remarked), None);
            }
        }
    }
    assert!(seen > 0);
}
