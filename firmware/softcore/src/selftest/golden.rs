//! The golden files of the dataplane, byte for byte.

use gradwire::codec::{Params, max_encoded_len};
use gradwire::engine::{Egress, Ingress, Millis, NO_CAPABILITIES};
use gradwire::kernels::Kernel;
use gradwire::rules::{DEFAULT_MARK, Framing, Heuristic, Rule, Rules};
use gradwire::verdict::Verdict;

use crate::say;

macro_rules! golden {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_bytes!(concat!("../../../../dataplane/tests/golden/v1_", $name, ".bin")))),+]
    };
}

const BURSTS: &[(&str, &[u8])] = golden![
    "burst_between_b12",
    "burst_dense_b10",
    "burst_dense_b10_down",
    "burst_dense_b10_up",
    "burst_dense_b6",
    "burst_paper_b10",
    "burst_paper_b14",
];

const FRAMES: &[(&str, &[u8])] = golden![
    "frame_in_place_tcp4",
    "frame_in_place_udp6",
    "frame_routed_tcp4",
    "frame_routed_tcp4_ecn",
    "frame_routed_tcp4_misaligned",
    "frame_routed_tcp6_vlan",
    "frame_routed_udp4",
    "frame_routed_udp4_no_checksum",
];

/// The initial sequence number of the connections of golden frames.
const ISN: u32 = 999;
const ROOM: usize = 1 << 16;

/// Values to groups and groups to values, with every kernel.
pub(crate) fn bursts() {
    let (mut groups_out, mut values_out) = ([0; ROOM], [0; ROOM]);
    for (name, bytes) in BURSTS {
        let [b, k, x, _, count @ ..] = *bytes.first_chunk::<8>().unwrap();
        let params = Params::from_exponents(b, k, x as i8).unwrap();
        let values_len = 4 * u32::from_le_bytes(count) as usize;
        let (values, rest) = bytes[8..].split_at(values_len);
        let (groups, decoded) = rest.split_at(rest.len() - values_len);
        for kernel in Kernel::available() {
            let room = &mut groups_out[..max_encoded_len(values_len)];
            assert_eq!(kernel.encode(values, room, params), Ok(groups.len()), "{name}");
            assert!(room[..groups.len()] == *groups, "{name}: groups of {}", kernel.name());
            let room = &mut values_out[..values_len];
            assert_eq!(kernel.decode(groups, room, params), Ok(groups.len()), "{name}");
            assert!(room == decoded, "{name}: values of {}", kernel.name());
            say(format_args!("golden {name} {}", kernel.name()));
        }
    }
}

/// The host's frame to the wire's, and on to the restored one.
pub(crate) fn frames() {
    for (name, bytes) in FRAMES {
        let mut rest = *bytes;
        let [host, wire, restored] = [(); 3].map(|()| {
            let (len, after) = rest.split_first_chunk::<2>().unwrap();
            let (frame, after) = after.split_at(u16::from_be_bytes(*len).into());
            rest = after;
            frame
        });
        assert!(rest.is_empty());
        let framing = if name.contains("routed") { Framing::Routed } else { Framing::InPlace };
        let rules =
            Rules::new(&[Rule { framing, heuristic: Heuristic::Off, ..Rule::STATIC }], DEFAULT_MARK).unwrap();
        let mut egress = Egress::<1>::new(rules.clone(), Kernel::detect(), 1500, 0);
        let mut out = [0xaa; 2048];
        if name.contains("tcp") {
            let mut syn = [0; 2048];
            let len = syn_of(host, &mut syn);
            let _ = egress.process(&syn[..len], &mut out, Millis(0), &NO_CAPABILITIES);
        }
        let Verdict::Changed { len, .. } = egress.process(host, &mut out, Millis(0), &NO_CAPABILITIES) else {
            panic!("{name}")
        };
        assert!(out[..len] == *wire, "{name}: on the wire");
        let mut ingress = Ingress::new(rules, Kernel::detect(), 1500);
        let Verdict::Changed { len, .. } = ingress.process(wire, &mut out, &NO_CAPABILITIES) else {
            panic!("{name}")
        };
        assert!(out[..len] == *restored, "{name}: restored");
        say(format_args!("golden {name}"));
    }
}

/// The SYN of a frame's connection: its headers, without payload.
fn syn_of(host: &[u8], syn: &mut [u8]) -> usize {
    let ip =
        14 + 4 * host[12..].chunks(4).take_while(|tag| matches!(tag[..2], [0x81, 0] | [0x88, 0xa8])).count();
    let tcp = ip + if host[ip] >> 4 == 6 { 40 } else { 4 * usize::from(host[ip] & 0xf) };
    let header_len = 4 * usize::from(host[tcp + 12] >> 4);
    let len = tcp + header_len;
    syn[..len].copy_from_slice(&host[..len]);
    syn[tcp + 4..tcp + 8].copy_from_slice(&ISN.to_be_bytes());
    syn[tcp + 13] = 2;
    set_lengths_and_checksums(&mut syn[..len], ip, tcp);
    len
}

/// Of an IP packet that starts at `ip` and fills its frame, with its TCP header at `tcp`.
pub(crate) fn set_lengths_and_checksums(frame: &mut [u8], ip: usize, tcp: usize) {
    let l4_len = (frame.len() - tcp) as u16;
    let addresses = if frame[ip] >> 4 == 4 {
        let len = (frame.len() - ip) as u16;
        frame[ip + 2..ip + 4].copy_from_slice(&len.to_be_bytes());
        frame[ip + 10..ip + 12].fill(0);
        let field = !sum(&frame[ip..tcp], 0);
        frame[ip + 10..ip + 12].copy_from_slice(&field.to_be_bytes());
        ip + 12..ip + 20
    } else {
        frame[ip + 4..ip + 6].copy_from_slice(&l4_len.to_be_bytes());
        ip + 8..ip + 40
    };
    frame[tcp + 16..tcp + 18].fill(0);
    let pseudo = u32::from(sum(&frame[addresses], 0)) + 6 + u32::from(l4_len);
    let field = !sum(&frame[tcp..], pseudo);
    frame[tcp + 16..tcp + 18].copy_from_slice(&field.to_be_bytes());
}

/// RFC 1071, word by word.
pub(crate) fn sum(bytes: &[u8], start: u32) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let mut sum = words.fold(start, |sum, word| sum + word);
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
