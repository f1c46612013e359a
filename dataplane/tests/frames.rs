//! Whole frames through both engines: generated, corrupted, random.

use gradwire::codec::bit_plane::Bound;
use gradwire::codec::{Params, Split};
use gradwire::engine::{Egress, Ingress, NO_CAPABILITIES};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire::rules::{Alignment, DEFAULT_MARK, Framing, Heuristic, Rule, Rules};
use gradwire::verdict::{Change, DropReason, PassReason, TaggedTraffic, Verdict};
use gradwire::wire::flow_key::FlowKey;
use gradwire::wire::frame::MAX_LINK_LEN;
use proptest::prelude::*;

use crate::common::engines::{MTU, egress, ingress, rules};
use crate::common::{ACK, IpSpec, Spec, TIMESTAMPS, TransportSpec, gradient, host_accepts, le_bytes};

/// The default, and UDP too.
/// Payloads begin within values, too, and do not look like some.
const RULE: Rule = Rule { heuristic: Heuristic::Off, ..Rule::STATIC };

/// A new flow's SYN, then the frame. The SYN is not tagged: the frame may be anywhere in the
/// stream.
fn send(rule: Rule, origin: u32, spec: &Spec) -> (Verdict, Vec<u8>) {
    let mut engine = Egress::<2>::new(rules(rule), Kernel::detect(), 1500, 1);
    if matches!(spec.transport, TransportSpec::Tcp { .. }) && rule.alignment == Alignment::Connection {
        let (verdict, _) = egress(&mut engine, &Spec { tos: 0, ..spec.syn(origin) }.bytes());
        assert_eq!(verdict, Verdict::Untouched(PassReason::NoRule));
    }
    egress(&mut engine, &spec.bytes())
}

fn receive(rule: Rule, frame: &[u8]) -> (Verdict, Vec<u8>) {
    ingress(&mut Ingress::new(rules(rule), Kernel::detect(), MTU), frame)
}

fn any_ip() -> impl Strategy<Value = IpSpec> {
    // RFC 8200 §4.1: the order, and how often each occurs at most.
    let extension = |number: u8| prop::option::of((Just(number), 0u8..4));
    let extensions = (extension(0), extension(60), extension(43), extension(60));
    prop_oneof![
        (0u8..=10).prop_map(|option_words| IpSpec::V4 { option_words }),
        extensions
            .prop_map(|(a, b, c, d)| IpSpec::V6 { extensions: [a, b, c, d].into_iter().flatten().collect() }),
    ]
}

fn any_transport() -> impl Strategy<Value = TransportSpec> {
    let options = prop_oneof![Just(vec![]), Just(TIMESTAMPS.to_vec()), Just(vec![1; 40])];
    let flags = prop::sample::select(vec![ACK, ACK | 8, ACK | 1, ACK | 0x80]);
    prop_oneof![
        (any::<u32>(), flags, options).prop_map(|(seq, flags, options)| TransportSpec::Tcp {
            seq,
            flags,
            options
        }),
        any::<bool>().prop_map(|checksum| TransportSpec::Udp { checksum }),
    ]
}

/// Values from bits and from the range that gradients have, and 0 to 3 bytes that are none.
fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![1 => any::<u32>(), 8 => (-0.01f32..0.01).prop_map(f32::to_bits)];
    (prop::collection::vec(value, 0..700), 0usize..4).prop_map(|(values, ragged)| {
        let mut bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        bytes.truncate(bytes.len().saturating_sub(ragged));
        bytes
    })
}

prop_compose! {
    fn any_spec()(
        vlans in prop::collection::vec((prop::sample::select(vec![0x8100u16, 0x88a8]), any::<u16>()), 0..=2),
        ip in any_ip(), ecn in 0u8..4, transport in any_transport(), payload in any_payload(),
    ) -> Spec {
        Spec { vlans, ip, tos: 0x28 | ecn, transport, payload }
    }
}

prop_compose! {
    fn any_rule()(
        b in 1u8..=14, paper: bool, x in -20i8..20, bit_plane: bool, in_place: bool, payload_aligned: bool, udp_offset in 0u8..64,
    ) -> Rule {
        let split = if paper { Split::Paper } else { Split::Dense };
        Rule {
            profile: if bit_plane {
                Bound::new(x - b.cast_signed()).unwrap().into()
            } else {
                Params::new(b, split, x).unwrap().into()
            },
            framing: if in_place { Framing::InPlace } else { Framing::Routed },
            alignment: if payload_aligned { Alignment::Payload } else { Alignment::Connection },
            udp_offset,
            ..RULE
        }
    }
}

