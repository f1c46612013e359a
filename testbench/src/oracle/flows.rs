//! Verifies the flow table by the streams of the senders: hosts that hold connections, against a
//! table that sees their SYNs, and others' in their names.
//!
//! The model has no phases. It knows what the table cannot: which SYN the other side accepted, so
//! at which bytes the values of the stream start.

use std::collections::BTreeMap;

use arbitrary::{Arbitrary, Unstructured};
use gradwire::flow::trust::TrustState;
use gradwire::flow::{CLOSED_MS, FlowTable, Millis, Phase, START_REACH, Syn};
use gradwire::rules::Alignment;
use gradwire::verdict::{PassReason, TaggedTraffic};
use gradwire::wire::flow_key::FlowKey;

use crate::verify::once::Compressed;

/// So many flows: more than the table has places.
const FLOWS: u8 = 24;
/// Segments are no longer.
const MAX_LEN: u16 = 9000;
/// Segments of one refusal: more than the sample that trust is verified on.
const MAX_REFUSED: u8 = 72;
/// Events of one input.
const MAX_EVENTS: usize = 200;

/// A host's event in one direction of a TCP connection.
#[derive(Clone, Copy, Debug, Arbitrary)]
enum Event {
    /// 0: the SYN that the other side accepts. Others have another number and come to nothing.
    Syn { flow: u8, other: u8, tagged: bool, doubtful: bool },
    /// `ahead` bytes past the highest sequence number sent, or before it.
    Payload { flow: u8, ahead: i16, len: u16, sends: Sends },
    /// Segments are compressed and sent again, as by a peer that restores nothing.
    Refused { flow: u8, segments: u8, len: u16 },
    /// FIN or RST: what is sent from now on was sent before.
    End { flow: u8 },
    /// Behind an end: the same ports connect again, with this first sequence number.
    Reopen { flow: u8, origin: u32 },
    /// Time passes, or goes back.
    Time { seconds: i16 },
}

/// The way in which the engine sends a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Arbitrary)]
enum Sends {
    /// The rule's alignment is that of the connection.
    ByConnection,
    /// The rule's alignment is that of payloads.
    ByPayload,
    /// As `ByConnection`; the codec makes nothing of it.
    Raw,
}

/// One direction of a connection, as its sender knows it.
#[derive(Clone, Debug)]
struct Stream {
    /// Sequence number of the first byte.
    origin: u32,
    /// Those of the connections before it, of the same ports.
    former: Vec<u32>,
    /// The SYN that counts was shown to the table.
    syn_seen: bool,
    /// Whether that SYN has options that bind the payload, as soon as it was drawn: all its copies
    /// have the same.
    binds: Option<bool>,
    /// It was shown, and binds the payload: nothing may be compressed.
    bound: bool,
    /// Something else happened than one SYN that can be relied on: the table may refuse.
    disturbed: bool,
    /// The only start that the table knows is another one without the tag.
    deceiving: bool,
    /// The table was shown something of it, and not as what a stream before it sent late.
    shown: bool,
    /// If the table was shown nothing of it, and doubts the start of the last stream that it was
    /// shown: where that one ended.
    doubted: Option<u32>,
    ended: bool,
    /// Position behind the highest byte sent.
    sent: i64,
    /// The same of the bytes that the table was asked about, and when it was last.
    asked: Option<i64>,
    seen: Millis,
    /// That was so long ago that TCP would send nothing again.
    given_up: bool,
    /// Something was resent: without that there is no reason for a bypass.
    resent: bool,
    compressed: Compressed,
    traffic: TaggedTraffic,
}

impl Stream {
    fn new(origin: u32) -> Self {
        Self {
            origin,
            former: Vec::new(),
            syn_seen: false,
            deceiving: false,
            shown: false,
            doubted: None,
            disturbed: false,
            binds: None,
            bound: false,
            ended: false,
            sent: 0,
            asked: None,
            seen: Millis(1 << 40),
            given_up: false,
            resent: false,
            compressed: Compressed::default(),
            traffic: TaggedTraffic::NONE,
        }
    }

    /// The table has no place for it any more. It may let pass again what it let pass, but no byte
    /// that it compressed.
    fn forget(&mut self) {
        (self.syn_seen, self.bound, self.asked, self.traffic) = (false, false, None, TaggedTraffic::NONE);
        if self.given_up {
            self.compressed = Compressed::default();
        }
    }
}

/// Sixteen places, fewer than [`FLOWS`].
type Table = FlowTable<2>;

