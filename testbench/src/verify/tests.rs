//! A verifier is worth what it catches: each test damages a good replay in one way.

use std::time::Duration;

use etherparse::PacketBuilder;
use gradwire::rules::{Heuristic, Rule};
use gradwire::verdict::{DropReason, PassReason};

use super::*;
use crate::input::ipv4;
use crate::replay::Engines;

const TOS: usize = 15;
const VALUES: usize = 64;

/// One tagged or untagged TCP frame.
fn tcp(number: u64, tos: u8, seq: u32, syn: bool, payload: &[u8]) -> Frame {
    let ip = ipv4(tos, etherparse::IpNumber::TCP, [10, 0, 0, 1], [10, 0, 0, 2]);
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
        .ip(etherparse::IpHeaders::Ipv4(ip, etherparse::Ipv4Extensions::default()))
        .tcp(40_000, 5400, seq, 1000);
    let builder = if syn { builder.syn() } else { builder.ack(1) };
    let mut bytes = Vec::new();
    builder.write(&mut bytes, payload).unwrap();
    Frame { number, time: Duration::from_millis(number), bytes }
}

fn values(factor: f32) -> Vec<u8> {
    (0..VALUES).flat_map(|i| ((i as f32 - 20.0) * factor).to_le_bytes()).collect()
}

/// SYN, two segments of values, the first of them again, and an untagged segment. The second starts
/// within a value.
fn capture() -> Capture {
    let (first, second) = (values(0.001), values(0.01));
    let start = 1000u32;
    let stream = [&first[..], &second[..]].concat();
    let frames = vec![
        tcp(1, 0x28, start - 1, true, &[]),
        tcp(2, 0x28, start, false, &stream[..254]),
        tcp(3, 0x2a, start + 254, false, &stream[254..]),
        tcp(4, 0x28, start, false, &stream[..254]),
        tcp(5, 0, start + 512, false, b"untagged"),
    ];
    Capture { frames, cut: 0, torn: None }
}

/// An engine that believes a wrong start would find that the payload looks like no values, and the
/// verifier would have nothing to notice.
const RULE: Rule = Rule { heuristic: Heuristic::Off, ..Rule::STATIC };

fn setup(framing: Framing) -> Setup {
    Setup::new(Rule { framing, ..RULE })
}

fn replay(setup: &Setup, capture: &Capture) -> Vec<Passage> {
    let mut engines = Engines::new(setup, capture).unwrap();
    capture.frames.iter().map(|frame| engines.send(frame)).collect()
}

/// The verifier's complaint after `damage`, which has to fail at `expected`.
fn caught(framing: Framing, damage: impl FnOnce(&mut Capture, &mut [Passage]), expected: &str) -> Findings {
    let setup = setup(framing);
    let mut capture = capture();
    let mut passages = replay(&setup, &capture);
    damage(&mut capture, &mut passages);
    let report = verify(&setup, &capture, &passages);
    assert!(!report.ok);
    assert!(report.failures.iter().any(|line| line.contains(expected)), "{expected}: {:?}", report.failures);
    report
}

/// Changes what arrived of a frame, and puts its checksums right again.
fn delivered(passage: &mut Passage, change: impl FnOnce(&mut Vec<u8>)) {
    let bytes = passage.changed_delivered.as_mut().unwrap();
    change(bytes);
    repair(bytes);
}

fn repair(bytes: &mut [u8]) {
    let mut ip = etherparse::Ipv4Header::from_slice(&bytes[14..]).unwrap().0;
    ip.header_checksum = ip.calc_header_checksum();
    bytes[14..34].copy_from_slice(&ip.to_bytes());
    let tcp = etherparse::TcpSlice::from_slice(&bytes[34..]).unwrap();
    let checksum = tcp.calc_checksum_ipv4(ip.source, ip.destination).unwrap();
    bytes[50..52].copy_from_slice(&checksum.to_be_bytes());
}

