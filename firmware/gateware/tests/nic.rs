//! `gw_nic`: both directions at once, and its registers over AXI4-Lite.

mod paths;
mod support;

use gradwire_gateware::{Batch, Design, Frame, Outcome, Pauses, Simulation};
use paths::checks;
use paths::compare::Judged;
use paths::settings::{configure, counter, rules};
use paths::traffic::{PAUSES, both_ways, from_wire, of_host};
use support::Random;

/// Sends both at once; what comes out has to be what the engines say.
fn both_ways_through(
    simulation: &mut Simulation,
    from_host: &[Judged],
    from_wire: &[Judged],
    pauses: Pauses,
    seed: u64,
) -> Outcome {
    let frame = |port: u8| {
        move |judged: &Judged| Frame { port, user: judged.user, ..Frame::new(0, judged.bytes.clone()) }
    };
    let frames: Vec<Frame> = from_host.iter().map(frame(0)).chain(from_wire.iter().map(frame(1))).collect();
    let outs = |judged: &[Judged]| judged.iter().filter_map(|one| one.out.clone()).collect::<Vec<_>>();
    let (to_wire, to_host) = (outs(from_host), outs(from_wire));
    let expected = (to_wire.len() + to_host.len()) as u32;
    let outcome =
        simulation.run(&Batch { frames, pauses, seed, noise: true, expected, ..Batch::of(vec![]) }).unwrap();
    assert_eq!(outcome.broken, "");
    let got =
        |port: u8| outcome.frames.iter().filter(move |frame| frame.port == port).map(|frame| &frame.bytes);
    assert!(got(1).eq(&to_wire), "to the wire");
    assert!(got(0).eq(&to_host), "to the host");
    outcome
}

/// Both directions at once, each with a recording: neither costs the other a clock.
#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn recordings_pass_both_ways_a_beat_a_clock() {
    let mut simulation = Design::new("gw_nic").start().unwrap();
    for rules in checks::framings() {
        simulation.reset().unwrap();
        configure(&mut simulation, &rules, 1500);
        let (sent, received) = both_ways("ring4_mtu1450.pcap", &rules);
        let outcome = both_ways_through(&mut simulation, &sent, &received, Pauses::NONE, 1);
        for (port, judged) in [(1, &sent), (0, &received)] {
            let (clocks, beats) =
                (checks::clocks(&outcome, port), judged.iter().map(checks::beats).sum::<usize>());
            println!("to port {port}: {clocks} clocks, {beats} beats, {} frames", judged.len());
            assert!(clocks <= (beats + judged.len() + 500) as u64, "{clocks} clocks, {beats} beats");
        }
    }
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn both_directions_work_beside_each_other() {
    let mut simulation = Design::new("gw_nic").start().unwrap();
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
        for (direction, judged) in [(0x200, &from_host), (0x400, &from_wire)] {
            for place in 0..50 {
                let want = judged.iter().filter(|one| one.place == place).count() as u64;
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
    let mut simulation = Design::new("gw_nic").start().unwrap();
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
