//! Aggregation's packets and sums against what a second implementation wrote, from
//! docs/aggregation-protocol.md.

use std::fs;
use std::path::Path;

use gradwire::aggregate::{Aggregator, Event, Outcome, Poll, Settings, To, Worker, WorkerSettings};
use gradwire::codec::ParamsError;
use gradwire::codec::bit_plane::BoundError;
use gradwire::engine::Millis;
use gradwire::kernels::Kernel;
use gradwire::profile::{Profile, ProfileError};
use gradwire::sums::{Summable, UnitError};
use gradwire::wire::chunk::{
    Blocks, Body, ChunkError, Head, Limits, MAX_PACKET_LEN, NO_COOKIE, Packet, Part, Refusal,
};

use crate::common::aggregation::{bit_plane, exact_sum, size_class};
use crate::common::golden::golden;

const NOW: Millis = Millis(100);
const KEY: u64 = 0x1122_3344_5566_7788;
const EPOCH: u32 = u32::MAX;
const COOKIE: [u8; 6] = [0xc0, 0xff, 0xee, 1, 2, 3];

fn take<'a>(rest: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, after) = rest.split_at(len);
    *rest = after;
    taken
}

fn take_packet<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let len = take(rest, 2);
    take(rest, u16::from_be_bytes([len[0], len[1]]).into())
}

/// Workers make the contributions, the aggregator makes the result of them, workers read it: byte
/// by byte, by every kernel.
#[test]
fn golden_files() {
    // Files of codec 1 begin with one byte more: bound exponent and byte offset.
    let of_bit_plane =
        golden("v1_chunks_").into_iter().map(|(name, bytes)| (name, [&[0], &bytes[..]].concat()));
    let files: Vec<(String, Vec<u8>)> = of_bit_plane.chain(golden("v1_chunks1_")).collect();
    assert_eq!(files.len(), 12);
    for (name, bytes) in files {
        let mut rest = &bytes[5..];
        let (profile, count) = (summable(bytes[0], bytes[1]), bytes[2]);
        let len = 4 * usize::from(u16::from_be_bytes([bytes[3], bytes[4]]));
        let inputs: Vec<(&[u8], &[u8])> =
            (0..count).map(|_| (take(&mut rest, len), take_packet(&mut rest))).collect();
        let (result, output) = (take_packet(&mut rest), rest);
        assert_eq!(output.len(), len, "{name}");
        for kernel in Kernel::available() {
            exchange(&format!("{name} {}", kernel.name()), kernel, profile, &inputs, result, output);
        }
    }
}

/// The profile of a header's bytes 18 and 19.
fn summable(first: u8, second: u8) -> Summable {
    match first {
        0 => bit_plane(second as i8),
        _ => size_class(first >> 4, first & 15, second as i8),
    }
}

