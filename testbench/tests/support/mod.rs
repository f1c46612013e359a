//! Helpers that several test files share.
#![allow(dead_code, unreachable_pub, reason = "each test file is a crate of its own and uses a part")]

pub mod document;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use gradwire::rules::{Framing, Rule};
use gradwire_testbench::cmd::replay::replay;
use gradwire_testbench::input::Capture;
use gradwire_testbench::replay::Setup;
use gradwire_testbench::verify::Findings;
use gradwire_testbench::verify::frame::{Flow, Transport, View};
use gradwire_testbench::verify::stream::{Policy, Reassembler};
use sha2::{Digest, Sha256};

/// The recordings inside the project.
pub fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings")
}

/// All recordings, for the tests that are ignored by default; they fail if the folder is not named.
pub fn full_recordings() -> PathBuf {
    let folder = std::env::var_os("GRADWIRE_RECORDINGS")
        .expect("set GRADWIRE_RECORDINGS to the folder with all recordings");
    folder.into()
}

/// Files of `folder` with this extension, in order.
pub fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

/// The published ratios at 2^-10, 2^-8, 2^-6, by name.
pub fn published() -> BTreeMap<String, [f64; 3]> {
    include_str!("../published.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap().to_owned();
            let ratios: Vec<f64> = words.map(|word| word.parse().unwrap()).collect();
            (name, ratios.try_into().unwrap())
        })
        .collect()
}

/// Reads a capture file.
pub fn capture(path: &Path) -> Capture {
    Capture::parse(&path.display().to_string(), &fs::read(path).unwrap()).unwrap()
}

/// Replays a capture with the default tag and codec.
pub fn replayed(capture: &Capture, framing: Framing) -> Findings {
    replayed_with(capture, Rule { framing, ..Rule::STATIC })
}

/// Replays a capture.
pub fn replayed_with(capture: &Capture, rule: Rule) -> Findings {
    replay(&Setup::new(rule), capture).unwrap().0
}

/// Lower-case hexadecimal SHA-256.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every TCP stream of a capture whose SYN is in it, reassembled with `policy`; one with a gap is
/// absent. And the payloads of every UDP flow, one after the other.
pub fn streams(capture: &Capture, policy: Policy) -> BTreeMap<Flow, Vec<u8>> {
    let mut tcp: BTreeMap<Flow, Reassembler<'_>> = BTreeMap::new();
    let mut streams: BTreeMap<Flow, Vec<u8>> = BTreeMap::new();
    for frame in &capture.frames {
        let Some(segment) = View::of(&frame.bytes).and_then(|view| view.segment) else { continue };
        let payload = &frame.bytes[segment.payload];
        match segment.transport {
            Transport::Udp => streams.entry(segment.flow).or_default().extend_from_slice(payload),
            Transport::Tcp(header) if header.syn => {
                let new = || Reassembler::new(policy, header.first_byte());
                tcp.entry(segment.flow).or_insert_with(new);
            }
            Transport::Tcp(header) => {
                if let Some(stream) = tcp.get_mut(&segment.flow) {
                    stream.push(header.seq, payload);
                }
            }
        }
    }
    for (flow, stream) in tcp {
        if let [run] = &stream.finish()[..]
            && run.start == 0
        {
            streams.insert(flow, run.bytes.clone());
        }
    }
    streams
}

/// Checks every stream that `NAME.flows.jsonl` beside the capture lists against its SHA-256; how
/// many.
pub fn check_streams(path: &Path) -> usize {
    let capture = capture(path);
    let listed = fs::read_to_string(path.with_extension("flows.jsonl")).unwrap();
    let mut checked = 0;
    for policy in [Policy::FirstWins, Policy::LastWins] {
        let streams = streams(&capture, policy);
        for line in listed.lines() {
            let flow: serde_json::Value = serde_json::from_str(line).unwrap();
            let (Some(hash), Some(port)) = (flow["sent_sha256"].as_str(), flow["tx_local"][1].as_u64())
            else {
                continue;
            };
            let address = flow["tx_local"][0].as_str().unwrap();
            let found = streams
                .iter()
                .find(|(flow, _)| flow.source.0.to_string() == address && u64::from(flow.source.1) == port);
            let (_, bytes) =
                found.unwrap_or_else(|| panic!("{}: no stream of {address} {port}", path.display()));
            assert_eq!(bytes.len() as u64, flow["bytes_sent"].as_u64().unwrap());
            assert_eq!(sha256(bytes), hash, "{} {address} {port} {policy:?}", path.display());
            checked += 1;
        }
    }
    checked
}
