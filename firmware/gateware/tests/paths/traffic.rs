//! Traffic to test with: a host's, as recorded or made up, and what of it is on the wire.

use std::path::Path;

use gradwire::rules::Rules;
use gradwire::wire::frame::{Ip, IpFrame, Transport};
use gradwire::{Change, Verdict};
use gradwire_gateware::Pauses;

use super::compare::{Expected, Host, ingress};
use super::frames::{SYN, Shape, hurt, pick, sum};
use super::settings::{MARK, place, rules};
use crate::support::{self, Random};

/// None; at the source; at both ends.
pub const PAUSES: [Pauses; 3] = [
    Pauses::NONE,
    Pauses { source: 90, source_longest: 4, sink: 0, sink_longest: 1 },
    Pauses { source: 20, source_longest: 9, sink: 70, sink_longest: 30 },
];

/// A host's frames, with what its engine says of them; a third are broken.
pub fn of_host(random: &mut Random, count: usize, longest: usize) -> Vec<Expected> {
    let mut expected = Vec::new();
    while expected.len() < count {
        // Flows of another host, so that the table never fills.
        let mut host = Host::new(&rules());
        for _ in 0..20 {
            let tos = if random.one_in(12) {
                MARK | random.below(4) as u8
            } else {
                let other = 0xc0 + 4 * random.below(10) as u8;
                pick(random, &[0x28, 0x29, 0x48, 0x4a, 0x68, 0x88, 0xa8, 0x00, 0x40, other])
            };
            let mut shape = Shape::random(random, tos, longest);
            if shape.tos == 0x88 && shape.protocol == 6 {
                shape.flags &= !SYN; // it would get the capability option
            }
            if shape.protocol == 6 && shape.flags & SYN == 0 && !random.one_in(5) {
                let isn = shape.seq.wrapping_sub(1 + random.below(9) as u32);
                let syn = Shape {
                    seq: isn,
                    flags: SYN,
                    options: vec![],
                    payload: vec![],
                    tos: 0,
                    offloaded: false,
                    ..shape.clone()
                };
                expected.push(host.classify(&syn.frame()));
            }
            let mut frame = shape.frame();
            if random.one_in(3) {
                hurt(random, &mut frame);
            }
            if random.one_in(8) {
                hurt(random, &mut frame);
            }
            expected.push(host.classify(&frame));
            if random.one_in(10) {
                expected.push(host.classify(&frame)); // sent again
            }
        }
    }
    expected
}

/// Frames from the wire: compressed ones, as they were sent and broken in ways that checksums see
/// or do not, and others.
pub fn from_wire(random: &mut Random, count: usize, longest: usize, mtu: u16) -> Vec<Expected> {
    let rules = rules();
    let compressed = place(Verdict::Changed { change: Change::Compressed, len: 0 });
    let mut expected = Vec::new();
    while expected.len() < count {
        for sent in of_host(random, 40, longest) {
            let Some(mut frame) = sent.out else { continue };
            if sent.place == compressed {
                match random.below(10) {
                    0..4 => {}
                    4 => hurt(random, &mut frame),
                    _ => tamper(random, &mut frame),
                }
                if frame.len() < 60 && random.one_in(2) {
                    frame.resize(60 + random.below(12), 0);
                }
            } else if !random.one_in(4) {
                continue;
            }
            expected.extend(ingress(&rules, mtu, &frame));
        }
    }
    expected
}

/// Changes a compressed frame and makes its checksums fit, as a box on the way might, or an
/// attacker.
fn tamper(random: &mut Random, frame: &mut Vec<u8>) {
    let Some((ip_at, l4_at, payload_at, udp)) =
        IpFrame::parse(frame).and_then(|f| f.packet()).ok().map(|packet| {
            let udp = matches!(packet.transport(), Transport::Udp { .. });
            (packet.ip_at(), packet.l4_at(), packet.payload_at(), udp)
        })
    else {
        return;
    };
    let len = frame.len();
    match random.below(8) {
        0 => frame.extend_from_slice(&[0; 9][..1 + random.below(9)]),
        1 => frame.truncate(len - random.below((len - payload_at).min(6))),
        2 => {
            // Of the segment header, if there is one.
            let at = payload_at + random.below(8.min(len - payload_at));
            frame[at] ^= 1 << random.below(8);
        }
        3 => {
            let at = payload_at + random.below(len - payload_at);
            frame[at] = random.next() as u8;
        }
        4 if !udp => frame[l4_at + 13] |= pick(random, &[0x02, 0x04, 0x20]),
        5 if udp => frame[l4_at + 2..l4_at + 4].copy_from_slice(&4789u16.to_be_bytes()),
        6 => frame[payload_at..].iter_mut().skip(8).for_each(|byte| *byte = 0xff),
        _ => {}
    }
    if frame.get(ip_at + 1).is_none() || random.one_in(6) {
        return;
    }
    relength(frame, l4_at, udp);
    let plus = pick(random, &[0x6777, 0x6777, 0x6777, 0, 1]);
    seal(frame, plus);
    if udp && random.one_in(6) {
        frame[l4_at + 6..l4_at + 8].fill(0);
    }
    if udp && random.one_in(6) {
        frame[l4_at + 5] = frame[l4_at + 5].wrapping_sub(1 + random.below(3) as u8);
    }
}

