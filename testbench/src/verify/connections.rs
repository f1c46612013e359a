//! The TCP connections of a capture: where their values start, what was sent and compressed before,
//! and whether both ways to reassemble what arrived agree with what was sent.

use std::collections::{BTreeMap, BTreeSet};

use gradwire::rules::Alignment;

use super::findings::Findings;
use super::frame::{Flow, Segment, Transport};
use super::handshake::{Begins, Handshakes};
use super::once::Compressed;
use super::stream::{Policy, Reassembler, Run, Unwrapper};
use super::values::{ErrorTally, implausible};

/// One direction of one connection.
struct Connection<'a> {
    flow: Flow,
    /// Sequence number of the first payload byte, if the capture shows which SYN opened the
    /// connection.
    origin: Option<u32>,
    /// Its SYN, which the engine saw, had an option that binds the payload.
    binds: bool,
    /// Whether the engine can know what was sent: it saw the SYN, or the rule asks for none.
    counts: bool,
    /// A sequence number at which a value starts: the origin, or else the start of the first
    /// payload of which a rule says that it starts with a value.
    alignment: Option<u32>,
    /// The origin, or else the sequence number of the first segment seen.
    base: u32,
    /// Whether payload was tagged.
    tagged: bool,
    /// By source MAC address, since each card knows only what it has sent itself.
    cards: BTreeMap<[u8; 6], Card>,
    segments: Vec<Copies<'a>>,
}

/// The bytes of a stream that one card has sent.
struct Card {
    /// Positions, and the one behind the highest tagged byte.
    unwrapper: Unwrapper,
    sent_to: i64,
    compressed: Compressed,
}

/// The payload of one segment, as it was sent and as it arrived, if it did.
struct Copies<'a> {
    seq: u32,
    sent: &'a [u8],
    delivered: Option<&'a [u8]>,
}

/// The place of a segment in its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentPlace {
    /// Sequence number of the stream's first byte, if it is known.
    pub(crate) origin: Option<u32>,
    /// Sequence number that a value starts at, if it is known.
    pub(crate) alignment: Option<u32>,
    /// Whether the same card had sent any byte of it, or any byte after it, before, and its engine
    /// could know.
    pub(crate) again: bool,
    /// Whether the connection's SYN had an option that binds the payload, and an engine saw it.
    pub(crate) binds: bool,
    connection: usize,
}

/// A segment on its way, as the engines' hosts see it.
pub(crate) struct Sent<'s, 'a> {
    /// Source MAC address.
    pub(crate) card: [u8; 6],
    pub(crate) segment: &'s Segment,
    /// Its payload.
    pub(crate) payload: &'a [u8],
    /// The bytes that arrived of it.
    pub(crate) delivered: Option<&'a [u8]>,
    /// The alignment of the rule that matches.
    pub(crate) rule: Option<Alignment>,
    /// Whether an engine saw it.
    pub(crate) seen: bool,
}

/// All connections of a capture, in the order of their first frame.
#[derive(Default)]
pub(crate) struct Connections<'a> {
    handshakes: Handshakes,
    /// SYNs that an engine saw, by the sequence number behind them.
    watched: BTreeSet<(Flow, u32)>,
    all: Vec<Connection<'a>>,
    /// Index into `all` of the live connection of each flow.
    live: BTreeMap<Flow, usize>,
}

impl<'a> Connections<'a> {
    /// Adds a segment; `None` if it is not TCP, or a SYN. What a SYN carries does not count: a
    /// server may refuse it (RFC 7413), and then it is as good as new.
    pub(crate) fn add(&mut self, sent: &Sent<'_, 'a>) -> Option<SegmentPlace> {
        let Sent { card, segment, payload, delivered, rule, seen } = *sent;
        let flow = segment.flow;
        let Transport::Tcp(tcp) = segment.transport else { return None };
        if tcp.syn && seen {
            self.watched.insert((flow, tcp.first_byte()));
        }
        if let Some(Begins { origin, binds }) = self.handshakes.begins(flow, tcp, payload.len() as u32) {
            let watched = origin.is_some_and(|origin| self.watched.contains(&(flow, origin)));
            self.all.push(Connection {
                flow,
                origin,
                binds: binds && watched,
                counts: watched,
                alignment: origin,
                base: origin.unwrap_or(tcp.seq),
                tagged: false,
                cards: BTreeMap::new(),
                segments: Vec::new(),
            });
            self.live.insert(flow, self.all.len() - 1);
        }
        if tcp.syn {
            return None;
        }
        let index = *self.live.get(&flow)?;
        let connection = &mut self.all[index];
        let mut again = false;
        if !payload.is_empty() {
            connection.segments.push(Copies { seq: tcp.seq, sent: payload, delivered });
            if let Some(alignment) = rule {
                connection.tagged = true;
                if alignment == Alignment::Payload && seen {
                    connection.alignment.get_or_insert(tcp.seq);
                    connection.counts = true;
                }
                let card = connection.cards.entry(card).or_insert_with(|| Card {
                    unwrapper: Unwrapper::new(tcp.seq),
                    sent_to: i64::MIN,
                    compressed: Compressed::default(),
                });
                let position = card.unwrapper.position(tcp.seq);
                again = position < card.sent_to;
                if connection.counts && seen {
                    card.sent_to = position.saturating_add(payload.len() as i64).max(card.sent_to);
                }
            }
        }
        let Connection { origin, alignment, binds, .. } = *connection;
        Some(SegmentPlace { origin, alignment, again, binds, connection: index })
    }

