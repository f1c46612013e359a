//! `gw_ingress` against `Ingress::process`: verdicts, bytes, counters, clocks.

mod paths;
mod support;

use gradwire_gateware::Pauses;
use paths::checks::{self, Direction::Ingress};
use paths::compare::run;
use paths::rare;
use paths::settings::{configure, counter, rules};
use paths::traffic::{PAUSES, from_wire, oversize};
use support::Random;

/// The address of the counters.
const COUNTERS: u16 = Ingress.counters();

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn random_and_hostile_frames_reach_the_host_as_the_engine_says() {
    let mut simulation = Ingress.design().start().unwrap();
    let mut seen = [0u64; 64];
    for seed in 0..30 {
        let mut random = Random::new(seed + 1);
        let (count, longest, mtu) = match seed % 5 {
            3 => (300, 1460, 1000),
            4 => (60, 9000, 9000),
            _ => (300, 1460, 1500),
        };
        configure(&mut simulation, &rules(), mtu);
        let mut verified = from_wire(&mut random, count, longest, mtu);
        verified.extend(rare::from_wire());
        verified.iter().for_each(|one| seen[usize::from(one.place)] += 1);
        run(&mut simulation, &verified, PAUSES[seed as usize % 3], seed + 1)
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
    checks::recordings_pass_a_beat_a_clock(Ingress, |_, _| {});
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn full_frames_reach_the_host_at_24_gbit_per_second() {
    checks::full_frames_pass_at_24_gbit_per_second(Ingress);
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn frames_longer_than_the_ring_takes_are_thrown_away_and_counted() {
    let mut simulation = Ingress.design().start().unwrap();
    configure(&mut simulation, &rules(), 1500);
    for seed in [1, 2] {
        run(&mut simulation, &oversize(), Pauses::NONE, seed).unwrap();
    }
    assert_eq!(counter(&mut simulation, COUNTERS, 50), 4);
    let mut simulation = Ingress.design().plant("fault_abort").start().unwrap();
    configure(&mut simulation, &rules(), 1500);
    assert!(run(&mut simulation, &oversize(), Pauses::NONE, 1).is_err(), "fault_abort was not found");
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn a_lone_frame_waits_no_longer_than_the_readme_says() {
    checks::a_lone_frame_waits_no_longer_than_the_readme_says(Ingress);
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn a_reset_in_mid_frame_leaves_nothing_behind() {
    checks::a_reset_in_mid_frame_leaves_nothing_behind(Ingress);
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn planted_faults_are_found() {
    let faults =
        ["fault_vlan", "fault_carry", "fault_odd_byte", "fault_trial", "fault_udp_length", "fault_splice"];
    checks::planted_faults_are_found(Ingress, &faults);
}
