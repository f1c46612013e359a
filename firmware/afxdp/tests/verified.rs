//! `gradwire-xdp test` between two hosts: with shims, without, and with a wire that damages values.

mod support;

use std::process::{Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use support::shim::Shim;
use support::{Lab, PATIENCE, Plan, Side};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gradwire-xdp");
const RULE: &str = "[[rule]]\ntos = 0x28\n";

/// Host B receives once, host A sends; what each printed, as JSON.
fn tested(lab: &Lab, address: &str, words: &str) -> [Output; 2] {
    printed(lab, address, words, "--json")
}

fn printed(lab: &Lab, address: &str, words: &str, format: &str) -> [Output; 2] {
    let seconds = PATIENCE.as_secs();
    let line = format!("{PROGRAM} test receive --once --wait {seconds} --timeout {seconds} {format}");
    let receiver = lab.command_in("hb", &line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let line = format!("{PROGRAM} test send {address} --timeout {seconds} {format} {words}");
    let end = Instant::now() + PATIENCE;
    let sender = loop {
        let output = lab.in_place("ha", &line);
        // Until the receiver listens.
        if !String::from_utf8_lossy(&output.stderr).contains("nobody listens") || Instant::now() > end {
            break output;
        }
        thread::sleep(Duration::from_millis(20));
    };
    [sender, receiver.wait_with_output().unwrap()]
}

/// The report of an end that came to its end with this code.
fn report(output: &Output, code: i32) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr} {}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"))
}

#[test]
fn behind_shims_values_are_within_the_bound_and_fewer_bytes_go_over_the_wire() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let _shims = Side::BOTH.map(|side| Shim::start(&lab, side, RULE));
    for (address, words) in [("10.77.0.2", "--bytes 6M"), ("fd77::2", "--bytes 6M --connections 3")] {
        let before = lab.wire_count(Side::A).0;
        let reports = tested(&lab, address, words).map(|output| report(&output, 0));
        let on_wire = lab.wire_count(Side::A).0 - before;
        for report in &reports {
            assert_eq!((&report["values"], &report["wrong"]), (&1_500_000.into(), &0.into()), "{report}");
            let part = report["error_of_bound"].as_f64().unwrap();
            assert!(report["changed"].as_u64() > Some(0) && (0.5..=1.0).contains(&part), "{report}");
        }
        // The sender's shim tells of the connections; the wire agrees.
        let [sender, _] = reports;
        assert!(sender["wire"]["connections"].as_u64() > Some(0), "{sender}");
        let ratio = sender["ratio"].as_f64().unwrap();
        assert!(ratio > 2.0, "{sender}");
        let expected = sender["wire"]["bytes"].as_f64().unwrap() - sender["wire"]["saved"].as_f64().unwrap();
        let headers = sender["wire"]["segments"].as_f64().unwrap() * 100.0;
        assert!((expected..expected + headers + 100_000.0).contains(&(on_wire as f64)), "{on_wire} {sender}");
    }
    // With this demand, the same traffic is wrong.
    let [sender, receiver] = tested(&lab, "10.77.0.2", "--bytes 1M --exact").map(|output| report(&output, 1));
    assert!(sender["wrong"].as_u64() > Some(0) && receiver["first_wrong"].is_object(), "{sender}");
    // A bound below the rule's is broken, too.
    let [sender, _] = tested(&lab, "10.77.0.2", "--bytes 1M --bound 2^-14").map(|output| report(&output, 1));
    assert!(sender["error_of_bound"].as_f64() > Some(1.0), "{sender}");
}

#[test]
fn without_shims_every_bit_arrives_and_the_report_says_that_nothing_was_compressed() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    for address in ["10.77.0.2", "fd77::2"] {
        let reports = tested(&lab, address, "--bytes 3M --exact").map(|output| report(&output, 0));
        for report in reports {
            assert_eq!((&report["values"], &report["changed"]), (&750_000.into(), &0.into()), "{report}");
            assert!(report["wire"].is_null());
        }
    }
    // With a shim on one side only, the sender's shim says why.
    let _shim = Shim::start(&lab, Side::A, RULE);
    let [sender, _] = tested(&lab, "10.77.0.2", "--bytes 1M").map(|output| report(&output, 0));
    assert_eq!((&sender["changed"], &sender["wire"]["compressed"]), (&0.into(), &0.into()));
    assert_eq!(sender["wire"]["handshake"], "advertised", "{sender}");
}

/// The speed of either depends on the machine; that both arrive, and which sends fewer bytes, does
/// not.
#[test]
fn a_baseline_compares_the_bridge_and_the_shim() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let _shims = Side::BOTH.map(|side| Shim::start(&lab, side, RULE));
    let [sender, receiver] = tested(&lab, "10.77.0.2", "--bytes 2M --baseline --rounds 2");
    let table = report(&sender, 0);
    let streams = table["streams"].as_array().unwrap();
    assert_eq!(streams.len(), 4, "{table}");
    for stream in streams {
        let is_tagged = stream["way"] == "shim";
        let got = &stream["report"];
        assert_eq!((&got["values"], &got["wrong"]), (&500_000.into(), &0.into()), "{stream}");
        // Untagged, every bit arrives; tagged, the shim lists the connection.
        assert_eq!(got["changed"].as_u64() > Some(0), is_tagged, "{stream}");
        assert_eq!(got["wire"].is_null(), !is_tagged, "{stream}");
    }
    // The card's figures are those of the shim's own interface, which this namespace does not have.
    let bytes = |way: &str| table[way]["card_bytes"].as_f64().unwrap_or_else(|| panic!("{table}"));
    assert!(bytes("bridge") > 2e6 && bytes("shim") < bytes("bridge"), "{table}");
    assert!(table["ratio"]["card_bytes"].as_f64().unwrap() < 1.0, "{table}");
    assert!(table["shim"]["cpu_here"].is_number() && table["bridge"]["cpu_there"].is_number(), "{table}");
    // The receiver has a report of each, on a line of its own.
    assert_eq!(receiver.status.code(), Some(0));
    assert_eq!(String::from_utf8(receiver.stdout).unwrap().lines().count(), 4);
    // For people, both ways have a row.
    let [sender, _] = printed(&lab, "10.77.0.2", "--bytes 1M --baseline --rounds 1", "");
    assert_eq!(sender.status.code(), Some(0), "{}", String::from_utf8_lossy(&sender.stderr));
    let text = String::from_utf8(sender.stdout).unwrap();
    for row in ["way ", "bridge ", "shim ", "shim / bridge "] {
        assert!(text.lines().any(|line| line.starts_with(row)), "no {row} in\n{text}");
    }
}

/// A wire that changes a bit of one value and repairs the checksum: TCP does not see it.
#[test]
fn a_wire_that_damages_a_value_is_found() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    // The payload of a full segment, somewhere in its middle: the fourth byte of a value has sign
    // and exponent.
    let harm = "nft add table bridge damage; \
        nft add chain bridge damage forward '{ type filter hook forward priority 0; }'; \
        nft add rule bridge damage forward ip daddr 10.77.0.2 tcp dport 5281 ip length 1500 limit rate 1/hour burst 1 packets @th,512,32 set 0x12345678";
    let output = lab.command_in("w", "sh -c").arg(harm).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let [sender, receiver] = tested(&lab, "10.77.0.2", "--bytes 2M").map(|output| report(&output, 1));
    assert!((1..=2).contains(&sender["wrong"].as_u64().unwrap()), "{sender}");
    assert_eq!(sender["first_wrong"], receiver["first_wrong"]);
}