fn exchange(
    name: &str,
    kernel: Kernel,
    profile: Summable,
    inputs: &[(&[u8], &[u8])],
    result: &[u8],
    output: &[u8],
) {
    let settings = Settings { kernel, limits: Limits::MOST, group: None, parent: None, secret: [3, 5] };
    let mut aggregator = Box::new(Aggregator::<usize, 1, 32, 16>::new(settings));
    let count = inputs.len() as u8;
    let mut children: Vec<Worker<16>> = (0..count)
        .map(|child| {
            let limits = Limits::MOST;
            let worker_settings = WorkerSettings {
                job: 0x0102,
                epoch: EPOCH,
                child,
                children: count,
                total: count,
                limits,
                key: KEY,
            };
            Worker::new(worker_settings, kernel)
        })
        .collect();
    let mut out = [0; MAX_PACKET_LEN];
    for (number, (worker, (input, contribution))) in children.iter_mut().zip(inputs).enumerate() {
        for event in [Event::Challenged, Event::Joined { group: None }] {
            let Poll::Send(hello) = worker.poll(&[], NOW, &mut out) else { panic!("{name}: no hello") };
            let _ = aggregator.process(&out[..hello], number, NOW);
            let welcome = aggregator.emit(&mut out).unwrap();
            assert_eq!(worker.handle(&out[..welcome.len], &mut [], NOW), event, "{name}");
        }
        assert!(worker.start(input.len() / 4, profile));
        assert_eq!(worker.poll(input, NOW, &mut out), Poll::Send(contribution.len()), "{name}");
        assert_eq!(&out[..contribution.len()], *contribution, "{name}");
        assert!(matches!(worker.poll(input, NOW, &mut out), Poll::Wait(_)));
    }
    // In the other order, each one cut at any length before, and twice.
    for (number, (_, contribution)) in inputs.iter().enumerate().rev() {
        for len in 0..contribution.len() {
            let outcome = aggregator.process(&contribution[..len], number, NOW);
            assert!(matches!(outcome, Outcome::Malformed | Outcome::Sections), "{name}: {len} {outcome:?}");
        }
        let is_last = number == 0;
        let expected = if is_last { Outcome::Completed } else { Outcome::Added };
        assert_eq!(aggregator.process(contribution, number, NOW), expected, "{name}");
        if !is_last {
            assert_eq!(aggregator.process(contribution, number, NOW), Outcome::Duplicate, "{name}");
        }
    }
    let emitted = aggregator.emit(&mut out).unwrap();
    assert_eq!((emitted.to, &out[..emitted.len]), (To::Each { job: 0x0102 }, result), "{name}");
    assert_eq!(aggregator.emit(&mut [0; MAX_PACKET_LEN]), None);
    for worker in &mut children {
        let mut got = vec![0x55; output.len()];
        for len in 0..result.len() {
            assert!(
                matches!(worker.handle(&result[..len], &mut got, NOW), Event::Ignored(_)),
                "{name}: {len}"
            );
        }
        assert!(got.iter().all(|byte| *byte == 0x55), "{name}");
        assert!(matches!(worker.handle(result, &mut got, NOW), Event::Chunk { chunk: 0, .. }), "{name}");
        assert_eq!(got, output, "{name}");
        assert!(worker.is_done());
    }
}

/// The packets of a file, by its path from the dataplane's folder: labels and bytes.
fn packets(path: &str) -> Vec<(String, Vec<u8>)> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let block = text.split("```packets\n").nth(1).unwrap().split("```").next().unwrap();
    let mut examples: Vec<(String, Vec<u8>)> = Vec::new();
    for line in block.lines() {
        let (label, hex) = line.split_at(11);
        if !label.trim().is_empty() {
            examples.push((label.trim().to_owned(), Vec::new()));
        }
        let digits: Vec<u8> = hex.chars().filter_map(|digit| Some(digit.to_digit(16)? as u8)).collect();
        examples.last_mut().unwrap().1.extend(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]));
    }
    examples
}

/// The output of the second implementation. docs/aggregation-protocol.md section 6 has some of it.
fn examples() -> Vec<(String, Vec<u8>)> {
    let examples = packets("tests/golden/v1_packets.txt");
    let shown = packets("../docs/aggregation-protocol.md");
    assert!(shown.len() >= 5 && shown.iter().all(|packet| examples.contains(packet)), "{shown:?}");
    examples
}

