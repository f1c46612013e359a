//! The image of a node that sums in the network: members on the wire get exact sums, and it is found by ARP and ping.

use gradwire::forward::Port;
use gradwire_testbench::softcore::machine::{Machine, Options, PATIENCE};
use softcore::node::{IP, MAC};

use super::frames::{checksum, member_ip, member_mac, packet};
use super::image;
use super::members::{CHUNKS, sum};

fn start() -> Machine {
    Machine::start(&Options::new(image("build", "aggregator"))).unwrap()
}

#[test]
fn four_members_get_the_exact_sum() {
    let mut node = start();
    sum(&mut node, 1, |_| {});
    let counters = node.counters().unwrap();
    assert!(counters.contains(&("datagram completed".into(), CHUNKS)), "{counters:?}");
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
