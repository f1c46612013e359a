//! Recorded gradients over real TCP between two hosts: nothing goes wrong here.

mod support;

use std::time::Instant;

use gradwire::rules::{Framing, Rule};
use gradwire_testbench::replay::Setup;
use gradwire_xdp::config::DEFAULT_PROFILE;
use gradwire_xdp::telemetry::{Sampled, Usefulness};

use support::shim::Shim;
use support::traffic::{Capturing, TAG, assert_within_bound, gradients, predicted, transfer};
use support::{Lab, PATIENCE, Plan, Side};

const LEN: usize = 6_000_000;

fn config(framing: Framing) -> &'static str {
    match framing {
        Framing::Routed => "[[rule]]\ntos = 0x28\n",
        Framing::InPlace => "[[rule]]\ntos = 0x28\nframing = \"in-place\"\n",
    }
}

/// Within the bound; as many bytes on the wire as the engines of a replay make of the same frames;
/// the untagged stream and pings beside it as if there were no shim.
fn gradients_get_smaller(mtu: u16, framing: Framing) {
    let Some(lab) = Lab::new(Plan { mtu, ..Plan::default() }) else { return };
    let _shims = Side::BOTH.map(|side| Shim::start(&lab, side, config(framing)));
    let data = gradients(LEN);
    let source = lab.mac("ha");
    for address in ["10.77.0.2", "fd77::2"] {
        let setup = Setup::new(Rule { framing, profile: DEFAULT_PROFILE, ..Rule::DEFAULT });
        let end = Instant::now() + PATIENCE;
        let (wire, plain) = loop {
            let capturing = Capturing::start(&lab, "ha");
            let before = lab.wire_count(Side::A);
            let (got, _) = transfer(&lab, address, TAG, &data);
            let after = lab.wire_count(Side::A);
            let capture = capturing.finish();
            assert_within_bound(&data, &got);

            let (bytes, frames) = predicted(&setup, &capture, source);
            let wire = (after.0 - before.0, after.1 - before.1);
            let plain = capture.frames.iter().filter(|frame| frame.bytes[6..12] == source);
            let plain = plain.map(|frame| frame.bytes.len() as u64).sum::<u64>();
            eprintln!(
                "MTU {mtu}, {framing:?}, {address}: {plain} bytes left the host, {} were on the wire in {} frames, \
                 {bytes} in {frames} predicted",
                wire.0, wire.1
            );
            // A frame or two of other protocols, at other times.
            if wire.1.abs_diff(frames) <= 10 && wire.0.abs_diff(bytes) <= bytes / 200 {
                break (wire, plain);
            }
            // On a busy machine the ring before the shim gets full, and nothing is predicted of
            // frames that are lost there.
            assert!(Instant::now() < end, "{wire:?}, predicted ({bytes}, {frames})");
        };
        // In-place framing leaves alone what is misaligned: half of the segments at MTU 1450.
        assert!(wire.0 < plain * 2 / 3);

        let (got, _) = transfer(&lab, address, 0, &data);
        assert!(got == data, "an untagged stream changed");
        lab.assert_pings(address);
    }
}

/// The shim says what compression takes from values: nearly nothing of the norm where every other
/// value is far below the bound, all of it where all are.
#[test]
fn lost_values_are_reported() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    for (large, verdict) in [(0.5f32, "compresses"), (1e-6, "norm-lost")] {
        let data: Vec<u8> =
            (0..500_000).flat_map(|i| if i % 2 == 0 { 1e-6 } else { large }.to_le_bytes()).collect();
        let end = Instant::now() + PATIENCE;
        let (shims, got) = loop {
            let shims = Side::BOTH.map(|side| Shim::start(&lab, side, config(Framing::Routed)));
            let (got, _) = transfer(&lab, "10.77.0.2", TAG, &data);
            // Few frames that are sent again, uncompressed, have more of the norm than all others.
            let untouched = &shims[0].outcomes()[0].untouched;
            if untouched["resent"] + untouched["bypassed"] == 0 {
                break (shims, got);
            }
            assert!(Instant::now() < end, "{untouched:?}");
        };
        let arrived = |bytes: &[u8]| -> f64 {
            let value = |bytes: &[u8; 4]| f64::from(f32::from_le_bytes(*bytes));
            bytes.as_chunks().0.iter().map(|bytes| value(bytes).powi(2)).sum()
        };
        let lost = 1.0 - (arrived(&got) / arrived(&data)).sqrt();

        let status = shims[0].status();
        let sampled = status.rules[0].sampled;
        eprintln!("  norm lost {lost:.4}, {sampled:?}");
        assert_eq!(Usefulness::of(&status).name(), verdict);
        // Each frame has a value of one kind more than of the other.
        assert!((sampled.norm_lost().unwrap() - lost).abs() < 0.05, "{sampled:?} {lost}");
        let zeroed = if large > 0.1 { 0.5 } else { 1.0 };
        assert!((sampled.share_zeroed().unwrap() - zeroed).abs() < 0.01, "{sampled:?}");
        assert_eq!(shims[1].status().rules[0].sampled, Sampled::NONE, "it sends acknowledgements");
    }
}

#[test]
fn routed_1500() {
    gradients_get_smaller(1500, Framing::Routed);
}

#[test]
fn routed_1450() {
    gradients_get_smaller(1450, Framing::Routed);
}

#[test]
fn in_place_1500() {
    gradients_get_smaller(1500, Framing::InPlace);
}

#[test]
fn in_place_1450() {
    gradients_get_smaller(1450, Framing::InPlace);
}