#[test]
fn a_good_replay_holds() {
    for (framing, compressed) in [(Framing::InPlace, 1), (Framing::Routed, 2)] {
        let (setup, capture) = (setup(framing), capture());
        let report = verify(&setup, &capture, &replay(&setup, &capture));
        assert!(report.ok, "{:?}", report.failures);
        assert_eq!((report.frames, report.tagged, report.compressed), (5, 4, compressed));
        assert_eq!(report.untouched["resent"], 1);
        assert_eq!((report.streams, report.violations, report.altered_untagged), (1, 0, 0));
        // Only the second segment starts within a value: 63 whole values in the first, 2 + 256
        // bytes in it.
        assert_eq!(report.values, if framing == Framing::Routed { 63 + 64 } else { 63 });
        let sent: usize = [308, 312, 308].iter().map(|len| len + 24).sum();
        assert_eq!(report.wire_bytes_in as usize, sent);
    }
}

#[test]
fn a_value_off_by_the_bound_is_caught_in_the_frame_and_in_the_stream() {
    let damage = |_: &mut Capture, passages: &mut [Passage]| {
        // Value 63 of the stream, the last whole one of frame 2, starts at payload byte 248.
        delivered(&mut passages[1], |bytes| bytes[54 + 248..54 + 252].copy_from_slice(&0.5f32.to_le_bytes()));
    };
    let report =
        caught(Framing::Routed, damage, "frame 2 (tagged TCP, payload): 1 values not within the bound");
    // Last copy wins: the resend, which is raw, puts it right.
    assert_eq!(report.violations, 2);
    assert!(report.failures.iter().any(|line| line.contains("FirstWins: 1 values not within")));
    assert!(!report.failures.iter().any(|line| line.contains("LastWins")));
    assert!(report.max_error > 0.4);
}

#[test]
fn a_byte_before_the_first_value_is_caught() {
    let damage =
        |_: &mut Capture, passages: &mut [Passage]| delivered(&mut passages[2], |bytes| bytes[54] ^= 1);
    caught(
        Framing::Routed,
        damage,
        "frame 3 (tagged TCP, payload): a payload byte outside the values changed",
    );
}

#[test]
fn a_changed_header_is_caught() {
    // Type of service with ECN, TTL, sequence number.
    for at in [TOS, 22, 41] {
        let damage =
            |_: &mut Capture, passages: &mut [Passage]| delivered(&mut passages[2], |bytes| bytes[at] ^= 1);
        caught(Framing::Routed, damage, &format!("header byte {at} is"));
    }
}

#[test]
fn a_wrong_checksum_is_caught() {
    let tcp =
        |_: &mut Capture, passages: &mut [Passage]| passages[1].changed_delivered.as_mut().unwrap()[50] ^= 1;
    caught(Framing::Routed, tcp, "checksum Valid when sent, Some(Wrong) when it arrived");
}

#[test]
fn a_length_is_caught() {
    let damage =
        |_: &mut Capture, passages: &mut [Passage]| passages[1].changed_delivered.as_mut().unwrap().push(0);
    caught(Framing::Routed, damage, "309 bytes long when it arrived, 308 when sent");
}

#[test]
fn a_dropped_frame_is_caught() {
    let damage = |_: &mut Capture, passages: &mut [Passage]| {
        passages[2].ingress = Some(Verdict::Dropped(DropReason::Groups));
    };
    let report = caught(Framing::Routed, damage, "frame 3 (tagged TCP, payload): dropped by ingress");
    assert_eq!(report.dropped["groups"], 1);
    assert!(report.failures.iter().any(|line| line.contains("not the same bytes arrived")));
}

#[test]
fn a_frame_that_is_not_restored_is_caught() {
    let damage = |_: &mut Capture, passages: &mut [Passage]| {
        passages[1].ingress = Some(Verdict::Untouched(PassReason::NotCompressed));
        passages[1].changed_delivered = None;
    };
    caught(Framing::InPlace, damage, "compressed, but not restored");
}

