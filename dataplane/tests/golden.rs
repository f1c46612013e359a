//! The golden files and the examples of FORMAT.md, which a second implementation wrote.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use gradwire::codec::bit_plane::Bound;
use gradwire::codec::{Params, decode_payload, encode_payload, max_encoded_len};
use gradwire::engine::{CapabilityTable, Egress, Ingress, Millis, NO_CAPABILITIES};
use gradwire::flow::capabilities::Slot;
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire::rules::{DEFAULT_MARK, Framing, Heuristic, Rule, Rules};
use gradwire::verdict::Verdict;

use crate::common::golden::{golden, golden_frames};
use crate::common::host_accepts;

const ISN: u32 = 999;
const NOW: Millis = Millis(0);

/// Both directions of one payload, and every truncation of its groups.
fn check_payload(values: &[u8], groups: &[u8], decoded: &[u8], params: Params) {
    let mut out = vec![0xaa; max_encoded_len(values.len())];
    let len = encode_payload(values, &mut out, params).unwrap();
    assert_eq!(&out[..len], groups);
    // Exactly enough room does, one byte less does not.
    assert_eq!(encode_payload(values, &mut out[..len], params), Ok(len));
    assert!(encode_payload(values, &mut out[..len - 1], params).is_err());
    let mut out = vec![0x55; values.len()];
    assert_eq!(decode_payload(groups, &mut out, params), Ok(groups.len()));
    assert_eq!(out, decoded);
    for len in 0..groups.len() {
        assert!(decode_payload(&groups[..len], &mut out, params).is_err(), "{len}");
    }
}

/// Both directions of one payload under codec 2, and every truncation of its sections, for the
/// definition and all kernels.
fn check_sections(values: &[u8], sections: &[u8], decoded: &[u8], profile: Profile) {
    let mut out = vec![0xaa; profile.max_encoded_len(values.len())];
    assert_eq!(profile.encode_payload(values, &mut out), Ok(sections.len()));
    assert_eq!(&out[..sections.len()], sections);
    let mut out = vec![0x55; values.len()];
    assert_eq!(profile.decode_payload(sections, &mut out), Ok(sections.len()));
    assert_eq!(out, decoded);
    for kernel in Kernel::available() {
        let mut out = vec![0xaa; profile.max_encoded_len(values.len())];
        assert_eq!(kernel.encode(values, &mut out, profile), Ok(sections.len()), "{}", kernel.name());
        assert_eq!(&out[..sections.len()], sections, "{}", kernel.name());
        let mut out = vec![0x55; values.len()];
        assert_eq!(kernel.decode(sections, &mut out, profile), Ok(sections.len()), "{}", kernel.name());
        assert_eq!(out, decoded, "{}", kernel.name());
        for len in 0..sections.len() {
            assert!(kernel.decode(&sections[..len], &mut out, profile).is_err(), "{} {len}", kernel.name());
        }
    }
}

#[test]
fn bursts() {
    let files = golden("v1_burst_");
    assert_eq!(files.len(), 7);
    for (name, bytes) in files {
        let [b, k, x, _, count @ ..] = *bytes.first_chunk::<8>().unwrap();
        let params = Params::from_exponents(b, k, x as i8).unwrap();
        let values_len = 4 * u32::from_le_bytes(count) as usize;
        let (values, rest) = bytes[8..].split_at(values_len);
        let (groups, decoded) = rest.split_at(rest.len() - values_len);
        println!("{name}");
        check_payload(values, groups, decoded, params);
    }
}

