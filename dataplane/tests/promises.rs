//! Promises about whole flows: a byte is compressed at most once, and values are coded by their own
//! alignment or not at all. The verifier knows what the host sent, and nothing of what the engine
//! believes.

use gradwire::engine::{Egress, Ingress, Millis, NO_CAPABILITIES};
use gradwire::flow::CLOSED_MS;
use gradwire::kernels::Kernel;
use gradwire::rules::{Alignment, DEFAULT_MARK, Framing, Heuristic, Rule, Rules};
use gradwire::verdict::{Change, PassReason, Verdict};
use proptest::prelude::*;

use crate::common::engines::{ingress, rules};
use crate::common::{ACK, Spec, TransportSpec, gradient, host_accepts, le_bytes};

const FIN: u8 = 0x01;
const RST: u8 = 0x04;
const ORIGIN: u32 = 0xffff_f001;
const PAYLOAD_ALIGNED: Rule = Rule { alignment: Alignment::Payload, ..Rule::STATIC };

/// A host's stream of values and the engine before it. Byte 0 of the stream has sequence number
/// `origin`.
struct Stream {
    engine: Egress<1>,
    receiver: Ingress,
    values: Vec<u8>,
    origin: u32,
    now: Millis,
}

impl Stream {
    fn new(rule: Rule) -> Self {
        Self {
            engine: Egress::new(rules(rule), Kernel::detect(), 1500, 1),
            receiver: Ingress::new(rules(rule), Kernel::detect(), 1500),
            values: le_bytes(&gradient(20_000)),
            origin: ORIGIN,
            now: Millis(0),
        }
    }

    fn process(&mut self, frame: &[u8]) -> (Verdict, Vec<u8>) {
        let mut out = vec![0xaa; frame.len()];
        let verdict = self.engine.process(frame, &mut out, self.now, &NO_CAPABILITIES);
        match verdict {
            Verdict::Changed { len, .. } => out.truncate(len),
            _ => out.copy_from_slice(frame),
        }
        (verdict, out)
    }

    /// A SYN, or a listener's answer to one, that says that the stream starts at `origin`.
    fn syn(&mut self, origin: u32, flags: u8) {
        let transport =
            TransportSpec::Tcp { seq: origin.wrapping_sub(1), flags, options: vec![2, 4, 5, 180] };
        let (verdict, _) = self.process(&Spec { transport, ..Spec::tcp(0, 0, &[]) }.bytes());
        assert_eq!(verdict, Verdict::Untouched(PassReason::TcpFlags));
    }

    /// The segment with bytes `from..from + len` of the stream. What the receiving host takes has
    /// to be within the bound of it, by the stream's own alignment.
    fn send(&mut self, from: usize, len: usize, flags: u8) -> Verdict {
        let payload = self.values[from..from + len].to_vec();
        let seq = self.origin.wrapping_add(from as u32);
        let transport = TransportSpec::Tcp { seq, flags, options: vec![] };
        let (verdict, wire) = self.process(&Spec { transport, ..Spec::tcp(0, 0, &payload) }.bytes());
        let (_, host) = ingress(&mut self.receiver, &wire);
        assert_within(from, &payload, &host_accepts(&host).expect("a right frame"));
        verdict
    }
}

fn assert_within(from: usize, sent: &[u8], got: &[u8]) {
    let head_len = (4 - from % 4) % 4;
    assert_eq!((sent.len(), &sent[..head_len]), (got.len(), &got[..head_len]));
    for (sent, got) in sent[head_len..].chunks(4).zip(got[head_len..].chunks(4)) {
        let (Ok(f), Ok(g)) = (sent.try_into(), got.try_into()) else {
            assert_eq!(sent, got, "part of a value");
            continue;
        };
        let [f, g] = [f, g].map(f32::from_le_bytes).map(f64::from);
        assert!((f - g).abs() < 1.0 / 1024.0, "{f} became {g}");
    }
}

fn is_compressed(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Changed { change: Change::Compressed, .. })
}

fn untouched(reason: PassReason) -> Verdict {
    Verdict::Untouched(reason)
}