#[test]
fn examples_of_the_format_document() {
    let limits = Limits { blocks: 16, window: 16, mtu: 1500 };
    let part = |sections, peak| Part {
        blocks: Blocks::new(4, 0, 1).unwrap(),
        peak,
        profile: bit_plane(-10),
        sections,
    };
    let of_codec_1 = |sections, peak| Part { profile: size_class(10, 3, 0), ..part(sections, peak) };
    let examples = examples();
    assert_eq!(examples.len(), 23);
    let (packets, values) = examples.split_at(19);
    let names: Vec<&str> = packets.iter().map(|(name, _)| &name[..]).collect();
    let sections: Vec<&[u8]> = packets.iter().map(|(_, bytes)| &bytes[20..]).collect();
    let bodies = [
        Body::Hello {
            child: 1,
            children: 2,
            total: 2,
            is_aggregator: false,
            limits,
            key: KEY,
            cookie: NO_COOKIE,
        },
        Body::Hello {
            child: 0,
            children: 3,
            total: 9,
            is_aggregator: true,
            limits,
            key: KEY,
            cookie: NO_COOKIE,
        },
        Body::Welcome { limits, group: [239, 1, 2, 3], key: KEY, cookie: NO_COOKIE },
        Body::Contribute { child: 0, part: part(sections[3], 131) },
        Body::Contribute { child: 1, part: part(sections[4], 127) },
        Body::Result { workers: 2, part: part(sections[5], 131) },
        Body::Query { child: 1, is_overtaken: false },
        Body::Query { child: 1, is_overtaken: true },
        Body::Waiting { children: 1 },
        Body::Missing { blocks: 5 },
        Body::Refuse { reason: Refusal::OldEpoch, epoch: 7 },
        Body::Partial { child: 0, workers: 2, part: part(sections[11], 131) },
        Body::Rescale { peak: 226 },
        Body::Contribute { child: 0, part: of_codec_1(sections[13], 131) },
        Body::Contribute { child: 1, part: of_codec_1(sections[14], 127) },
        Body::Result { workers: 2, part: of_codec_1(sections[15], 131) },
        Body::Partial { child: 0, workers: 2, part: of_codec_1(sections[16], 131) },
        Body::Welcome { limits, group: [0; 4], key: KEY, cookie: COOKIE },
        Body::Hello {
            child: 1,
            children: 2,
            total: 2,
            is_aggregator: false,
            limits,
            key: KEY,
            cookie: COOKIE,
        },
    ];
    for (((name, bytes), body), number) in packets.iter().zip(bodies).zip(0..) {
        let seq = if (3..=16).contains(&number) { 5 } else { 0 };
        let packet = Packet { head: Head { job: 0x0102, epoch: EPOCH, seq }, body };
        assert_eq!(Packet::parse(bytes), Ok(packet), "{name}");
        let mut out = vec![0xaa; bytes.len()];
        assert_eq!(packet.write(&mut out), Some(bytes.len()), "{name}");
        assert_eq!(out, *bytes, "{name}");
    }
    assert_eq!(names[3..6], ["contribute", "contribute", "result"]);
    let [first, second, sums, sums_of_codec_1] = values else { panic!() };
    for (profile, sums) in [(bit_plane(-10), sums), (size_class(10, 3, 0), sums_of_codec_1)] {
        assert_eq!(exact_sum(&[first.1.clone(), second.1.clone()], profile), sums.1);
    }
}

/// Each refusal of docs/aggregation-protocol.md section 3, from a packet that is right but for it.
#[test]
fn invalid_packets_are_refused() {
    let examples = examples();
    let with = |name: &str, at: usize, byte: u8| {
        let mut packet = examples.iter().find(|(label, _)| label == name).unwrap().1.clone();
        assert!(Packet::parse(&packet).is_ok(), "{name}");
        packet[at] = byte;
        Packet::parse(&packet).map(|_| ())
    };
    assert_eq!(with("query", 0, 2), Err(ChunkError::Version { got: 2 }));
    assert_eq!(with("query", 1, 0), Err(ChunkError::Kind { got: 0 }));
    assert_eq!(with("query", 1, 11), Err(ChunkError::Kind { got: 11 }));
    assert_eq!(with("query", 12, 64), Err(ChunkError::Child { got: 64 }));
    assert_eq!(with("query", 12, 0xff), Err(ChunkError::Child { got: 0xff }));
    assert_eq!(with("result", 12, 0), Err(ChunkError::Child { got: 0 }));
    assert_eq!(with("contribute", 13, 2), Err(ChunkError::Field { byte: 13 }));
    assert_eq!(with("result", 13, 0), Err(ChunkError::Field { byte: 13 }));
    assert_eq!(with("query", 13, 2), Err(ChunkError::Field { byte: 13 }));
    assert_eq!(with("hello", 13, 0), Err(ChunkError::Field { byte: 13 }));
    assert_eq!(with("hello", 13, 1), Err(ChunkError::Field { byte: 24 }));
    assert_eq!(with("hello", 13, 65), Err(ChunkError::Field { byte: 13 }));
    assert_eq!(with("hello", 11, 1), Err(ChunkError::Field { byte: 8 }));
    assert_eq!(with("query", 15, 1), Err(ChunkError::Field { byte: 15 }));
    assert_eq!(with("query", 17, 1), Err(ChunkError::Field { byte: 17 }));
    assert_eq!(with("contribute", 15, 0), Err(ChunkError::Blocks { values: 0, first: 0, count: 1 }));
    assert_eq!(with("contribute", 16, 1), Err(ChunkError::Blocks { values: 4, first: 0, count: 2 }));
    assert_eq!(with("contribute", 14, 8), Err(ChunkError::Blocks { values: 2052, first: 0, count: 1 }));
    assert_eq!(with("contribute", 17, 255), Err(ChunkError::Peak { got: 255 }));
    let profile = |error| Err(ChunkError::Profile(error));
    let params = |error| profile(ProfileError::Params(error));
    assert_eq!(with("contribute", 18, 0xf9), params(ParamsError::Bound { got: 15 }));
    assert_eq!(with("contribute", 18, 0x0a), params(ParamsError::Bound { got: 0 }));
    assert_eq!(with("contribute", 18, 0xa2), params(ParamsError::ByteOffset { got: 2, b: 10 }));
    assert_eq!(with("contribute", 18, 0xa9), Err(ChunkError::Unit(UnitError { got: 9 })));
    assert_eq!(with("contribute", 18, 0xa8), Ok(()));
    assert_eq!(with("contribute", 19, 0x80), profile(ProfileError::Bound(BoundError { got: -128 })));
    assert_eq!(with("rescale", 17, 255), Err(ChunkError::Field { byte: 17 }));
    assert_eq!(with("refuse", 20, 10), Err(ChunkError::Field { byte: 20 }));
    assert_eq!(with("refuse", 21, 1), Err(ChunkError::Field { byte: 21 }));
    assert_eq!(with("hello", 24, 0), Err(ChunkError::Field { byte: 24 }));
    assert_eq!(with("hello", 25, 2), Err(ChunkError::Field { byte: 25 }));
    assert_eq!(with("hello", 26, 1), Err(ChunkError::Field { byte: 26 }));
    assert_eq!(with("hello", 27, 1), Err(ChunkError::Field { byte: 26 }));
    for (at, byte) in [(20, 0), (20, 17), (21, 3), (21, 0), (21, 128), (22, 2)] {
        let refused = with("hello", at, byte);
        assert!(matches!(refused, Err(ChunkError::Limits { .. })), "{at} {byte}: {refused:?}");
    }
    for (name, packet) in &examples[..19] {
        let sections = matches!(&name[..], "contribute" | "result" | "partial");
        for len in 0..if sections { 20 } else { packet.len() } {
            assert!(Packet::parse(&packet[..len]).is_err(), "{name} {len}");
        }
        let longer = [&packet[..], &[0]].concat();
        assert_eq!(Packet::parse(&longer).is_ok(), sections, "{name}");
    }
}