#[test]
fn an_altered_untagged_frame_is_caught_and_counted() {
    let damage = |capture: &mut Capture, passages: &mut [Passage]| {
        let mut bytes = capture.frames[4].bytes.clone();
        *bytes.last_mut().unwrap() ^= 1;
        passages[4].changed_delivered = Some(bytes);
    };
    let report =
        caught(Framing::Routed, damage, "frame 5 (untagged IP): left untouched by egress, but not as it was");
    assert_eq!(report.altered_untagged, 1);
}

#[test]
fn resent_bytes_may_not_be_compressed() {
    let damage = |_: &mut Capture, passages: &mut [Passage]| passages[3] = passages[1].clone();
    caught(Framing::Routed, damage, "frame 4 (tagged TCP, payload): sent again, but compressed");
}

#[test]
fn without_a_syn_nothing_may_be_compressed() {
    let damage = |capture: &mut Capture, _: &mut [Passage]| capture.frames[0] = tcp(1, 0x28, 77, false, &[]);
    caught(Framing::Routed, damage, "though the capture does not show which SYN");
}

#[test]
fn a_wire_frame_that_a_plain_host_would_accept_is_caught() {
    let damage =
        |_: &mut Capture, passages: &mut [Passage]| repair(passages[1].changed_wire.as_mut().unwrap());
    caught(Framing::Routed, damage, "a host without a decompressor would accept it");
    let damage = |_: &mut Capture, passages: &mut [Passage]| {
        passages[1].changed_wire.as_mut().unwrap()[TOS] = 0x28;
        repair(passages[1].changed_wire.as_mut().unwrap());
    };
    caught(Framing::Routed, damage, "type of service 0x28 on the wire, expected 0x30");
    let damage =
        |_: &mut Capture, passages: &mut [Passage]| passages[1].changed_wire.as_mut().unwrap()[22] ^= 1;
    caught(Framing::InPlace, damage, "in-place framing changed a header on the wire");
}

#[test]
fn a_frame_that_carries_the_mark_loses_it_and_nothing_else() {
    let setup = setup(Framing::Routed);
    let capture = Capture { frames: vec![tcp(1, 0x31, 5, false, &values(0.1))], cut: 0, torn: None };
    let mut passages = replay(&setup, &capture);
    let report = verify(&setup, &capture, &passages);
    assert!(report.ok, "{:?}", report.failures);
    assert_eq!((report.remarked, report.altered_untagged), (1, 0));
    passages[0].changed_wire.as_mut().unwrap()[22] ^= 1;
    assert!(!verify(&setup, &capture, &passages).ok);
}

#[test]
fn a_connection_that_starts_anew_has_a_new_alignment() {
    let setup = setup(Framing::Routed);
    let payload = values(0.001);
    let reopened = |number: u64, isn: u32| {
        [tcp(number, 0x28, isn, true, &[]), tcp(number + 1, 0x28, isn + 1, false, &payload)]
    };
    let fin = {
        let mut frame = tcp(3, 0x28, 100 + 1 + payload.len() as u32, false, &[]);
        frame.bytes[47] |= 1;
        repair(&mut frame.bytes);
        frame
    };
    let mut frames = reopened(1, 100).to_vec();
    frames.push(fin);
    frames.extend(reopened(4, 7_000_003));
    let capture = Capture { frames, cut: 0, torn: None };
    let report = verify(&setup, &capture, &replay(&setup, &capture));
    assert!(report.ok, "{:?}", report.failures);
    assert_eq!(report.streams, 2);
    assert!(report.values >= VALUES as u64);
}

