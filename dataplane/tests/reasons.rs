//! Every reason for passing or dropping a frame: reached by one frame, and counted under its name.

use std::collections::BTreeSet;

use gradwire::engine::{CapabilityTable, Egress, Ingress, Millis, NO_CAPABILITIES};
use gradwire::flow::Negotiation;
use gradwire::flow::capabilities::Slot;
use gradwire::kernels::Kernel;
use gradwire::rules::{Alignment, DEFAULT_MARK, Framing, Rule, Rules};
use gradwire::verdict::{Change, Counters, DropReason, PassReason, Verdict};

use crate::common::{
    ACK, IpSpec, SYN, Spec, TransportSpec, gradient, host_accepts, le_bytes, repair_checksums,
};

const NOW: Millis = Millis(5);
const ORIGIN: u32 = 0xffff_fff0; // wraps within the first segment
/// The default, and UDP too.
const RULE: Rule = Rule::STATIC;

fn rules(rule: Rule) -> Rules {
    Rules::new(&[rule], DEFAULT_MARK).unwrap()
}

fn segment() -> Spec {
    Spec::tcp(ORIGIN, ACK, &le_bytes(&gradient(100)))
}

fn with_options(options: &[u8]) -> Spec {
    let transport = TransportSpec::Tcp { seq: ORIGIN, flags: ACK, options: options.to_vec() };
    Spec { transport, ..segment() }
}

fn with_flags(flags: u8) -> Spec {
    let transport = TransportSpec::Tcp { seq: ORIGIN, flags, options: vec![] };
    Spec { transport, ..segment() }
}

fn edited(spec: &Spec, edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = spec.bytes();
    edit(&mut frame);
    frame
}

/// Sends the flow's SYN and then each frame; the last verdict, checked against its counter.
fn egress(rule: Rule, frames: &[Vec<u8>]) -> Verdict {
    let mut engine = Egress::<1>::new(rules(rule), Kernel::detect(), 1500, 7);
    let mut out = [0; 4096];
    let _ = engine.process(&segment().syn(ORIGIN).bytes(), &mut out, NOW, &NO_CAPABILITIES);
    let mut last = None;
    for frame in frames {
        let before = engine.counters().clone();
        let verdict = engine.process(frame, &mut out, NOW, &NO_CAPABILITIES);
        if let Verdict::Untouched(reason) = verdict {
            assert_eq!(engine.counters().passed(reason), before.passed(reason) + 1);
        }
        last = Some(verdict);
    }
    last.unwrap()
}

