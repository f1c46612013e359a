//! Cuts the first inputs of the fuzzer's corpora from the recordings and golden frames:
//! `fuzz/corpus/NAME/seed-*`.

use std::collections::BTreeMap;
use std::fs;

use etherparse::{IpHeaders, IpNumber, Ipv4Extensions, PacketBuilder, PacketBuilderStep};
use gradwire::codec::bit_plane::Bound;
use gradwire::profile::Profile;
use gradwire::rules::{Framing, Rule};
use gradwire::wire::frame::IpFrame;
use gradwire_testbench::input::{Capture, Frame, Writer, ipv4, recordings};
use gradwire_testbench::oracle::frames::Checksums;
use gradwire_testbench::oracle::{codec, frames};
use gradwire_testbench::replay::{Engines, Setup};
use gradwire_testbench::verify::frame::{Transport, View};

use crate::Result;
use crate::tools::root;

/// Frames of a capture in one seed: a SYN and some segments of each of the first connections.
const FRAMES: usize = 12;

/// Host's, wire's and restored frame, each behind its length in two bytes.
fn golden(bytes: &[u8]) -> [&[u8]; 3] {
    let mut rest = bytes;
    [(); 3].map(|()| {
        let (len, after) = rest.split_first_chunk::<2>().expect("a length");
        let (frame, after) = after.split_at(u16::from_be_bytes(*len).into());
        rest = after;
        frame
    })
}

/// The change that a fuzzer has to make to the checksums of a compressed frame that it has changed.
fn on_wire(framing: Framing) -> Checksums {
    if framing == Framing::Routed { Checksums::Compressed } else { Checksums::Ordinary }
}

/// The beginning of a tagged frame. What is built on it says which protocol it carries.
fn tagged() -> PacketBuilderStep<IpHeaders> {
    let ip = ipv4(0x28, IpNumber::UDP, [10, 0, 0, 1], [10, 0, 0, 2]);
    PacketBuilder::ethernet2([2; 6], [4; 6]).ip(IpHeaders::Ipv4(ip, Ipv4Extensions::default()))
}