/// The host's frame to the wire's and on to the restored one; every truncation of the wire's is
/// refused.
fn check_frames(name: &str, frames: &[Vec<u8>; 3], rule: Rule) {
    let [host, wire, restored] = frames;
    let rules = Rules::new(&[Rule { heuristic: Heuristic::Off, ..rule }], DEFAULT_MARK).unwrap();
    let mut egress = Egress::<1>::new(rules.clone(), Kernel::detect(), 1500, 0);
    let mut out = vec![0xaa; host.len()];
    let _ = egress.process(&syn(host), &mut out, NOW, &NO_CAPABILITIES);
    let verdict = egress.process(host, &mut out, NOW, &NO_CAPABILITIES);
    let Verdict::Changed { len, .. } = verdict else { panic!("{name}: {verdict:?}") };
    assert_eq!(&out[..len], wire, "{name}");
    let mut ingress = Ingress::new(rules, Kernel::detect(), 1500);
    let mut out = vec![0x55; 1514 + 8];
    let verdict = ingress.process(wire, &mut out, &NO_CAPABILITIES);
    let Verdict::Changed { len, .. } = verdict else { panic!("{name}: {verdict:?}") };
    assert_eq!(&out[..len], restored, "{name}");
    assert!(host_accepts(restored).is_some());
    for len in 0..wire.len() {
        let verdict = ingress.process(&wire[..len], &mut out, &NO_CAPABILITIES);
        assert!(!matches!(verdict, Verdict::Changed { .. }), "{name} cut to {len}: {verdict:?}");
    }
}

/// A SYN that tells the far end what a host with in-place framing restores, and that the far host
/// gets as it was sent.
fn check_syn(host: &[u8], wire: &[u8], restored: &[u8], profile: Profile) {
    let rule = Rule { framing: Framing::InPlace, profile, ..Rule::DEFAULT };
    let rules = Rules::new(&[rule], DEFAULT_MARK).unwrap();
    let (capabilities, mut out) = (CapabilityTable::<[Slot; 1]>::new(0), [0xaa; 2048]);
    let mut egress = Egress::<1>::new(rules.clone(), Kernel::detect(), 1500, 0);
    let Verdict::Changed { len, .. } = egress.process(host, &mut out, NOW, &capabilities) else {
        panic!("no option added")
    };
    assert_eq!(&out[..len], wire);
    let mut ingress = Ingress::new(rules, Kernel::detect(), 1500);
    let Verdict::Changed { len, .. } = ingress.process(wire, &mut out, &capabilities) else {
        panic!("no option stripped")
    };
    assert_eq!((&out[..len], restored), (restored, host));
}

/// The SYN of the flow that a TCP frame belongs to: the frame's headers, with the golden ISN.
fn syn(host: &[u8]) -> Vec<u8> {
    let packet = etherparse::PacketHeaders::from_ethernet_slice(host).unwrap();
    let Some(etherparse::TransportHeader::Tcp(mut tcp)) = packet.transport else { return vec![] };
    (tcp.sequence_number, tcp.syn) = (ISN, true);
    let mut frame = host[..14 + 4 * packet.link_exts.len()].to_vec();
    match packet.net.unwrap() {
        etherparse::NetHeaders::Ipv4(mut ip, _) => {
            ip.set_payload_len(tcp.header_len()).unwrap();
            ip.header_checksum = ip.calc_header_checksum();
            tcp.checksum = tcp.calc_checksum_ipv4(&ip, &[]).unwrap();
            ip.write(&mut frame).unwrap();
        }
        etherparse::NetHeaders::Ipv6(mut ip, _) => {
            ip.payload_length = tcp.header_len_u16();
            tcp.checksum = tcp.calc_checksum_ipv6(&ip, &[]).unwrap();
            ip.write(&mut frame).unwrap();
        }
        other => panic!("{other:?}"),
    }
    tcp.write(&mut frame).unwrap();
    frame
}

#[test]
fn frames() {
    for (name, frames) in golden_frames() {
        let framing = if name.contains("routed") { Framing::Routed } else { Framing::InPlace };
        check_frames(&name, &frames, Rule { framing, ..Rule::STATIC });
    }
}

/// A block of `golden/v1_examples.txt` or of FORMAT.md section 8.
struct Example {
    name: String,
    profile: Profile,
    /// Bytes by their labels.
    fields: BTreeMap<String, Vec<u8>>,
}

