//! Changes of frames on their way, and frames of others under the mark: foreign frames pass as they
//! are, and no compressed bytes reach a host as data.

use gradwire::engine::{Egress, Ingress};
use gradwire::kernels::Kernel;
use gradwire::rules::{Alignment, DEFAULT_MARK, Framing, Heuristic, Rule};
use gradwire::verdict::{Change, DropReason, PassReason, Verdict};

use crate::common::engines::{egress, ingress, rules};
use crate::common::{ACK, IpSpec, Spec, TransportSpec, gradient, host_accepts, le_bytes, repair_checksums};

/// Payloads are cut anywhere, and do not look like values.
const RULE: Rule = Rule { alignment: Alignment::Payload, heuristic: Heuristic::Off, ..Rule::STATIC };
const UDP_WITHOUT: TransportSpec = TransportSpec::Udp { checksum: false };

fn receive(rule: Rule, frame: &[u8]) -> (Verdict, Vec<u8>) {
    ingress(&mut Ingress::new(rules(rule), Kernel::detect(), 1500), frame)
}

fn compress(rule: Rule, spec: &Spec) -> Vec<u8> {
    let (verdict, wire) =
        egress(&mut Egress::<2>::new(rules(rule), Kernel::detect(), 1500, 1), &spec.bytes());
    assert!(matches!(verdict, Verdict::Changed { change: Change::Compressed, .. }), "{verdict:?}");
    wire
}

fn v6(spec: Spec) -> Spec {
    Spec { ip: IpSpec::V6 { extensions: vec![] }, ..spec }
}

/// TCP and UDP over both versions of IP, with payloads that end within a value.
fn specs() -> Vec<Spec> {
    let specs = [0, 1, 3].map(|ragged| {
        let payload = &le_bytes(&gradient(100))[ragged..];
        let udp = Spec::udp(payload);
        [Spec::tcp(1000, ACK, payload), udp.clone(), Spec { transport: UDP_WITHOUT, ..udp }]
    });
    specs.into_iter().flatten().flat_map(|spec| [spec.clone(), v6(spec)]).collect()
}

/// The frame with the mark, as a foreign host sends it.
fn marked(spec: &Spec, payload: &[u8]) -> Vec<u8> {
    Spec { tos: DEFAULT_MARK, payload: payload.to_vec(), ..spec.clone() }.bytes()
}

/// A card or a proxy on the way that computes checksums makes a compressed segment look like any
/// other to a host.
#[test]
fn a_compressed_segment_with_a_recomputed_checksum_is_dropped() {
    for spec in specs() {
        let mut wire = compress(RULE, &spec);
        assert_eq!(host_accepts(&wire), None);
        repair_checksums(&mut wire, 0);
        assert!(host_accepts(&wire).is_some(), "a host without gradwire takes it for data");
        for mtu in [1500, 100] {
            let mut engine = Ingress::new(rules(RULE), Kernel::detect(), mtu);
            assert_eq!(ingress(&mut engine, &wire).0, Verdict::Dropped(DropReason::Recomputed));
            assert_eq!(engine.counters().dropped(DropReason::Recomputed), 1);
        }
    }
}

/// A segment that differs from a compressed one in any respect is foreign, and passes.
#[test]
fn marked_segments_that_no_engine_made_pass() {
    let header = [1, 1, 0x28, 0, 0, 67, 0xa3, 0];
    // 16 zeros and 3 bytes of tail.
    let right = [&header[..], &[0, 0, 0, 0, 7, 7, 7]].concat();
    let with = |at: usize, byte: u8| {
        let mut payload = right.clone();
        payload[at] = byte;
        payload
    };
    let foreign = [
        vec![],
        right[..7].to_vec(),
        with(0, 2),
        with(1, 2),
        with(2, 0x2a),
        with(3, 64),
        with(5, 66),
        with(5, 68),
        with(5, 99),
        with(6, 0xf3),
        with(7, 0x80),
        with(8, 1),
        with(10, 3),
        [&right[..], &[0]].concat(),
        right[..14].to_vec(),
        vec![0xff; 1400],
    ];
    for spec in [Spec::tcp(1, ACK, &[]), Spec::udp(&[]), Spec { transport: UDP_WITHOUT, ..Spec::udp(&[]) }] {
        for spec in [spec.clone(), v6(spec)] {
            assert!(matches!(receive(RULE, &marked(&spec, &right)).0, Verdict::Dropped(_)));
            for payload in &foreign {
                let frame = marked(&spec, payload);
                let (verdict, host) = receive(RULE, &frame);
                assert_eq!(verdict, Verdict::Untouched(PassReason::ForeignMark), "{spec:?} {payload:02x?}");
                assert_eq!(host, frame);
            }
        }
    }
    for (flags, flag_byte) in [(0x02, 0), (0x04, 0), (0x20, 0), (ACK, 1)] {
        let transport = TransportSpec::Tcp { seq: 1, flags, options: vec![] };
        let mut payload = right.clone();
        payload[2] |= flag_byte;
        let frame = marked(&Spec { transport, ..Spec::tcp(1, ACK, &[]) }, &payload);
        assert_eq!(receive(RULE, &frame).0, Verdict::Untouched(PassReason::ForeignMark), "{flags:#x}");
    }
    let frame = marked(&Spec::tcp(1, ACK, &[]), &with(2, DEFAULT_MARK));
    assert_eq!(receive(RULE, &frame).0, Verdict::Untouched(PassReason::ForeignMark));
}

