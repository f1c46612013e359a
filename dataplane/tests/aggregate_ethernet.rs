//! An aggregator on Ethernet: what `etherparse` writes, it takes; what it sends, `etherparse`
//! reads.

use std::net::Ipv4Addr;

use etherparse::{
    EtherType, IpFragOffset, Ipv4Header, LinkSlice, NetSlice, PacketBuilder, SlicedPacket, TransportSlice,
};
use gradwire::aggregate::{
    Arrival, EthernetAggregator, Event, MAX_FRAME_LEN, Outcome, Poll, Settings, Worker,
};
use gradwire::codec::bit_plane::Bound;
use gradwire::engine::Millis;
use gradwire::kernels::Kernel;
use gradwire::wire::chunk::{Limits, MAX_PACKET_LEN, PORT, TOS};

use crate::common::aggregation::{exact_sum, le_bytes, worker_settings};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const NOW: Millis = Millis(50);

fn aggregator(group: Option<[u8; 4]>) -> Box<EthernetAggregator<1, 32, 16>> {
    let settings =
        Settings { kernel: Kernel::detect(), limits: Limits::MOST, group, parent: None, secret: [3, 5] };
    Box::new(EthernetAggregator::new(MAC, IP, settings))
}

fn host(number: u8) -> ([u8; 6], [u8; 4]) {
    ([2, 0, 0, 0, 1, number], [10, 0, 0, 100 + number])
}

fn datagram(number: u8, payload: &[u8]) -> Vec<u8> {
    let (mac, ip) = host(number);
    let mut frame = Vec::new();
    let builder =
        PacketBuilder::ethernet2(mac, MAC).ipv4(ip, IP.octets(), 9).udp(4000 + u16::from(number), PORT);
    builder.write(&mut frame, payload).unwrap();
    frame.resize(frame.len().max(60), 0xee);
    frame
}

/// Destination MAC, address and port, and the payload, of a datagram that is right in every
/// respect.
fn read(frame: &[u8]) -> ([u8; 6], [u8; 4], u16, Vec<u8>) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(LinkSlice::Ethernet2(link)) = packet.link else { panic!() };
    assert_eq!((link.source(), link.ether_type()), (MAC, EtherType::IPV4));
    let Some(NetSlice::Ipv4(ip)) = packet.net else { panic!() };
    let header = ip.header().to_header();
    assert_eq!(header.calc_header_checksum(), header.header_checksum);
    assert_eq!((header.source, header.dont_fragment, header.time_to_live), (IP.octets(), true, 64));
    assert_eq!(ip.header().slice()[1], TOS);
    let Some(TransportSlice::Udp(udp)) = packet.transport else { panic!() };
    assert_eq!(udp.source_port(), PORT);
    assert_eq!(udp.to_header().calc_checksum_ipv4(&header, udp.payload()).unwrap(), udp.checksum());
    assert_eq!(frame.len(), 14 + usize::from(header.total_len));
    (link.destination(), header.destination, udp.destination_port(), udp.payload().to_vec())
}

/// Two workers sum over frames, by a group or by copies.
fn sum_over_frames(group: Option<[u8; 4]>) {
    let bound = Bound::new(-10).unwrap();
    let mut aggregator = aggregator(group);
    let mut children: Vec<Worker<16>> =
        (0..2).map(|n| Worker::new(worker_settings(n, 2), Kernel::detect())).collect();
    let inputs: Vec<Vec<u8>> =
        (0..2u8).map(|n| le_bytes((0..3000).map(|i| (i % 97) as f32 / 50.0 - f32::from(n)))).collect();
    let mut outputs = vec![vec![0x55; inputs[0].len()]; 2];
    let mut started = [false; 2];
    let (mut out, mut frame) = ([0; MAX_PACKET_LEN], [0; MAX_FRAME_LEN]);
    for _ in 0..20 {
        for number in 0..2u8 {
            let worker = usize::from(number);
            if !started[worker] {
                started[worker] = children[worker].start(3000, bound);
            }
            let Poll::Send(len) = children[worker].poll(&inputs[worker], NOW, &mut out) else { continue };
            let (arrival, outcome) = aggregator.process(&datagram(number, &out[..len]), NOW);
            assert_eq!((arrival, outcome.is_some()), (Arrival::Datagram, true));
            while let Some(len) = aggregator.emit(&mut frame) {
                let (mac, ip, port, payload) = read(&frame[..len]);
                let to: Vec<u8> = if Some(ip) == group {
                    assert_eq!((mac, port), ([1, 0, 0x5e, 0x01, 2, 3], PORT));
                    vec![0, 1]
                } else {
                    let number = ip[3] - 100;
                    assert_eq!((mac, ip, port), (host(number).0, host(number).1, 4000 + u16::from(number)));
                    vec![number]
                };
                for number in to.into_iter().map(usize::from) {
                    let event = children[number].handle(&payload, &mut outputs[number], NOW);
                    assert!(!matches!(event, Event::Ignored(_)), "{event:?}");
                    if let Event::Joined { group: joined } = event {
                        assert_eq!(joined, group);
                    }
                }
            }
        }
    }
    let expected = exact_sum(&inputs, bound);
    assert!(outputs.iter().all(|output| *output == expected));
    assert_eq!(aggregator.engine.count(Outcome::Completed), 2);
}

