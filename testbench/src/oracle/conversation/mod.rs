//! Verifies both engines and the wire between them: connections as hosts hold them, made from a
//! fuzzer's bytes and verified like a capture.

use std::collections::BTreeMap;
use std::time::Duration;

use arbitrary::{Arbitrary, Result, Unstructured};
use etherparse::{IpHeaders, IpNumber, Ipv6Header, PacketBuilder, SingleVlanHeader, TcpHeader};
use gradwire::flow::CLOSED_MS;
use gradwire::rules::{Alignment, Framing, Handshake, Rule};
use gradwire::verdict::{Change, Verdict};

use crate::input::{Capture, Frame, ipv4};
use crate::replay::{Engines, Passage, Setup};
use crate::verify::frame::Tcp;
use crate::verify::verify_reloaded;

#[cfg(test)]
mod tests;

/// Payloads are no longer: a standard MTU's.
const MAX_LEN: u16 = 1448;
const CONNECTIONS: usize = 4;
/// Steps of a conversation: a window of TCP, resent.
const MAX_STEPS: usize = 64;
/// Type of service of the second rule.
const SECOND_TOS: u8 = 0x48;
/// RFC 8684 section 3.1.
const MPTCP_CAPABLE: [u8; 4] = [30, 4, 1, 0x81];
/// The far end's initial sequence number.
const FAR_ISN: u32 = 0x5000_0000;

/// One end's side of a connection, or of a pair of UDP ports.
#[derive(Clone, Copy, Debug, Arbitrary)]
struct Connection {
    v6: bool,
    vlan: bool,
    udp: bool,
    /// It answers the far end's SYN.
    listens: bool,
    /// Its SYN has an option that binds the payload.
    binds: bool,
    /// Sequence number of the first byte.
    origin: u32,
    /// The look of values: the largest exponent, and how far they reach below it.
    peak: u8,
    spread: u8,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum What {
    /// 0: the SYN that the far end accepts. Others have another number, and come to nothing: a
    /// listener with SYN cookies answers each SYN that it sees, a client tries again, somebody
    /// sends SYNs in another host's name.
    Syn {
        other: u8,
        tagged: bool,
    },
    /// New bytes, or bytes from `back` before the end of what was sent.
    Data {
        len: u16,
        back: u16,
    },
    /// The same under the second rule.
    Second {
        len: u16,
        back: u16,
    },
    /// Bytes that leave a gap before them, which may be filled later.
    Ahead {
        len: u16,
        gap: u16,
    },
    Ack,
    /// The last new bytes, and no more after them.
    Fin {
        len: u16,
    },
    Rst,
    /// Behind a FIN or an RST: another connection of the same ports.
    Reopen {
        origin: u32,
    },
    /// Data with this type of service.
    Tagged {
        tos: u8,
        len: u16,
    },
    /// The other rules are put in force.
    Reload,
    /// Time passes.
    Wait {
        milliseconds: u16,
    },
}

/// Rules, connections, and what they send in turn.
#[derive(Debug)]
struct Conversation {
    /// In force by turns.
    setups: [Setup; 2],
    /// So many frames go by before the engines are started.
    unseen: usize,
    /// Segments start with a whole value, as the alignment of payloads asks of senders.
    whole: bool,
    connections: [Connection; CONNECTIONS],
    steps: Vec<(u8, What)>,
}

/// Whether both ends have to agree; if not, UDP is compressed too.
fn handshake(u: &mut Unstructured<'_>) -> Result<Handshake> {
    Ok(if u.arbitrary()? { Handshake::Off } else { Handshake::Required })
}

/// One or two rules whose codec parameters are those of `base`.
fn setup(base: Rule, u: &mut Unstructured<'_>) -> Result<Setup> {
    let mut first =
        Rule { framing: u.arbitrary()?, alignment: u.arbitrary()?, handshake: handshake(u)?, ..base };
    if first.handshake == Handshake::Required {
        first.udp_offset = 0;
    }
    let second = Rule { tos: SECOND_TOS, ..first };
    let second = Rule { framing: u.arbitrary()?, alignment: u.arbitrary()?, ..second };
    let mut setup = Setup { rules: vec![first], datagrams: false, ..Setup::new(base) };
    if u.arbitrary()? {
        setup.rules.push(second);
    }
    Ok(setup)
}

impl<'a> Arbitrary<'a> for Conversation {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut base = Rule { tos: Rule::DEFAULT.tos, mask: Rule::DEFAULT.mask, ..Rule::arbitrary(u)? };
        // Offsets that leave room for values.
        base.udp_offset %= 64;
        let setups = [setup(base, u)?, setup(base, u)?];
        let unseen = if u.arbitrary()? { usize::from(u.arbitrary::<u8>()? % 16) } else { 0 };
        let by_payload =
            setups.iter().flat_map(|setup| &setup.rules).any(|rule| rule.alignment == Alignment::Payload);
        // Who starts payloads within a value is found out only by engines that have seen the start.
        let whole = u.arbitrary()? || unseen > 0 && by_payload;
        let connections = Arbitrary::arbitrary(u)?;
        let mut steps = Vec::new();
        while !u.is_empty() && steps.len() < MAX_STEPS {
            steps.push(Arbitrary::arbitrary(u)?);
        }
        Ok(Self { setups, unseen, whole, connections, steps })
    }
}

