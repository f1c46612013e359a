//! `gradwire replay --engine rtl`: the captures' payloads through the gateware, and what the
//! command says if it cannot.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn gradwire(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gradwire")).args(args).output().unwrap()
}

fn capture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings");
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn both_captures_through_the_gateware_in_both_framings() {
    for name in ["ring4_loss.pcap", "ring4_mtu1450.pcap"] {
        for framing in ["in-place", "routed"] {
            let path = capture(name);
            let output = gradwire(&["replay", &path, "--engine", "rtl", "--framing", framing, "--json"]);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}, {framing}: {stderr}");
            let json: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(json["ok"], true);
            assert_eq!(json["codec"], 1);
            for engine in ["compressor", "decompressor"] {
                let cost = &json["rtl"][engine];
                assert_eq!(cost["frames"], json["compressed"], "{name}, {framing}, {engine}");
                assert!(cost["frames"].as_u64().unwrap() > 150);
                // A clock for each beat, two between frames, and what the last frame takes on its
                // way.
                let [clocks, beats, frames] =
                    ["clocks", "beats", "frames"].map(|key| cost[key].as_u64().unwrap());
                assert!((beats..=beats + 2 * frames + 200).contains(&clocks), "{cost}");
            }
        }
    }
}

#[test]
#[ignore = "needs Verilator: .ci/gateware"]
fn the_table_has_clocks_stalls_and_latency() {
    let output = gradwire(&["replay", &capture("ring4_mtu1450.pcap"), "--engine", "rtl", "--bound", "6"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.contains("RTL decompressor")).unwrap();
    assert!(line.contains(" clocks, ") && line.contains(" stalls, latency "), "{line}");
}

#[test]
fn without_verilator_the_command_names_the_package() {
    // No program is found there, and nothing was built there before.
    let nowhere = empty_folder();
    let output = Command::new(env!("CARGO_BIN_EXE_gradwire"))
        .args(["replay", &capture("ring4_mtu1450.pcap"), "--engine", "rtl"])
        .env("PATH", &nowhere)
        .env("CARGO_TARGET_DIR", &nowhere)
        .output()
        .unwrap();
    std::fs::remove_dir_all(&nowhere).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("apt-get install verilator"), "{stderr}");
}

fn empty_folder() -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-verilator");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn features_that_the_gateware_lacks_are_refused() {
    for (more, why) in [(&["--codec", "2"][..], "codec 1 alone"), (&["--from-wire"], "--from-wire")] {
        let path = capture("ring4_mtu1450.pcap");
        let output = gradwire(&[&["replay", &path, "--engine", "rtl"], more].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(why), "{stderr}");
    }
}