#[test]
fn every_reason_to_pass_at_egress() {
    let rule = RULE;
    let in_place = Rule { framing: Framing::InPlace, ..rule };
    let spec = segment();
    let frame = spec.bytes();
    let udp = Spec::udp(&le_bytes(&gradient(100)));
    let v6 =
        |extensions: &[(u8, u8)]| Spec { ip: IpSpec::V6 { extensions: extensions.to_vec() }, ..udp.clone() };
    let short = |payload: &[u8]| Spec { payload: payload.to_vec(), ..spec.clone() };
    let one = |rule: Rule, frame: Vec<u8>| egress(rule, &[frame]);
    // Another connection than the one whose SYN was seen.
    let vlan = Spec { vlans: vec![(0x8100, 5)], ..spec.clone() };

    let other_syn = spec.syn(ORIGIN.wrapping_add(2)).bytes();
    let next = Spec::tcp(ORIGIN.wrapping_add(400), ACK, &spec.payload);
    let mut table: Vec<(PassReason, Verdict)> = vec![
        (PassReason::NotIp, one(rule, edited(&spec, |f| f[12] = 0x88))),
        (PassReason::NotIp, one(rule, frame[..13].to_vec())),
        (
            PassReason::NotIp,
            one(rule, edited(&spec, |f| f.splice(12..12, [0x81, 0, 0, 1].repeat(3)).for_each(drop))),
        ),
        (PassReason::NoRule, one(rule, Spec { tos: 0, ..spec.clone() }.bytes())),
        (PassReason::Malformed, one(rule, edited(&spec, |f| f[14] = 0x44))),
        (PassReason::Malformed, one(rule, edited(&spec, |f| f[14] = 0x55))),
        (PassReason::Malformed, one(rule, frame[..33].to_vec())),
        (PassReason::Malformed, one(rule, frame[..frame.len() - 1].to_vec())),
        (PassReason::Malformed, one(rule, edited(&spec, |f| f[46] = 0x40))),
        (PassReason::Malformed, one(rule, edited(&spec, |f| f[16..18].fill(0)))),
        (PassReason::Malformed, one(rule, edited(&udp, |f| f[38] ^= 2))),
        (PassReason::UdpOptions, one(rule, edited(&udp, |f| f[38] ^= 1))),
        (PassReason::Fragment, one(rule, edited(&spec, |f| f[20] |= 0x20))),
        (PassReason::Fragment, one(rule, edited(&spec, |f| f[21] = 1))),
        (PassReason::Fragment, one(rule, v6(&[(44, 0)]).bytes())),
        (PassReason::Protocol, one(rule, edited(&spec, |f| f[23] = 47))),
        (PassReason::Protocol, one(rule, v6(&[(51, 0)]).bytes())),
        (PassReason::Protocol, one(rule, v6(&[(60, 0), (0, 0)]).bytes())),
        (PassReason::Protocol, one(rule, v6(&[(60, 0); 6]).bytes())),
        // Routing header, segments left.
        (PassReason::Protocol, one(rule, edited(&v6(&[(43, 0)]), |f| f[57] = 1))),
        (PassReason::UdpOff, one(Rule::DEFAULT, udp.bytes())),
        (PassReason::Tunnel, one(rule, edited(&udp, |f| f[36..38].copy_from_slice(&4789u16.to_be_bytes())))),
        (PassReason::TcpFlags, one(rule, with_flags(SYN).bytes())),
        (PassReason::TcpFlags, one(rule, with_flags(ACK | 0x04).bytes())),
        (PassReason::TcpFlags, one(rule, with_flags(ACK | 0x20).bytes())),
        (
            PassReason::TcpOption,
            one(rule, with_options(&[1, 1, 19, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).bytes()),
        ),
        (PassReason::TcpOption, one(rule, with_options(&[29, 4, 0, 0]).bytes())),
        (PassReason::TcpOption, one(rule, with_options(&[8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 30, 2]).bytes())),
        (PassReason::TcpOption, one(rule, with_options(&[1, 1, 5, 1]).bytes())),
        (PassReason::NoPayload, one(rule, short(&[]).bytes())),
        (PassReason::NoValue, one(rule, short(&[1, 2, 3]).bytes())),
        (PassReason::NoValue, one(Rule { udp_offset: 255, ..rule }, Spec::udp(&[0; 254]).bytes())),
        (PassReason::Trailer, one(rule, edited(&spec, |f| f.push(0)))),
        (PassReason::IpChecksum, one(rule, edited(&spec, |f| f[22] ^= 1))),
        (PassReason::L4Checksum, one(rule, edited(&spec, |f| *f.last_mut().unwrap() ^= 1))),
        (PassReason::AlignmentUnknown, one(rule, vlan.bytes())),
        (PassReason::AlignmentDoubtful, egress(rule, &[frame.clone(), other_syn, next.bytes()])),
        (
            PassReason::Misaligned,
            one(in_place, Spec::tcp(ORIGIN.wrapping_add(1), ACK, &spec.payload).bytes()),
        ),
        (PassReason::NotNegotiated, one(Rule::DEFAULT, frame.clone())),
        (
            PassReason::TaggedLate,
            egress(Rule::DEFAULT, &[Spec { tos: 0, ..vlan.syn(ORIGIN) }.bytes(), vlan.bytes()]),
        ),
        (PassReason::Resent, egress(rule, &[frame.clone(), frame.clone()])),
        (PassReason::NotShorter, one(rule, short(&le_bytes(&[1.5; 100])).bytes())),
        (PassReason::NotValues, one(rule, short(&le_bytes(&[f32::MAX; 100])).bytes())),
        // Two values: shorter, but not below the Ethernet minimum.
        (PassReason::NotShorter, one(rule, with_payload_only(&[0; 8]))),
    ];
    let mut small = [0; 2000];
    let mut engine =
        Egress::<1>::new(rules(Rule { alignment: Alignment::Payload, ..rule }), Kernel::detect(), 1500, 7);
    table.push((
        PassReason::NoRoom,
        engine.process(&frame, &mut small[..frame.len() - 1], NOW, &NO_CAPABILITIES),
    ));
    table.push((PassReason::Bypassed, bypassed()));
    table.push((PassReason::TableFull, table_full()));
    let syns = |tos| {
        (0..9)
            .map(|port| edited_port(&Spec { tos, ..segment().syn(ORIGIN) }.bytes(), port))
            .collect::<Vec<_>>()
    };
    table.push((PassReason::TableFull, egress(Rule::DEFAULT, &syns(segment().tos))));
    table.push((PassReason::NoRule, egress(Rule::DEFAULT, &syns(0))));
    table.push((PassReason::ParametersDiffer, parameters_differ()));
    for (index, (reason, verdict)) in table.iter().enumerate() {
        assert_eq!(*verdict, Verdict::Untouched(*reason), "row {index}");
    }
    let reached: BTreeSet<&str> = table.iter().map(|(reason, _)| reason.name()).collect();
    let of_ingress = [PassReason::NotCompressed, PassReason::ForeignMark];
    let expected = PassReason::ALL.iter().filter(|reason| !of_ingress.contains(reason));
    assert_eq!(reached, expected.map(|reason| reason.name()).collect());
}

/// A whole frame of less than 60 bytes once compressed, whatever it was.
fn with_payload_only(payload: &[u8]) -> Vec<u8> {
    let transport = TransportSpec::Tcp { seq: ORIGIN, flags: ACK, options: vec![] };
    Spec { transport, payload: payload.to_vec(), ..segment() }.bytes()
}

/// A peer that makes the sender send everything again.
fn bypassed() -> Verdict {
    let frames: Vec<_> =
        (0..40).map(|i| Spec::tcp(ORIGIN.wrapping_add(400 * i), ACK, &segment().payload).bytes()).collect();
    let again = frames.clone();
    let next = Spec::tcp(ORIGIN.wrapping_add(16_000), ACK, &segment().payload).bytes();
    egress(RULE, &[frames, again, vec![next]].concat())
}

/// The far end answers that it restores in-place frames with another alignment.
fn parameters_differ() -> Verdict {
    let rules = rules(Rule { framing: Framing::InPlace, ..Rule::DEFAULT });
    let mut sender = Egress::<1>::new(rules.clone(), Kernel::detect(), 1500, 7);
    let mut receiver = Ingress::new(rules, Kernel::detect(), 1500);
    let (capabilities, mut out) = (CapabilityTable::<[Slot; 1]>::new(7), [0; 2000]);
    // The answer acknowledges sequence number 0.
    let segment = Spec::tcp(1, ACK, &le_bytes(&gradient(100)));
    let verdict = sender.process(&segment.syn(1).bytes(), &mut out, NOW, &capabilities);
    assert!(matches!(verdict, Verdict::Changed { change: Change::OptionAdded, .. }));
    let options = vec![1, 1, 253, 10, 0x67, 0x77, 0x13, 1, 1, 0xa3, 0, 1];
    let transport = TransportSpec::Tcp { seq: 9, flags: SYN | ACK, options };
    let mut answer = Spec { transport, payload: vec![], ..segment.clone() }.bytes();
    // From the other end: no sum changes.
    answer[26..34].rotate_left(4);
    answer[34..38].rotate_left(2);
    let verdict = receiver.process(&answer, &mut out, &capabilities);
    assert!(matches!(verdict, Verdict::Changed { change: Change::OptionStripped, .. }));
    sender.process(&segment.bytes(), &mut out, NOW, &capabilities)
}

/// More tagged connections than one set has places.
fn table_full() -> Verdict {
    let flow = |port: u8| edited_port(&segment().bytes(), port);
    egress(Rule { alignment: Alignment::Payload, ..RULE }, &(0..9).map(flow).collect::<Vec<_>>())
}

/// The same segment from another port. The two bytes that change are one word up, one word down.
fn edited_port(frame: &[u8], port: u8) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[35] += port;
    frame[37] -= port;
    frame
}

