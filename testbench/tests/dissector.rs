//! The Wireshark dissector against the engines: what it decodes, and what it says a receiver does.
//! Needs tshark, so these tests are ignored by default; `.ci/dissector` runs them.

mod support;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use etherparse::PacketBuilder;
use gradwire::codec::bit_plane::Bound;
use gradwire::engine::{Ingress, NO_CAPABILITIES};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire::rules::{DEFAULT_MARK, DEFAULT_TOS, Framing, Heuristic, Rule, Rules};
use gradwire::verdict::{Change, PassReason, Verdict};
use gradwire::{Params, Split};
use gradwire_testbench::input::recordings::builtin;
use gradwire_testbench::input::{Capture, Frame, Writer};
use gradwire_testbench::replay::{Engines, Setup};
use gradwire_testbench::verify::frame::{View, repair_checksums};
use support::document::root;

/// The number that is added to a compressed segment's checksum (FORMAT.md section 5.3).
const MAGIC: u16 = 0x6777;

/// The form of a connection's frames below their payload.
#[derive(Clone, Copy, Debug)]
struct Shape {
    v6: bool,
    tcp: bool,
    vlans: u8,
}

const SHAPES: [Shape; 6] = [
    Shape { v6: false, tcp: true, vlans: 0 },
    Shape { v6: true, tcp: true, vlans: 1 },
    Shape { v6: false, tcp: true, vlans: 2 },
    Shape { v6: false, tcp: false, vlans: 0 },
    Shape { v6: true, tcp: false, vlans: 2 },
    Shape { v6: true, tcp: true, vlans: 0 },
];

impl Shape {
    /// A frame from one host (0 or 1) to the other; `syn` is None behind the handshake, and else
    /// says whether it is an answer.
    fn frame(self, from: u8, seq: u32, syn: Option<bool>, payload: &[u8]) -> Vec<u8> {
        let ports = [(40_000, 5400), (5400, 40_000)][usize::from(from)];
        let mac = |host: u8| [2, 0, 0, 0, 0, host];
        let (one, other) = (from + 1, 2 - from);
        let ip = if self.v6 {
            let address = |host| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
            let mut header = etherparse::Ipv6Header {
                hop_limit: 64,
                source: address(one),
                destination: address(other),
                ..Default::default()
            };
            header.traffic_class = DEFAULT_TOS;
            etherparse::IpHeaders::Ipv6(header, etherparse::Ipv6Extensions::default())
        } else {
            let mut header = etherparse::Ipv4Header {
                time_to_live: 64,
                source: [10, 0, 0, one],
                destination: [10, 0, 0, other],
                ..Default::default()
            };
            (header.dscp, header.ecn) =
                ((DEFAULT_TOS >> 2).try_into().unwrap(), (DEFAULT_TOS & 3).try_into().unwrap());
            etherparse::IpHeaders::Ipv4(header, etherparse::Ipv4Extensions::default())
        };
        let builder = PacketBuilder::ethernet2(mac(one), mac(other));
        let builder = match self.vlans {
            0 => builder.ip(ip),
            1 => builder.single_vlan(7u16.try_into().unwrap()).ip(ip),
            _ => builder.double_vlan(7u16.try_into().unwrap(), 9u16.try_into().unwrap()).ip(ip),
        };
        let mut bytes = Vec::new();
        if self.tcp {
            let mut tcp = builder.tcp(ports.0, ports.1, seq, 1000);
            if let Some(answer) = syn {
                tcp = tcp.syn();
                if answer {
                    tcp = tcp.ack(1000);
                }
            } else {
                tcp = tcp.ack(1000);
            }
            tcp.write(&mut bytes, payload).unwrap();
        } else {
            builder.udp(ports.0, ports.1).write(&mut bytes, payload).unwrap();
        }
        bytes
    }
}