/// Holds the conversation, and verifies what arrived.
///
/// # Panics
/// A check of [`mod@crate::verify`] failed, engines that start anew are not as new ones, or what
/// they say of handshakes does not agree with the frames.
pub fn run(data: &[u8]) {
    let Ok(conversation) = Unstructured::new(data).arbitrary::<Conversation>() else { return };
    let held = conversation.hold();
    let mut engines = Engines::new(&conversation.setups[0], &held.capture).expect("valid rules");
    let passages = conversation.pass(&held, &mut engines);
    let setup_of = |index| &conversation.setups[held.setups.get(index).copied().unwrap_or(0)];
    let report = verify_reloaded(setup_of, &held.capture, &passages);
    assert!(report.ok, "{:?} {conversation:?}", report.failures);

    engines.restart();
    assert_eq!(engines.handshakes().count(), 0);
    engines.reload(&conversation.setups[0]).expect("valid rules");
    assert_eq!(conversation.pass(&held, &mut engines), passages, "{conversation:?}");
}

/// The frames of a conversation, and for each which rules were in force.
#[derive(Default)]
struct Held {
    capture: Capture,
    setups: Vec<usize>,
    in_force: usize,
    time: Duration,
}

impl Held {
    fn push(&mut self, bytes: Vec<u8>) {
        self.time += Duration::from_micros(100);
        let number = self.capture.frames.len() as u64 + 1;
        self.capture.frames.push(Frame { number, time: self.time, bytes });
        self.setups.push(self.in_force);
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug)]
struct Stream {
    origin: u32,
    /// The far end has sent its SYN, if it is the one that connects.
    asked: bool,
    /// The frame that has the SYN that counts.
    syn_at: Option<usize>,
    /// When a SYN of it was sent last.
    syn_time: Duration,
    accepted: bool,
    sent: u32,
    /// A FIN was sent: all that follows was sent before.
    finished: bool,
    /// An RST was sent: nothing follows.
    aborted: bool,
}

impl Stream {
    const fn new(origin: u32) -> Self {
        Self {
            origin,
            asked: false,
            syn_at: None,
            syn_time: Duration::ZERO,
            accepted: false,
            sent: 0,
            finished: false,
            aborted: false,
        }
    }
}

impl Stream {
    /// Whether the engines miss the SYN that counts.
    fn unseen(&self, conversation: &Conversation, held: &Held) -> bool {
        self.syn_at.unwrap_or(held.capture.frames.len()) < conversation.unseen
    }
}

impl Stream {
    /// Whether the engines may have forgotten its SYN: they may take another one for a later
    /// connection's.
    fn silent(&self, held: &Held) -> bool {
        held.time.saturating_sub(self.syn_time) >= Duration::from_millis(CLOSED_MS)
    }
}