#[test]
fn every_reason_at_ingress() {
    let mut sender =
        Egress::<1>::new(rules(Rule { alignment: Alignment::Payload, ..RULE }), Kernel::detect(), 1500, 7);
    let mut compress = |spec: &Spec| {
        let mut out = [0; 4096];
        match sender.process(&spec.bytes(), &mut out, NOW, &NO_CAPABILITIES) {
            Verdict::Changed { len, .. } => out[..len].to_vec(),
            verdict => panic!("{verdict:?}"),
        }
    };
    let wire = compress(&segment());
    let udp = compress(&Spec::udp(&le_bytes(&gradient(100))));
    let in_place = {
        let rule = Rule { framing: Framing::InPlace, ..RULE };
        let mut out = [0; 4096];
        let spec = Spec::udp(&le_bytes(&gradient(100)));
        match Egress::<1>::new(rules(rule), Kernel::detect(), 1500, 7).process(
            &spec.bytes(),
            &mut out,
            NOW,
            &NO_CAPABILITIES,
        ) {
            Verdict::Changed { len, .. } => out[..len].to_vec(),
            verdict => panic!("{verdict:?}"),
        }
    };
    let receive = |framing: Framing, mtu: u16, room: usize, frame: &[u8]| {
        let mut engine = Ingress::new(rules(Rule { framing, ..RULE }), Kernel::detect(), mtu);
        let verdict = engine.process(frame, &mut vec![0; room], &NO_CAPABILITIES);
        match verdict {
            Verdict::Untouched(reason) => assert_eq!(engine.counters().passed(reason), 1),
            Verdict::Dropped(reason) => assert_eq!(engine.counters().dropped(reason), 1),
            Verdict::Changed { change, .. } => assert_eq!(engine.counters().changed(change), 1),
        }
        verdict
    };
    // A segment of this engine's making, but for its payload.
    let forged = |payload: &[u8], flags: u8| {
        let transport = TransportSpec::Tcp { seq: 1, flags, options: vec![] };
        let spec = Spec { tos: DEFAULT_MARK, transport, payload: payload.to_vec(), ..segment() };
        let at = spec.l4_checksum_at();
        edited(&spec, |frame| {
            let sum = u32::from(u16::from_be_bytes([frame[at], frame[at + 1]])) + 0x6777;
            let sum = (sum & 0xffff) + (sum >> 16);
            frame[at..at + 2].copy_from_slice(&(sum as u16).to_be_bytes());
        })
    };
    let header = [1, 1, 0x28, 0, 0, 32, 0xa3, 0];
    let with = |at: usize, byte: u8| {
        let mut payload = [&header[..], &[0, 0]].concat();
        payload[at] = byte;
        payload
    };
    let routed = |frame: &[u8]| receive(Framing::Routed, 1500, 2000, frame);
    let flip = |frame: &[u8], at: usize| {
        let mut frame = frame.to_vec();
        frame[at] ^= 0x10;
        frame
    };
    assert!(matches!(routed(&forged(&with(9, 0), ACK)), Verdict::Changed { len: 86, .. }));

    let pass = |reason| Verdict::Untouched(reason);
    let drop = |reason| Verdict::Dropped(reason);
    let marked = Spec { tos: DEFAULT_MARK | 2, ..segment() };
    let table = [
        (pass(PassReason::NotCompressed), routed(&segment().bytes())),
        (pass(PassReason::NotCompressed), receive(Framing::InPlace, 1500, 2000, &segment().bytes())),
        (pass(PassReason::ForeignMark), routed(&marked.bytes())),
        (pass(PassReason::Fragment), routed(&edited(&marked, |f| f[20] |= 0x20))),
        (pass(PassReason::Protocol), routed(&edited(&marked, |f| f[23] = 1))),
        (pass(PassReason::TcpFlags), receive(Framing::InPlace, 1500, 2000, &with_flags(SYN).bytes()[..200])),
        (drop(DropReason::Malformed), routed(&wire[..wire.len() - 1])),
        (drop(DropReason::Malformed), routed(&[&wire[..46], &[0x40], &wire[47..]].concat())),
        (drop(DropReason::Malformed), routed(&forged(&with(9, 0), SYN))),
        (drop(DropReason::IpChecksum), routed(&flip(&wire, 22))),
        (drop(DropReason::IpChecksum), receive(Framing::InPlace, 1500, 2000, &flip(&in_place, 22))),
        (drop(DropReason::L4Checksum), routed(&flip(&wire, wire.len() - 1))),
        (
            drop(DropReason::NoChecksum),
            routed(&{
                let mut udp = udp.clone();
                udp[40..42].fill(0);
                udp
            }),
        ),
        (
            drop(DropReason::Recomputed),
            routed(&{
                let mut wire = wire.clone();
                repair_checksums(&mut wire, 0);
                wire
            }),
        ),
        (drop(DropReason::SegmentHeader), routed(&forged(&with(0, 2), ACK))),
        (drop(DropReason::SegmentHeader), routed(&forged(&with(2, 0x29), ACK))),
        (drop(DropReason::SegmentHeader), routed(&forged(&with(2, 0x30), ACK))),
        (drop(DropReason::SegmentHeader), routed(&forged(&header[..7], ACK))),
        (drop(DropReason::Groups), routed(&forged(&with(9, 0x40), ACK))),
        (drop(DropReason::Groups), routed(&forged(&with(5, 34), ACK))),
        (drop(DropReason::Groups), routed(&forged(&with(3, 3), ACK))),
        (drop(DropReason::Excess), routed(&forged(&[&with(9, 0)[..], &[0]].concat(), ACK))),
        (drop(DropReason::Excess), receive(Framing::InPlace, 1500, 2000, &[&in_place[..], &[0]].concat())),
        (drop(DropReason::TooLong), receive(Framing::Routed, 100, 2000, &wire)),
        (drop(DropReason::NoRoom), receive(Framing::Routed, 1500, 465, &wire)),
    ];
    for (index, (expected, verdict)) in table.iter().enumerate() {
        assert_eq!(verdict, expected, "row {index}");
    }
    let reached: BTreeSet<&str> = table
        .iter()
        .filter_map(|(verdict, _)| match verdict {
            Verdict::Dropped(reason) => Some(reason.name()),
            _ => None,
        })
        .collect();
    assert_eq!(reached, DropReason::ALL.iter().map(|reason| reason.name()).collect());
}

