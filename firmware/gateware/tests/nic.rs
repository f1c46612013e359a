//! `gw_nic`: both directions at once, and its registers over AXI4-Lite.

mod paths;
mod support;

use gradwire_gateware::Pauses;
use paths::checks;
use paths::nic::{both_ways_through, nic};
use paths::settings::{configure, counter, rules};
use paths::traffic::{PAUSES, both_ways, from_wire, of_host};
use support::Random;

/// Both directions at once, each with a recording: neither costs the other a clock.
#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn recordings_pass_both_ways_a_beat_a_clock() {
    let mut simulation = nic("recordings").start().unwrap();
    for rules in checks::framings() {
        simulation.reset().unwrap();
        configure(&mut simulation, &rules, 1500);
        let (sent, received) = both_ways("ring4_mtu1450.pcap", &rules);
        let outcome = both_ways_through(&mut simulation, &sent, &received, Pauses::NONE, 1);
        for (port, verified) in [(1, &sent), (0, &received)] {
            let (clocks, beats) =
                (checks::clocks(&outcome, port), verified.iter().map(checks::beats).sum::<usize>());
            println!("to port {port}: {clocks} clocks, {beats} beats, {} frames", verified.len());
            assert!(clocks <= (beats + verified.len() + 500) as u64, "{clocks} clocks, {beats} beats");
        }
    }
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn both_directions_work_beside_each_other() {
    let mut simulation = nic("beside").start().unwrap();
    assert_eq!(simulation.read(0).unwrap(), 0x4757_4e31);
    configure(&mut simulation, &rules(), 1500);
    for (seed, pauses) in (1..).zip(PAUSES) {
        // What is cleared is zero.
        simulation.write(4, 1).unwrap();
        for _ in 0..12 {
            simulation.read(0).unwrap();
        }
        let mut random = Random::new(seed);
        let from_host = of_host(&mut random, 300, 1460);
        let from_wire = from_wire(&mut random, 300, 1460, 1500);
        both_ways_through(&mut simulation, &from_host, &from_wire, pauses, seed);
        for (direction, verified) in [(0x200, &from_host), (0x400, &from_wire)] {
            for place in 0..50 {
                let want = verified.iter().filter(|one| one.place == place).count() as u64;
                assert_eq!(
                    counter(&mut simulation, direction, place),
                    want,
                    "{direction:#x}, counter {place}"
                );
            }
        }
    }
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn registers_start_as_documented() {
    let mut simulation = nic("registers").start().unwrap();
    assert_eq!(simulation.read(0x008).unwrap(), 0x30);
    assert_eq!(simulation.read(0x00c).unwrap(), 1500);
    simulation.write(0x00c, 60_000).unwrap();
    assert_eq!(simulation.read(0x00c).unwrap(), 9194);
    for rule in 0..16 {
        assert_eq!(simulation.read(0x104 + 8 * rule).unwrap(), 0);
    }
    assert_eq!(simulation.read(0xffc).unwrap(), 0);
    simulation.reset().unwrap();
    assert_eq!(simulation.read(0x00c).unwrap(), 1500);
}