#[test]
fn integers_in_a_tagged_stream_do_not_pass_and_are_not_touched() {
    let [setup, trusting] = [Rule::STATIC, RULE].map(Setup::new);
    let mut payload = values(0.001);
    for word in payload.as_chunks_mut::<4>().0.iter_mut().take(4) {
        *word = 48u32.to_le_bytes();
    }
    let frames = vec![tcp(1, 0x28, 0, true, &[]), tcp(2, 0x28, 1, false, &payload)];
    let capture = Capture { frames, cut: 0, torn: None };
    let report = verify(&setup, &capture, &replay(&setup, &capture));
    assert!(report.ok && report.compressed == 0 && report.untouched["not-values"] == 1);
    assert!(
        report.mixed[0].contains("4 of 64 values are nonzero subnormals or above 2^64"),
        "{:?}",
        report.mixed
    );
    let report = verify(&trusting, &capture, &replay(&trusting, &capture));
    assert!(report.compressed == 1 && report.mixed.len() == 1, "{:?}", report.untouched);
}

#[test]
fn text_in_a_tagged_stream_is_reported() {
    let text: Vec<u8> = b"model.layers.weight ".iter().copied().cycle().take(400).collect();
    let frames = vec![tcp(1, 0x28, 0, true, &[]), tcp(2, 0x28, 1, false, &text)];
    let capture = Capture { frames, cut: 0, torn: None };
    for (rule, compressed) in [(Rule::STATIC, 0), (RULE, 1)] {
        let setup = Setup::new(rule);
        let report = verify(&setup, &capture, &replay(&setup, &capture));
        assert!(report.compressed == compressed && report.mixed.len() == 1, "{report:?}");
    }
}

/// A tagged segment of the near or of the far end, with an acknowledgement.
fn answer(number: u64, far: bool, (seq, ack): (u32, u32), syn: bool, payload: &[u8]) -> Frame {
    let mut frame = tcp(number, 0x28, seq, syn, payload);
    let bytes = &mut frame.bytes;
    bytes[42..46].copy_from_slice(&ack.to_be_bytes());
    bytes[47] |= 0x10;
    if far {
        let (addresses, ports) =
            ([10, 0, 0, 2, 10, 0, 0, 1], [5400u16.to_be_bytes(), 40_000u16.to_be_bytes()]);
        bytes[..12].rotate_left(6);
        bytes[26..34].copy_from_slice(&addresses);
        bytes[34..38].copy_from_slice(ports.as_flattened());
    }
    repair(bytes);
    frame
}

/// The passages of an engine that believes another start than the one that counts: it sees
/// `believed` in place of the frames of `capture`.
fn deceived(setup: &Setup, capture: &Capture, believed: &[Frame]) -> Findings {
    let engine = Capture { frames: believed.to_vec(), cut: 0, torn: None };
    verify(setup, capture, &replay(setup, &engine))
}

#[test]
fn the_start_that_was_acknowledged_counts() {
    let setup = setup(Framing::Routed);
    let payload = values(0.001);
    // A listener with SYN cookies: two answers, and the client acknowledges the first.
    let [counts, other] = [answer(1, false, (1000, 7), true, &[]), answer(2, false, (502, 7), true, &[])];
    let acknowledged = answer(3, true, (7, 1001), false, &[]);
    let data = answer(4, false, (1001, 7), false, &payload);
    let later = answer(5, false, (1001 + payload.len() as u32, 7), false, &payload);
    let frames = vec![counts.clone(), other.clone(), acknowledged.clone(), data.clone(), later.clone()];
    let capture = Capture { frames, cut: 0, torn: None };

    let right = [counts.clone(), counts, acknowledged.clone(), data.clone(), later.clone()];
    let report = deceived(&setup, &capture, &right);
    assert!(report.ok && report.compressed == 2, "{:?}", report.failures);
    let wrong = [other.clone(), other, acknowledged, data, later];
    let report = deceived(&setup, &capture, &wrong);
    // Cut in the middle of values.
    assert!(report.compressed == 2 && report.violations > 0, "{:?}", report.failures);
    assert!(report.failures.iter().any(|line| line.contains("frame 4")), "{:?}", report.failures);
}