/// The blocks of a file, by its path from the dataplane's folder.
fn blocks(path: &str) -> Vec<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    text.split("```example ").skip(1).map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// The output of the second implementation, and the SYN of FORMAT.md, which it does not write. The
/// other blocks there are of these.
fn examples() -> Vec<Example> {
    let mut blocks_of_both = blocks("tests/golden/v1_examples.txt");
    let (syns, others): (Vec<_>, Vec<_>) =
        blocks("../FORMAT.md").into_iter().partition(|block| block.starts_with("syn\n"));
    assert!(others.len() >= 5 && others.iter().all(|block| blocks_of_both.contains(block)), "{others:?}");
    blocks_of_both.extend(syns);
    let parse = |block: &str| {
        let mut lines = block.lines();
        let name = lines.next().unwrap().to_owned();
        let parameters: Vec<(&str, i8)> = lines
            .next()
            .unwrap()
            .split(' ')
            .map(|word| word.split_once('=').unwrap())
            .map(|(name, number)| (name, number.parse().unwrap()))
            .collect();
        let profile = match parameters[..] {
            [("b", b), ("k", k), ("x", x)] => {
                Params::from_exponents(b.cast_unsigned(), k.cast_unsigned(), x).unwrap().into()
            }
            [("y", y)] => Bound::new(y).unwrap().into(),
            ref other => panic!("{other:?}"),
        };
        let (mut fields, mut label) = (BTreeMap::<String, Vec<u8>>::new(), String::new());
        for line in lines {
            let (first, hex) = line.split_at_checked(9).unwrap_or((line, ""));
            if !first.trim().is_empty() {
                label = first.trim().to_owned();
            }
            let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
            let bytes = digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8);
            fields.entry(label.clone()).or_default().extend(bytes);
        }
        Example { name, profile, fields }
    };
    blocks_of_both.iter().map(|block| parse(block)).collect()
}

#[test]
fn examples_of_the_format_document() {
    let mut seen = Vec::new();
    for Example { name, profile, fields } in examples() {
        if let Some(reason) = name.strip_prefix("dropped ") {
            let rules = Rules::new(&[Rule { profile, ..Rule::DEFAULT }], DEFAULT_MARK).unwrap();
            let verdict = Ingress::new(rules, Kernel::detect(), 1500).process(
                &fields["wire"],
                &mut [0; 1522],
                &NO_CAPABILITIES,
            );
            let Verdict::Dropped(dropped) = verdict else { panic!("{name}: {verdict:?}") };
            assert_eq!(dropped.name(), reason);
        } else if name == "syn" {
            check_syn(&fields["host"], &fields["wire"], &fields["restored"], profile);
        } else if fields.contains_key("values") {
            let [values, coded, decoded] = ["values", "coded", "decoded"].map(|label| &fields[label][..]);
            match profile {
                Profile::SizeClass(params) => check_payload(values, coded, decoded, params),
                Profile::BitPlane(_) => check_sections(values, coded, decoded, profile),
            }
        } else {
            let frames = ["host", "wire", "restored"].map(|label| fields[label].clone());
            let rule = match name.split(' ').next().unwrap() {
                "routed" => Rule::STATIC,
                "in-place" => Rule { framing: Framing::InPlace, ..Rule::STATIC },
                "inceptionn" => {
                    assert_eq!(profile, Rule::INCEPTIONN.profile);
                    Rule::INCEPTIONN
                }
                other => panic!("{other}"),
            };
            check_frames(&name, &frames, Rule { profile, ..rule });
        }
        seen.push(name);
    }
    let expected = [
        "burst",
        "burst short",
        "section",
        "section raw",
        "routed",
        "routed codec 2",
        "routed udp",
        "in-place",
        "inceptionn",
        "dropped recomputed",
        "dropped l4-checksum",
        "dropped segment-header",
        "dropped groups",
        "dropped excess",
        "syn",
    ];
    assert_eq!(seen, expected);
}