/// 254 is their biased exponent.
#[test]
fn a_peak_of_the_largest_finite_values_is_taken() {
    let part =
        Part { blocks: Blocks::new(128, 0, 1).unwrap(), peak: 254, profile: bit_plane(-10), sections: &[] };
    let head = Head { job: 1, epoch: 1, seq: 0 };
    let largest = Packet { head, body: Body::Contribute { child: 0, part } };
    let mut bytes = [0; 20];
    largest.write(&mut bytes).unwrap();
    assert_eq!(Packet::parse(&bytes), Ok(largest));
}

/// Callers' buffers are as long as that, and no job agrees on more than it asked for.
#[test]
fn the_longest_packet_is_what_ethernet_leaves() {
    assert_eq!(MAX_PACKET_LEN, Limits::MOST.packet_len());
}

/// All 2^16: two bytes name at most one profile, which is what a segment header's three do, and one
/// whose values can be summed.
#[test]
fn two_bytes_name_a_profile() {
    let part = Part { blocks: Blocks::new(1, 0, 1).unwrap(), peak: 0, profile: bit_plane(0), sections: &[] };
    let head = Head { job: 1, epoch: 1, seq: 0 };
    let mut bytes = [0; 20];
    Packet { head, body: Body::Contribute { child: 0, part } }.write(&mut bytes).unwrap();
    for [first, second] in (0..=u16::MAX).map(u16::to_be_bytes) {
        (bytes[18], bytes[19]) = (first, second);
        let codec = if first == 0 { 2 } else { 1 };
        let expected = Profile::from_bytes([codec, first, second]).ok();
        let expected = expected.filter(|_| first & 15 <= 8);
        match Packet::parse(&bytes) {
            Ok(packet @ Packet { body: Body::Contribute { part, .. }, .. }) => {
                assert_eq!(Some(part.profile.profile()), expected);
                let mut again = [0; 20];
                assert_eq!((packet.write(&mut again), again), (Some(20), bytes));
            }
            other => assert!(expected.is_none(), "{first:#04x} {second:#04x} {other:?}"),
        }
    }
}