#[test]
fn among_several_starts_that_nobody_acknowledged_none_counts() {
    let setup = setup(Framing::Routed);
    let payload = values(0.001);
    let starts = [tcp(1, 0x28, 1000, true, &[]), tcp(2, 0x28, 5002, true, &[])];
    // The first segment behind a SYN says which it was, if nobody else does.
    let follows = tcp(3, 0x28, 5003, false, &payload);
    let report = deceived(
        &setup,
        &Capture { frames: [&starts[..], std::slice::from_ref(&follows)].concat(), cut: 0, torn: None },
        &[starts[1].clone(), starts[1].clone(), follows],
    );
    assert!(report.ok && report.compressed == 1, "{:?}", report.failures);

    let elsewhere = tcp(3, 0x28, 5403, false, &payload);
    let capture =
        Capture { frames: [&starts[..], std::slice::from_ref(&elsewhere)].concat(), cut: 0, torn: None };
    // One that believed the second, and saw a stream of it.
    let believed = [starts[1].clone(), tcp(2, 0x28, 5003, false, &payload), elsewhere];
    let mut passages = replay(&setup, &Capture { frames: believed.to_vec(), cut: 0, torn: None });
    passages[1] = Passage::unseen();
    let report = verify(&setup, &capture, &passages);
    assert_eq!(report.compressed, 1);
    assert!(report.failures[0].contains("does not show which SYN"), "{:?}", report.failures);
}

#[test]
fn a_syn_that_nobody_accepts_does_not_move_a_live_stream() {
    let setup = setup(Framing::Routed);
    let payload = values(0.001);
    let forged = tcp(3, 0x28, 502, true, &[]);
    let frames = vec![
        tcp(1, 0x28, 1000, true, &[]),
        tcp(2, 0x28, 1001, false, &payload),
        forged.clone(),
        tcp(4, 0x28, 1001 + payload.len() as u32, false, &payload),
    ];
    // An engine that believed it, and saw a stream of it.
    let believed = [forged.clone(), tcp(2, 0x28, 503, false, &payload), forged, frames[3].clone()];
    let mut passages = replay(&setup, &Capture { frames: believed.to_vec(), cut: 0, torn: None });
    passages[1] = Passage::unseen();
    let report = verify(&setup, &Capture { frames, cut: 0, torn: None }, &passages);
    assert_eq!(report.compressed, 1, "{:?}", report.untouched);
    assert!(report.failures[0].starts_with("frame 4"), "{:?}", report.failures);
}

/// By the ranges of what was compressed, whatever the rule says of the alignment.
#[test]
fn no_byte_is_compressed_twice_under_either_alignment() {
    for alignment in Alignment::ALL {
        // One engine here gets no start of its stream.
        let setup = Setup::new(Rule { alignment, ..RULE });
        let (payload, start) = (values(0.001), 1001u32);
        let frames = vec![
            tcp(1, 0x28, start - 1, true, &[]),
            tcp(2, 0x28, start, false, &payload),
            tcp(3, 0x28, start, false, &payload),
            tcp(4, 0x28, start + 128, false, &payload),
        ];
        let capture = Capture { frames, cut: 0, torn: None };
        let mut passages = replay(&setup, &capture);
        assert!(verify(&setup, &capture, &passages).ok);
        passages[2] = passages[1].clone();
        let report = verify(&setup, &capture, &passages);
        let expected = format!("byte {start} of the stream is compressed a second time");
        assert!(report.failures.iter().any(|line| line.contains(&expected)), "{:?}", report.failures);
        assert!(report.failures.iter().any(|line| line.contains("sent again, but compressed")));

        // In part: the fourth frame's first half was in the second.
        let alone = Capture {
            frames: vec![capture.frames[0].clone(), capture.frames[3].clone()],
            cut: 0,
            torn: None,
        };
        let mut passages = replay(&setup, &capture);
        passages[3] = replay(&setup, &alone).pop().unwrap();
        let report = verify(&setup, &capture, &passages);
        let expected = format!("byte {} of the stream is compressed a second time", start + 128);
        assert!(report.failures.iter().any(|line| line.contains(&expected)), "{:?}", report.failures);
    }
}

