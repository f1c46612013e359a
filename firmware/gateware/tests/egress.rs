//! `gw_egress` against `Egress::process`: verdicts, bytes, counters, clocks.

mod paths;
mod support;

use paths::checks::{self, Direction::Egress};
use paths::compare::run;
use paths::rare;
use paths::settings::{configure, counter, rules};
use paths::traffic::{PAUSES, of_host};
use support::Random;

/// The address of the counters.
const COUNTERS: u16 = Egress.counters();

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn random_and_broken_frames_leave_as_the_engine_says() {
    let mut simulation = Egress.design().start().unwrap();
    configure(&mut simulation, &rules(), 1500);
    let mut seen = [0u64; 64];
    for seed in 0..30 {
        let mut random = Random::new(seed + 1);
        let (count, longest) = if seed % 5 == 4 { (60, 9000) } else { (300, 1460) };
        let mut verified = of_host(&mut random, count, longest);
        verified.extend(rare::of_host());
        verified.iter().for_each(|one| seen[usize::from(one.place)] += 1);
        run(&mut simulation, &verified, PAUSES[seed as usize % 3], seed + 1)
            .unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
    for (place, count) in seen.iter().enumerate().take(50) {
        assert_eq!(counter(&mut simulation, COUNTERS, place as u8), *count, "counter {place}");
    }
    // Compressed, remarked; every reason to pass that is egress's, but those that need two hosts.
    for place in [0, 1, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 25, 29, 33] {
        assert!(seen[place] > 5, "{place}: {seen:?}");
    }
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn recordings_leave_as_the_engine_says_a_beat_a_clock() {
    checks::recordings_pass_a_beat_a_clock(Egress, |simulation, sent| {
        let compressed = sent.iter().filter(|one| one.place == 0);
        let (bytes_in, bytes_out) = compressed.fold((0, 0), |(bytes_in, bytes_out), one| {
            (bytes_in + one.bytes.len() as u64, bytes_out + one.out.as_ref().map_or(0, Vec::len) as u64)
        });
        assert!(bytes_out * 2 < bytes_in);
        assert_eq!(counter(simulation, COUNTERS, 56), bytes_in);
        assert_eq!(counter(simulation, COUNTERS, 57), bytes_out);
    });
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn full_frames_leave_at_24_gbit_per_second() {
    checks::full_frames_pass_at_24_gbit_per_second(Egress);
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn a_lone_frame_waits_no_longer_than_the_readme_says() {
    checks::a_lone_frame_waits_no_longer_than_the_readme_says(Egress);
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn a_reset_in_mid_frame_leaves_nothing_behind() {
    checks::a_reset_in_mid_frame_leaves_nothing_behind(Egress);
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn planted_faults_are_found() {
    let faults = [
        "fault_vlan",
        "fault_carry",
        "fault_odd_byte",
        "fault_mptcp",
        "fault_udp_length",
        "fault_padding",
        "fault_splice",
        "fault_counts",
    ];
    checks::planted_faults_are_found(Egress, &faults);
}