/// The last segment of most streams has FIN and payload. A peer that cannot restore it makes TCP
/// send it again, and with it whatever it has not acknowledged before.
#[test]
fn behind_a_fin_nothing_is_compressed_again() {
    for (alignment, syn) in
        [(Alignment::Connection, true), (Alignment::Payload, true), (Alignment::Payload, false)]
    {
        let mut stream = Stream::new(Rule { alignment, ..Rule::STATIC });
        if syn {
            stream.syn(ORIGIN, 0x02);
        }
        for segment in 0..5 {
            let flags = if segment == 4 { ACK | FIN } else { ACK };
            assert!(is_compressed(stream.send(400 * segment, 400, flags)), "{alignment:?} {segment}");
        }
        for again in 0..15 {
            stream.now.0 += 1000 << again.min(6);
            for segment in 0..5 {
                let flags = if segment == 4 { ACK | FIN } else { ACK };
                let verdict = stream.send(400 * segment, 400, flags);
                assert!(!is_compressed(verdict), "{alignment:?}: segment {segment}, resend {again}");
            }
        }
    }
}

/// Under `alignment = "payload"` a flow that is forgotten opens again: an ended one keeps its place
/// while TCP may still send again.
#[test]
fn an_ended_flow_keeps_its_place_while_tcp_may_send_again() {
    let mut stream = Stream::new(PAYLOAD_ALIGNED);
    assert!(is_compressed(stream.send(0, 400, ACK | FIN)));
    let crowd = |stream: &mut Stream| {
        for vlan in 1..100 {
            let spec = Spec { vlans: vec![(0x8100, vlan)], ..Spec::tcp(1, ACK, &[7; 400]) };
            let _ = stream.process(&spec.syn(1).bytes());
            let _ = stream.process(&spec.bytes());
        }
    };
    for _ in 0..20 {
        stream.now.0 += CLOSED_MS - 1;
        crowd(&mut stream);
        assert_eq!(stream.send(0, 400, ACK | FIN), untouched(PassReason::AlignmentUnknown));
    }
    // No frame of it comes for so long: its place is another's.
    stream.now.0 += CLOSED_MS;
    let key = |stream: &Stream| stream.engine.flows().iter().any(|(key, _)| key.vlans() == [0, 0]);
    assert!(key(&stream));
    crowd(&mut stream);
    assert!(!key(&stream));
}

/// A socket may get another type of service behind its FIN, and with it a rule under which payload
/// opens what is not known.
#[test]
fn an_ended_flow_keeps_its_place_for_another_rule() {
    const OTHER_TOS: u8 = 0x48;
    let handshake = Rule { tos: OTHER_TOS, alignment: Alignment::Payload, ..Rule::DEFAULT };
    for (other, keeps) in [
        (Rule { tos: OTHER_TOS, ..PAYLOAD_ALIGNED }, true),
        (Rule { tos: OTHER_TOS, ..Rule::STATIC }, false),
        (handshake, false),
    ] {
        let mut stream = Stream::new(Rule::STATIC);
        stream.engine.set_rules(Rules::new(&[Rule::STATIC, other], DEFAULT_MARK).expect("two rules"));
        stream.syn(ORIGIN, 0x02);
        assert!(is_compressed(stream.send(0, 400, ACK | FIN)));
        for vlan in 1..100 {
            stream.now.0 += 1;
            let spec = Spec { vlans: vec![(0x8100, vlan)], tos: 0, ..Spec::tcp(1, ACK, &[]) };
            let _ = stream.process(&spec.syn(1).bytes());
        }
        assert_eq!(stream.engine.flows().iter().any(|(key, _)| key.vlans() == [0, 0]), keeps, "{other:?}");
        let payload = stream.values[..400].to_vec();
        let again = Spec { tos: OTHER_TOS, ..Spec::tcp(ORIGIN, ACK | FIN, &payload) };
        assert!(!is_compressed(stream.process(&again.bytes()).0), "{other:?}");
    }
}

/// With SYN cookies a listener answers every SYN with another number, and the client may
/// acknowledge any of them.
#[test]
fn of_two_starts_none_is_believed() {
    for flags in [0x02, 0x02 | ACK] {
        for shift in 1..4 {
            let mut stream = Stream::new(Rule::STATIC);
            stream.syn(ORIGIN, flags);
            stream.syn(ORIGIN.wrapping_add(1000 + shift), flags);
            for segment in 0..3 {
                assert_eq!(stream.send(400 * segment, 400, ACK), untouched(PassReason::AlignmentDoubtful));
            }
            // Once the host has ended it, the next start is a new connection's.
            let _ = stream.send(1200, 0, ACK | RST);
            stream.origin = 77;
            stream.syn(77, flags);
            assert!(is_compressed(stream.send(0, 400, ACK)));
        }
    }
}