    /// Takes note that the card compressed the segment at this place.
    pub(crate) fn compressed(
        &mut self,
        place: SegmentPlace,
        card: [u8; 6],
        seq: u32,
        len: u32,
    ) -> Result<(), String> {
        let card = self.all.get_mut(place.connection).and_then(|connection| connection.cards.get_mut(&card));
        card.map_or(Ok(()), |card| card.compressed.add(seq, len))
            .map_err(|at| format!("byte {at} of the stream is compressed a second time"))
    }

    /// Reassembles every tagged stream twice and compares what was sent with what arrived. Where
    /// values start is not known, nothing may have been compressed, and all bytes have to be the
    /// same.
    pub(crate) fn verify(
        &self,
        tally: &ErrorTally,
        suspicion: &mut Suspicion,
        findings: &mut Findings,
    ) -> StreamResult {
        let mut result = StreamResult { max_error: 0.0, violations: 0 };
        for connection in self.all.iter().filter(|connection| connection.tagged) {
            let sent = |policy| connection.reassemble(policy, |copies| Some(copies.sent));
            let first = sent(Policy::FirstWins);
            for run in &first {
                suspicion.add(connection.flow, run.bytes.get(connection.to_value(run)..).unwrap_or(&[]));
            }
            let last = sent(Policy::LastWins);
            if first != last {
                // A value put together from two contents was never sent; no bound is promised for
                // it.
                let flow = connection.flow;
                findings.warnings.push(format!(
                    "{flow}: sent different bytes at the same place; its stream is not checked"
                ));
                continue;
            }
            findings.streams += 1;
            for (policy, sent) in [(Policy::FirstWins, first), (Policy::LastWins, last)] {
                let got = connection.reassemble(policy, |copies| copies.delivered);
                let mut tally = ErrorTally::new_like(tally);
                if let Err(what) = connection.compare(&sent, &got, &mut tally) {
                    findings.fail(format!("stream {}, {policy:?}: {what}", connection.flow));
                }
                result.max_error = result.max_error.max(tally.max_error);
                result.violations += tally.violations;
            }
        }
        result
    }
}

/// The result of the comparison of all streams.
pub(crate) struct StreamResult {
    pub(crate) max_error: f64,
    pub(crate) violations: u64,
}

impl<'a> Connection<'a> {
    fn reassemble(&self, policy: Policy, copy: impl Fn(&Copies<'a>) -> Option<&'a [u8]>) -> Vec<Run> {
        let mut reassembler = Reassembler::new(policy, self.base);
        for copies in &self.segments {
            if let Some(bytes) = copy(copies) {
                reassembler.push(copies.seq, bytes);
            }
        }
        reassembler.finish()
    }

    /// Bytes from the start of a run to its first whole value.
    fn to_value(&self, run: &Run) -> usize {
        let alignment = i64::from(self.alignment.unwrap_or(self.base).wrapping_sub(self.base));
        (alignment - run.start).rem_euclid(4) as usize
    }

    fn compare(&self, sent: &[Run], got: &[Run], tally: &mut ErrorTally) -> Result<(), String> {
        let shape = |runs: &[Run]| runs.iter().map(|run| (run.start, run.bytes.len())).collect::<Vec<_>>();
        if shape(sent) != shape(got) {
            return Err("not the same bytes arrived as were sent".into());
        }
        for (sent, got) in sent.iter().zip(got) {
            let len = sent.bytes.len();
            let head_len = if self.alignment.is_some() { self.to_value(sent).min(len) } else { len };
            let tail_at = len - (len - head_len) % 4;
            if sent.bytes[..head_len] != got.bytes[..head_len]
                || sent.bytes[tail_at..] != got.bytes[tail_at..]
            {
                return Err(format!("a byte outside the values changed in the run at {}", sent.start));
            }
            tally.bytes(&sent.bytes[head_len..tail_at], &got.bytes[head_len..tail_at]);
        }
        match tally.violations {
            0 => Ok(()),
            some => Err(format!("{some} values not within the bound")),
        }
    }
}

/// Tagged flows that seem to carry something other than values.
///
/// Framework headers hold small integers, lengths and flags, which read as nonzero subnormal
/// `f32`s; text and a quarter of random words read as 2^64 and more. The 32 tagged streams of the
/// recorded all-reduces hold none of both in 2.3 million values; in those of gloo, which puts 48
/// bytes before every message, they are 0.5 % to 23 %. The threshold of one in a thousand stands
/// between, five times below the second; a header of six such words is then found before messages
/// of up to 24 000 bytes. At least four must be there, so that a chance one in a short stream says
/// nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suspicion {
    /// Values, and those among them that no gradient has.
    flows: BTreeMap<Flow, (u64, u64)>,
}

impl Suspicion {
    const ONE_IN: u64 = 1000;
    const LEAST: u64 = 4;

    pub(crate) fn add(&mut self, flow: Flow, values: &[u8]) {
        let (count, unlikely) = self.flows.entry(flow).or_default();
        *count += values.len() as u64 / 4;
        *unlikely += implausible(values);
    }

    pub(crate) fn mixed(self) -> impl Iterator<Item = String> {
        let mixed = |&(_, (count, unlikely)): &(Flow, (u64, u64))| {
            unlikely >= Self::LEAST && unlikely * Self::ONE_IN > count
        };
        self.flows.into_iter().filter(mixed).map(|(flow, (count, unlikely))| {
            format!(
                "{flow}: {unlikely} of {count} values are nonzero subnormals or above 2^64, as headers, integers and \
                 text are; tag only connections that carry nothing but values"
            )
        })
    }
}
