//! A hostile wire, and hostile hosts: what may be made of every prefix, flipped bit, lying length,
//! bomb and flood.

use gradwire::codec::Params;
use gradwire::codec::bit_plane::Bound;
use gradwire::engine::{Egress, Ingress, Millis, NO_CAPABILITIES};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire::rules::{Alignment, Framing, Heuristic, Rule};
use gradwire::verdict::{Change, DropReason, PassReason, Verdict};

use crate::common::engines::{NOW, egress, ingress, rules};
use crate::common::golden::golden_frames;
use crate::common::{ACK, IpSpec, Spec, TransportSpec, gradient, host_accepts, le_bytes, repair_checksums};

const ORIGIN: u32 = 1000;
/// The default, and UDP too.
const RULE: Rule = Rule::STATIC;

fn rule_of(name: &str) -> Rule {
    let framing = if name.contains("routed") { Framing::Routed } else { Framing::InPlace };
    // Whether the alignment is known is not what is tested here.
    Rule { framing, alignment: Alignment::Payload, ..RULE }
}

/// Whatever arrives, a host that accepts it gets the payload that was right.
fn assert_harmless(engine: &mut Ingress, wire: &[u8], right: &[u8], what: &str) {
    let (verdict, host) = ingress(engine, wire);
    if let Verdict::Changed { change: Change::Restored, .. } = verdict {
        assert_eq!(host_accepts(&host).as_deref(), Some(right), "{what}");
    } else if let Some(accepted) = host_accepts(&host) {
        panic!("{what}: a host accepts {} bytes after {verdict:?}", accepted.len());
    }
}

#[test]
fn every_prefix_of_every_golden_frame() {
    for (name, [host, wire, restored]) in golden_frames() {
        let rule = rule_of(&name);
        for len in 0..host.len() {
            let mut engine = Egress::<1>::new(rules(rule), Kernel::detect(), 1500, 0);
            let mut out = vec![0xaa; len];
            let verdict = engine.process(&host[..len], &mut out, NOW, &NO_CAPABILITIES);
            // Under in-place framing it looks compressed, and loses its type of service.
            let remarked = matches!(verdict, Verdict::Changed { change: Change::Remarked, .. });
            assert!(matches!(verdict, Verdict::Untouched(_)) || remarked, "{name} {len}: {verdict:?}");
        }
        let right = host_accepts(&restored).unwrap();
        let mut engine = Ingress::new(rules(rule), Kernel::detect(), 1500);
        for len in 0..wire.len() {
            assert_harmless(&mut engine, &wire[..len], &right, &format!("{name} cut to {len}"));
        }
    }
}

/// Every bit of the IP packet; those of the Ethernet header are the FCS's, and IPv6 has no checksum
/// over addresses' way.
#[test]
fn every_flipped_bit_of_a_routed_frame() {
    for (name, [_, wire, restored]) in golden_frames() {
        if !name.contains("routed") {
            continue;
        }
        let right = host_accepts(&restored).unwrap();
        let mut engine = Ingress::new(rules(rule_of(&name)), Kernel::detect(), 1500);
        let ip_at = if name.contains("vlan") { 18 } else { 14 };
        for bit in 8 * ip_at..8 * wire.len() {
            let mut flipped = wire.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_harmless(&mut engine, &flipped, &right, &format!("{name} bit {bit}"));
        }
    }
}

