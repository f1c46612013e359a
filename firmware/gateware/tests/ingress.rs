//! `gw_ingress` against `Ingress::process`: verdicts, bytes, counters, clocks.

mod paths;
mod support;

use gradwire::rules::{Contents, Rule, Rules};
use gradwire_gateware::{Batch, Design, Pauses};
use paths::compare::{Judged, batch, run};
use paths::settings::{MARK, configure, counter, rules};
use paths::traffic::{PAUSES, both_ways, from_wire};
use support::Random;

/// Where the counters are.
const COUNTERS: u16 = 0x400;

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn random_and_hostile_frames_reach_the_host_as_the_engine_says() {
    let mut simulation = Design::new("gw_ingress").start().unwrap();
    let mut seen = [0u64; 64];
    for seed in 0..30 {
        let mut random = Random::new(seed + 1);
        let (count, longest, mtu) = match seed % 5 {
            3 => (300, 1460, 1000),
            4 => (60, 9000, 9000),
            _ => (300, 1460, 1500),
        };
        configure(&mut simulation, &rules(), mtu);
        let judged = from_wire(&mut random, count, longest, mtu);
        judged.iter().for_each(|one| seen[usize::from(one.place)] += 1);
        run(&mut simulation, &judged, PAUSES[seed as usize % 3], seed + 1)
            .unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
    for (place, count) in seen.iter().enumerate().take(50) {
        assert_eq!(counter(&mut simulation, COUNTERS, place as u8), *count, "counter {place}");
    }
    // Restored; every reason of ingress to pass, and every one to drop.
    for place in [2, 8, 10, 11, 12, 14, 16, 35, 36, 40, 41, 42, 43, 44, 45, 46, 47, 48] {
        assert!(seen[place] > 0, "{place}: {seen:?}");
    }
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn recordings_reach_the_host_as_the_engine_says_a_beat_a_clock() {
    let mut simulation = Design::new("gw_ingress").start().unwrap();
    let routed = Rule { contents: Contents::Trusted, ..Rule::STATIC };
    for name in ["ring4_mtu1450.pcap", "ring4_loss.pcap"] {
        for rule in [Rule::INCEPTIONN, routed] {
            let rules = Rules::new(&[rule], MARK).unwrap();
            simulation.reset().unwrap();
            configure(&mut simulation, &rules, 1500);
            let (sent, received) = both_ways(name, &rules);
            let outcome = run(&mut simulation, &received, Pauses::NONE, 1)
                .unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
            let frames = outcome.frames.iter().filter(|frame| frame.port == 0);
            let clocks = frames.map(|frame| frame.last).max().unwrap() - outcome.sent[0].first;
            let beats: usize =
                received.iter().map(|one| one.out.as_ref().map_or(0, |out| out.len().div_ceil(32))).sum();
            // A clock a beat to the host, and one a frame, which is the engine's.
            eprintln!(
                "{name}, {:?}: {clocks} clocks, {beats} beats, {} frames",
                rule.framing,
                received.len()
            );
            assert!(clocks <= (beats + received.len() + 500) as u64, "{clocks} clocks, {beats} beats");
            let count = |judged: &[Judged], place| judged.iter().filter(|one| one.place == place).count();
            assert!(count(&sent, 0) > 100 && count(&received, 2) == count(&sent, 0));
        }
    }
}

/// Frames at and beyond the longest that a ring takes.
fn oversize() -> [Judged; 6] {
    [(9216, 8), (9217, 50), (60, 8), (20_000, 50), (9200, 8), (1, 8)].map(|(len, place)| {
        let bytes: Vec<u8> = (0..len).map(|at| ((at + len) % 251) as u8).collect();
        let out = (place < 40).then(|| bytes.clone());
        Judged { bytes, user: 0, place, out }
    })
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn frames_longer_than_the_ring_takes_are_thrown_away_and_counted() {
    let mut simulation = Design::new("gw_ingress").start().unwrap();
    configure(&mut simulation, &rules(), 1500);
    for seed in [1, 2] {
        run(&mut simulation, &oversize(), Pauses::NONE, seed).unwrap();
    }
    assert_eq!(counter(&mut simulation, COUNTERS, 50), 4);
    let mut simulation = Design::new("gw_ingress").plant("fault_abort").start().unwrap();
    configure(&mut simulation, &rules(), 1500);
    assert!(run(&mut simulation, &oversize(), Pauses::NONE, 1).is_err(), "fault_abort was not found");
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn a_lone_frame_waits_no_longer_than_the_readme_says() {
    let mut simulation = Design::new("gw_ingress").start().unwrap();
    let rules = Rules::new(&[Rule::INCEPTIONN], MARK).unwrap();
    configure(&mut simulation, &rules, 1500);
    let (_, sent) = both_ways("ring4_mtu1450.pcap", &rules);
    for (coded, most) in [(false, 20), (true, 70)] {
        let long = |one: &&Judged| {
            (one.place == 2) == coded
                && one.out.as_ref().is_some_and(|out| out.len() + one.bytes.len() > 1200)
        };
        let one = sent.iter().find(long).unwrap();
        let outcome = run(&mut simulation, std::slice::from_ref(one), Pauses::NONE, 1).unwrap();
        let frame = outcome.frames.iter().find(|frame| frame.port == 0).unwrap();
        let clocks = frame.first - outcome.sent[0].first;
        let (len_in, len_out) = (one.bytes.len().div_ceil(32), one.out.as_ref().unwrap().len().div_ceil(32));
        // It is stored once, or twice: beats that the engine works on count where there are more of them.
        let stored = len_in + if coded { len_in.max(len_out) } else { 0 };
        println!(
            "{len_in} beats in, {len_out} out: {clocks} clocks from first to first, {stored} of them beats"
        );
        assert!(clocks <= (stored + most) as u64);
    }
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn a_reset_in_mid_frame_leaves_nothing_behind() {
    let mut simulation = Design::new("gw_ingress").start().unwrap();
    let mut random = Random::new(99);
    for round in 0..20 {
        configure(&mut simulation, &rules(), 1500);
        let judged = from_wire(&mut random, 40, 1460, 1500);
        let cut = Batch {
            reset_at: Some(30 + 97 * round),
            ..batch(&judged, PAUSES[round as usize % 3], round + 1)
        };
        assert_eq!(simulation.run(&cut).unwrap().broken, "");
        configure(&mut simulation, &rules(), 1500);
        let judged = from_wire(&mut random, 40, 1460, 1500);
        run(&mut simulation, &judged, PAUSES[round as usize % 3], round + 1)
            .unwrap_or_else(|wrong| panic!("round {round}: {wrong}"));
        simulation.reset().unwrap();
    }
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn planted_faults_are_found() {
    for fault in
        ["fault_vlan", "fault_carry", "fault_odd_byte", "fault_trial", "fault_udp_length", "fault_splice"]
    {
        let mut simulation = Design::new("gw_ingress").plant(fault).start().unwrap();
        configure(&mut simulation, &rules(), 1500);
        // A lost carry shows in one frame of some thousand.
        let found = (1..30).any(|seed| {
            let judged = from_wire(&mut Random::new(seed), 400, 1460, 1500);
            run(&mut simulation, &judged, Pauses::NONE, 1).is_err()
        });
        assert!(found, "{fault} was not found");
    }
}