#[test]
fn a_payload_that_starts_within_a_value_may_not_be_compressed_as_if_it_did_not() {
    let setup = Setup::new(Rule { alignment: Alignment::Payload, ..Rule::STATIC });
    let payload = values(0.001);
    let frames = vec![tcp(1, 0x28, 1000, true, &[]), tcp(2, 0x28, 1003, false, &payload)];
    let capture = Capture { frames: frames.clone(), cut: 0, torn: None };
    // An engine that did not see the SYN.
    let mut passages = vec![Passage::unseen()];
    passages.extend(replay(&setup, &Capture { frames: frames[1..].to_vec(), cut: 0, torn: None }));
    let report = verify(&setup, &capture, &passages);
    assert_eq!(report.compressed, 1);
    assert!(report.failures[0].contains("starts within a value"), "{:?}", report.failures);
}

#[test]
fn frames_behind_a_reload_are_verified_by_the_new_rules() {
    let [before, after] = Alignment::ALL.map(|alignment| Setup::new(Rule { alignment, ..Rule::STATIC }));
    let payload = values(0.001);
    let frames: Vec<Frame> =
        (0..4).map(|n| tcp(n + 1, 0x28, 1001 + n as u32 * 256, false, &payload)).collect();
    let capture = Capture { frames, cut: 0, torn: None };
    // A capture without a SYN: only who says that each payload starts with a value may compress.
    let mut passages = replay(&after, &capture);
    let compressed = passages.iter().filter(|passage| passage.changed_wire.is_some()).count();
    assert_eq!(compressed, 4);
    let setup_of = |index| if index < 2 { &before } else { &after };
    let report = verify_reloaded(setup_of, &capture, &passages);
    assert_eq!(report.failed, 2, "{:?}", report.failures);
    assert!(report.failures.iter().all(|line| line.contains("does not show which SYN")));
    passages[0] = Passage::unseen();
    passages[1] = Passage::unseen();
    assert!(verify_reloaded(setup_of, &capture, &passages).ok);
}

#[test]
fn udp_needs_a_rule_that_asks_for_it() {
    let mut bytes = Vec::new();
    let ip = ipv4(0x28, etherparse::IpNumber::UDP, [10, 0, 0, 1], [10, 0, 0, 2]);
    let ip = etherparse::IpHeaders::Ipv4(ip, etherparse::Ipv4Extensions::default());
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ip(ip)
        .udp(40_000, 5400)
        .write(&mut bytes, &values(0.001))
        .unwrap();
    let capture =
        Capture { frames: vec![Frame { number: 1, time: Duration::ZERO, bytes }], cut: 0, torn: None };
    let asks = setup(Framing::Routed);
    let passages = replay(&asks, &capture);
    let report = verify(&asks, &capture, &passages);
    assert!(report.ok && report.compressed == 1, "{:?}", report.failures);
    let silent = Setup { rules: vec![Rule::DEFAULT], datagrams: false, ..asks };
    let report = verify(&silent, &capture, &passages);
    assert!(report.failures[0].contains("did not advertise"), "{:?}", report.failures);
}