/// Tunnels copy the type of service of what they carry, and usually have no checksum of their own.
#[test]
fn foreign_datagrams_without_a_checksum_pass() {
    for port in [4789u16, 8472, 6081, 2152, 4791, 5400] {
        for payload in [le_bytes(&gradient(300)), vec![8, 0, 0, 0, 0, 1, 2, 0], vec![1; 40], vec![]] {
            let spec = Spec { transport: UDP_WITHOUT, ..Spec::udp(&[]) };
            for spec in [spec.clone(), v6(spec)] {
                let mut frame = marked(&spec, &payload);
                let port_at = spec.l4_checksum_at() - 4;
                frame[port_at..port_at + 2].copy_from_slice(&port.to_be_bytes());
                let (verdict, host) = receive(RULE, &frame);
                assert_eq!((verdict, host), (Verdict::Untouched(PassReason::ForeignMark), frame));
            }
        }
    }
    // An engine's own, whose checksum somebody has cleared: a host would take it.
    for spec in specs().into_iter().filter(|spec| matches!(spec.transport, TransportSpec::Udp { .. })) {
        let (mut wire, at) = (compress(RULE, &spec), spec.l4_checksum_at());
        wire[at..at + 2].fill(0);
        assert!(host_accepts(&wire).is_some());
        assert_eq!(receive(RULE, &wire).0, Verdict::Dropped(DropReason::NoChecksum));
    }
}

/// UDP options (RFC 9868) stand behind the datagram, within the IP packet.
#[test]
fn foreign_datagrams_with_options_pass() {
    for spec in [Spec::udp(&[5; 40]), v6(Spec::udp(&[5; 40]))] {
        let mut frame = marked(&spec, &[5; 40]);
        let len_at = spec.l4_checksum_at() - 2;
        for len in 8..48u16 {
            frame[len_at..len_at + 2].copy_from_slice(&len.to_be_bytes());
            let (verdict, host) = receive(RULE, &frame);
            assert_eq!((verdict, &host), (Verdict::Untouched(PassReason::UdpOptions), &frame));
            let sent = egress(&mut Egress::<2>::new(rules(RULE), Kernel::detect(), 1500, 1), &{
                let mut frame = Spec { payload: vec![5; 40], ..spec.clone() }.bytes();
                frame[len_at..len_at + 2].copy_from_slice(&len.to_be_bytes());
                frame
            });
            assert_eq!(sent.0, Verdict::Untouched(PassReason::UdpOptions));
        }
        // Shorter than its own header, or longer than the packet: no datagram.
        for len in [0u16, 7, 49, 0xffff] {
            frame[len_at..len_at + 2].copy_from_slice(&len.to_be_bytes());
            assert_eq!(receive(RULE, &frame).0, Verdict::Dropped(DropReason::Malformed));
        }
    }
    // A compressed datagram whose length field was changed is none of them.
    for spec in specs().into_iter().filter(|spec| matches!(spec.transport, TransportSpec::Udp { .. })) {
        let (wire, len_at) = (compress(RULE, &spec), spec.l4_checksum_at() - 2);
        for value in 0..=u16::MAX {
            let mut wire = wire.clone();
            if wire[len_at..len_at + 2] != value.to_be_bytes() {
                wire[len_at..len_at + 2].copy_from_slice(&value.to_be_bytes());
                assert_eq!(receive(RULE, &wire).0, Verdict::Dropped(DropReason::Malformed), "{value}");
            }
        }
    }
}

