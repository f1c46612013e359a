//! `gradwire replay --from-wire`: captures that were taken on the wire.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gradwire::rules::{Framing, Rule};
use gradwire_testbench::from_wire::rule_of;
use gradwire_testbench::input::{Capture, Frame, Writer};
use gradwire_testbench::verify::frame::View;
use serde_json::Value;

fn gradwire(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gradwire")).args(args).output().unwrap()
}

fn json(args: &[&str]) -> Value {
    let output = gradwire(args);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{args:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A capture as it is on the wire, and what `replay` counted when it made it.
fn on_the_wire(name: &str, options: &[&str]) -> (PathBuf, Value) {
    let (source, wire) = (support::recordings().join("ring4_mtu1450.pcap"), path(name));
    let mut args = vec!["replay", source.to_str().unwrap(), "--json", "--write-wire", wire.to_str().unwrap()];
    args.extend(options);
    let report = json(&args);
    (wire, report)
}

#[test]
fn restores_what_replay_compressed() {
    for (name, options) in [
        ("from_wire_2.pcap", &["--codec", "2"][..]),
        ("from_wire_1.pcap", &["--codec", "1", "--bound", "6"]),
        ("from_wire_in_place.pcap", &["--framing", "in-place", "--handshake", "off"]),
    ] {
        let (wire, replayed) = on_the_wire(name, options);
        let mut args = vec!["replay", wire.to_str().unwrap(), "--from-wire", "--json"];
        if name.contains("in_place") {
            args.extend(options);
        }
        let found = json(&args);
        assert!(replayed["compressed"].as_u64().unwrap() > 100, "{replayed}");
        assert_eq!(found["restored"], replayed["compressed"], "{name}: {found}");
        assert_eq!(found["values"], replayed["values"], "{name}");
        assert_eq!((&found["dropped"], &found["ok"]), (&serde_json::json!({}), &true.into()), "{name}");
        if !name.contains("in_place") {
            // One line for each end of a connection that advertised something on its SYN.
            let options: u64 =
                found["handshakes"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
            assert_eq!(Some(options), replayed["options_added"].as_u64(), "{name}: {found}");
        }
    }
}

#[test]
fn says_what_is_refused() {
    let (wire, replayed) = on_the_wire("from_wire_damaged.pcap", &[]);
    let mut capture = support::capture(&wire);
    let marked = |frame: &&mut Frame| View::of(&frame.bytes).is_some_and(|view| view.tos & 0xfc == 0x30);
    let damaged = capture.frames.iter_mut().find(marked).unwrap();
    *damaged.bytes.last_mut().unwrap() ^= 1;
    let file = fs::File::create(&wire).unwrap();
    let mut writer = Writer::new(file).unwrap();
    for Frame { time, bytes, .. } in &capture.frames {
        writer.frame(*time, bytes).unwrap();
    }
    writer.finish().unwrap();
    let args = ["replay", wire.to_str().unwrap(), "--from-wire"];
    let found = json(&[&args[..], &["--json"]].concat());
    assert_eq!(found["dropped"], serde_json::json!({"l4-checksum": 1}));
    assert_eq!(found["restored"].as_u64().unwrap() + 1, replayed["compressed"].as_u64().unwrap());
    let output = gradwire(&args);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().contains("NOT every compressed frame is restored"));
}

#[test]
fn a_hosts_capture_is_no_capture_of_the_wire() {
    let host = support::recordings().join("ring4_mtu1450.pcap");
    let output = gradwire(&["replay", host.to_str().unwrap(), "--from-wire"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("nothing was verified"));
}

/// The SYN of FORMAT.md section 8.3, from a host that restores in-place frames of codec 1 with b =
/// 10 and k = 3.
#[test]
fn in_place_parameters_are_read_from_syns() {
    let format = support::document::text("FORMAT.md");
    let example = format.split("```example syn\n").nth(1).unwrap().split("```").next().unwrap();
    let wire = example.split("wire ").nth(1).unwrap().split("restored").next().unwrap();
    let digits: String = wire.split_whitespace().collect();
    let bytes =
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect();
    let frame = Frame { number: 1, time: Default::default(), bytes };
    let capture = Capture { frames: vec![frame], ..Capture::default() };
    let rule = rule_of(
        &capture,
        Rule {
            profile: gradwire::Profile::BitPlane(gradwire::codec::bit_plane::Bound::new(-10).unwrap()),
            ..Rule::DEFAULT
        },
    );
    assert_eq!(rule, Rule { framing: Framing::InPlace, ..Rule::DEFAULT });
    assert_eq!(rule_of(&Capture::default(), Rule::DEFAULT), Rule::DEFAULT);
}
