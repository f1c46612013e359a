//! Verifies the engines frame by frame: any rule, any bytes.
//!
//! The input of a fuzzer: a [`Rule`] as `arbitrary` reads it, then frames, each a byte for its
//! form, two for its length (little-endian), and its bytes. The form is one of [`Checksums`]: no
//! fuzzer finds right ones.

use std::collections::BTreeSet;

use arbitrary::{Arbitrary, Result, Unstructured};
use gradwire::codec::Params;
use gradwire::codec::bit_plane::Bound;
use gradwire::engine::{Coded, Egress, Ingress, Millis, NO_CAPABILITIES};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire::rules::{DEFAULT_MARK, ECN, Framing, Handshake, Heuristic, Rule, Rules};
use gradwire::verdict::{Change, Counters, DropReason, PassReason, TaggedTraffic, Verdict};
use gradwire::wire::capability::CAPABILITY_LEN;
use gradwire::wire::frame::{self as parser, IpFrame};
use gradwire::wire::rewrite::complete_checksum;
use gradwire::wire::segment_header::SegmentHeader;

use super::printed::printed;
use crate::replay::MIN_FRAME_LEN;
use crate::verify::capabilities;
use crate::verify::eligible::{counted_len, refusal};
use crate::verify::frame::{
    Checksum, Flow, Segment, Tcp, Transport, View, add_ones_complement, is_cut_short, repair_checksums,
    type_of_service,
};
use crate::verify::values::{ErrorTally, holds_header, implausible};

/// FORMAT.md section 5.3.
const CHECKSUM_CONSTANT: u16 = 0x6777;
/// FORMAT.md section 5.2.
const SEGMENT_HEADER_LEN: usize = 8;
/// The longest that ingress may restore here.
const MTU: u16 = 1500;
/// Ethernet header and two VLAN tags.
const LINK_LEN: usize = 22;
/// From this offset of UDP on, a fuzzer's rule has none: the longest are worth little. What the
/// byte adds to this means `CHECKED` and `REQUIRED`.
const NO_OFFSET: u8 = 240;
/// The rule's payload heuristic is on.
const CHECKED: u8 = 1;
/// The rule requires a handshake.
const REQUIRED: u8 = 2;
/// No frame of a fuzzer is longer.
const MAX_LEN: u16 = 2048;

/// The change to the checksums of a fuzzer's frame, whose bytes change; the discriminant is its
/// form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Nothing.
    AsTheyAre,
    /// They are made right.
    Ordinary,
    /// They are made those of a compressed segment in routed framing.
    Compressed,
}

impl Checksums {
    const ALL: [Self; 3] = [Self::AsTheyAre, Self::Ordinary, Self::Compressed];
}

/// One rule and some frames.
struct Input {
    rule: Rule,
    rules: Rules,
    frames: Vec<Vec<u8>>,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut rule = Rule::arbitrary(u)?;
        rule.tos &= rule.mask;
        if let Some(switches) = rule.udp_offset.checked_sub(NO_OFFSET) {
            rule.udp_offset = 0;
            if switches & CHECKED != 0 {
                rule.heuristic = Heuristic::On;
            }
            if switches & REQUIRED != 0 {
                rule.handshake = Handshake::Required;
            }
        }
        let rules = Rules::new(&[rule], DEFAULT_MARK).map_err(|_| arbitrary::Error::IncorrectFormat)?;
        let mut frames = Vec::new();
        while !u.is_empty() {
            let checksums = Checksums::ALL[usize::from(u8::arbitrary(u)?) % 3];
            let len = usize::from(u16::arbitrary(u)? % MAX_LEN).min(u.len());
            let mut frame = u.bytes(len)?.to_vec();
            match checksums {
                Checksums::AsTheyAre => {}
                Checksums::Ordinary => repair_checksums(&mut frame, 0),
                Checksums::Compressed => repair_checksums(&mut frame, CHECKSUM_CONSTANT),
            }
            frames.push(frame);
        }
        Ok(Self { rule, rules, frames })
    }
}