/// A connection's frames as its hosts send them: both SYNs, then values in segments that are cut
/// anywhere.
fn conversation(shape: Shape, values: &[u8], framing: Framing) -> Vec<Frame> {
    let mut frames = Vec::new();
    if shape.tcp {
        frames.push(shape.frame(0, 999, Some(false), &[]));
        frames.push(shape.frame(1, 999, Some(true), &[]));
    }
    let mut seq = 1000;
    let mut rest = values;
    // In place, a segment has to start on a value.
    for len in [1400, if framing == Framing::Routed { 1203 } else { 1200 }, 40, 900, 262, 8].iter().cycle() {
        if rest.len() < *len {
            break;
        }
        let (payload, after) = rest.split_at(*len);
        frames.push(shape.frame(0, seq, None, payload));
        seq += *len as u32;
        rest = after;
    }
    number(frames)
}

fn number(frames: Vec<Vec<u8>>) -> Vec<Frame> {
    let frame = |(at, bytes)| Frame { number: at as u64 + 1, time: Duration::from_millis(at as u64), bytes };
    frames.into_iter().enumerate().map(frame).collect()
}

/// The dissection of one frame by tshark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Dissected {
    outcome: String,
    reason: String,
    restored: String,
    values: String,
    option: String,
}

/// Runs the dissector over frames; by frame, from 0.
fn dissect(name: &str, frames: &[Vec<u8>], in_place: &str) -> Vec<Dissected> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dissector");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{name}.pcap"));
    let mut writer = Writer::new(BufWriter::new(File::create(&path).unwrap())).unwrap();
    for (at, bytes) in frames.iter().enumerate() {
        writer.frame(Duration::from_millis(at as u64), bytes).unwrap();
    }
    writer.finish().unwrap();
    let fields = ["outcome", "reason", "restored", "values", "option"];
    let mut tshark = Command::new("tshark");
    tshark.arg("-X").arg(format!("lua_script:{}", root().join("testbench/wireshark/gradwire.lua").display()));
    tshark.arg("-r").arg(&path).args(["-2", "-o", &format!("gradwire.in_place:{in_place}"), "-T", "fields"]);
    for field in fields {
        tshark.args(["-e", &format!("gradwire.{field}")]);
    }
    let output =
        tshark.args(["-e", "_ws.lua.error"]).output().expect("tshark is there: .ci/dissector installs it");
    let text = String::from_utf8(output.stdout).unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !complaints.contains("Lua:"), "{name}: {complaints}");
    let lines: Vec<Dissected> = text
        .lines()
        .map(|line| {
            let [outcome, reason, restored, values, option, lua] =
                line.split('\t').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
            assert_eq!(lua, "", "{name}: an error of Lua");
            Dissected { outcome, reason, restored, values, option }
        })
        .collect();
    assert_eq!(lines.len(), frames.len(), "{name}: {complaints}");
    lines
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The payload of a whole frame, as etherparse finds it.
fn payload(frame: &[u8]) -> &[u8] {
    let segment = View::of(frame).unwrap().segment.unwrap();
    &frame[segment.payload]
}

