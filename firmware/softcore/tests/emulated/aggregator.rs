//! The image of a node that sums in the network: members on the wire get exact sums, and it is found by ARP and ping.

use gradwire::aggregate::{Member, Membership, Poll};
use gradwire::codec::planar::Bound;
use gradwire::engine::Millis;
use gradwire::forward::Port;
use gradwire::kernels::Kernel;
use gradwire::wire::chunk::{Limits, MAX_PACKET_LEN, PORT};
use gradwire_testbench::softcore::machine::{Machine, Options, PATIENCE};
use softcore::node::{IP, MAC};

use super::image;

const MEMBERS: u8 = 4;
const VALUES: usize = 3000;

fn start() -> Machine {
    Machine::start(&Options::new(image("build", "aggregator"))).unwrap()
}

fn member_mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 1, number]
}

fn member_ip(number: u8) -> [u8; 4] {
    [10, 0, 0, 100 + number]
}

/// The Internet checksum (RFC 1071), in the most obvious way.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let bytes = parts.concat();
    let words =
        bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |low| u64::from(*low)));
    let mut sum: u64 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// A frame from a member with an IPv4 packet.
fn packet(number: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len() as u16).to_be_bytes();
    let header = |sum: [u8; 2]| {
        [&[0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, protocol], &sum[..], &member_ip(number), &IP.octets()]
            .concat()
    };
    let header = header(checksum(&[&header([0; 2])]));
    [&MAC[..], &member_mac(number), &[8, 0], &header, payload].concat()
}

fn datagram(number: u8, payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len() as u16).to_be_bytes();
    let udp = |sum: [u8; 2]| {
        let ports = [(4000 + u16::from(number)).to_be_bytes(), PORT.to_be_bytes()];
        [ports.as_flattened(), &len, &sum, payload].concat()
    };
    let pseudo = [&member_ip(number)[..], &IP.octets(), &[0, 17], &len].concat();
    packet(number, 17, &udp(checksum(&[&pseudo, &udp([0; 2])])))
}

fn input(number: u8) -> Vec<f32> {
    (0..VALUES).map(|i| ((i * 7919 + usize::from(number) * 104_729) % 4001) as f32 / 4001.0 - 0.5).collect()
}

/// What codec 2 restores of a value at the bound 2^-10, in bounds.
fn units(value: f32) -> i64 {
    let bounds = (f64::from(value).abs() * 1024.0).floor() as i64;
    let odd = if bounds == 0 { 0 } else { bounds | 1 };
    if value < 0.0 { -odd } else { odd }
}

/// No time passes, so no member gives up on an emulator that is slow.
#[test]
fn four_members_get_the_exact_sum() {
    let now = Millis(5);
    let mut node = start();
    let membership = |worker| Membership {
        job: 7,
        epoch: 1,
        worker,
        members: MEMBERS,
        total: MEMBERS,
        limits: Limits::MOST,
        key: 0x5eed,
    };
    let mut members: Vec<Member<16>> =
        (0..MEMBERS).map(|worker| Member::new(membership(worker), Kernel::detect())).collect();
    let inputs: Vec<Vec<u8>> =
        (0..MEMBERS).map(|number| input(number).into_iter().flat_map(f32::to_le_bytes).collect()).collect();
    let mut outputs = vec![vec![0; 4 * VALUES]; usize::from(MEMBERS)];
    let mut started = [false; MEMBERS as usize];
    loop {
        let mut done = 0;
        for (number, member) in (0u8..).zip(&mut members) {
            let at = usize::from(number);
            let mut out = [0; MAX_PACKET_LEN];
            loop {
                if !started[at] {
                    started[at] = member.start(VALUES, Bound::new(-10).unwrap());
                }
                match member.poll(&inputs[at], now, &mut out) {
                    Poll::Send(len) => node.send(Port::Network, &datagram(number, &out[..len])).unwrap(),
                    Poll::Done if started[at] => {
                        done += 1;
                        break;
                    }
                    Poll::Done | Poll::Wait(_) => break,
                    Poll::Failed(failure) => panic!("{failure:?}"),
                }
            }
        }
        if done == MEMBERS {
            break;
        }
        let frame = node.receive(Port::Network, PATIENCE).unwrap().expect("an answer");
        let number = frame[33] - 100;
        assert_eq!((&frame[..6], &frame[6..12]), (&member_mac(number)[..], &MAC[..]));
        assert_eq!(checksum(&[&frame[14..34]]), [0; 2]);
        let pseudo = [&frame[26..34], &[0, 17], &frame[38..40]].concat();
        assert_eq!(checksum(&[&pseudo, &frame[34..]]), [0; 2]);
        members[usize::from(number)].handle(&frame[42..], &mut outputs[usize::from(number)], now);
    }
    let all: Vec<Vec<f32>> = (0..MEMBERS).map(input).collect();
    for at in 0..VALUES {
        let sum: i64 = all.iter().map(|values| units(values[at])).sum();
        let expected = (sum as f32 / 1024.0).to_le_bytes();
        assert!(outputs.iter().all(|output| output[4 * at..4 * at + 4] == expected), "value {at}");
    }
    let counters = node.counters().unwrap();
    // Chunks of 256 values.
    assert!(counters.contains(&("datagram completed".into(), 12)), "{counters:?}");
}

#[test]
fn the_node_answers_arp_and_echo() {
    let mut node = start();
    // Nothing answers what is for others, or comes from the other side.
    node.send(Port::Network, &[9; 60]).unwrap();
    node.send(Port::Host, &[0xff; 60]).unwrap();
    let asker = [&member_mac(3)[..], &member_ip(3)].concat();
    let arp =
        |operation: u8, from: &[u8], to: &[u8]| [&[8, 6, 0, 1, 8, 0, 6, 4, 0, operation], from, to].concat();
    let asked = arp(1, &asker, &[&[0; 6], &IP.octets()[..]].concat());
    node.send(Port::Network, &[&[0xff; 6], &member_mac(3)[..], &asked, &[0; 18]].concat()).unwrap();
    let answer = arp(2, &[&MAC[..], &IP.octets()].concat(), &asker);
    let expected = [&member_mac(3)[..], &MAC, &answer].concat();
    assert_eq!(node.receive(Port::Network, PATIENCE).unwrap(), Some(expected));

    let echo = |kind: u8| {
        let body = |sum: [u8; 2]| [&[kind, 0, sum[0], sum[1], 1, 2, 3, 4], &[0x5a; 40][..]].concat();
        body(checksum(&[&body([0; 2])]))
    };
    node.send(Port::Network, &packet(3, 1, &echo(8))).unwrap();
    let answer = node.receive(Port::Network, PATIENCE).unwrap().expect("an answer");
    assert_eq!(
        (&answer[..6], &answer[26..34]),
        (&member_mac(3)[..], &[IP.octets(), member_ip(3)].concat()[..])
    );
    assert_eq!(answer[34..], echo(0));
    let counters = node.counters().unwrap();
    let count = |name: &str| counters.iter().find(|(other, _)| other == name).map_or(0, |(_, count)| *count);
    let counts = ["frame not-ours", "frame arp", "frame echo"].map(count);
    assert_eq!(counts, [1, 1, 1], "{counters:?}");
}