#[test]
fn workers_get_the_sum_over_ethernet() {
    sum_over_frames(Some([239, 129, 2, 3]));
    sum_over_frames(None);
}

fn arp_request(asked: Ipv4Addr) -> Vec<u8> {
    let (mac, ip) = host(3);
    let parts: [&[u8]; 8] =
        [&[0xff; 6], &mac, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &mac, &ip, &[0; 6], &asked.octets(), &[0; 18]];
    parts.concat()
}

#[test]
fn arp_is_answered_for_our_address() {
    let (mut aggregator, mut out) = (aggregator(None), [0; MAX_FRAME_LEN]);
    let request = arp_request(IP);
    assert_eq!(aggregator.process(&request, NOW), (Arrival::Arp, None));
    let len = aggregator.emit(&mut out).unwrap();
    let packet = SlicedPacket::from_ethernet(&out[..len]).unwrap();
    let Some(NetSlice::Arp(arp)) = packet.net else { panic!("{packet:?}") };
    let (mac, ip) = host(3);
    assert_eq!(arp.operation(), etherparse::ArpOperation::REPLY);
    assert_eq!((arp.sender_hw_addr(), arp.sender_protocol_addr()), (&MAC[..], &IP.octets()[..]));
    assert_eq!((arp.target_hw_addr(), arp.target_protocol_addr()), (&mac[..], &ip[..]));
    assert_eq!((&out[..6], &out[6..12]), (&mac[..], &MAC[..]));
    assert_eq!(aggregator.emit(&mut [0; MAX_FRAME_LEN]), None);
    assert_eq!(aggregator.process(&arp_request(Ipv4Addr::new(10, 0, 0, 2)), NOW).0, Arrival::NotOurs);
    for len in 0..42 {
        assert!(matches!(aggregator.process(&request[..len], NOW).0, Arrival::Malformed), "{len}");
    }
    // A reply is no request; and another kind of address is none of ours.
    for (at, byte, arrival) in
        [(21, 2, Arrival::NotOurs), (15, 6, Arrival::Malformed), (18, 8, Arrival::Malformed)]
    {
        let mut other = request.clone();
        other[at] = byte;
        assert_eq!(aggregator.process(&other, NOW).0, arrival);
        assert_eq!(aggregator.emit(&mut [0; MAX_FRAME_LEN]), None);
    }
}

