//! Host, core, core, host: recorded captures both ways.

use std::time::{Duration, Instant};

use gradwire::flow::OPENING_MS;
use gradwire::rules::{Framing, Rule};
use gradwire_testbench::replay::Setup;
use gradwire_testbench::softcore::Pair;

use super::{firmware, recording};

/// Replays at most, if they take too long.
const ATTEMPTS: u32 = 5;

/// Verified by the verifier of `gradwire replay`: untagged frames identical, values within the
/// bound, headers and checksums right; and frames and counters those of the engines on the host.
fn crosses(name: &str, framing: Framing) {
    // Not every listener in the captures is tagged, as a handshake about in-place framing needs.
    let rule = match framing {
        Framing::Routed => Rule::DEFAULT,
        Framing::InPlace => Rule { framing, ..Rule::STATIC },
    };
    // A replay takes a second or two. The cores' clocks are real: on a busy machine it may take so
    // long that they rightly forget a connection that is opening, and that says nothing.
    let attempt = |number| {
        let began = Instant::now();
        let mut pair = Pair::start(&firmware(), &rule).unwrap();
        let (report, passages) = pair.replay(&Setup::new(rule), &recording(name), || ()).unwrap();
        let in_time = began.elapsed() < Duration::from_millis(OPENING_MS);
        (report.ok || in_time || number == ATTEMPTS).then_some((pair, report, passages))
    };
    let (mut pair, report, passages) = (1..=ATTEMPTS).find_map(attempt).unwrap();
    assert!(report.ok, "{:#?}", report.failures);
    assert!(report.compressed > 100 && report.values > 10_000 && report.violations == 0);
    assert_eq!(passages.len() as u64, report.frames);
    // Both cores compressed and restored: hosts stand on both sides.
    for core in &mut pair.cores {
        let counters = core.counters().unwrap();
        for name in ["egress compressed", "ingress restored"] {
            assert!(counters.iter().any(|(counter, count)| counter == name && *count > 0), "{name}");
        }
    }
}

#[test]
fn a_capture_crosses_in_routed_framing() {
    crosses("ring4_mtu1450", Framing::Routed);
}

#[test]
fn a_capture_crosses_in_place() {
    crosses("ring4_mtu1450", Framing::InPlace);
}

#[test]
fn a_capture_with_loss_crosses() {
    crosses("ring4_loss", Framing::Routed);
}