/// The codecs' profiles, as the dissector's preference writes them.
fn profiles() -> [(&'static str, Profile); 3] {
    [
        ("b=10 k=3 x=0", Profile::DEFAULT),
        ("b=6 k=3 x=-3", Profile::SizeClass(Params::new(6, Split::Paper, -3).unwrap())),
        ("y=-10", Profile::BitPlane(Bound::new(-10).unwrap())),
    ]
}

/// Values of every class: a gradient, with outliers and an infinity here and there.
fn values() -> Vec<u8> {
    let recording = &builtin().unwrap()[0];
    let mut values = recording.values[..40_000].to_vec();
    for (at, value) in
        (0..values.len()).step_by(2_004).zip([7.5f32, -300.0, f32::INFINITY, 1e-40].iter().cycle())
    {
        values[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    values
}

/// Frames on the wire and what their receiver's host gets, of all shapes.
fn on_the_wire(profile: Profile, framing: Framing) -> Vec<(Vec<u8>, Option<Vec<u8>>, bool)> {
    // Datagrams are cut anywhere, and do not look like values.
    let setup = Setup::new(Rule { profile, framing, heuristic: Heuristic::Off, ..Rule::DEFAULT });
    let mut wire = Vec::new();
    for shape in SHAPES {
        let capture = Capture { frames: conversation(shape, &values(), framing), ..Capture::default() };
        let mut engines = Engines::new(&setup, &capture).unwrap();
        for frame in &capture.frames {
            let passage = engines.send(frame);
            let bytes = passage.on_wire(&frame.bytes).unwrap().to_vec();
            let change =
                |verdict, wanted| matches!(verdict, Verdict::Changed { change, .. } if change == wanted);
            let delivered = change(passage.egress, Change::Compressed).then(|| {
                assert!(
                    passage.ingress.is_some_and(|verdict| change(verdict, Change::Restored)),
                    "{shape:?}"
                );
                passage.delivered(&frame.bytes).unwrap().to_vec()
            });
            wire.push((bytes, delivered, change(passage.egress, Change::OptionAdded)));
        }
    }
    wire
}

/// Both codecs, both framings, IPv4 and IPv6, TCP and UDP, with and without VLAN tags: the restored
/// payload is what the engines restore, byte for byte, and each SYN's option is found.
#[test]
#[ignore = "needs tshark: .ci/dissector"]
fn decodes_what_the_engines_restore() {
    for (text, profile) in profiles() {
        for framing in Framing::ALL {
            let wire = on_the_wire(profile, framing);
            let frames: Vec<Vec<u8>> = wire.iter().map(|(bytes, ..)| bytes.clone()).collect();
            let name = format!("{} {}", framing.name(), text);
            // A handshake's frames need no preference, datagrams do: a wrong one here shows that
            // TCP does without.
            let found = dissect(&name, &frames, text);
            let (mut compressed, mut options) = (0, 0);
            for (at, ((_, delivered, has_option), found)) in wire.iter().zip(found).enumerate() {
                let expected = delivered.as_ref().map(|frame| payload(frame)).unwrap_or_default();
                assert_eq!(found.restored, hex(expected), "{name}: frame {}", at + 1);
                assert_eq!(
                    found.outcome,
                    if delivered.is_some() { "restored" } else { "" },
                    "{name}: frame {}",
                    at + 1
                );
                assert_eq!(!found.option.is_empty(), *has_option, "{name}: frame {}", at + 1);
                compressed += u32::from(delivered.is_some());
                options += u32::from(*has_option);
            }
            assert!(compressed > 200, "{name}: {compressed} compressed frames");
            assert_eq!(options, 8, "{name}: two SYNs of each TCP connection");
        }
    }
}

/// In-place parameters come from the connection's SYNs: without the preference, TCP is decoded and
/// datagrams are not.
#[test]
#[ignore = "needs tshark: .ci/dissector"]
fn in_place_parameters_come_from_the_syns() {
    for (text, profile) in profiles() {
        let wire = on_the_wire(profile, Framing::InPlace);
        let frames: Vec<Vec<u8>> = wire.iter().map(|(bytes, ..)| bytes.clone()).collect();
        for ((bytes, delivered, _), found) in wire.iter().zip(dissect(&format!("syns {text}"), &frames, "")) {
            let Some(delivered) = delivered else { continue };
            let tcp =
                etherparse::PacketHeaders::from_ethernet_slice(delivered).unwrap().transport.unwrap().tcp();
            let expected = if tcp.is_some() { hex(payload(delivered)) } else { String::new() };
            assert_eq!(found.restored, expected, "{text}: {} bytes", bytes.len());
        }
    }
}

/// The files that the second implementation of the format wrote.
#[test]
#[ignore = "needs tshark: .ci/dissector"]
fn decodes_the_golden_frames() {
    let mut files = support::files(&root().join("dataplane/tests/golden"), "bin");
    files.retain(|path| path.file_stem().unwrap().to_str().unwrap().starts_with("v1_frame_"));
    assert_eq!(files.len(), 8);
    let (mut wire, mut restored) = (Vec::new(), Vec::new());
    for file in &files {
        let bytes = fs::read(file).unwrap();
        let mut rest = &bytes[..];
        let mut frames = Vec::new();
        while let Some((len, after)) = rest.split_first_chunk::<2>() {
            let (frame, after) = after.split_at(u16::from_be_bytes(*len).into());
            frames.push(frame.to_vec());
            rest = after;
        }
        restored.push(frames.pop().unwrap());
        wire.push(frames.pop().unwrap());
    }
    for ((file, restored), found) in files.iter().zip(&restored).zip(dissect("golden", &wire, "b=10 k=3 x=0"))
    {
        assert_eq!(found.restored, hex(payload(restored)), "{}", file.display());
    }
}

/// Numbers that look random and are the same each time (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

/// A damaged copy of a compressed frame, often with a checksum that hides the damage.
fn damaged(frame: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let ip = View::of(&frame).and_then(|view| view.segment).map_or(34, |segment| segment.payload.start);
    let around = match numbers.below(6) {
        0 => 14..frame.len(),
        1 => ip..(ip + 8).min(frame.len()),
        2 => ip..(ip + 24).min(frame.len()),
        _ => ip..frame.len(),
    };
    for _ in 0..numbers.below(3) {
        let at = around.start + numbers.below(around.len());
        frame[at] ^= 1 << numbers.below(8);
    }
    match numbers.below(8) {
        0 => frame.truncate(14 + numbers.below(frame.len() - 14)),
        1 => frame.extend((0..=numbers.below(9)).map(|byte| byte as u8)),
        2 => repair_checksums(&mut frame, 0),
        3 => {}
        _ => repair_checksums(&mut frame, MAGIC),
    }
    frame
}

/// The text that the dissector has to show for this verdict.
fn expected(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Changed { change: Change::Restored, .. } => ("restored", ""),
        Verdict::Dropped(reason) => ("dropped", reason.name()),
        // Without the mark, as far as one can see; malformed is an IP version that is not the
        // EtherType's.
        Verdict::Untouched(
            PassReason::NotIp | PassReason::NoRule | PassReason::NotCompressed | PassReason::Malformed,
        ) => ("", ""),
        Verdict::Untouched(reason) => ("untouched", reason.name()),
        Verdict::Changed { change, .. } => panic!("{change}"),
    }
}

/// Damaged frames get the receiver's own verdict, by name, and never an error of Lua.
#[test]
#[ignore = "needs tshark: .ci/dissector"]
fn says_what_a_receiver_does_with_damaged_frames() {
    const COPIES: usize = 4;
    let mut numbers = Numbers(1);
    let mut seen = BTreeMap::<String, usize>::new();
    for (text, profile) in profiles() {
        let frames: Vec<Vec<u8>> = on_the_wire(profile, Framing::Routed)
            .into_iter()
            .filter(|(_, delivered, _)| delivered.is_some())
            .flat_map(|(bytes, ..)| (0..COPIES).map(|_| damaged(&bytes, &mut numbers)).collect::<Vec<_>>())
            .collect();
        let rules = Rules::new(&[Rule { profile, heuristic: Heuristic::Off, ..Rule::DEFAULT }], DEFAULT_MARK)
            .unwrap();
        let mut ingress = Ingress::new(rules, Kernel::detect(), u16::MAX);
        let mut out = vec![0; 70_000];
        for (at, (frame, found)) in
            frames.iter().zip(dissect(&format!("damaged {text}"), &frames, "")).enumerate()
        {
            let verdict = ingress.process(frame, &mut out, &NO_CAPABILITIES);
            let (outcome, reason) = expected(verdict);
            let found_outcome = (found.outcome.as_str(), found.reason.as_str());
            assert_eq!(found_outcome, (outcome, reason), "{text}: frame {}: {verdict:?}", at + 1);
            if let Verdict::Changed { len, .. } = verdict {
                assert_eq!(found.restored, hex(payload(&out[..len])), "{text}: frame {}", at + 1);
            }
            *seen.entry(format!("{outcome} {reason}")).or_default() += 1;
        }
    }
    println!("{seen:?}");
    for wanted in
        ["excess", "groups", "l4-checksum", "malformed", "recomputed", "segment-header", "ip-checksum"]
    {
        assert!(seen.contains_key(&format!("dropped {wanted}")), "none was {wanted}: {seen:?}");
    }
}