/// A SYN that carries the mark, as a host's own may, loses the mark and tells the start like any
/// other.
#[test]
fn a_start_that_carries_the_mark_is_learned() {
    const MPTCP_CAPABLE: [u8; 4] = [30, 4, 1, 0x81];
    for (rule, options, expected) in [
        (Rule::STATIC, vec![2, 4, 5, 180], None),
        (Rule::STATIC, MPTCP_CAPABLE.to_vec(), Some(PassReason::AlignmentDoubtful)),
        (PAYLOAD_ALIGNED, MPTCP_CAPABLE.to_vec(), Some(PassReason::AlignmentDoubtful)),
    ] {
        let mut stream = Stream::new(rule);
        let transport = TransportSpec::Tcp { seq: ORIGIN.wrapping_sub(1), flags: 0x02, options };
        let (verdict, _) =
            stream.process(&Spec { transport, tos: DEFAULT_MARK, ..Spec::tcp(0, 0, &[]) }.bytes());
        assert!(matches!(verdict, Verdict::Changed { change: Change::Remarked, .. }));
        let sent = stream.send(0, 400, ACK);
        assert!(expected.map_or(is_compressed(sent), |reason| sent == untouched(reason)), "{sent:?}");
    }
}

/// Behind the end of such a stream the accepted SYN may come once more, late, and TCP may send
/// again what passed.
#[test]
fn a_late_start_of_a_doubtful_stream_begins_nothing() {
    for end in [ACK | FIN, ACK | RST] {
        let mut stream = Stream::new(Rule::STATIC);
        stream.syn(ORIGIN.wrapping_add(1 << 29), 0x02);
        stream.syn(ORIGIN, 0x02);
        assert_eq!(stream.send(0, 400, ACK), untouched(PassReason::AlignmentDoubtful));
        let _ = stream.send(400, 0, end);
        for late in [ORIGIN, ORIGIN.wrapping_add(400)] {
            stream.syn(late, 0x02);
            assert_eq!(stream.send(0, 400, ACK), untouched(PassReason::AlignmentDoubtful));
        }
    }
}

/// The same SYN again is no other start, and neither is that of a connection whose predecessor has
/// ended.
#[test]
fn one_start_is_believed() {
    let mut stream = Stream::new(Rule::STATIC);
    stream.syn(5000, 0x02);
    stream.origin = 5000;
    let _ = stream.send(0, 0, ACK | RST);
    stream.origin = ORIGIN;
    stream.syn(ORIGIN, 0x02);
    stream.syn(ORIGIN, 0x02);
    assert!(is_compressed(stream.send(0, 400, ACK)));
}

/// A host answers a stray ACK with a RST, whose sequence number the stray one chose: that ends
/// nothing.
#[test]
fn a_reset_elsewhere_in_the_stream_ends_nothing() {
    for elsewhere in [1, 400, 1 << 31] {
        let mut stream = Stream::new(Rule::STATIC);
        stream.syn(ORIGIN, 0x02 | ACK);
        stream.origin = ORIGIN.wrapping_add(elsewhere);
        let _ = stream.send(0, 0, RST);
        stream.origin = ORIGIN;
        assert!(is_compressed(stream.send(0, 400, ACK)));
        stream.origin = ORIGIN.wrapping_sub(elsewhere);
        let _ = stream.send(0, 0, RST);
        stream.syn(ORIGIN.wrapping_add(7), 0x02 | ACK);
        stream.origin = ORIGIN;
        assert_eq!(stream.send(400, 400, ACK), untouched(PassReason::AlignmentDoubtful));
    }
}

/// A padded segment cannot be compressed, but what is sent again of it has been sent.
#[test]
fn bytes_that_left_in_a_padded_frame_were_sent() {
    let mut stream = Stream::new(Rule::STATIC);
    stream.syn(ORIGIN, 0x02);
    let spec = Spec::tcp(ORIGIN, ACK, &stream.values[..400]);
    let padded = [spec.bytes(), vec![0; 4]].concat();
    assert_eq!(stream.process(&padded).0, untouched(PassReason::Trailer));
    assert_eq!(stream.send(0, 800, ACK), untouched(PassReason::Resent));
    assert!(is_compressed(stream.send(800, 400, ACK)));
}

/// FORMAT.md S8: what a SYN carried (Fast Open, RFC 7413) is new to the sender. Sent again in a
/// segment, it is compressed, once.
#[test]
fn data_of_a_syn_is_compressed_when_it_is_sent_again() {
    let mut stream = Stream::new(Rule::STATIC);
    let transport = TransportSpec::Tcp { seq: ORIGIN.wrapping_sub(1), flags: 0x02, options: vec![] };
    let syn = Spec { transport, ..Spec::tcp(0, 0, &stream.values[..400]) };
    let (verdict, wire) = stream.process(&syn.bytes());
    assert_eq!((verdict, wire), (untouched(PassReason::TcpFlags), syn.bytes()));
    assert_once(stream);
}