/// The start of the payload's first value, from the headers alone.
fn head_len(spec: &Spec, rule: &Rule, origin: u32) -> usize {
    match spec.transport {
        TransportSpec::Tcp { seq, .. } if rule.alignment == Alignment::Connection => {
            (i64::from(origin) - i64::from(seq)).rem_euclid(4) as usize
        }
        TransportSpec::Tcp { .. } => 0,
        TransportSpec::Udp { .. } => usize::from(rule.udp_offset),
    }
}

/// Every value within the bound, every other byte as it was.
fn assert_payload_within(payload: &[u8], restored: &[u8], head_len: usize, profile: Profile) {
    assert_eq!(payload.len(), restored.len());
    let values_end = head_len + (payload.len() - head_len) / 4 * 4;
    assert_eq!(payload[..head_len], restored[..head_len]);
    assert_eq!(payload[values_end..], restored[values_end..]);
    let exponent = match profile {
        Profile::SizeClass(params) => i32::from(params.x()) - i32::from(params.b()),
        Profile::BitPlane(bound) => bound.y().into(),
    };
    let bound = 2f64.powi(exponent);
    let values =
        payload[head_len..values_end].chunks_exact(4).zip(restored[head_len..values_end].chunks_exact(4));
    for (f, g) in values {
        let [f, g] = [f, g].map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        let error = (f64::from(f) - f64::from(g)).abs();
        // Codec 1 stays below its bound, codec 2 may reach it.
        let within = error < bound || error == bound && matches!(profile, Profile::BitPlane(_));
        assert!(f.to_bits() == g.to_bits() || within, "{f} -> {g}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn ingress_restores_frames_that_egress_compresses(spec in any_spec(), rule in any_rule(), origin: u32) {
        let frame = spec.bytes();
        prop_assume!(frame.len() <= usize::from(MTU));
        let (verdict, wire) = send(rule, origin, &spec);
        let Verdict::Changed { change: Change::Compressed, .. } = verdict else {
            prop_assert_eq!(wire, frame);
            return Ok(());
        };
        prop_assert!(wire.len().max(60) < frame.len());
        match rule.framing {
            Framing::InPlace => prop_assert_eq!(&wire[..spec.payload_at()], &frame[..spec.payload_at()]),
            // Whole to any parser, and refused by any host.
            Framing::Routed => {
                prop_assert!(etherparse::SlicedPacket::from_ethernet(&wire).is_ok());
                prop_assert_eq!(host_accepts(&wire), None);
            }
        }
        let (verdict, restored) = receive(rule, &wire);
        prop_assert_eq!(verdict, Verdict::Changed { change: Change::Restored, len: frame.len() });
        let mut expected = frame.clone();
        let field = spec.l4_checksum_at();
        expected[field..field + 2].copy_from_slice(&restored[field..field + 2]);
        prop_assert_eq!(&restored[..spec.payload_at()], &expected[..spec.payload_at()]);
        let accepted = host_accepts(&restored).expect("a host accepts what ingress restores");
        assert_payload_within(&spec.payload, &accepted, head_len(&spec, &rule, origin), rule.profile);
        if matches!(spec.transport, TransportSpec::Udp { checksum: false }) {
            prop_assert_eq!(&restored[field..field + 2], &[0, 0]);
        }
    }

    #[test]
    fn padding_of_the_mac_is_ignored(count in 12usize..40, in_place: bool) {
        let framing = if in_place { Framing::InPlace } else { Framing::Routed };
        let rule = Rule { framing, ..RULE };
        let spec = Spec::udp(&le_bytes(&vec![1e-5; count]));
        let (verdict, mut wire) = send(rule, 0, &spec);
        prop_assert!(matches!(verdict, Verdict::Changed { .. }), "{:?}", verdict);
        if wire.len() < 60 {
            wire.resize(60, 0);
        }
        let (_, restored) = receive(rule, &wire);
        prop_assert_eq!(host_accepts(&restored), Some(vec![0; 4 * count]));
    }

    #[test]
    fn random_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), rule in any_rule()) {
        let mut engine = Egress::<2>::new(rules(rule), Kernel::detect(), 1500, 1);
        let (_, wire) = egress(&mut engine, &bytes);
        prop_assert!(wire.len() <= bytes.len());
        let (_, host) = receive(rule, &bytes);
        prop_assert!(host.len() <= usize::from(MTU) + MAX_LINK_LEN);
    }

    #[test]
    fn frames_with_random_bytes_in_them_do_no_harm(
        spec in any_spec(), rule in any_rule(), marked: bool, cut: prop::sample::Index,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let spec = Spec { tos: if marked { DEFAULT_MARK } else { spec.tos }, ..spec };
        let mut frame = spec.bytes();
        for (at, byte) in changes {
            // Half of the changes fall into the headers, where they say more.
            let at = at.index(frame.len() * 2) % frame.len().min(120);
            frame[at] = byte;
        }
        frame.truncate(cut.index(frame.len() * 4).min(frame.len()));
        let mut engine = Egress::<2>::new(rules(rule), Kernel::detect(), 1500, 1);
        let (_, wire) = egress(&mut engine, &frame);
        prop_assert!(wire.len() <= frame.len());
        let (_, host) = receive(rule, &frame);
        prop_assert!(host.len() <= usize::from(MTU) + MAX_LINK_LEN);
    }

    #[test]
    fn untagged_frames_are_untouched(spec in any_spec(), rule in any_rule(), tos: u8) {
        prop_assume!(tos & 0xfc != 0x28 && tos & 0xfc != DEFAULT_MARK);
        let frame = Spec { tos, ..spec }.bytes();
        let mut engine = Egress::<2>::new(rules(rule), Kernel::detect(), 1500, 1);
        let (verdict, wire) = egress(&mut engine, &frame);
        prop_assert_eq!(verdict, Verdict::Untouched(PassReason::NoRule));
        prop_assert_eq!(&wire, &frame);
        let (verdict, host) = receive(rule, &frame);
        prop_assert_eq!(verdict, Verdict::Untouched(PassReason::NotCompressed));
        prop_assert_eq!(&host, &frame);
    }

    #[test]
    fn a_hosts_own_mark_is_taken_away(spec in any_spec(), ecn in 0u8..4) {
        let spec = Spec { tos: DEFAULT_MARK | ecn, ..spec };
        let (verdict, wire) = egress(&mut Egress::<2>::new(rules(RULE), Kernel::detect(), 1500, 1), &spec.bytes());
        prop_assert!(matches!(verdict, Verdict::Changed { change: Change::Remarked, .. }), "{:?}", verdict);
        prop_assert_eq!(wire, Spec { tos: ecn, ..spec }.bytes());
    }
}