/// Every value of every length field, with the checksums made right again: egress and ingress.
#[test]
fn length_fields_that_lie() {
    let payload = le_bytes(&gradient(40));
    let v6 = IpSpec::V6 { extensions: vec![(60, 0)] };
    let specs = [
        (Spec::tcp(ORIGIN, ACK, &payload), vec![(14, 1), (16, 2), (46, 1)]),
        (Spec::udp(&payload), vec![(14, 1), (16, 2), (38, 2)]),
        (Spec { ip: v6.clone(), ..Spec::udp(&payload) }, vec![(18, 2), (55, 1), (66, 2)]),
        (Spec { ip: v6, ..Spec::tcp(ORIGIN, ACK, &payload) }, vec![(18, 2), (55, 1), (74, 1)]),
    ];
    for framing in [Framing::InPlace, Framing::Routed] {
        let rule = Rule { framing, alignment: Alignment::Payload, ..RULE };
        let plus = if framing == Framing::Routed { 0x6777 } else { 0 }; // FORMAT.md section 5.3
        for (spec, fields) in &specs {
            let host = spec.bytes();
            let (_, wire) = egress(&mut Egress::<2>::new(rules(rule), Kernel::detect(), 1500, 0), &host);
            assert!(wire.len() < host.len());
            let mut receiver = Ingress::new(rules(rule), Kernel::detect(), 1500);
            for (at, len) in fields {
                for value in 0..1u32 << (8 * len) {
                    let bytes = &value.to_be_bytes()[4 - len..];
                    let mut lying = host.clone();
                    lying[*at..at + len].copy_from_slice(bytes);
                    repair_checksums(&mut lying, 0);
                    let mut sender = Egress::<2>::new(rules(rule), Kernel::detect(), 1500, 0);
                    let (verdict, sent) = egress(&mut sender, &lying);
                    // What is compressed comes back whole, so its lengths were consistent.
                    if let Verdict::Changed { change: Change::Compressed, .. } = verdict {
                        let (_, back) = ingress(&mut receiver, &sent);
                        assert_eq!(back.len(), lying.len(), "byte {at}: {value:#x}");
                        assert_eq!(
                            host_accepts(&lying).map(|p| p.len()),
                            host_accepts(&back).map(|p| p.len())
                        );
                    }
                    let mut lying = wire.clone();
                    lying[*at..at + len].copy_from_slice(bytes);
                    repair_checksums(&mut lying, plus);
                    let (verdict, back) = ingress(&mut receiver, &lying);
                    if let Verdict::Changed { .. } = verdict {
                        assert!(back.len() <= 1514, "byte {at}: {value:#x}");
                        assert!(host_accepts(&back).is_some(), "byte {at}: {value:#x}");
                    }
                }
            }
        }
    }
}

/// As many options and extension headers as fit, of every kind, and ever the same.
#[test]
fn bombs_of_options_and_extension_headers() {
    let payload = le_bytes(&gradient(40));
    for kind in 0..=255u8 {
        for filler in [vec![kind; 40], [kind, 0].repeat(20), [kind, 1].repeat(20), [kind, 2].repeat(20)] {
            let transport = TransportSpec::Tcp { seq: ORIGIN, flags: ACK, options: filler };
            let spec = Spec { transport, payload: payload.clone(), ..Spec::tcp(0, 0, &[]) };
            let mut sender = Egress::<2>::new(rules(RULE), Kernel::detect(), 1500, 0);
            let _ = egress(&mut sender, &spec.syn(ORIGIN).bytes());
            let (verdict, sent) = egress(&mut sender, &spec.bytes());
            if let Verdict::Changed { .. } = verdict {
                let mut receiver = Ingress::new(rules(RULE), Kernel::detect(), 1500);
                let (_, back) = ingress(&mut receiver, &sent);
                assert_eq!(host_accepts(&back).unwrap().len(), payload.len(), "option {kind}");
            }
        }
        // 180 headers of 8 bytes, or as many bytes as the longest can have.
        for (count, units) in [(180, 0), (5, 31), (1, 170)] {
            let extensions = vec![(kind, units); count];
            let spec = Spec { ip: IpSpec::V6 { extensions }, ..Spec::udp(&payload) };
            let (verdict, _) =
                egress(&mut Egress::<2>::new(rules(RULE), Kernel::detect(), 1500, 0), &spec.bytes());
            let stepped_over = count == 1 && [0, 43, 60].contains(&kind);
            assert_eq!(
                matches!(verdict, Verdict::Changed { .. }),
                stepped_over,
                "{kind} {count} {verdict:?}"
            );
        }
    }
}

/// Tagged SYNs from everywhere take no place that a live flow has, and cost no memory.
#[test]
fn a_flood_of_syns() {
    let live: Vec<Spec> = (0..8).map(|port| from_port(port, ORIGIN)).collect();
    let mut engine = Egress::<2>::new(rules(RULE), Kernel::detect(), 1500, 3);
    let mut held = Vec::new();
    for spec in &live {
        let _ = egress(&mut engine, &bytes_from(spec, &spec.syn(ORIGIN)));
        if let (Verdict::Changed { .. }, _) = egress(&mut engine, &bytes_from(spec, spec)) {
            held.push(spec);
        }
    }
    assert!(held.len() >= 4, "{} of 8 flows fit into two sets", held.len());
    for port in 100..20_100u32 {
        let spec = from_port(port, ORIGIN);
        let _ = egress(&mut engine, &bytes_from(&spec, &spec.syn(port)));
    }
    assert!(engine.flows().iter().count() <= 16);
    for spec in held {
        let next = Spec {
            transport: TransportSpec::Tcp { seq: ORIGIN + 400, flags: ACK, options: vec![] },
            ..spec.clone()
        };
        let (verdict, _) = egress(&mut engine, &bytes_from(spec, &next));
        assert!(matches!(verdict, Verdict::Changed { .. }), "{verdict:?}");
    }
}

