//! The TCP connections of a capture: where their values start, and whether both ways to reassemble what
//! arrived agree with what was sent.

use std::collections::BTreeMap;

use gradwire::rules::Grid;

use crate::frame::{Flow, Segment, Transport};
use crate::judge::Report;
use crate::oracle::{Tally, nonzero_subnormals};
use crate::stream::{Policy, Reassembler, Run, Unwrapper};

/// One direction of one connection.
struct Connection<'a> {
    flow: Flow,
    /// Sequence number of the first payload byte, where the capture has the SYN.
    origin: Option<u32>,
    /// That, or else the sequence number of the first segment seen.
    base: u32,
    /// Whether payload was tagged.
    tagged: bool,
    /// By source MAC address, since each card knows only what it has sent itself: positions, and the one
    /// behind the highest tagged byte.
    cards: BTreeMap<[u8; 6], (Unwrapper, i64)>,
    segments: Vec<Copies<'a>>,
}

/// The payload of one segment, as it was sent and as it arrived, if it did.
struct Copies<'a> {
    seq: u32,
    sent: &'a [u8],
    delivered: Option<&'a [u8]>,
}

/// Where a segment stands in its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Sequence number that a value starts at, where it is known.
    pub(crate) grid_origin: Option<u32>,
    /// Whether the same card had sent any byte of it, or any byte after it, before.
    pub(crate) again: bool,
}

/// All connections of a capture, in the order of their first frame.
pub(crate) struct Connections<'a> {
    grid: Grid,
    all: Vec<Connection<'a>>,
    /// Index into `all` of the live connection of each flow.
    live: BTreeMap<Flow, usize>,
}

impl<'a> Connections<'a> {
    pub(crate) const fn new(grid: Grid) -> Self {
        Self { grid, all: Vec::new(), live: BTreeMap::new() }
    }

    /// Adds a segment that the `card` with this MAC address got, with the payload that was `sent` and what was
    /// `delivered`; `None` where it is not TCP.
    pub(crate) fn add(
        &mut self,
        card: [u8; 6],
        segment: &Segment,
        sent: &'a [u8],
        delivered: Option<&'a [u8]>,
        tagged: bool,
    ) -> Option<Place> {
        let Transport::Tcp { seq, syn } = segment.transport else { return None };
        // A SYN takes one sequence number, before its payload.
        let seq = seq.wrapping_add(u32::from(syn));
        let origin = syn.then_some(seq);
        let live = self.live.get(&segment.flow).copied();
        let index = match live {
            // Another SYN with the same number is the same SYN, sent again.
            Some(index) if !syn || self.all[index].origin == origin => index,
            _ => {
                let (flow, base) = (segment.flow, seq);
                let (cards, segments) = (BTreeMap::new(), Vec::new());
                self.all.push(Connection { flow, origin, base, tagged: false, cards, segments });
                self.live.insert(flow, self.all.len() - 1);
                self.all.len() - 1
            }
        };
        let connection = &mut self.all[index];
        let mut again = false;
        if !sent.is_empty() {
            connection.segments.push(Copies { seq, sent, delivered });
            // What a SYN carries does not count: a server may refuse it (RFC 7413), and then it is as good as new.
            if tagged && !syn {
                connection.tagged = true;
                let (unwrapper, sent_to) =
                    connection.cards.entry(card).or_insert_with(|| (Unwrapper::new(seq), 0));
                let position = unwrapper.position(seq);
                again = position < *sent_to;
                *sent_to = position.saturating_add(sent.len() as i64).max(*sent_to);
            }
        }
        Some(Place { grid_origin: connection.origin, again })
    }