/// Every byte behind the Ethernet header, every other value: what a host accepts has the right
/// bytes.
#[test]
fn no_changed_byte_of_a_routed_frame_gets_through() {
    let payload = le_bytes(&gradient(24));
    let udp_without = TransportSpec::Udp { checksum: false };
    for spec in [
        Spec::tcp(1001, ACK, &payload),
        Spec::udp(&payload),
        Spec { transport: udp_without, ..Spec::udp(&payload) },
    ] {
        let (verdict, wire) = send(RULE, 1000, &spec);
        assert!(matches!(verdict, Verdict::Changed { .. }), "{verdict:?}");
        let right = host_accepts(&receive(RULE, &wire).1).unwrap();
        let mut engine = Ingress::new(rules(RULE), Kernel::detect(), MTU);
        for at in 14..wire.len() {
            for change in 1..=255 {
                let mut wire = wire.clone();
                wire[at] ^= change;
                let (verdict, host) = ingress(&mut engine, &wire);
                if let Some(accepted) = host_accepts(&host) {
                    assert_eq!(accepted, right, "byte {at} changed by {change:#04x}: {verdict:?}");
                }
            }
        }
    }
}

#[test]
fn every_truncation_of_a_compressed_frame_is_refused() {
    let spec = Spec::tcp(1000, ACK, &le_bytes(&gradient(100)));
    for framing in [Framing::InPlace, Framing::Routed] {
        let rule = Rule { framing, ..RULE };
        let (_, wire) = send(rule, 1000, &spec);
        assert!(wire.len() < spec.bytes().len());
        for len in 0..wire.len() {
            let (verdict, host) = receive(rule, &wire[..len]);
            assert!(!matches!(verdict, Verdict::Changed { .. }), "{len}: {verdict:?}");
            assert_eq!(host_accepts(&host), None, "{len}");
        }
    }
}