/// The verifier of frames taken from a wire, when nobody knows what the engines were given.
#[test]
fn no_byte_is_compressed_twice_on_a_wire() {
    let setup = setup(Framing::Routed);
    let payload = values(0.001);
    // Twice the same numbers: only the second handshake makes them another stream's.
    let connection = |first: u64, isn: u32| {
        let mut accepts = answer(first + 1, true, (7, isn.wrapping_add(1)), true, &[]);
        repair(&mut accepts.bytes);
        let data = tcp(first + 2, 0x28, isn.wrapping_add(1), false, &payload);
        [tcp(first, 0x28, isn, true, &[]), accepts, data]
    };
    let wire = |frames: &[Frame]| {
        let passages = replay(&setup, &Capture { frames: frames.to_vec(), cut: 0, torn: None });
        let on_wire = |(frame, passage): (&Frame, &Passage)| passage.on_wire(&frame.bytes).unwrap().to_vec();
        frames.iter().zip(&passages).map(on_wire).collect::<Vec<_>>()
    };
    let on_wire = |frames: &[Vec<u8>]| crate::verify::once::on_wire(frames.iter().map(Vec::as_slice));
    let [first, second] = [wire(&connection(1, 1000)), wire(&connection(4, 1004))];
    assert_eq!(on_wire(&first), Ok(1));
    assert_eq!(on_wire(&[&first[..], &second].concat()), Ok(2), "another connection");
    let twice = on_wire(&[&first[..], &first[2..]].concat()).unwrap_err();
    assert_eq!(
        twice,
        "frame 4: 10.0.0.1 port 40000 to 10.0.0.2 port 5400: byte 1001 is compressed a second time"
    );
    let overlapping = on_wire(&[&first[..], &second[2..]].concat()).unwrap_err();
    assert!(overlapping.contains("byte 1005 is compressed a second time"), "{overlapping}");
}

/// Changes of egress and ingress to SYNs are verified by bytes; and nobody is sent anything
/// compressed who has not asked for it.
#[test]
fn a_handshake_that_is_not_kept_is_caught() {
    let mut capture = capture();
    let answer = {
        let ip = ipv4(0, etherparse::IpNumber::TCP, [10, 0, 0, 2], [10, 0, 0, 1]);
        let builder = PacketBuilder::ethernet2([4; 6], [2; 6])
            .ip(etherparse::IpHeaders::Ipv4(ip, etherparse::Ipv4Extensions::default()))
            .tcp(5400, 40_000, 7, 1000)
            .syn()
            .ack(1000);
        let mut bytes = Vec::new();
        builder.write(&mut bytes, &[]).unwrap();
        Frame { number: 6, time: Duration::from_millis(1), bytes }
    };
    capture.frames.insert(1, answer);
    let setup = Setup::new(Rule::DEFAULT);
    let good = replay(&setup, &capture);
    let report = verify(&setup, &capture, &good);
    assert!(report.ok && report.compressed == 2 && report.options_added == 2, "{:?}", report.failures);

    type Damage = fn(&mut Capture, &mut [Passage]);
    let damages: [(Damage, &str); 6] = [
        (
            |_, passages| passages[0].changed_wire.as_mut().unwrap()[58] = 0x78,
            "not by a capability option in front",
        ),
        (
            |_, passages| passages[0].changed_wire.as_mut().unwrap()[22] = 63,
            "changed by more than a capability option",
        ),
        (
            |_, passages| passages[1].changed_delivered = passages[1].changed_wire.clone(),
            "does not arrive as it was sent",
        ),
        (|_, passages| delivered(&mut passages[0], |bytes| bytes[49] ^= 1), "does not arrive as it was sent"),
        (|_, passages| passages[0].egress = Verdict::Untouched(PassReason::TcpFlags), "in answer to none"),
        (
            |_, passages| {
                passages[1].egress = Verdict::Untouched(PassReason::TcpFlags);
                (passages[1].changed_wire, passages[1].changed_delivered) = (None, None);
            },
            "the far end did not advertise that it restores it",
        ),
    ];
    for (place, (damage, expected)) in damages.into_iter().enumerate() {
        let (mut capture, mut passages) =
            (Capture { frames: capture.frames.clone(), cut: 0, torn: None }, good.clone());
        damage(&mut capture, &mut passages);
        for passage in &mut passages[..2] {
            if let Some(wire) = &mut passage.changed_wire {
                repair(wire);
            }
        }
        let report = verify(&setup, &capture, &passages);
        assert!(report.failures.iter().any(|line| line.contains(expected)), "{place}: {:?}", report.failures);
    }
}