/// A seed for the fuzzers of [`egress`] and [`ingress`]: these frames under a rule, of which
/// alignment and offset are the default's.
#[must_use]
pub fn seed(rule: &Rule, checksums: Checksums, frames: &[&[u8]]) -> Vec<u8> {
    // As `arbitrary` reads integers, ranges (offset from their start) and enums (a u32 scaled to
    // the variants).
    let Rule { tos, mask, profile, framing, handshake, heuristic, .. } = *rule;
    let mut bytes = vec![tos, mask];
    match profile {
        Profile::SizeClass(params) => bytes.extend([
            params.b() - Params::MIN_B,
            params.k() - params.b().saturating_sub(7),
            params.x().wrapping_sub(Params::MIN_SCALE).cast_unsigned(),
        ]),
        Profile::BitPlane(bound) => bytes.extend([240, bound.y().wrapping_sub(Bound::MIN).cast_unsigned()]),
    }
    let framing = match framing {
        Framing::InPlace => 0u32,
        Framing::Routed => u32::MAX,
    };
    bytes.extend(framing.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    let checked = if heuristic == Heuristic::On { CHECKED } else { 0 };
    let required = if handshake == Handshake::Required { REQUIRED } else { 0 };
    bytes.push(NO_OFFSET + checked + required);
    for frame in frames {
        bytes.push(checksums as u8);
        bytes.extend((frame.len() as u16).to_le_bytes());
        bytes.extend_from_slice(frame);
    }
    bytes
}

/// The frame parser against `etherparse`, on frames that both accept; and checksums that were left
/// to the card.
///
/// # Panics
/// They differ, or a checksum was completed wrongly.
pub fn parse(bytes: &[u8]) {
    completed(bytes);
    let Ok(ip_frame) = IpFrame::parse(bytes) else { return };
    let Some(view) = View::of(bytes) else { return };
    assert_eq!(ip_frame.tos(), view.tos);
    let (Ok(packet), Some(segment)) = (ip_frame.packet(), view.segment) else { return };
    assert_eq!(packet.payload_at()..packet.payload_at() + packet.payload_len(), segment.payload);
    assert_eq!(packet.l4_checksum_at(), segment.checksum_at.start);
    assert_eq!(packet.ip_checksum_holds(), view.ip_checksum_ok);
    let [source, destination] = packet.flow_key().ends();
    assert_eq!((source.ip(), source.port()), segment.flow.source);
    assert_eq!((destination.ip(), destination.port()), segment.flow.destination);
    match (packet.transport(), segment.transport) {
        (parser::Transport::Tcp { seq, flags }, Transport::Tcp(Tcp { seq: expected, syn, .. })) => {
            assert_eq!((seq, flags & parser::tcp_flags::SYN != 0), (expected, syn));
        }
        (parser::Transport::Udp { checksum }, Transport::Udp) => {
            assert_eq!(checksum == 0, segment.checksum == Checksum::Absent);
        }
        (ours, theirs) => panic!("{ours:?}, but {theirs:?}"),
    }
    for kernel in Kernel::available() {
        let sum_holds = packet.l4_sum(packet.header_sum(), |payload| kernel.sum(payload)).is_zero();
        match segment.checksum {
            Checksum::Valid => assert!(sum_holds, "{}", kernel.name()),
            // Its sum may happen to be right, or the right one left to the card.
            Checksum::Absent | Checksum::LeftToCard | Checksum::NotVerified => {}
            Checksum::Wrong => assert!(!sum_holds || is_same_zero(bytes, &segment), "{}", kernel.name()),
        }
    }
}

/// Completing a checksum changes that field alone, and makes it right; nothing else is changed.
fn completed(frame: &[u8]) {
    for (kernel, from_wire) in Kernel::available().zip([false, true].into_iter().cycle()) {
        let mut done = frame.to_vec();
        if !complete_checksum(&mut done, from_wire, kernel) {
            assert_eq!(done, frame);
            continue;
        }
        let Some(segment) = View::of(&done).and_then(|view| view.segment) else { continue };
        assert!(matches!(segment.checksum, Checksum::Valid | Checksum::NotVerified), "{}", kernel.name());
        let field = segment.checksum_at;
        assert_eq!((&done[..field.start], &done[field.end..]), (&frame[..field.start], &frame[field.end..]));
    }
}

/// 0x0000 and 0xffff are one number to who adds up (RFC 1071), and two to who compares.
fn is_same_zero(frame: &[u8], segment: &Segment) -> bool {
    let found = &frame[segment.checksum_at.clone()];
    matches!(found, [0, 0] | [0xff, 0xff]) && matches!(segment.right_checksum, Some(0 | 0xffff))
}

/// Runs `engine` twice over buffers with unlike fills: a byte that it did not write shows. Its
/// verdict, and what it wrote.
fn twice(room: usize, mut engine: impl FnMut(usize, &mut [u8]) -> Verdict) -> (Verdict, Vec<u8>) {
    let [(verdict, out), (other_verdict, other)] = [(0, 0x00), (1, 0xff)].map(|(which, fill)| {
        let mut out = vec![fill; room];
        let verdict = engine(which, &mut out);
        let len = if let Verdict::Changed { len, .. } = verdict { len } else { 0 };
        assert!(len <= room);
        out.truncate(len);
        (verdict, out)
    });
    assert_eq!((verdict, &out), (other_verdict, &other));
    (verdict, out)
}

/// Of a SYN, egress asks for room for a capability option.
fn egress_room(frame: &[u8]) -> usize {
    let syn = View::of(frame)
        .and_then(|view| view.segment)
        .is_some_and(|segment| matches!(segment.transport, Transport::Tcp(Tcp { syn: true, .. })));
    frame.len() + if syn { CAPABILITY_LEN } else { 0 }
}

/// Any frames through egress, and through ingress the SYNs to which it adds an option.
///
/// # Panics
/// It changed a frame that it must not, or wrongly.
pub fn egress(data: &[u8]) {
    let Ok(Input { rule, rules, frames }) = Unstructured::new(data).arbitrary() else { return };
    let mut engines = [0; 2].map(|seed| Egress::<4>::new(rules.clone(), Kernel::detect(), 1500, seed));
    let mut mixed = BTreeSet::new();
    for (time, frame) in frames.iter().enumerate() {
        let now = Millis(time as u64);
        let room = egress_room(frame);
        let (verdict, out) =
            twice(room, |which, out| engines[which].process(frame, out, now, &NO_CAPABILITIES));
        match verdict {
            Verdict::Untouched(PassReason::NotValues) => not_values(&rule, frame, &mut mixed),
            Verdict::Untouched(_) => {}
            Verdict::Dropped(reason) => panic!("egress dropped a frame: {reason}"),
            Verdict::Changed { change: Change::Compressed, .. } => {
                compressed(&rule, frame, &out, &engines[0].coded(frame, &out).expect("its values"));
            }
            Verdict::Changed { change: Change::Remarked, .. } => remarked(&rule, frame, &out),
            Verdict::Changed { change: Change::OptionAdded, .. } => {
                assert_eq!(rule.handshake, Handshake::Required);
                assert_eq!(capabilities::added(frame, &out), Ok(()));
                let mut receiver = Ingress::new(rules.clone(), Kernel::detect(), MTU);
                let mut host = vec![0; out.len()];
                let verdict = receiver.process(&out, &mut host, &NO_CAPABILITIES);
                let Verdict::Changed { change: Change::OptionStripped, len } = verdict else {
                    panic!("{verdict:?}")
                };
                assert_eq!(capabilities::arrived(frame, &host[..len]), Ok(()));
            }
            Verdict::Changed { change, .. } => panic!("egress: {change}"),
        }
        // The same rules again change nothing.
        engines[0].set_rules(engines[1].rules().clone());
        let traffic = engines[0].traffic(0);
        assert!(traffic.frames <= time as u64 + 1);
        assert_eq!(traffic.compressed, engines[0].counters().changed(Change::Compressed));
    }
    assert_eq!(counted(engines[0].counters()), frames.len() as u64);
    for (key, flow) in engines[0].flows().iter() {
        let [source, destination] = key.ends();
        assert!(key.to_string().starts_with(&format!("{source} > {destination}")));
        assert!(flow.traffic().compressed <= flow.traffic().frames);
    }
    // An engine that was reset is a new one.
    let [mut reset, _] = engines;
    reset.reset(2);
    assert_eq!(
        (counted(reset.counters()), reset.traffic(0), reset.flows().iter().count()),
        (0, TaggedTraffic::NONE, 0)
    );
    if let Some(frame) = frames.first() {
        let mut new = Egress::<4>::new(rules, Kernel::detect(), 1500, 2);
        let [mut by_reset, mut by_new] = [(); 2].map(|()| vec![0; egress_room(frame)]);
        let verdict = new.process(frame, &mut by_new, Millis(0), &NO_CAPABILITIES);
        assert_eq!(reset.process(frame, &mut by_reset, Millis(0), &NO_CAPABILITIES), verdict);
        assert_eq!(by_reset, by_new);
    }
}

/// Frames, over all outcomes.
fn counted(counters: &Counters) -> u64 {
    let changed = Change::ALL.iter().map(|change| counters.changed(*change));
    let passed = PassReason::ALL.iter().map(|reason| counters.passed(*reason));
    let dropped = DropReason::ALL.iter().map(|reason| counters.dropped(*reason));
    changed.chain(passed).chain(dropped).sum()
}

fn remarked(rule: &Rule, sent: &[u8], out: &[u8]) {
    assert_eq!(out.len(), sent.len());
    let differing = sent.iter().zip(out).filter(|(sent, out)| sent != out).count();
    assert!(differing <= 3, "type of service and IPv4 header checksum");
    match View::of(sent) {
        Some(view) => {
            assert_eq!(view.tos & !ECN, DEFAULT_MARK);
            assert_eq!(View::of(out), Some(View { tos: view.tos & ECN, ..view }));
        }
        // Cut short, or something that only the IP header's first bytes are needed for.
        None => assert!(is_cut_short(sent) && rule.framing == Framing::InPlace || is_marked(sent)),
    }
}

/// Whether the type of service is the mark, in a frame whose rest may be anything.
fn is_marked(frame: &[u8]) -> bool {
    type_of_service(frame).is_some_and(|tos| tos & !ECN == DEFAULT_MARK)
}

/// A frame of which egress says that it does not carry values: the flow of an earlier one, or there
/// are implausible words (FORMAT.md S9).
fn not_values(rule: &Rule, sent: &[u8], mixed: &mut BTreeSet<Flow>) {
    assert_eq!(rule.heuristic, Heuristic::On);
    let segment = View::of(sent).and_then(|view| view.segment).expect("TCP or UDP");
    let payload = &sent[segment.payload.clone()];
    let are_implausible = if segment.transport == Transport::Udp {
        holds_header(payload)
    } else {
        // Where values start is the flow's knowledge; at the start of a stream one implausible word
        // is enough.
        let implausible = (0..payload.len().min(4)).any(|start| implausible(&payload[start..]) > 0);
        !mixed.insert(segment.flow) || implausible
    };
    assert!(are_implausible, "they look like values");
}

/// A frame that egress compressed: what the wire has, decoded by the codec's definition, is within
/// the bound; `coded` is that part.
fn compressed(rule: &Rule, sent: &[u8], wire: &[u8], coded: &Coded<'_>) {
    assert!(counted_len(wire) < counted_len(sent));
    assert_eq!(refusal(sent), None, "FORMAT.md section 5.1");
    let view = View::of(sent).expect("an IP packet");
    let segment = view.segment.expect("TCP or UDP");
    assert_eq!((view.tos ^ rule.tos) & rule.mask, 0, "no rule");
    assert!(view.ip_checksum_ok);
    assert_ne!(segment.checksum, Checksum::Wrong);
    let payload = &sent[segment.payload.clone()];
    let body = &wire[segment.payload.start..];
    let (head_len, body) = match rule.framing {
        Framing::InPlace => {
            assert_eq!(wire[..segment.payload.start], sent[..segment.payload.start]);
            let head_len = if segment.transport == Transport::Udp { rule.udp_offset } else { 0 };
            (usize::from(head_len), body)
        }
        Framing::Routed => {
            let wire_view = View::of(wire).expect("an IP packet on the wire");
            assert!(wire_view.ip_checksum_ok);
            assert_eq!(wire_view.tos, DEFAULT_MARK | view.tos & ECN);
            let wire_segment = wire_view.segment.expect("a segment on the wire");
            assert_eq!(wire_segment.flow, segment.flow);
            assert!(!wire_segment.checksum.is_accepted(), "{:?} on the wire", wire_segment.checksum);
            let header = Header::read(body);
            assert_eq!(usize::from(header.raw_len), payload.len());
            assert_eq!((header.tos, header.profile), (view.tos & !ECN, rule.profile));
            assert_eq!(header.no_checksum, segment.checksum == Checksum::Absent);
            (usize::from(header.head_len), &body[SEGMENT_HEADER_LEN..])
        }
    };
    let restored = restore(body, head_len, payload.len(), rule.profile);
    let values = head_len..payload.len() - (payload.len() - head_len) % 4;
    assert_eq!(restored[..values.start], payload[..values.start]);
    assert_eq!(restored[values.end..], payload[values.end..]);
    assert!(rule.heuristic == Heuristic::Off || !holds_header(&payload[values.clone()]), "FORMAT.md S9");
    assert_eq!((coded.rule, coded.profile, coded.values), (0, rule.profile, &payload[values.clone()]));
    assert!(wire[..wire.len() - (payload.len() - values.end)].ends_with(coded.groups));
    let mut decoded = vec![0; coded.values.len()];
    assert_eq!(rule.profile.decode_payload(coded.groups, &mut decoded), Ok(coded.groups.len()));
    assert_eq!(decoded, restored[values.clone()]);
    let mut tally = ErrorTally::new(rule.profile);
    tally.bytes(&payload[values.clone()], &decoded);
    assert_eq!(tally.violations, 0);
}

/// The segment header, read as FORMAT.md section 5.2 says.
struct Header {
    tos: u8,
    no_checksum: bool,
    head_len: u8,
    raw_len: u16,
    profile: Profile,
}

impl Header {
    fn read(bytes: &[u8]) -> Self {
        let [version, codec, tos, head_len, high, low, first, second, ..] = *bytes else {
            panic!("a segment header of {} bytes", bytes.len())
        };
        assert_eq!(version, 1);
        let profile = match codec {
            1 => Params::from_exponents(first >> 4, first & 15, second.cast_signed())
                .expect("of codec 1")
                .into(),
            2 if first == 0 => Bound::new(second.cast_signed()).expect("of codec 2").into(),
            other => panic!("codec {other}, {first}"),
        };
        let raw_len = u16::from_be_bytes([high, low]);
        Self { tos: tos & !ECN, no_checksum: tos & 1 != 0, head_len, raw_len, profile }
    }

    /// Point 7 of FORMAT.md section 5.4, on the header alone.
    fn is_right(bytes: &[u8]) -> bool {
        let [1, codec, tos, head_len, high, low, first, second, ..] = *bytes else { return false };
        let raw_len = u16::from_be_bytes([high, low]);
        let (b, k) = (first >> 4, first & 15);
        let parameters = match codec {
            1 => {
                (1..=14).contains(&b) && (b.saturating_sub(7)..=b).contains(&k) && second.cast_signed() >= -80
            }
            2 => first == 0 && (-94..=111).contains(&second.cast_signed()),
            _ => false,
        };
        tos & 2 == 0 && raw_len >= u16::from(head_len) + 4 && parameters
    }
}

/// The segment header's reader, on what may be one.
fn segment_header(payload: &[u8]) {
    match SegmentHeader::parse(payload) {
        Ok((header, body)) => {
            assert!(Header::is_right(payload));
            let read = Header::read(payload);
            let fields = (header.tos, header.no_checksum, header.head_len, header.raw_len, header.profile);
            assert_eq!(fields, (read.tos, read.no_checksum, read.head_len, read.raw_len, read.profile));
            assert_eq!(body, &payload[SEGMENT_HEADER_LEN..]);
        }
        Err(error) => {
            let error = printed(&error);
            assert!(!Header::is_right(payload), "{error}");
        }
    }
}

/// Head, groups and tail back to a payload of `len` bytes, by the codec's definition; nothing may
/// be left over.
fn restore(body: &[u8], head_len: usize, len: usize, profile: Profile) -> Vec<u8> {
    let (head, groups) = body.split_at(head_len);
    let mut values = vec![0; (len - head_len) / 4 * 4];
    let used = profile.decode_payload(groups, &mut values).expect("the values' code");
    let restored = [head, &values, &groups[used..]].concat();
    assert_eq!(restored.len(), len, "head, values and tail");
    restored
}

/// Any frames through ingress.
///
/// # Panics
/// It restored a frame that it must not, or wrongly.
pub fn ingress(data: &[u8]) {
    let Ok(Input { rule, rules, frames }) = Unstructured::new(data).arbitrary() else { return };
    let mut engines = [0; 2].map(|_| Ingress::new(rules.clone(), Kernel::detect(), MTU));
    for frame in &frames {
        let room = usize::from(MTU) + LINK_LEN;
        let (verdict, out) = twice(room, |which, out| engines[which].process(frame, out, &NO_CAPABILITIES));
        // What came before is nothing to it.
        let mut first = Ingress::new(rules.clone(), Kernel::detect(), MTU);
        assert_eq!(twice(room, |_, out| first.process(frame, out, &NO_CAPABILITIES)), (verdict, out.clone()));
        match verdict {
            Verdict::Untouched(_) => {}
            Verdict::Dropped(_) => {
                let claims = is_marked(frame) || rule.framing == Framing::InPlace;
                assert!(claims, "dropped, though it did not claim to be compressed");
            }
            Verdict::Changed { change: Change::Restored, .. } => restored(&rule, frame, &out),
            Verdict::Changed { change: Change::OptionStripped, .. } => {
                assert_eq!(capabilities::stripped(frame, &out), Ok(()));
            }
            Verdict::Changed { change, .. } => panic!("ingress: {change}"),
        }
        if let Some(segment) = View::of(frame).and_then(|view| view.segment) {
            segment_header(&frame[segment.payload]);
        }
        engines[0].set_rules(engines[1].rules().clone());
    }
    assert_eq!(counted(engines[0].counters()), frames.len() as u64);
    engines[0].reset();
    assert_eq!(counted(engines[0].counters()), 0);
}

/// A frame that ingress restored: whole and right for a host, and what the definition makes of the
/// wire's bytes.
fn restored(rule: &Rule, wire: &[u8], out: &[u8]) {
    let view = View::of(out).expect("an IP packet");
    let segment = view.segment.expect("TCP or UDP");
    assert!(view.ip_checksum_ok);
    assert_eq!(segment.payload.end, out.len());
    assert!(out.len() <= usize::from(MTU) + LINK_LEN);
    assert_eq!(out[..12], wire[..12], "addresses of cards");
    let body = &wire[segment.payload.start..];
    let (head_len, profile, body, no_checksum) = if is_marked(wire) {
        let wire_view = View::of(wire).expect("an IP packet on the wire");
        assert!(wire_view.ip_checksum_ok);
        let wire_segment = wire_view.segment.expect("a segment on the wire");
        if let Some(right) = wire_segment.right_checksum {
            let found = &wire[wire_segment.checksum_at.clone()];
            // As it stands in the frame, complemented: what is added to the sum is taken from the
            // field.
            let found = u16::from_be_bytes([found[0], found[1]]);
            let expected = add_ones_complement(right, CHECKSUM_CONSTANT);
            assert_eq!(found % 0xffff, expected % 0xffff);
        }
        let header = Header::read(body);
        assert_eq!(view.tos, header.tos | wire_view.tos & ECN);
        assert_eq!(segment.payload.len(), usize::from(header.raw_len));
        let wire_body = &wire[segment.payload.start + SEGMENT_HEADER_LEN..wire_segment.payload.end];
        (usize::from(header.head_len), header.profile, wire_body, header.no_checksum)
    } else {
        assert_eq!(rule.framing, Framing::InPlace);
        assert!(is_cut_short(wire));
        assert_eq!(out[..segment.checksum_at.start], wire[..segment.checksum_at.start]);
        let udp = segment.transport == Transport::Udp;
        let head_len = if udp { usize::from(rule.udp_offset) } else { 0 };
        let no_checksum = udp && wire[segment.checksum_at.clone()] == [0, 0];
        (head_len, rule.profile, body, no_checksum)
    };
    match segment.checksum {
        Checksum::Absent => assert!(no_checksum),
        Checksum::Valid | Checksum::NotVerified => assert!(!no_checksum),
        Checksum::Wrong | Checksum::LeftToCard => panic!("{:?} after restoring", segment.checksum),
    }
    let len = segment.payload.len();
    let mut values = vec![0; (len - head_len) / 4 * 4];
    let used = profile.decode_payload(&body[head_len..], &mut values).expect("the values' code");
    let tail_at = head_len + used;
    let tail = &body[tail_at..tail_at + (len - head_len) % 4];
    assert_eq!(out[segment.payload], [&body[..head_len], &values, tail].concat());
    // A MAC pads frames to the Ethernet minimum, and a switch may put tags on them after that.
    let tags = [12, 16].into_iter().take_while(|at| matches!(wire[*at..*at + 2], [0x81, 0] | [0x88, 0xa8]));
    let padded = MIN_FRAME_LEN..=MIN_FRAME_LEN + 4 * tags.count();
    assert!(tail_at + tail.len() == body.len() || !is_marked(wire) && padded.contains(&wire.len()));
}