#[test]
fn misaligned_segments_compress_in_routed_framing_only() {
    let payload = le_bytes(&gradient(100));
    for shift in 1..4u32 {
        let spec = Spec::tcp(1000 + shift, ACK, &payload);
        let (verdict, _) = send(RULE, 1000, &spec);
        assert!(matches!(verdict, Verdict::Changed { .. }), "{verdict:?}");
        let (verdict, _) = send(Rule { framing: Framing::InPlace, ..RULE }, 1000, &spec);
        assert_eq!(verdict, Verdict::Untouched(PassReason::Misaligned));
    }
}

/// Zeros expand most: a short frame that claims more than the MTU restores to nothing.
#[test]
fn expansion_stops_at_the_mtu() {
    for framing in [Framing::InPlace, Framing::Routed] {
        let rule = Rule { framing, ..RULE };
        let spec = Spec::udp(&[0; 1472]);
        let (_, wire) = send(rule, 0, &spec);
        let mut out = [0; 2000];
        let verdict =
            Ingress::new(rules(rule), Kernel::detect(), 1500).process(&wire, &mut out, &NO_CAPABILITIES);
        assert_eq!(verdict, Verdict::Changed { change: Change::Restored, len: 1514 });
        let verdict =
            Ingress::new(rules(rule), Kernel::detect(), 1499).process(&wire, &mut out, &NO_CAPABILITIES);
        assert!(matches!(verdict, Verdict::Dropped(DropReason::TooLong)), "{verdict:?}");
        let verdict = Ingress::new(rules(rule), Kernel::detect(), 1500).process(
            &wire,
            &mut out[..1513],
            &NO_CAPABILITIES,
        );
        assert!(matches!(verdict, Verdict::Dropped(DropReason::NoRoom)), "{verdict:?}");
    }
}

/// A field of 0 would say that there is no checksum (FORMAT.md S11), on the wire as in the restored
/// datagram. Sixteen bits of the payload take every value, and with them the sum.
#[test]
fn no_compressed_datagram_has_a_checksum_of_0() {
    let rule = Rule { udp_offset: 2, ..RULE };
    let mut sender = Egress::<2>::new(rules(rule), Kernel::detect(), 1500, 1);
    let mut receiver = Ingress::new(rules(rule), Kernel::detect(), 1500);
    let mut spec = Spec::udp(&[&[0; 2][..], &le_bytes(&[0.0; 16])].concat());
    let field = spec.l4_checksum_at();
    let mut fields_of_ones = 0;
    for bits in 0..=u16::MAX {
        spec.payload[..2].copy_from_slice(&bits.to_be_bytes());
        let host = spec.bytes();
        let (verdict, wire) = egress(&mut sender, &host);
        assert!(
            matches!(verdict, Verdict::Changed { change: Change::Compressed, .. }),
            "{bits:#x} {verdict:?}"
        );
        let sum = u16::from_be_bytes([wire[field], wire[field + 1]]);
        assert_ne!(sum, 0, "{bits:#x}");
        fields_of_ones += u32::from(sum == 0xffff);
        let (_, back) = ingress(&mut receiver, &wire);
        assert_eq!(back, host, "{bits:#x}");
    }
    assert!(fields_of_ones > 0);
}

/// A connection that takes the place of one that never ended: its values start elsewhere.
#[test]
fn another_start_on_a_live_flow_raises_doubt() {
    let payload = le_bytes(&gradient(100));
    let first = Spec::tcp(1000, ACK, &payload);
    let again = Spec::tcp(7_000_002, ACK, &payload);
    let mut padded = again.syn(7_000_002).bytes();
    padded.resize(60, 0);
    let mut corrupt = again.syn(7_000_002).bytes();
    *corrupt.last_mut().unwrap() ^= 1;
    for syn in [again.syn(7_000_002).bytes(), padded, corrupt] {
        let mut engine = Egress::<2>::new(rules(RULE), Kernel::detect(), 1500, 1);
        let _ = egress(&mut engine, &first.syn(1000).bytes());
        let (verdict, _) = egress(&mut engine, &first.bytes());
        assert!(matches!(verdict, Verdict::Changed { .. }), "{verdict:?}");
        let _ = egress(&mut engine, &syn);
        let (verdict, _) = egress(&mut engine, &again.bytes());
        assert_eq!(verdict, Verdict::Untouched(PassReason::AlignmentDoubtful));
    }
}