/// FORMAT.md S8: so is what passed before the application set the tag.
#[test]
fn bytes_from_before_the_tag_are_compressed_when_they_are_sent_again() {
    let mut stream = Stream::new(Rule::STATIC);
    let syn = Spec { tos: 0, ..Spec::tcp(0, 0, &[]) }.syn(ORIGIN);
    let untagged = Spec { tos: 0, ..Spec::tcp(ORIGIN, ACK, &stream.values[..400]) };
    for spec in [syn, untagged] {
        let (verdict, wire) = stream.process(&spec.bytes());
        assert_eq!((verdict, wire), (untouched(PassReason::NoRule), spec.bytes()));
    }
    assert_once(stream);
}

/// The first 400 bytes are compressed when they come in a tagged segment, and not when they come
/// once more.
fn assert_once(mut stream: Stream) {
    assert!(is_compressed(stream.send(0, 400, ACK)));
    for _ in 0..3 {
        assert_eq!(stream.send(0, 400, ACK), untouched(PassReason::Resent));
    }
    assert!(is_compressed(stream.send(400, 400, ACK)));
}

/// A start was seen, but the payload is nowhere near it: another start went by unseen.
#[test]
fn payload_far_from_its_start_raises_doubt() {
    for away in [1u32 << 20, 1 << 31, u32::MAX] {
        let mut stream = Stream::new(Rule::STATIC);
        stream.syn(ORIGIN.wrapping_sub(away), 0x02);
        assert_eq!(stream.send(0, 400, ACK), untouched(PassReason::AlignmentDoubtful), "{away:#x}");
        assert_eq!(stream.send(400, 400, ACK), untouched(PassReason::AlignmentDoubtful), "{away:#x}");
    }
    // What went another way, or before the tag, is no reason.
    for (away, tos) in [(0, 0x28), ((1 << 20) - 4, 0x28), (1 << 31, 0)] {
        let mut stream = Stream::new(Rule { heuristic: Heuristic::Off, ..Rule::STATIC });
        let syn = Spec { tos, ..Spec::tcp(0, 0, &[]) }.syn(ORIGIN.wrapping_sub(away));
        let _ = stream.process(&syn.bytes());
        assert!(is_compressed(stream.send(0, 400, ACK)), "{away:#x}");
    }
}

/// Rules may change while connections are open, and an application its type of service.
#[test]
fn a_flow_without_a_start_has_no_connection_alignment() {
    for first in 0..4 {
        let mut stream = Stream::new(PAYLOAD_ALIGNED);
        // Where the flow begins says nothing of where the stream does.
        stream.origin = ORIGIN.wrapping_add(first);
        let _ = stream.send(0, 400, ACK);
        stream.engine.set_rules(rules(Rule::STATIC));
        assert_eq!(stream.send(400, 400, ACK), untouched(PassReason::AlignmentUnknown));
        stream.engine.set_rules(rules(PAYLOAD_ALIGNED));
        assert!(is_compressed(stream.send(800, 400, ACK)));
        // Nor does a start that is seen later.
        stream.syn(ORIGIN.wrapping_add(1), 0x02);
        stream.engine.set_rules(rules(Rule::STATIC));
        assert_eq!(stream.send(1200, 400, ACK), untouched(PassReason::AlignmentDoubtful));
    }
}

/// A connection whose SYN forbids changes (here TCP MD5) stays untouched behind its end, whatever
/// the alignment.
#[test]
fn doubt_outlives_the_end() {
    for alignment in Alignment::ALL {
        let mut stream = Stream::new(Rule { alignment, ..Rule::STATIC });
        let options = [&[19, 18][..], &[0; 16], &[1, 1]].concat();
        let transport = TransportSpec::Tcp { seq: ORIGIN.wrapping_sub(1), flags: 2, options };
        let _ = stream.process(&Spec { transport, ..Spec::tcp(0, 0, &[]) }.bytes());
        assert_eq!(stream.send(0, 400, ACK), untouched(PassReason::AlignmentDoubtful));
        assert_eq!(stream.send(400, 400, ACK | FIN), untouched(PassReason::AlignmentDoubtful));
        for from in [0, 400, 800] {
            assert_eq!(stream.send(from, 400, ACK), untouched(PassReason::AlignmentUnknown), "{alignment:?}");
        }
    }
}

