//! Judges both engines and the wire between them: connections as hosts hold them, made from a fuzzer's bytes and
//! judged like a capture.

use std::time::Duration;

use arbitrary::{Arbitrary, Result, Unstructured};
use etherparse::{
    IpFragOffset, IpHeaders, IpNumber, Ipv4Header, Ipv6Header, PacketBuilder, SingleVlanHeader, TcpHeader,
};
use gradwire::rules::{Grid, Rule};

use crate::capture::{Capture, Frame};
use crate::judge::judge;
use crate::replay::{Passage, Path, Setup};

/// Payloads are no longer: a standard MTU's.
const MAX_LEN: u16 = 1448;
const CONNECTIONS: usize = 4;
/// Steps of a conversation: a window of TCP, resent.
const MAX_STEPS: usize = 64;

/// One end's side of a connection, or of a pair of UDP ports.
#[derive(Clone, Copy, Debug, Arbitrary)]
struct Connection {
    v6: bool,
    vlan: bool,
    udp: bool,
    /// Sequence number of the first byte.
    origin: u32,
    /// How values look: the largest exponent, and how far they reach below it.
    peak: u8,
    spread: u8,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum What {
    Syn,
    /// New bytes, or bytes from `back` before the end of what was sent.
    Data {
        len: u16,
        back: u16,
    },
    /// Bytes that leave a gap before them, which may be filled later.
    Ahead {
        len: u16,
        gap: u16,
    },
    Ack,
    Fin,
    /// Data with this type of service.
    Tagged {
        tos: u8,
        len: u16,
    },
    /// Time passes.
    Wait {
        milliseconds: u16,
    },
}

/// A rule, connections, and what they send in turn.
#[derive(Debug)]
struct Conversation {
    rule: Rule,
    connections: [Connection; CONNECTIONS],
    steps: Vec<(u8, What)>,
}

impl<'a> Arbitrary<'a> for Conversation {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut rule = Rule { tos: Rule::DEFAULT.tos, mask: Rule::DEFAULT.mask, ..Rule::arbitrary(u)? };
        // Offsets that leave room for values.
        rule.udp_offset %= 64;
        // A stream off the grid is no stream of values.
        rule.grid = Grid::Connection;
        let connections = Arbitrary::arbitrary(u)?;
        let mut steps = Vec::new();
        while !u.is_empty() && steps.len() < MAX_STEPS {
            steps.push(Arbitrary::arbitrary(u)?);
        }
        Ok(Self { rule, connections, steps })
    }
}

/// Holds the conversation, and judges what arrived.
///
/// # Panics
/// A check of [`mod@crate::judge`] failed.
pub fn run(data: &[u8]) {
    let Ok(conversation) = Unstructured::new(data).arbitrary::<Conversation>() else { return };
    let capture = conversation.capture();
    let setup = Setup::new(conversation.rule);
    let mut path = Path::new(&setup, &capture).expect("a valid rule");
    let passages: Vec<Passage> = capture.frames.iter().map(|frame| path.send(frame)).collect();
    let report = judge(&setup, &capture, &passages);
    assert!(report.ok, "{:?} {conversation:?}", report.failures);
}

impl Conversation {
    fn capture(&self) -> Capture {
        let mut sent = [0u32; CONNECTIONS];
        let mut time = Duration::ZERO;
        let mut capture = Capture::default();
        for (number, (which, what)) in (1..).zip(&self.steps) {
            let which = usize::from(*which) % CONNECTIONS;
            let (connection, sent) = (&self.connections[which], &mut sent[which]);
            time += Duration::from_micros(100);
            let (from, len, tos) = match *what {
                What::Syn => (0, 0, self.rule.tos),
                What::Ack | What::Fin => (*sent, 0, self.rule.tos),
                What::Data { len, back } => (sent.saturating_sub(back.into()), len, self.rule.tos),
                What::Ahead { len, gap } => (*sent + u32::from(gap), len, self.rule.tos),
                What::Tagged { tos, len } => (*sent, len, tos),
                What::Wait { milliseconds } => {
                    time += Duration::from_millis(milliseconds.into());
                    continue;
                }
            };
            let len = u32::from(len % (MAX_LEN + 1));
            *sent = (*sent).max(from + len);
            let payload: Vec<u8> = (from..from + len).map(|at| connection.byte(at)).collect();
            let bytes = connection.frame(which, *what, from, tos, &payload);
            capture.frames.push(Frame { number, time, bytes });
        }
        capture
    }
}

impl Connection {
    /// The byte at this position of the stream; sent again, it is the same.
    fn byte(&self, at: u32) -> u8 {
        let noise = (at / 4).wrapping_mul(0x9e37_79b9).rotate_left(13).wrapping_mul(0x85eb_ca6b);
        let exponent = u32::from(self.peak).saturating_sub(noise % (u32::from(self.spread) + 1));
        let bits = noise & 0x807f_ffff | exponent << 23;
        bits.to_le_bytes()[at as usize % 4]
    }

    fn frame(&self, which: usize, what: What, from: u32, tos: u8, payload: &[u8]) -> Vec<u8> {
        let host = which as u8 + 1;
        let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, host], [2, 0, 0, 1, 0, host]);
        let number = if self.udp { IpNumber::UDP } else { IpNumber::TCP };
        let ip = if self.v6 {
            let header = Ipv6Header {
                traffic_class: tos,
                next_header: number,
                hop_limit: 64,
                source: [host; 16],
                destination: [0xfd; 16],
                ..Ipv6Header::default()
            };
            IpHeaders::Ipv6(header, Default::default())
        } else {
            let mut header = Ipv4Header::new(0, 64, number, [10, 0, 0, host], [10, 0, 1, host])
                .expect("an empty payload fits");
            header.dscp = (tos >> 2).try_into().expect("six bits");
            header.ecn = (tos & 3).try_into().expect("two bits");
            header.fragment_offset = IpFragOffset::ZERO;
            IpHeaders::Ipv4(header, Default::default())
        };
        let ip = if self.vlan {
            link.vlan(etherparse::VlanHeader::Single(SingleVlanHeader {
                vlan_id: 5u16.try_into().expect("twelve bits"),
                ..SingleVlanHeader::default()
            }))
            .ip(ip)
        } else {
            link.ip(ip)
        };
        let mut frame = Vec::new();
        let written = if self.udp {
            ip.udp(40_000, 5400).write(&mut frame, payload)
        } else {
            let seq = self.origin.wrapping_add(from);
            let (syn, fin) = (matches!(what, What::Syn), matches!(what, What::Fin));
            let mut header = TcpHeader::new(40_000, 5400, seq.wrapping_sub(syn.into()), 8192);
            (header.syn, header.fin, header.ack) = (syn, fin, !syn);
            ip.tcp_header(header).write(&mut frame, payload)
        };
        written.expect("a vector takes all");
        frame
    }
}