impl Conversation {
    fn hold(&self) -> Held {
        let mut streams = self.connections.map(|connection| Stream::new(connection.origin));
        let mut held = Held::default();
        let first = self.setups[0].rules[0].tos;
        for (which, what) in &self.steps {
            let which = usize::from(*which) % CONNECTIONS;
            let (connection, stream) = (&self.connections[which], &mut streams[which]);
            let ended = stream.finished || stream.aborted;
            match *what {
                What::Reload => held.in_force = 1 - held.in_force,
                What::Wait { milliseconds } => held.time += Duration::from_millis(milliseconds.into()),
                // A SYN that no rule matches is believed if it is the only one of a connection
                // (SECURITY.md, hosts that share one egress).
                What::Syn { other, tagged: false }
                    if other != 0 && (ended || stream.unseen(self, &held) || stream.silent(&held)) => {}
                // Once it sends bytes, a host sends its SYN no more, but a network may double it:
                // then it is known.
                What::Syn { other: 0, .. } if stream.sent > 0 && stream.unseen(self, &held) => {}
                What::Syn { other, tagged } if !connection.udp => {
                    let tos = if tagged { first } else { 0 };
                    connection.syn(which, stream, other, tos, &mut held);
                }
                // The number of the old connection is taken for its SYN, late, and rightly (RFC
                // 9293 section 3.4.1).
                What::Reopen { origin } if ended && origin != stream.origin => *stream = Stream::new(origin),
                What::Syn { .. } | What::Reopen { .. } => {}
                What::Data { len, back } => self.data(which, stream, (len, back), first, &mut held),
                What::Second { len, back } => self.data(which, stream, (len, back), SECOND_TOS, &mut held),
                What::Tagged { tos, len } => self.data(which, stream, (len, 0), tos, &mut held),
                What::Ahead { len, gap } => {
                    let gap = if ended { 0 } else { u32::from(gap) };
                    stream.sent += if self.whole { gap & !3 } else { gap };
                    self.data(which, stream, (len, 0), first, &mut held);
                }
                What::Fin { len } if !ended && !connection.udp => {
                    connection.establish(which, stream, first, &mut held);
                    stream.sent += u32::from(len % (MAX_LEN + 1));
                    stream.finished = true;
                    self.data(which, stream, (len, len % (MAX_LEN + 1)), first, &mut held);
                }
                What::Ack | What::Fin { .. } => self.data(which, stream, (0, 0), first, &mut held),
                What::Rst => {
                    if stream.accepted && !stream.aborted {
                        stream.aborted = true;
                        let seq = stream.origin.wrapping_add(stream.sent);
                        let tcp = Tcp { seq, rst: true, ..Tcp::default() };
                        held.push(connection.frame(which, false, tcp, first, &[]));
                    }
                }
            }
        }
        held
    }

    /// Sends what was held through `engines`.
    fn pass(&self, held: &Held, engines: &mut Engines) -> Vec<Passage> {
        let mut in_force = 0;
        let mut passages = Vec::new();
        for (index, frame) in held.capture.frames.iter().enumerate() {
            if in_force != held.setups[index] {
                in_force = held.setups[index];
                self.check_reload(&self.setups[in_force], engines);
                engines.reload(&self.setups[in_force]).expect("valid rules");
            }
            passages.push(if index < self.unseen { Passage::unseen() } else { engines.send(frame) });
        }
        self.check_handshakes(&passages, engines);
        passages
    }

    /// Only an end that advertised in-place framing can break what its peer sends.
    fn check_reload(&self, next: &Setup, engines: &Engines) {
        let may_advertise =
            |rule: &Rule| rule.handshake == Handshake::Required && rule.framing == Framing::InPlace;
        let advertised = self.setups.iter().flat_map(|setup| &setup.rules).any(may_advertise);
        let broken = engines.would_break(next).expect("valid rules");
        assert!(advertised || broken == 0, "{broken} connections break: {self:?}");
    }

    /// A connection is negotiated only if an engine took a capability option out of a SYN, and no
    /// end advertises under rules that do not ask for it.
    fn check_handshakes(&self, passages: &[Passage], engines: &Engines) {
        let mut flows = BTreeMap::new();
        for negotiation in engines.handshakes() {
            *flows.entry(negotiation.name()).or_insert(0usize) += 1;
        }
        let stripped = passages.iter().filter(|passage| {
            matches!(passage.ingress, Some(Verdict::Changed { change: Change::OptionStripped, .. }))
        });
        assert!(flows.get("negotiated").copied().unwrap_or(0) <= stripped.count(), "{flows:?} {self:?}");
        let mut rules = self.setups.iter().flat_map(|setup| &setup.rules);
        let silent = rules.all(|rule| rule.handshake == Handshake::Off);
        assert!(!silent || flows.keys().all(|negotiation| *negotiation == "none"), "{flows:?} {self:?}");
    }