/// The number stands in the VLAN tags, so that one `Spec` is many flows.
fn from_port(number: u32, seq: u32) -> Spec {
    let vlans = vec![(0x88a8, (number >> 12) as u16), (0x8100, (number & 0xfff) as u16)];
    Spec { vlans, ..Spec::tcp(seq, ACK, &le_bytes(&gradient(100))) }
}

fn bytes_from(flow: &Spec, frame: &Spec) -> Vec<u8> {
    Spec { vlans: flow.vlans.clone(), ..frame.clone() }.bytes()
}

/// Two segments of one stream, every way to cut them over 12 bytes: no byte is compressed after it
/// was sent, and both ways to put them together are within the bound.
#[test]
fn segments_that_overlap_in_every_way() {
    // A third of the values each: zero, byte and half class.
    let stream = le_bytes(&[0.0004, 0.01, 0.3].repeat(40));
    let segment = |from: usize, to: usize| {
        let transport = TransportSpec::Tcp { seq: ORIGIN + from as u32, flags: ACK, options: vec![] };
        Spec { transport, payload: stream[from..to].to_vec(), ..Spec::tcp(0, 0, &[]) }.bytes()
    };
    const NEAR: usize = 12;
    let far = stream.len();
    for start in 0..NEAR {
        for end in [far - NEAR, far - 5, far] {
            for again_start in 0..NEAR {
                for again_end in [far - NEAR, far - 5, far] {
                    // Some lack the stream's start.
                    let rule = Rule { heuristic: Heuristic::Off, ..RULE };
                    let mut sender = Egress::<2>::new(rules(rule), Kernel::detect(), 1500, 0);
                    let mut receiver = Ingress::new(rules(RULE), Kernel::detect(), 1500);
                    let syn = Spec::tcp(0, 0, &[]).syn(ORIGIN);
                    let _ = egress(&mut sender, &syn.bytes());
                    let mut deliver = |from: usize, to: usize| {
                        let (verdict, wire) = egress(&mut sender, &segment(from, to));
                        let (_, host) = ingress(&mut receiver, &wire);
                        (matches!(verdict, Verdict::Changed { .. }), host_accepts(&host).unwrap())
                    };
                    let (compressed, first) = deliver(start, end);
                    assert!(compressed);
                    let (compressed, second) = deliver(again_start, again_end);
                    assert!(!compressed, "{start}..{end}, then {again_start}..{again_end}");
                    for second_wins in [false, true] {
                        let mut got = stream.clone();
                        let mut put =
                            |at: usize, bytes: &[u8]| got[at..at + bytes.len()].copy_from_slice(bytes);
                        if second_wins {
                            put(start, &first);
                            put(again_start, &second);
                        } else {
                            put(again_start, &second);
                            put(start, &first);
                        }
                        for (sent, got) in stream.chunks_exact(4).zip(got.chunks_exact(4)) {
                            let value =
                                |bytes: &[u8]| f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
                            assert!((value(sent) - value(got)).abs() < 1.0 / 1024.0);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn sequence_numbers_that_wrap() {
    let payload = le_bytes(&gradient(100));
    for before in (0..=404).step_by(3) {
        let origin = 0u32.wrapping_sub(before);
        let mut sender = Egress::<2>::new(rules(RULE), Kernel::detect(), 1500, 0);
        let _ = egress(&mut sender, &Spec::tcp(0, 0, &[]).syn(origin).bytes());
        for segment in 0..3u32 {
            let spec = Spec::tcp(origin.wrapping_add(400 * segment), ACK, &payload);
            let (verdict, _) = egress(&mut sender, &spec.bytes());
            assert!(matches!(verdict, Verdict::Changed { .. }), "{before} {segment} {verdict:?}");
            let (verdict, _) = egress(&mut sender, &spec.bytes());
            assert_eq!(verdict, Verdict::Untouched(PassReason::Resent));
        }
    }
}

/// Groups of codec 1 expand 16 times at most, two bytes to eight zeros; a section of codec 2
/// expands from one byte to 512 zeros. With either, a frame never becomes longer than its header
/// claims, nor than the receiver's MTU.
#[test]
fn expansion_stops_at_what_the_frame_claimed() {
    let rules_of = |framing| profiles().map(|profile| Rule { profile, framing, ..RULE });
    for (claimed, rule) in [64usize, 1000, 1460, 9000]
        .iter()
        .flat_map(|claimed| Framing::ALL.into_iter().flat_map(rules_of).map(move |rule| (*claimed, rule)))
    {
        let host = Spec::udp(&vec![0; claimed]).bytes();
        let (_, wire) = egress(&mut Egress::<2>::new(rules(rule), Kernel::detect(), 1500, 0), &host);
        assert!(wire.len() < host.len());
        let mut receiver = Ingress::new(rules(rule), Kernel::detect(), 9216);
        // More groups than it claims: left over, so refused.
        for more in [2, 34, 200] {
            let mut longer = [&wire[..], &vec![0; more]].concat();
            if rule.framing == Framing::Routed {
                for at in [16, 38] {
                    let len = u16::from_be_bytes([longer[at], longer[at + 1]]) + more as u16;
                    longer[at..at + 2].copy_from_slice(&len.to_be_bytes());
                }
                repair_checksums(&mut longer, 0x6777);
            }
            let (verdict, _) = ingress(&mut receiver, &longer);
            // In-place: a frame as long as it claims is an ordinary one, and one of the minimum may
            // be padded.
            let ordinary = longer.len() >= host.len() || longer.len() == 60;
            if rule.framing == Framing::Routed || !ordinary {
                assert!(matches!(verdict, Verdict::Dropped(_)), "{claimed} {rule:?} {verdict:?}");
            }
        }
        let (_, back) = ingress(&mut receiver, &wire);
        assert_eq!(back.len(), host.len());
        let mtu = (host.len() - 14) as u16;
        for (mtu, fits) in [(mtu, true), (mtu - 1, false)] {
            let (verdict, _) = ingress(&mut Ingress::new(rules(rule), Kernel::detect(), mtu), &wire);
            assert_eq!(
                verdict == Verdict::Dropped(DropReason::TooLong),
                !fits,
                "{claimed} {rule:?} {verdict:?}"
            );
        }
    }
}

/// The longest frame that SECURITY.md allows a frame to become.
#[test]
fn a_short_frame_can_become_one_of_the_mtu() {
    for (profile, len) in profiles().into_iter().zip([62 + 2 * 46, 63]) {
        let rule = Rule { profile, ..RULE };
        let transport = TransportSpec::Tcp { seq: ORIGIN, flags: ACK, options: vec![] };
        let host = Spec { transport, ..Spec::tcp(0, 0, &[0; 1460]) };
        let mut sender = Egress::<2>::new(rules(rule), Kernel::detect(), 1500, 0);
        let _ = egress(&mut sender, &host.syn(ORIGIN).bytes());
        let (_, wire) = egress(&mut sender, &host.bytes());
        let (_, back) = ingress(&mut Ingress::new(rules(rule), Kernel::detect(), 1500), &wire);
        assert_eq!((wire.len(), back.len()), (len, 1514));
    }
}

/// One of each codec.
fn profiles() -> [Profile; 2] {
    [Params::DEFAULT.into(), Bound::new(-10).unwrap().into()]
}

/// A clock that stands still, jumps to its end and back: resends stay untouched, new bytes are
/// compressed or bypassed.
#[test]
fn time_that_jumps_or_stands_still() {
    let payload = le_bytes(&gradient(100));
    for times in [[0, 0, 0, 0], [0, u64::MAX, 0, u64::MAX], [u64::MAX, 0, 1, 2], [5, 5, u64::MAX, 5]] {
        let mut sender = Egress::<2>::new(rules(RULE), Kernel::detect(), 1500, 0);
        let mut out = vec![0; 2000];
        let _ = sender.process(
            &Spec::tcp(0, 0, &[]).syn(ORIGIN).bytes(),
            &mut out,
            Millis(times[3]),
            &NO_CAPABILITIES,
        );
        let mut compressed = 0;
        for segment in 0..400u32 {
            let now = Millis(times[segment as usize % 4]);
            let frame = Spec::tcp(ORIGIN + 400 * segment, ACK, &payload).bytes();
            match sender.process(&frame, &mut out, now, &NO_CAPABILITIES) {
                Verdict::Changed { change: Change::Compressed, .. } => compressed += 1,
                Verdict::Untouched(PassReason::Bypassed) => {}
                other => panic!("{other:?}"),
            }
            let again = sender.process(&frame, &mut out, now, &NO_CAPABILITIES);
            assert_eq!(again, Verdict::Untouched(PassReason::Resent));
        }
        assert!(compressed > 0);
    }
}