#[test]
fn echo_requests_are_answered() {
    let (mut aggregator, mut out) = (aggregator(None), [0; MAX_FRAME_LEN]);
    let (mac, ip) = host(4);
    for len in [0, 1, 56, 1472] {
        let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut request = Vec::new();
        PacketBuilder::ethernet2(mac, MAC)
            .ipv4(ip, IP.octets(), 3)
            .icmpv4_echo_request(0x1234, 7)
            .write(&mut request, &data)
            .unwrap();
        assert_eq!(aggregator.process(&request, NOW), (Arrival::Echo, None), "{len}");
        let answered = aggregator.emit(&mut out).unwrap();
        let packet = SlicedPacket::from_ethernet(&out[..answered]).unwrap();
        let Some(NetSlice::Ipv4(header)) = &packet.net else { panic!() };
        let header = header.header().to_header();
        assert_eq!(header.calc_header_checksum(), header.header_checksum);
        assert_eq!((header.source, header.destination), (IP.octets(), ip));
        let Some(TransportSlice::Icmpv4(icmp)) = &packet.transport else { panic!() };
        let reply = icmp.header();
        assert_eq!(reply.checksum, reply.icmp_type.calc_checksum(icmp.payload()));
        let etherparse::Icmpv4Type::EchoReply(echo) = reply.icmp_type else { panic!("{reply:?}") };
        assert_eq!((echo.id, echo.seq, icmp.payload()), (0x1234, 7, &data[..]));
        request[40] ^= 1;
        assert_eq!(aggregator.process(&request, NOW).0, Arrival::Checksum);
        assert_eq!(aggregator.emit(&mut [0; MAX_FRAME_LEN]), None);
    }
    // A byte more than Ethernet carries.
    let mut request = Vec::new();
    let builder = PacketBuilder::ethernet2(mac, MAC).ipv4(ip, IP.octets(), 3).icmpv4_echo_request(0x1234, 7);
    builder.write(&mut request, &[0; 1473]).unwrap();
    assert_eq!(aggregator.process(&request, NOW), (Arrival::TooLong, None));
    assert_eq!(aggregator.emit(&mut [0; 2000]), None);
}

#[test]
fn every_other_frame_has_its_reason() {
    let mut aggregator = aggregator(None);
    let good = datagram(0, &[0; 40]);
    let mut check = |arrival: Arrival, change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = good.clone();
        change(&mut frame);
        let before = aggregator.count(arrival);
        assert_eq!(aggregator.process(&frame, NOW).0, arrival);
        assert_eq!(aggregator.count(arrival), before + 1);
    };
    /// Changes the IPv4 header and makes its checksum right.
    fn ip(frame: &mut [u8], change: &dyn Fn(&mut Ipv4Header)) {
        let mut header = Ipv4Header::from_slice(&frame[14..]).unwrap().0;
        change(&mut header);
        header.header_checksum = header.calc_header_checksum();
        frame[14..34].copy_from_slice(&header.to_bytes()[..20]);
    }
    check(Arrival::Datagram, &|_| {});
    check(Arrival::NotOurs, &|frame| frame[5] = 9);
    check(Arrival::Protocol, &|frame| frame[12] = 0x86);
    check(Arrival::Protocol, &|frame| frame[..6].fill(0xff));
    check(Arrival::Malformed, &|frame| frame.truncate(33));
    check(Arrival::Malformed, &|frame| frame.truncate(60));
    check(Arrival::Malformed, &|frame| frame[14] = 0x65);
    check(Arrival::Malformed, &|frame| frame[14] = 0x44);
    check(Arrival::Options, &|frame| frame[14] = 0x46);
    check(Arrival::IpChecksum, &|frame| frame[24] ^= 1);
    check(Arrival::NotOurs, &|frame| ip(frame, &|header| header.destination = [10, 0, 0, 9]));
    check(Arrival::Fragment, &|frame| ip(frame, &|header| header.more_fragments = true));
    check(Arrival::Fragment, &|frame| {
        ip(frame, &|header| header.fragment_offset = IpFragOffset::try_new(5).unwrap());
    });
    check(Arrival::Protocol, &|frame| ip(frame, &|header| header.protocol = 6.into()));
    check(Arrival::Malformed, &|frame| ip(frame, &|header| header.total_len = 19));
    check(Arrival::Port, &|frame| frame[37] ^= 1);
    check(Arrival::NoChecksum, &|frame| frame[40..42].fill(0));
    check(Arrival::Checksum, &|frame| frame[45] ^= 1);
    // The UDP length: beyond the packet, and below its header.
    check(Arrival::Malformed, &|frame| frame[38] = 1);
    check(Arrival::Malformed, &|frame| frame[39] = 7);
    // It may listen elsewhere.
    aggregator.listen_at(4711);
    assert_eq!(aggregator.process(&good, NOW).0, Arrival::Port);
    // Nothing of it reached the aggregator but the good one.
    assert_eq!(aggregator.engine.count(Outcome::Malformed), 1);
    let total: u64 = Outcome::ALL.iter().map(|outcome| aggregator.engine.count(*outcome)).sum();
    assert_eq!(total, 1);
}