/// A checksum that the host leaves to its NIC is as good as a right one.
#[test]
fn a_checksum_left_to_offload_is_not_a_wrong_one() {
    for framing in [Framing::InPlace, Framing::Routed] {
        let rule = Rule { framing, ..RULE };
        let spec = segment();
        let at = spec.l4_checksum_at();
        let offloaded = edited(&spec, |frame| {
            let mut sum = 6 + (frame.len() - 34) as u32;
            sum += frame[26..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum::<u32>();
            frame[at..at + 2].copy_from_slice(&(((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        });
        let mut engine = Egress::<1>::new(rules(rule), Kernel::detect(), 1500, 7);
        let mut wire = [0; 4096];
        let _ = engine.process(&segment().syn(ORIGIN).bytes(), &mut wire, NOW, &NO_CAPABILITIES);
        let Verdict::Changed { len, .. } = engine.process(&offloaded, &mut wire, NOW, &NO_CAPABILITIES)
        else {
            panic!("{framing:?}")
        };
        let mut host = [0; 2000];
        let Verdict::Changed { len, .. } = Ingress::new(rules(rule), Kernel::detect(), 1500).process(
            &wire[..len],
            &mut host,
            &NO_CAPABILITIES,
        ) else {
            panic!("{framing:?}")
        };
        assert!(host_accepts(&host[..len]).is_some());
    }
}

#[test]
fn names_are_unique() {
    let names: BTreeSet<_> = PassReason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(names.len(), PassReason::ALL.len());
    let names: BTreeSet<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(names.len(), DropReason::ALL.len());
}

#[test]
fn counters_say_what_happened_and_nothing_else() {
    let mut egress = Egress::<1>::new(rules(RULE), Kernel::detect(), 1500, 7);
    let mut ingress = Ingress::new(rules(RULE), Kernel::detect(), 1500);
    let counts = |counters: &Counters| {
        let changed = Change::ALL.iter().map(|change| (change.name(), counters.changed(*change)));
        let passed = PassReason::ALL.iter().map(|reason| (reason.name(), counters.passed(*reason)));
        let dropped = DropReason::ALL.iter().map(|reason| (reason.name(), counters.dropped(*reason)));
        changed.chain(passed).chain(dropped).filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    };
    assert_eq!((counts(egress.counters()), egress.counters().changed_bytes()), (vec![], (0, 0)));

    let frame = segment().bytes();
    let (mut wire, mut host) = ([0; 2048], [0; 2048]);
    let _ = egress.process(&segment().syn(ORIGIN).bytes(), &mut wire, NOW, &NO_CAPABILITIES);
    let Verdict::Changed { len, .. } = egress.process(&frame, &mut wire, NOW, &NO_CAPABILITIES) else {
        panic!("not compressed")
    };
    let expected = vec![(Change::Compressed.name(), 1), (PassReason::TcpFlags.name(), 1)];
    assert_eq!(counts(egress.counters()), expected);
    assert_eq!(egress.counters().changed_bytes(), (frame.len() as u64, len as u64));

    for _ in 0..2 {
        assert!(matches!(
            ingress.process(&wire[..len], &mut host, &NO_CAPABILITIES),
            Verdict::Changed { .. }
        ));
    }
    wire[len - 1] ^= 1;
    let Verdict::Dropped(reason) = ingress.process(&wire[..len], &mut host, &NO_CAPABILITIES) else {
        panic!("not dropped")
    };
    assert_eq!(counts(ingress.counters()), vec![(Change::Restored.name(), 2), (reason.name(), 1)]);
    assert_eq!(ingress.counters().changed_bytes(), (2 * len as u64, 2 * frame.len() as u64));

    assert_eq!((egress.traffic(0).frames, egress.flows().iter().count()), (2, 1));
    egress.reset(8);
    ingress.reset();
    assert_eq!((counts(egress.counters()), egress.counters().changed_bytes()), (vec![], (0, 0)));
    assert_eq!((egress.traffic(0).frames, egress.flows().iter().count()), (0, 0));
    assert_eq!((counts(ingress.counters()), ingress.counters().changed_bytes()), (vec![], (0, 0)));
}

#[test]
fn negotiations_have_the_names_that_metrics_show() {
    assert_eq!(Negotiation::ALL.map(Negotiation::name), ["none", "advertised", "negotiated"]);
}