/// Mobile IPv6: with a home address option the checksum is over that address in place of the source
/// (RFC 6275 §6.3).
#[test]
fn foreign_packets_with_a_home_address_pass() {
    for spec in [Spec::tcp(1, ACK, &[9; 40]), Spec::udp(&[9; 40])] {
        // Behind padding of one byte each, of several, and of both.
        for padding in [[0, 0, 0, 0], [1, 2, 0, 0], [0, 1, 1, 0]] {
            let spec = Spec { ip: IpSpec::V6 { extensions: vec![(60, 2)] }, ..spec.clone() };
            let mut frame = marked(&spec, &spec.payload);
            let option = [&padding[..], &[0xc9, 16], &[0xfc; 16]].concat();
            frame[56..78].copy_from_slice(&option);
            let source = frame[22..38].to_vec();
            frame[22..38].fill(0xfc);
            repair_checksums(&mut frame, 0);
            frame[22..38].copy_from_slice(&source);
            let (verdict, host) = receive(RULE, &frame);
            assert_eq!((verdict, host), (Verdict::Untouched(PassReason::Protocol), frame));
        }
        // Other options change nothing.
        let spec = Spec { ip: IpSpec::V6 { extensions: vec![(60, 2)] }, ..spec };
        let mut frame = marked(&spec, &spec.payload);
        frame[56..78].copy_from_slice(&[&[1, 18][..], &[0xc9; 18], &[0xc9, 0]].concat()[..22]);
        frame[76..78].fill(0);
        repair_checksums(&mut frame, 0);
        assert_eq!(receive(RULE, &frame).0, Verdict::Untouched(PassReason::ForeignMark));
    }
}

/// A switch takes VLAN tags off a frame and puts others on; it pads what gets too short, and cuts
/// no padding off.
fn through_a_switch(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let mut rest = &frame[12..];
    while matches!(rest, [0x81, 0, ..] | [0x88, 0xa8, ..]) {
        rest = &rest[4..];
    }
    let tags = tags.iter().flat_map(|(ethertype, tci)| [ethertype.to_be_bytes(), tci.to_be_bytes()]);
    let mut out = [&frame[..12], &tags.flatten().collect::<Vec<_>>(), rest].concat();
    out.resize(out.len().max(60), 0);
    out
}

/// In-place framing tells compressed frames by their length, which a switch that changes VLAN tags
/// changes too.
#[test]
fn in_place_frames_survive_a_change_of_vlan_tags() {
    let tags = [(0x88a8, 7), (0x8100, 5)];
    let mut compressed = 0;
    for (values, ragged) in (2..16).flat_map(|values| (0..4).map(move |ragged| (values, ragged))) {
        let payload = [le_bytes(&vec![0.0; values]), vec![7; ragged]].concat();
        let transport = TransportSpec::Tcp { seq: 1000, flags: ACK, options: vec![] };
        let udp = Spec::udp(&payload);
        let without = Spec { transport: UDP_WITHOUT, ..udp.clone() };
        for spec in [Spec { transport, ..udp.clone() }, udp, without] {
            for (before, after) in (0..3).flat_map(|before| (0..3).map(move |after| (before, after))) {
                let rule = Rule { framing: Framing::InPlace, ..RULE };
                let spec = Spec { vlans: tags[..before].to_vec(), ..spec.clone() };
                let mut engine = Egress::<2>::new(rules(rule), Kernel::detect(), 1500, 1);
                let (verdict, mut wire) = egress(&mut engine, &spec.bytes());
                wire.resize(wire.len().max(60), 0);
                let wire = through_a_switch(&wire, &tags[..after]);
                let (received, host) = receive(rule, &wire);
                let what = format!("{} bytes, {before} tags, then {after}: {received:?}", payload.len());
                let same = Spec { vlans: tags[..after].to_vec(), ..spec }.bytes();
                if matches!(verdict, Verdict::Changed { .. }) {
                    compressed += 1;
                    assert_eq!(
                        received,
                        Verdict::Changed { change: Change::Restored, len: same.len() },
                        "{what}"
                    );
                    assert_eq!(host, same, "{what}");
                } else {
                    assert_eq!(received, Verdict::Untouched(PassReason::NotCompressed), "{what}");
                    assert_eq!(host[..same.len()], same, "{what}");
                }
            }
        }
    }
    assert!(compressed > 300, "{compressed}");
}