/// Writes every seed.
///
/// # Errors
/// A recording cannot be read, or the file system's.
pub fn seeds() -> Result {
    let corpus = root().join("fuzz/corpus");
    let write = |target: &str, name: &str, bytes: &[u8]| -> Result {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        Ok(fs::write(folder.join(format!("seed-{name}")), bytes)?)
    };

    for file in recordings::CAPTURES {
        let name = file.name.trim_end_matches(".pcap");
        let mut capture = Capture::parse(file.name, file.bytes)?;
        // From the first SYN that asks for the rule on.
        let asks = |frame: &Frame| View::of(&frame.bytes).is_some_and(|view| view.tos & 0xfc == 0x28);
        let start = capture.frames.iter().position(asks).unwrap_or(0);
        capture.frames.drain(..start);
        capture.frames.truncate(FRAMES);
        let sent: Vec<&[u8]> = capture.frames.iter().map(|frame| &frame.bytes[..]).collect();
        for (framing_name, framing) in [("routed", Framing::Routed), ("in-place", Framing::InPlace)] {
            for (codec, profile) in [
                ("", Rule::DEFAULT.profile),
                ("-bit-plane", Profile::BitPlane(Bound::from_exponents(-10, 0)?)),
            ] {
                for (handshake, rule) in [("", Rule::STATIC), ("-handshake", Rule::DEFAULT)] {
                    let rule = Rule { framing, profile, ..rule };
                    let name = format!("{name}-{framing_name}{codec}{handshake}");
                    write("egress", &name, &frames::seed(&rule, Checksums::AsTheyAre, &sent))?;
                    // With SYNs that carry capability options among them.
                    let on_wire = if handshake.is_empty() { on_wire(framing) } else { Checksums::Ordinary };
                    let mut engines = Engines::new(&Setup::new(rule), &capture)?;
                    let passages: Vec<_> = capture.frames.iter().map(|frame| engines.send(frame)).collect();
                    let wire: Vec<&[u8]> = passages
                        .iter()
                        .zip(&sent)
                        .filter_map(|(passage, sent)| passage.on_wire(sent))
                        .collect();
                    write("ingress", &name, &frames::seed(&rule, on_wire, &wire))?;
                }
            }
        }
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file)?;
        for frame in &capture.frames[..3] {
            writer.frame(frame.time, &frame.bytes)?;
            write("frame", &format!("{name}-{}", frame.number), &frame.bytes)?;
        }
        writer.finish()?;
        write("capture", name, &file)?;
    }

    let files: BTreeMap<_, _> = fs::read_dir(root().join("dataplane/tests/golden"))?
        .filter_map(|entry| Some((entry.as_ref().ok()?.file_name().into_string().ok()?, entry.ok()?.path())))
        .filter(|(name, _)| name.starts_with("v1_frame_"))
        .collect();
    for (name, path) in files {
        let name = name.trim_start_matches("v1_frame_").trim_end_matches(".bin");
        let bytes = fs::read(path)?;
        let [host, wire, _] = golden(&bytes);
        let framing = if name.starts_with("routed") { Framing::Routed } else { Framing::InPlace };
        let rule = Rule { framing, ..Rule::STATIC };
        write("frame", name, host)?;
        if let Ok(packet) = IpFrame::parse(host).and_then(|ip_frame| ip_frame.packet()) {
            // The sum of the pseudo-header, to which the card adds the rest.
            let len = packet.ip_at() + packet.ip_len() - packet.l4_at();
            let (mut offloaded, at) = (host.to_vec(), packet.l4_checksum_at());
            offloaded[at..at + 2].copy_from_slice(&packet.pseudo_sum(len).value().to_be_bytes());
            write("frame", &format!("{name}-offloaded"), &offloaded)?;
        }
        if let Some(segment) = View::of(host).and_then(|view| view.segment) {
            write("clocked", name, &codec::clocked_seed(host, segment.payload.start))?;
        }
        write("egress", name, &frames::seed(&rule, Checksums::AsTheyAre, &[host]))?;
        write("ingress", name, &frames::seed(&rule, on_wire(framing), &[wire]))?;
        if framing == Framing::Routed {
            write(
                "ingress",
                &format!("{name}-recomputed"),
                &frames::seed(&rule, Checksums::Ordinary, &[wire]),
            )?;
        }
        // The last two bytes would be UDP options.
        if let Some(segment) = View::of(wire).and_then(|view| view.segment)
            && segment.transport == Transport::Udp
        {
            let (mut cut, len_at) = (wire.to_vec(), segment.checksum_at.start - 2);
            let len = u16::from_be_bytes([cut[len_at], cut[len_at + 1]]) - 2;
            cut[len_at..len_at + 2].copy_from_slice(&len.to_be_bytes());
            write(
                "ingress",
                &format!("{name}-options"),
                &frames::seed(&rule, Checksums::AsTheyAre, &[&cut]),
            )?;
        }
    }

    for entry in fs::read_dir(root().join("dataplane/tests/golden"))? {
        let entry = entry?;
        let (name, bytes) =
            (entry.file_name().into_string().map_err(|name| format!("{name:?}"))?, fs::read(entry.path())?);
        let Some(name) = name.strip_prefix("v1_sections_").and_then(|name| name.strip_suffix(".bin")) else {
            continue;
        };
        let count = u32::from_le_bytes(*bytes[4..].first_chunk().ok_or("a count")?) as usize;
        // Those with the default bound that a frame could carry.
        if bytes[0].cast_signed() == -10 && 4 * count < 9000 {
            write(
                "groups",
                &format!("sections-{name}"),
                &codec::sections_seed(count, &bytes[8 + 4 * count..bytes.len() - 4 * count]),
            )?;
            write("values", &format!("sections-{name}"), &codec::values_seed(&bytes[8..8 + 4 * count]))?;
        }
    }

    // A tunnel: its payload is not the tagged socket's.
    let mut tunnel = Vec::new();
    tagged().udp(40_000, 4789).write(&mut tunnel, &[0; 200])?;
    write("egress", "tunnel", &frames::seed(&Rule::STATIC, Checksums::AsTheyAre, &[&tunnel]))?;

    // Gloo's kind of header before values, in a datagram and in the middle of a stream; and a
    // length at a stream's start.
    let values: Vec<u8> = (0..100).flat_map(|_| 1e-3f32.to_le_bytes()).collect();
    let headed = [&48u64.to_le_bytes()[..], &7u64.to_le_bytes(), &values].concat();
    let mut datagrams = [Vec::new(), Vec::new()];
    for (datagram, payload) in datagrams.iter_mut().zip([&values, &headed]) {
        tagged().udp(40_000, 50_000).write(datagram, payload)?;
    }
    let datagrams = datagrams.each_ref().map(Vec::as_slice);
    write(
        "egress",
        "datagrams-with-headers",
        &frames::seed(&Rule::STATIC, Checksums::AsTheyAre, &datagrams),
    )?;
    for (name, sent) in [("headers", [&values, &headed, &values]), ("a-length", [&headed, &values, &values])]
    {
        let mut segments = [vec![], vec![], vec![], vec![]];
        let mut seq = 1000;
        tagged().tcp(40_000, 50_000, seq, 64_000).syn().write(&mut segments[0], &[])?;
        seq += 1;
        for (segment, payload) in segments[1..].iter_mut().zip(sent) {
            tagged().tcp(40_000, 50_000, seq, 64_000).ack(1).write(segment, payload)?;
            seq += payload.len() as u32;
        }
        let segments = segments.each_ref().map(Vec::as_slice);
        let seed = frames::seed(&Rule::STATIC, Checksums::AsTheyAre, &segments);
        write("egress", &format!("a-stream-with-{name}"), &seed)?;
    }

    for recording in recordings::builtin()? {
        // Values enough for every class, and for a burst that is not whole.
        let values = &recording.values[..4 * 45];
        write("values", &recording.name, &codec::values_seed(values))?;
        write("groups", &recording.name, &codec::groups_seed(values))?;
    }
    let values: Vec<u8> =
        (96..160u32).flat_map(|exponent| (exponent << 23 | 0x0051_0b5e).to_le_bytes()).collect();
    write("values", "exponents", &codec::values_seed(&values))?;
    write("groups", "exponents", &codec::groups_seed(&values))?;

    let header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
    let mut npy = header.to_vec();
    npy.resize(127, b' ');
    npy.extend(b"\n\0\0\x80\x3f\0\0\0\x3f");
    write("npy", "two", &npy)?;

    // A codec, by its place among those of a tensor; how many values; and a message of the second
    // implementation's.
    let golden = root().join("host/codecs/tests/golden");
    let files = [fs::read_to_string(golden.join("v1.txt"))?, fs::read_to_string(golden.join("v1-q4.txt"))?];
    let short = files.iter().flat_map(|file| {
        file.split("tensor ").find(|tensor| tensor.starts_with("short ")).expect("a short tensor").lines()
    });
    for (place, line) in short.filter(|line| line.contains(" 1 ")).enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        let mut input = vec![place as u8, 77, 0];
        let hex = words[3].as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("hex"));
        input.extend(hex.map(|pair| u8::from_str_radix(pair, 16).expect("hex")));
        write("messages", &words[1].replace(':', "-"), &input)?;
    }

    // Any bytes are events and conversations; these have one of each kind.
    let events: Vec<u8> = (0..400u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    write("flows", "mixed", &events)?;
    write("round_trip", "mixed", &events)?;
    // Knuth's constants (The Art of Computer Programming, volume 2, section 3.3.4).
    for number in 0..8u32 {
        let steps = (0..3000).scan(number, |state, _| {
            *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Some((*state >> 24) as u8)
        });
        let steps: Vec<u8> = steps.collect();
        write("aggregate", &format!("mixed-{number}"), &steps)?;
        write("worker", &format!("mixed-{number}"), &steps)?;
    }
    Ok(())
}