    /// Reassembles every tagged stream twice and compares what was sent with what arrived. Where values start
    /// is not known, nothing may have been compressed, and all bytes have to be the same.
    pub(crate) fn judge(
        &self,
        tally: &Tally,
        suspicion: &mut Suspicion,
        report: &mut Report,
    ) -> StreamResult {
        let mut result = StreamResult { max_error: 0.0, violations: 0 };
        for connection in self.all.iter().filter(|connection| connection.tagged) {
            let sent = |policy| connection.reassemble(policy, |copies| Some(copies.sent));
            let first = sent(Policy::FirstWins);
            for run in &first {
                suspicion.add(connection.flow, run.bytes.get(to_grid(run)..).unwrap_or(&[]));
            }
            let last = sent(Policy::LastWins);
            if first != last {
                // A value put together from two contents was never sent; no bound is promised for it.
                let flow = connection.flow;
                report.warnings.push(format!(
                    "{flow}: sent different bytes at the same place; its stream is not judged"
                ));
                continue;
            }
            report.streams += 1;
            for (policy, sent) in [(Policy::FirstWins, first), (Policy::LastWins, last)] {
                let got = connection.reassemble(policy, |copies| copies.delivered);
                let on_grid = connection.origin.is_some() || self.grid == Grid::Payload;
                let mut tally = Tally::new_like(tally);
                if let Err(what) = compare(&sent, &got, on_grid, &mut tally) {
                    report.fail(format!("stream {}, {policy:?}: {what}", connection.flow));
                }
                result.max_error = result.max_error.max(tally.max_error);
                result.violations += tally.violations;
            }
        }
        result
    }
}

/// What the comparison of all streams found.
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
}

/// Bytes from the start of a run to its first whole value.
fn to_grid(run: &Run) -> usize {
    (-run.start).rem_euclid(4) as usize
}

fn compare(sent: &[Run], got: &[Run], on_grid: bool, tally: &mut Tally) -> Result<(), String> {
    let shape = |runs: &[Run]| runs.iter().map(|run| (run.start, run.bytes.len())).collect::<Vec<_>>();
    if shape(sent) != shape(got) {
        return Err("not the same bytes arrived as were sent".into());
    }
    for (sent, got) in sent.iter().zip(got) {
        let head_len = if on_grid { to_grid(sent).min(sent.bytes.len()) } else { sent.bytes.len() };
        let tail_at = sent.bytes.len() - (sent.bytes.len() - head_len) % 4;
        if sent.bytes[..head_len] != got.bytes[..head_len] || sent.bytes[tail_at..] != got.bytes[tail_at..] {
            return Err(format!("a byte outside the values changed in the run at {}", sent.start));
        }
        tally.bytes(&sent.bytes[head_len..tail_at], &got.bytes[head_len..tail_at]);
    }
    match tally.violations {
        0 => Ok(()),
        some => Err(format!("{some} values not within the bound")),
    }
}

/// Tagged flows that seem to carry something other than values.
///
/// Framework headers hold small integers, lengths and flags, which read as nonzero subnormal `f32`s. The 32
/// tagged streams of the recorded all-reduces hold none in 2.3 million values; in those of gloo, which puts
/// 48 bytes before every message, they are 0.5 % to 23 %. The threshold of one in a thousand stands between,
/// five times below the second; a header of six such words is then found before messages of up to 24 000
/// bytes. At least four must be there, so that a chance one in a short stream says nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suspicion {
    /// Values and the nonzero subnormals among them.
    flows: BTreeMap<Flow, (u64, u64)>,
}

impl Suspicion {
    const ONE_IN: u64 = 1000;
    const LEAST: u64 = 4;

    pub(crate) fn add(&mut self, flow: Flow, values: &[u8]) {
        let (count, subnormal) = self.flows.entry(flow).or_default();
        *count += values.len() as u64 / 4;
        *subnormal += nonzero_subnormals(values);
    }

    pub(crate) fn warnings(self) -> impl Iterator<Item = String> {
        let odd = |&(_, (count, subnormal)): &(Flow, (u64, u64))| {
            subnormal >= Self::LEAST && subnormal * Self::ONE_IN > count
        };
        self.flows.into_iter().filter(odd).map(|(flow, (count, subnormal))| {
            format!(
                "{flow}: {subnormal} of {count} values are nonzero subnormals, as headers and integers are; \
                 tag only connections that carry nothing but values"
            )
        })
    }
}