/// `alignment = "payload"` is for senders that never let TCP cut a value. If one does, after a
/// change of the MTU for example, its segments go untouched.
#[test]
fn misaligned_segments_are_left_alone() {
    for syn in [false, true] {
        for framing in Framing::ALL {
            let mut stream = Stream::new(Rule { framing, ..PAYLOAD_ALIGNED });
            if syn {
                stream.syn(ORIGIN, 0x02);
            }
            for segment in 0..40 {
                let verdict = stream.send(1450 * segment, 1450, ACK);
                if 1450 * segment % 4 == 0 {
                    assert!(is_compressed(verdict), "{segment}: {verdict:?}");
                } else {
                    assert_eq!(verdict, untouched(PassReason::Misaligned));
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// From, length, flags.
    Segment(usize, usize, u8),
    /// With this sequence number.
    Syn(u32),
    /// So many other connections.
    Others(u16),
    /// Milliseconds.
    Wait(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let flags = prop::sample::select(vec![ACK, ACK, ACK, ACK, ACK | FIN, ACK | RST]);
    let near = prop_oneof![Just(ORIGIN.wrapping_sub(1)), any::<u32>()];
    prop_oneof![
        12 => (0usize..8, 1usize..5, flags, 0usize..4)
            .prop_map(|(from, len, flags, cut)| Step::Segment(400 * from + cut, 400 * len, flags)),
        1 => near.prop_map(Step::Syn),
        1 => (1u16..40).prop_map(Step::Others),
        2 => (0..CLOSED_MS / 8).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// Between two starts no byte leaves in two compressed segments, whatever the alignment, and
    /// however flows come and go.
    #[test]
    fn no_byte_is_compressed_twice(steps in prop::collection::vec(any_step(), 1..60), payload_aligned: bool, syn: bool) {
        let alignment = if payload_aligned { Alignment::Payload } else { Alignment::Connection };
        let mut engine = Egress::<1>::new(rules(Rule { alignment, ..Rule::STATIC }), Kernel::detect(), 1500, 1);
        let (mut now, mut last_seen, mut vlan) = (Millis(0), Millis(0), 1);
        let mut compressed: Vec<(usize, usize)> = vec![];
        let first = syn.then_some(Step::Syn(ORIGIN.wrapping_sub(1)));
        let process = |engine: &mut Egress<1>, spec: &Spec, now| {
            let frame = spec.bytes();
            let mut out = vec![0; frame.len()];
            engine.process(&frame, &mut out, now, &NO_CAPABILITIES)
        };
        for step in first.into_iter().chain(steps) {
            match step {
                Step::Syn(isn) => {
                    compressed.clear();
                    let _ = process(&mut engine, &Spec::tcp(0, 0, &[]).syn(isn.wrapping_add(1)), now);
                }
                Step::Wait(ms) => now.0 += ms,
                Step::Others(count) => for _ in 0..count {
                    let spec = Spec { vlans: vec![(0x8100, vlan)], ..Spec::tcp(1, ACK | FIN, &[0; 400]) };
                    vlan = vlan % 4000 + 1;
                    let _ = process(&mut engine, &spec.syn(1), now);
                    let _ = process(&mut engine, &spec, now);
                },
                Step::Segment(from, len, flags) => {
                    // TCP has given up long before.
                    if now.since(last_seen) >= CLOSED_MS {
                        compressed.clear();
                    }
                    last_seen = now;
                    let seq = ORIGIN.wrapping_add(from as u32);
                    let transport = TransportSpec::Tcp { seq, flags, options: vec![] };
                    let spec = Spec { transport, ..Spec::tcp(0, 0, &vec![0; len]) };
                    if is_compressed(process(&mut engine, &spec, now)) {
                        let range = (from, from + len);
                        let twice = compressed.iter().find(|(a, b)| *a < range.1 && range.0 < *b);
                        prop_assert!(twice.is_none(), "{range:?} and {twice:?}");
                        compressed.push(range);
                    }
                }
            }
        }
    }
}

/// UDP sends nothing again, so nothing shows that a peer does not restore: its rule has to say that
/// it does.
#[test]
fn udp_is_compressed_only_where_its_rule_says_so() {
    let frame = Spec::udp(&le_bytes(&gradient(100))).bytes();
    let mut stream = Stream::new(Rule::DEFAULT);
    let (verdict, wire) = stream.process(&frame);
    assert_eq!((verdict, &wire), (untouched(PassReason::UdpOff), &frame));
    assert_eq!(stream.engine.counters().passed(PassReason::UdpOff), 1);
    stream.engine.set_rules(rules(Rule::STATIC));
    let (verdict, wire) = stream.process(&frame);
    assert!(is_compressed(verdict));
    // It is the sender's word: a receiver restores what arrives.
    assert!(matches!(
        ingress(&mut stream.receiver, &wire).0,
        Verdict::Changed { change: Change::Restored, .. }
    ));
}
