//! The image of an aggregator: workers on the wire get exact sums, and it is found by ARP and ping.

use gradwire::forward::Port;
use gradwire_testbench::softcore::machine::{Machine, Options, PATIENCE};
use softcore::aggregation::{IP, MAC};

use super::frames::{checksum, packet, worker_ip, worker_mac};
use super::image;
use super::workers::{CHUNKS, sum};

fn start() -> Machine {
    Machine::start(&Options::new(image("build", "aggregator"))).unwrap()
}

#[test]
fn four_workers_get_the_exact_sum() {
    let mut aggregator = start();
    sum(&mut aggregator, 1, |_| {});
    let counters = aggregator.counters().unwrap();
    assert!(counters.contains(&("datagram completed".into(), CHUNKS)), "{counters:?}");
}

#[test]
fn the_aggregator_answers_arp_and_echo() {
    let mut aggregator = start();
    // Nothing answers what is for others, or comes from the other side.
    aggregator.send(Port::Network, &[9; 60]).unwrap();
    aggregator.send(Port::Host, &[0xff; 60]).unwrap();
    let asker = [&worker_mac(3)[..], &worker_ip(3)].concat();
    let arp =
        |operation: u8, from: &[u8], to: &[u8]| [&[8, 6, 0, 1, 8, 0, 6, 4, 0, operation], from, to].concat();
    let asked = arp(1, &asker, &[&[0; 6], &IP.octets()[..]].concat());
    aggregator.send(Port::Network, &[&[0xff; 6], &worker_mac(3)[..], &asked, &[0; 18]].concat()).unwrap();
    let answer = arp(2, &[&MAC[..], &IP.octets()].concat(), &asker);
    let expected = [&worker_mac(3)[..], &MAC, &answer].concat();
    assert_eq!(aggregator.receive(Port::Network, PATIENCE).unwrap(), Some(expected));

    let echo = |kind: u8| {
        let body = |sum: [u8; 2]| [&[kind, 0, sum[0], sum[1], 1, 2, 3, 4], &[0x5a; 40][..]].concat();
        body(checksum(&[&body([0; 2])]))
    };
    aggregator.send(Port::Network, &packet(3, 1, &echo(8))).unwrap();
    let answer = aggregator.receive(Port::Network, PATIENCE).unwrap().expect("an answer");
    assert_eq!(
        (&answer[..6], &answer[26..34]),
        (&worker_mac(3)[..], &[IP.octets(), worker_ip(3)].concat()[..])
    );
    assert_eq!(answer[34..], echo(0));
    let counters = aggregator.counters().unwrap();
    let count = |name: &str| counters.iter().find(|(other, _)| other == name).map_or(0, |(_, count)| *count);
    let counts = ["frame not-ours", "frame arp", "frame echo"].map(count);
    assert_eq!(counts, [1, 1, 1], "{counters:?}");
}