/// One value behind an application header as long as it may be: the shortest payload that is
/// compressed in place.
#[test]
fn a_single_value_comes_back() {
    let rule = Rule { framing: Framing::InPlace, udp_offset: 200, ..RULE };
    let payload = [vec![7; 200], le_bytes(&[0.0])].concat();
    let (verdict, wire) = send(rule, 0, &Spec::udp(&payload));
    assert!(matches!(verdict, Verdict::Changed { .. }), "{verdict:?}");
    assert_eq!(host_accepts(&receive(rule, &wire).1), Some(payload));
    // The same frame, of which more bytes are no values than it claims to have.
    let longer = Rule { udp_offset: 201, ..rule };
    let (verdict, _) = receive(longer, &wire);
    assert_eq!(verdict, Verdict::Dropped(DropReason::Malformed));
}

/// Only a rule that asks for in-place framing makes a frame that is cut short a compressed one.
#[test]
fn a_short_frame_under_a_routed_rule_is_left_alone() {
    let (_, wire) = send(Rule { framing: Framing::InPlace, ..RULE }, 0, &Spec::udp(&[0; 400]));
    assert_eq!(receive(RULE, &wire).0, Verdict::Untouched(PassReason::NotCompressed));
}

/// A first SYN that cannot be relied on: cut short, corrupt, or with an option that binds the
/// payload.
#[test]
fn a_doubtful_first_syn_starts_no_values() {
    let spec = Spec::tcp(1000, ACK, &le_bytes(&gradient(100)));
    let right = spec.syn(1000);
    let mptcp = vec![30, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let transport = TransportSpec::Tcp { seq: 999, flags: 2, options: mptcp };
    let binding = Spec { transport, ..right.clone() }.bytes();
    let mut corrupt = right.bytes();
    *corrupt.last_mut().unwrap() ^= 1;
    let short = right.bytes()[..right.bytes().len() - 1].to_vec();
    for (syn, expected) in [
        (binding, PassReason::AlignmentDoubtful),
        (corrupt, PassReason::AlignmentDoubtful),
        // The header itself is not whole.
        (short, PassReason::AlignmentUnknown),
    ] {
        let mut engine = Egress::<2>::new(rules(RULE), Kernel::detect(), 1500, 1);
        let _ = egress(&mut engine, &syn);
        assert_eq!(egress(&mut engine, &spec.bytes()).0, Verdict::Untouched(expected));
    }
}

#[test]
fn a_padded_syn_starts_a_flow() {
    let spec = Spec::tcp(1000, ACK, &le_bytes(&gradient(100)));
    let mut engine = Egress::<2>::new(rules(RULE), Kernel::detect(), 1500, 1);
    let mut syn = spec.syn(1000).bytes();
    syn.resize(60, 0);
    let _ = egress(&mut engine, &syn);
    let (verdict, _) = egress(&mut engine, &spec.bytes());
    assert!(matches!(verdict, Verdict::Changed { .. }), "{verdict:?}");
}

#[test]
fn only_a_right_fin_ends_a_flow() {
    let payload = le_bytes(&gradient(100));
    let mut fin = Spec::tcp(1400, ACK | 1, &[]).bytes();
    let mut engine = Egress::<2>::new(rules(RULE), Kernel::detect(), 1500, 1);
    let _ = egress(&mut engine, &Spec::tcp(0, ACK, &[]).syn(1000).bytes());
    fin[50] ^= 1;
    let _ = egress(&mut engine, &fin);
    let (verdict, _) = egress(&mut engine, &Spec::tcp(1000, ACK, &payload).bytes());
    assert!(matches!(verdict, Verdict::Changed { .. }), "{verdict:?}");
    fin[50] ^= 1;
    let _ = egress(&mut engine, &fin);
    let (verdict, _) = egress(&mut engine, &Spec::tcp(1400, ACK, &payload).bytes());
    assert_eq!(verdict, Verdict::Untouched(PassReason::AlignmentUnknown));
}

/// In-place framing knows compressed frames by their length: the host's own must not look like one.
#[test]
fn a_hosts_own_short_frame_is_not_taken_for_a_compressed_one() {
    let rule = Rule { framing: Framing::InPlace, ..RULE };
    let spec = Spec::udp(&[0; 400]);
    let frame = spec.bytes();
    for len in 42..frame.len() {
        let (verdict, wire) =
            egress(&mut Egress::<2>::new(rules(rule), Kernel::detect(), 1500, 1), &frame[..len]);
        assert_eq!(verdict, Verdict::Changed { change: Change::Remarked, len });
        let (verdict, host) = receive(rule, &wire);
        assert_eq!(verdict, Verdict::Untouched(PassReason::NotCompressed));
        assert_eq!(host, wire);
    }
}

#[test]
fn a_flow_and_a_rule_tell_what_they_saved() {
    let values = le_bytes(&gradient(100));
    let spec = Spec { vlans: vec![(0x8100, 0x6005)], ..Spec::tcp(1000, ACK, &values) };
    let other = Rule { tos: 0x50, ..RULE };
    let rules = Rules::new(&[other, RULE], DEFAULT_MARK).unwrap();
    let mut engine = Egress::<2>::new(rules, Kernel::detect(), 1500, 1);
    let (syn, first) = (spec.syn(1000).bytes(), spec.bytes());
    assert_eq!(egress(&mut engine, &syn).1, syn);
    let (_, sent) = egress(&mut engine, &first);
    let saved = (first.len() - sent.len()) as u64;
    assert!(saved > 0);
    assert_eq!(egress(&mut engine, &first).0, Verdict::Untouched(PassReason::Resent));

    let (key, flow) = engine.flows().iter().next().unwrap();
    assert_eq!(key.to_string(), "10.40.0.1:40000 > 10.40.0.2:5400 vlan 5");
    let expected = TaggedTraffic { frames: 2, bytes: 800, compressed: 1, saved };
    assert_eq!(*flow.traffic(), expected);
    let expected =
        TaggedTraffic { frames: 3, bytes: (syn.len() + 2 * first.len()) as u64, compressed: 1, saved };
    assert_eq!(engine.traffic(1), expected);
    assert_eq!(engine.traffic(0), TaggedTraffic::NONE);

    // The rule stays where it was; the one before it does not.
    engine.set_rules(Rules::new(&[Rule { udp_offset: 8, ..other }, RULE], DEFAULT_MARK).unwrap());
    assert_eq!(engine.traffic(1), expected);
    engine.set_rules(Rules::new(&[RULE], DEFAULT_MARK).unwrap());
    assert_eq!(engine.traffic(1), TaggedTraffic::NONE);
}

#[test]
fn a_key_tells_both_ends_of_a_flow_over_ipv6() {
    let spec = Spec { ip: IpSpec::V6 { extensions: vec![] }, ..Spec::tcp(1000, ACK, &[]) };
    let mut engine = Egress::<2>::new(rules(RULE), Kernel::detect(), 1500, 1);
    let (verdict, _) = egress(&mut engine, &spec.syn(1000).bytes());
    assert_eq!(verdict, Verdict::Untouched(PassReason::TcpFlags));
    let (key, _) = engine.flows().iter().next().unwrap();
    assert_eq!(
        key.to_string(),
        "[fd01:203:405:607:809:a0b:c0d:e0f]:40000 > [fd11:1213:1415:1617:1819:1a1b:1c1d:1e1f]:5400"
    );
}

#[test]
fn a_key_is_written_as_core_writes_addresses() {
    for (zeros, mapped) in (0..=u8::MAX).flat_map(|zeros| [(zeros, false), (zeros, true)]) {
        // Words that are zero if the bit is set, and of all four lengths elsewhere; ::ffff:0:0/96
        // is written otherwise.
        let word = |place: u32| match place {
            5 if mapped => 0xffff,
            _ if zeros >> place & 1 != 0 => 0u64,
            _ => 0x1234 >> (4 * (place % 4)),
        };
        let half = |from: u32| (from..from + 4).fold(0, |bits, place| bits << 16 | word(place));
        let key = FlowKey([half(0), half(4), half(4), half(0), 80 << 48 | 5400 << 32 | 1]);
        let [source, destination] = key.ends();
        assert_eq!(key.to_string(), format!("{source} > {destination}"));
        let key = FlowKey([half(0), 0, 0, 0, 1 << 48]);
        let [source, destination] = key.ends();
        assert_eq!(key.to_string(), format!("{source} > {destination}"));
    }
}