    /// Sends `len` bytes from `back` before the end of what was sent.
    fn data(&self, which: usize, stream: &mut Stream, (len, back): (u16, u16), tos: u8, held: &mut Held) {
        let connection = &self.connections[which];
        if stream.aborted {
            return;
        }
        connection.establish(which, stream, tos, held);
        let mut from = stream.sent.saturating_sub(back.into());
        let mut len = u32::from(len % (MAX_LEN + 1));
        if self.whole && !connection.udp {
            from &= !3;
            // The last bytes of a stream may be any number.
            len &= if stream.finished { u32::MAX } else { !3 };
        }
        if stream.finished {
            len = len.min(stream.sent - from);
        }
        stream.sent = stream.sent.max(from + len);
        let payload: Vec<u8> = (from..from + len).map(|at| connection.byte(at)).collect();
        let tcp = Tcp {
            seq: stream.origin.wrapping_add(from),
            ack: Some(FAR_ISN.wrapping_add(1)),
            fin: stream.finished && from + len == stream.sent,
            ..Tcp::default()
        };
        held.push(connection.frame(which, false, tcp, tos, &payload));
    }
}

impl Connection {
    /// Sends a SYN: the one that counts, or an `other`. A listener's answers the far end's.
    fn syn(&self, which: usize, stream: &mut Stream, other: u8, tos: u8, held: &mut Held) {
        if self.listens && !stream.asked {
            stream.asked = true;
            let tcp = Tcp { seq: FAR_ISN, syn: true, ..Tcp::default() };
            held.push(self.frame(which, true, tcp, tos, &[]));
        }
        if other == 0 {
            stream.syn_at.get_or_insert(held.capture.frames.len());
        }
        stream.syn_time = held.time;
        // Far from the stream's own numbers, and with every alignment.
        let elsewhere = if other == 0 { 0 } else { u32::from(1 + other % 7) << 29 | u32::from(other) };
        let seq = stream.origin.wrapping_sub(1).wrapping_add(elsewhere);
        let ack = self.listens.then_some(FAR_ISN.wrapping_add(1));
        let tcp = Tcp { seq, ack, syn: true, binds: self.binds && other == 0, ..Tcp::default() };
        held.push(self.frame(which, false, tcp, tos, &[]));
    }

    /// The far end accepts the SYN that counts, which goes out if it has not.
    fn establish(&self, which: usize, stream: &mut Stream, tos: u8, held: &mut Held) {
        if self.udp || stream.accepted {
            return;
        }
        if stream.syn_at.is_none() {
            self.syn(which, stream, 0, tos, held);
        }
        stream.accepted = true;
        let ack = Some(stream.origin);
        let (seq, syn) = if self.listens { (FAR_ISN.wrapping_add(1), false) } else { (FAR_ISN, true) };
        held.push(self.frame(which, true, Tcp { seq, ack, syn, ..Tcp::default() }, tos, &[]));
    }

    /// The byte at this position of the stream; sent again, it is the same.
    fn byte(&self, at: u32) -> u8 {
        let noise = (at / 4).wrapping_mul(0x9e37_79b9).rotate_left(13).wrapping_mul(0x85eb_ca6b);
        let exponent = u32::from(self.peak).saturating_sub(noise % (u32::from(self.spread) + 1));
        let bits = noise & 0x807f_ffff | exponent << 23;
        bits.to_le_bytes()[at as usize % 4]
    }

    /// A frame of this connection, from the far end or from the near one.
    fn frame(&self, which: usize, from_far: bool, tcp: Tcp, tos: u8, payload: &[u8]) -> Vec<u8> {
        let host = which as u8 + 1;
        let (near, far) = (u8::from(from_far), u8::from(!from_far));
        let link = PacketBuilder::ethernet2([2, 0, 0, near, 0, host], [2, 0, 0, far, 0, host]);
        let number = if self.udp { IpNumber::UDP } else { IpNumber::TCP };
        let ip = if self.v6 {
            let ip = Ipv6Header {
                traffic_class: tos,
                next_header: number,
                hop_limit: 64,
                source: [near << 4 | host; 16],
                destination: [far << 4 | host; 16],
                ..Ipv6Header::default()
            };
            IpHeaders::Ipv6(ip, Default::default())
        } else {
            let ip = ipv4(tos, number, [10, 0, near, host], [10, 0, far, host]);
            IpHeaders::Ipv4(ip, Default::default())
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
            let ports = if from_far { (5400, 40_000) } else { (40_000, 5400) };
            let mut header = TcpHeader::new(ports.0, ports.1, tcp.seq, 8192);
            (header.syn, header.fin, header.rst, header.ack) = (tcp.syn, tcp.fin, tcp.rst, tcp.ack.is_some());
            header.acknowledgment_number = tcp.ack.unwrap_or(0);
            if tcp.binds {
                header.set_options_raw(&MPTCP_CAPABLE).expect("it fits");
            }
            ip.tcp_header(header).write(&mut frame, payload)
        };
        written.expect("a vector takes all");
        frame
    }
}