/// Runs events from a fuzzer's bytes, read by `arbitrary`.
///
/// # Panics
/// The table allows what would make values wrong or a byte compressed twice, or forbids what
/// nothing speaks against.
pub fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let mut bench = Bench {
        table: Box::new(Table::new(u64::arbitrary(&mut u).unwrap_or(0))),
        streams: BTreeMap::new(),
        now: Millis(1 << 40),
    };
    for _ in 0..MAX_EVENTS {
        let Ok(event) = u.arbitrary::<Event>() else { break };
        if u.is_empty() {
            break;
        }
        bench.step(event);
        assert!(bench.table.iter().count() <= 16);
    }
}

fn key(flow: u8) -> FlowKey {
    FlowKey([u64::from(flow) << 32, 0, 0, 0, 0])
}

struct Bench {
    table: Box<Table>,
    streams: BTreeMap<u8, Stream>,
    now: Millis,
}

impl Bench {
    fn stream(&mut self, flow: u8) -> &mut Stream {
        let origin = u32::from(flow).wrapping_mul(0x9e37_79b9);
        self.streams.entry(flow).or_insert_with(|| Stream::new(origin))
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Syn { flow, other, tagged, doubtful } => self.syn(flow % FLOWS, other, tagged, doubtful),
            Event::Payload { flow, ahead, len, sends } => {
                let at = self.stream(flow % FLOWS).sent + i64::from(ahead);
                self.payload(flow % FLOWS, at.max(0), len, sends);
            }
            Event::Refused { flow, segments, len } => {
                let (flow, len) = (flow % FLOWS, len % MAX_LEN);
                let at = self.stream(flow).sent;
                let starts = (0..i64::from(segments % MAX_REFUSED)).map(|n| at + n * i64::from(len));
                for at in starts.clone().chain(starts) {
                    self.payload(flow, at, len, Sends::ByConnection);
                }
            }
            Event::End { flow } => {
                let flow = flow % FLOWS;
                let stream = self.stream(flow);
                stream.ended = true;
                let at = stream.origin.wrapping_add(stream.sent as u32);
                if let Some(known) = self.table.find(&key(flow)) {
                    // Some segments go by a rule under which payload opens a flow.
                    known.keep();
                    known.end(at);
                }
            }
            Event::Reopen { flow, origin } => {
                let flow = flow % FLOWS;
                // What was sent while the table had no place may have hidden the end from it.
                let known = self.table.find(&key(flow)).is_some_and(|known| known.phase() != Phase::Closed);
                let stream = self.stream(flow);
                // The number of an old connection is taken for its SYN, late, and rightly (RFC 9293
                // section 3.4.1).
                if stream.ended && origin != stream.origin && !stream.former.contains(&origin) {
                    let mut former = std::mem::take(&mut stream.former);
                    former.push(stream.origin);
                    // Behind a stream whose start is in doubt, only a number beyond its end is
                    // certainly another one's. The table still knows that stream if it was shown
                    // nothing of later ones.
                    let end = stream.origin.wrapping_add(stream.sent as u32);
                    let doubted = if stream.shown { stream.disturbed.then_some(end) } else { stream.doubted };
                    let late = doubted.is_some_and(|end| (end.wrapping_sub(origin) as i32) >= 0);
                    let (traffic, deceiving) = (stream.traffic, stream.deceiving || known);
                    let disturbed = known || late;
                    *stream =
                        Stream { traffic, deceiving, disturbed, doubted, former, ..Stream::new(origin) };
                }
            }
            Event::Time { seconds } => {
                self.now = Millis(self.now.0.saturating_add_signed(i64::from(seconds) * 1000));
                for stream in self.streams.values_mut() {
                    stream.given_up |= self.now.since(stream.seen) >= CLOSED_MS;
                }
            }
        }
    }

    fn syn(&mut self, flow: u8, other: u8, tagged: bool, doubtful: bool) {
        let known = self.table.find(&key(flow)).is_some();
        let now = self.now;
        let stream = self.stream(flow);
        // Behind such a silence another start may be another connection's, whether the table has a
        // place for the old one or not.
        let silent = now.since(stream.seen) >= CLOSED_MS;
        // A SYN that no rule matches is believed if it is the only one of a connection
        // (SECURITY.md, hosts that share one egress): nothing is sent behind it.
        if other != 0 && !tagged {
            if stream.ended {
                return;
            }
            stream.deceiving = !(stream.syn_seen && known) || silent;
        }
        // A host that has sent bytes sends its SYN no more, but a network may double it.
        if other == 0 && stream.sent > 0 && !(stream.syn_seen && known) {
            return;
        }
        let doubtful = if other == 0 { *stream.binds.get_or_insert(doubtful) } else { doubtful };
        let elsewhere = if other == 0 { 0 } else { u32::from(1 + other % 7) << 29 | u32::from(other) };
        let isn = stream.origin.wrapping_sub(1).wrapping_add(elsewhere);
        if !known || silent && (other != 0 || stream.disturbed) {
            stream.forget();
        }
        stream.syn_seen |= other == 0;
        stream.deceiving &= other != 0;
        stream.disturbed |= other != 0 || doubtful;
        stream.bound |= other == 0 && doubtful;
        let noted = self.table.syn(&key(flow), Syn { isn, tagged, doubtful }, now).map(drop);
        assert!(noted.is_ok() || !known, "no room for a flow that has a place");
        let entry = self.table.find(&key(flow)).map(|flow| (flow.phase(), *flow.traffic()));
        let stream = self.stream(flow);
        stream.shown |= entry.is_some_and(|(phase, _)| phase != Phase::Closed);
        stream.traffic = entry.map_or(TaggedTraffic::NONE, |(_, traffic)| traffic);
        stream.disturbed |= noted.is_err();
        stream.seen = now;
    }

    fn payload(&mut self, flow: u8, at: i64, len: u16, sends: Sends) {
        let len = u32::from(len % MAX_LEN).max(1);
        let stream = self.stream(flow);
        if stream.deceiving {
            return;
        }
        let mut at = at;
        if stream.ended {
            // Only what was sent before; nothing at all if that is less.
            at = at.min(stream.sent - i64::from(len));
            if at < 0 {
                return;
            }
        }
        stream.sent = stream.sent.max(at + i64::from(len));
        let seq = stream.origin.wrapping_add(at as u32);
        let (now, place) = (self.now, key(flow));
        let known = self.table.find(&place).is_some();
        let entry = match sends {
            Sends::ByConnection | Sends::Raw => self.table.find(&place),
            Sends::ByPayload => {
                let opened = self.table.find_or_open(&place, now).ok();
                assert!(opened.is_some() || !known, "no room for a flow that has a place");
                opened
            }
        };
        let stream = self.streams.get_mut(&flow).expect("it sends");
        if !known {
            stream.disturbed = true;
            stream.forget();
        }
        let Some(entry) = entry else { return };
        stream.shown |= entry.phase() != Phase::Closed;
        // Another start may have been missed.
        stream.disturbed |= stream.asked.is_none() && at >= START_REACH.into();
        let again = stream.asked.is_some_and(|asked| at < asked);
        let alignment = if sends == Sends::ByPayload { Alignment::Payload } else { Alignment::Connection };
        let verdict = entry.admit(seq, len, now);
        (stream.seen, stream.given_up) = (now, false);
        stream.asked = Some(stream.asked.unwrap_or(at).max(at + i64::from(len)));
        stream.resent |= again;
        stream.traffic.frames += 1;
        stream.traffic.bytes += u64::from(len);
        match verdict.and_then(|()| entry.head_len(seq, alignment)) {
            Ok(head_len) => {
                assert!(!stream.bound, "a SYN that binds the payload");
                assert!(!again, "bytes sent before");
                let to_value = (stream.origin.wrapping_sub(seq) % 4) as usize;
                if stream.syn_seen || alignment == Alignment::Connection {
                    assert!(stream.syn_seen, "nobody knows where the values start");
                    assert_eq!(head_len, to_value, "another alignment than the sender's");
                }
                assert!(
                    stream.resent || stream.disturbed || entry.trust() == TrustState::Trusted,
                    "no resend, no doubt"
                );
                if sends != Sends::Raw {
                    entry.compressed(seq, 1);
                    stream.traffic.compressed += 1;
                    stream.traffic.saved += 1;
                    let twice = stream.compressed.add(seq, len);
                    assert_eq!(twice, Ok(()), "compressed a second time");
                }
            }
            Err(PassReason::Resent) => assert!(again || stream.disturbed, "nothing was sent before"),
            Err(PassReason::Bypassed) => assert!(stream.resent && !again, "no resend, no bypass"),
            Err(PassReason::Misaligned) => assert_eq!(alignment, Alignment::Payload),
            Err(reason) => {
                let sure = stream.syn_seen && !stream.disturbed && !stream.ended;
                assert!(!sure, "{reason}, though the only start was seen");
            }
        }
        assert_eq!(*entry.traffic(), stream.traffic);
    }
}