/// Routed frames: lengths that are the frame's.
fn relength(frame: &mut [u8], l4_at: usize, udp: bool) {
    let Ok(ip_frame) = IpFrame::parse(frame) else { return };
    if ip_frame.tos() & 0xfc != MARK {
        return;
    }
    let (ip, ip_at, len) = (ip_frame.ip(), ip_frame.ip_at(), frame.len());
    match ip {
        Ip::V4 => {
            frame[ip_at + 2..ip_at + 4].copy_from_slice(&((len - ip_at) as u16).to_be_bytes());
            frame[ip_at + 10..ip_at + 12].fill(0);
            let sum = !sum(&frame[ip_at..l4_at]);
            frame[ip_at + 10..ip_at + 12].copy_from_slice(&sum.to_be_bytes());
        }
        Ip::V6 => frame[ip_at + 4..ip_at + 6].copy_from_slice(&((len - ip_at - 40) as u16).to_be_bytes()),
    }
    if udp {
        frame[l4_at + 4..l4_at + 6].copy_from_slice(&((len - l4_at) as u16).to_be_bytes());
    }
}

/// Writes the transport checksum, with something added.
pub fn seal(frame: &mut [u8], plus: u16) {
    let Ok(packet) = IpFrame::parse(frame).and_then(|ip_frame| ip_frame.packet()) else { return };
    let (at, l4_at, end) = (packet.l4_checksum_at(), packet.l4_at(), packet.ip_at() + packet.ip_len());
    let pseudo = packet.pseudo_sum(end - l4_at).value();
    if end > frame.len() {
        return;
    }
    frame[at..at + 2].fill(0);
    let segment = [&pseudo.to_be_bytes()[..], &frame[l4_at..end]].concat();
    let field = u32::from(!sum(&segment)) + u32::from(plus);
    let field = (field & 0xffff) as u16 + (field >> 16) as u16;
    frame[at..at + 2].copy_from_slice(&field.to_be_bytes());
}

/// Frames at and beyond the longest that a ring takes.
pub fn oversize() -> [Expected; 6] {
    [(9216, 8), (9217, 50), (60, 8), (20_000, 50), (9200, 8), (1, 8)].map(|(len, place)| {
        let bytes: Vec<u8> = (0..len).map(|at| ((at + len) % 251) as u8).collect();
        let out = (place < 40).then(|| bytes.clone());
        Expected { bytes, user: 0, place, out }
    })
}

/// The frames of a recording, in the order of their capture.
pub fn recorded(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbench/recordings").join(name);
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut frames = Vec::new();
    let mut at = 24;
    while at < bytes.len() {
        let len = word(at + 8) as usize;
        assert_eq!(len, word(at + 12) as usize);
        frames.push(bytes[at + 16..at + 16 + len].to_vec());
        at += 16 + len;
    }
    frames
}

/// A recording under these rules: as the hosts sent it, and what of it is on the wire.
pub fn both_ways(name: &str, rules: &Rules) -> (Vec<Expected>, Vec<Expected>) {
    sent_and_received(&recorded(name), rules)
}

/// So many datagrams in frames of 1514 bytes, full of recorded values: as a host sent them, and as
/// they are on the wire.
pub fn full_frames(rules: &Rules, count: usize) -> (Vec<Expected>, Vec<Expected>) {
    let frame = |payload: &[u8]| Shape::datagram(rules.as_slice()[0].tos, payload.to_vec()).frame();
    let room = 1514 - frame(&[]).len();
    let values = support::recorded();
    let frames: Vec<_> = values.chunks_exact(room).cycle().take(count).map(frame).collect();
    assert!(frames.iter().all(|frame| frame.len() == 1514));
    sent_and_received(&frames, rules)
}

fn sent_and_received(frames: &[Vec<u8>], rules: &Rules) -> (Vec<Expected>, Vec<Expected>) {
    let mut host = Host::new(rules);
    let sent: Vec<Expected> = frames.iter().map(|frame| host.classify(frame)).collect();
    let wire = sent.iter().filter_map(|expected| expected.out.as_ref());
    let received = wire.filter_map(|frame| ingress(rules, 1500, frame)).collect();
    (sent, received)
}
