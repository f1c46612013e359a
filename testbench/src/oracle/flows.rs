//! Judges the flow table as a state machine: any events, against a plain model that knows the same laws and has
//! no table.

use std::collections::HashMap;

use arbitrary::{Arbitrary, Unstructured};
use gradwire::flow::trust::TrustState;
use gradwire::flow::{FlowTable, Millis, Phase, START_REACH, Syn};
use gradwire::rules::Grid;
use gradwire::verdict::{PassReason, Traffic};
use gradwire::wire::flow_key::FlowKey;

/// So many flows: more than the table has places.
const FLOWS: u8 = 24;
/// Segments are no longer.
const MAX_LEN: u16 = 9000;
/// Segments of one refusal: more than the sample that trust is judged on.
const MAX_REFUSED: u8 = 72;
/// Events of one input.
const MAX_EVENTS: usize = 200;

/// What one direction of a TCP connection sends.
#[derive(Clone, Copy, Debug, Arbitrary)]
enum Event {
    Syn {
        flow: u8,
        isn: u32,
        tagged: bool,
        doubtful: bool,
    },
    /// `ahead` bytes past the highest sequence number sent, or before it.
    Payload {
        flow: u8,
        ahead: i16,
        len: u16,
        compress: bool,
    },
    /// Anywhere in the sequence space.
    Jump {
        flow: u8,
        seq: u32,
        len: u16,
    },
    /// Without a SYN: its first payload fixes the grid.
    Open {
        flow: u8,
    },
    /// Segments are compressed and sent again, as by a peer that restores nothing.
    Refused {
        flow: u8,
        segments: u8,
        len: u16,
    },
    End {
        flow: u8,
    },
    /// Time passes, or goes back.
    Time {
        seconds: i16,
    },
}

/// A connection as RFC 9293 and FORMAT.md section 6 describe it.
#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// Sequence number of the stream's first byte, where exactly one start is known.
    origin: Option<u32>,
    tagged: bool,
    doubtful: bool,
    ended: bool,
    /// Sequence number of the first tagged payload.
    first: Option<u32>,
    /// One behind the highest sequence number of tagged payload; behind the last one where it is doubtful.
    sent: Option<u32>,
    resent: bool,
    traffic: Traffic,
}

impl Connection {
    /// What its host sends next, as far as is known.
    fn next(&self) -> u32 {
        self.sent.or(self.origin).unwrap_or(0)
    }
}

/// Sixteen places, fewer than [`FLOWS`].
type Table = FlowTable<2>;

/// Runs events from a fuzzer's bytes, read by `arbitrary`.
///
/// # Panics
/// The table allows what the model forbids, or forbids what the model allows for a reason that is not there.
pub fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let mut table = Box::new(Table::new(u64::arbitrary(&mut u).unwrap_or(0)));
    let mut model: HashMap<u8, Connection> = HashMap::new();
    let mut now = Millis(1 << 40);
    for _ in 0..MAX_EVENTS {
        let Ok(event) = u.arbitrary::<Event>() else { break };
        if u.is_empty() {
            break;
        }
        step(&mut table, &mut model, &mut now, event);
        assert!(table.iter().count() <= 16);
        for (flow, connection) in &model {
            let Some(entry) = table.find(&key(*flow)) else { continue };
            assert_eq!(*entry.traffic(), connection.traffic);
            assert_eq!(entry.phase() == Phase::Closed, connection.ended);
            assert_eq!(entry.phase() == Phase::Doubtful, connection.doubtful && !connection.ended);
            assert!(connection.resent || entry.trust() == TrustState::Trusted);
        }
    }
}

fn key(flow: u8) -> FlowKey {
    FlowKey([u64::from(flow) << 32, 0, 0, 0, 0])
}

fn step(table: &mut Table, model: &mut HashMap<u8, Connection>, now: &mut Millis, event: Event) {
    // A flow that lost its place to another is forgotten.
    model.retain(|flow, _| table.find(&key(*flow)).is_some());
    match event {
        Event::Syn { flow, isn, tagged, doubtful } => {
            let flow = flow % FLOWS;
            if table.syn(&key(flow), Syn { isn, tagged, doubtful }, *now).is_err() {
                assert!(!model.contains_key(&flow), "no room for a flow that has a place");
                return;
            }
            let origin = Some(isn.wrapping_add(1));
            let before = model.get(&flow).copied();
            let next = match before {
                Some(before) if doubtful => Connection { doubtful: true, ended: false, ..before },
                // The SYN of the connection that has ended, late.
                Some(before) if before.ended && before.origin == origin => before,
                Some(before) if !before.ended && before.origin != origin => {
                    Connection { doubtful: true, ..before }
                }
                // The same SYN again.
                Some(before) if !before.ended => {
                    let opening = !before.doubtful && before.sent.is_none();
                    Connection { tagged: before.tagged || tagged && opening, ..before }
                }
                _ if doubtful => Connection { doubtful, ..Connection::default() },
                _ => Connection { origin, tagged, ..Connection::default() },
            };
            model.insert(flow, next);
        }
        Event::Open { flow } => {
            let flow = flow % FLOWS;
            if table.find_or_open(&key(flow), *now).is_err() {
                assert!(!model.contains_key(&flow), "no room for a flow that has a place");
                return;
            }
            model.entry(flow).or_insert(Connection { tagged: true, ..Connection::default() });
        }
        Event::Payload { flow, ahead, len, compress } => {
            let flow = flow % FLOWS;
            let at = model.get(&flow).map_or(0, Connection::next);
            let seq = at.wrapping_add_signed(ahead.into());
            payload(table, model, *now, flow, seq, len, compress);
        }
        Event::Jump { flow, seq, len } => payload(table, model, *now, flow % FLOWS, seq, len, true),
        Event::Refused { flow, segments, len } => {
            let flow = flow % FLOWS;
            let len = len % MAX_LEN;
            let at = model.get(&flow).map_or(0, Connection::next);
            let starts = (0..u32::from(segments % MAX_REFUSED))
                .map(|segment| at.wrapping_add(segment * u32::from(len)));
            for seq in starts.clone().chain(starts) {
                payload(table, model, *now, flow, seq, len, true);
            }
        }
        Event::End { flow } => {
            let flow = flow % FLOWS;
            if let (Some(known), Some(connection)) = (table.find(&key(flow)), model.get_mut(&flow)) {
                // Elsewhere in the stream it ends nothing.
                known.end(connection.next() ^ 1);
                assert_eq!(known.phase() == Phase::Closed, connection.ended);
                known.end(connection.next());
                connection.ended = true;
            }
        }
        Event::Time { seconds } => {
            *now = Millis(now.0.saturating_add_signed(i64::from(seconds) * 1000));
        }
    }
}

fn payload(
    table: &mut Table,
    model: &mut HashMap<u8, Connection>,
    now: Millis,
    flow: u8,
    seq: u32,
    len: u16,
    compress: bool,
) {
    let len = u32::from(len % MAX_LEN).max(1);
    let Some(entry) = table.find(&key(flow)) else { return };
    let connection = model.get_mut(&flow).expect("the table knows no flow that the model does not");
    let verdict = entry.admit(seq, len, now);
    connection.traffic.frames += 1;
    connection.traffic.bytes += u64::from(len);
    let end = seq.wrapping_add(len);
    if connection.ended {
        assert_eq!(verdict, Err(PassReason::GridUnknown));
        return;
    }
    let far = |origin: u32| connection.tagged && seq.wrapping_sub(origin) >= START_REACH;
    connection.doubtful |= connection.sent.is_none() && connection.origin.is_some_and(far);
    connection.tagged = true;
    if connection.doubtful {
        connection.sent = Some(end);
        assert_eq!(verdict, Err(PassReason::GridDoubtful));
        return;
    }
    let before = |a: u32, b: u32| a.wrapping_sub(b) > u32::MAX / 2;
    let again = connection.sent.is_some_and(|sent| before(seq, sent));
    connection.sent = match connection.sent {
        Some(sent) if again && !before(sent, end) => Some(sent),
        _ => Some(end),
    };
    connection.resent |= again;
    let first = *connection.first.get_or_insert(seq);
    match verdict {
        Ok(()) => {
            assert!(!again, "bytes sent before");
            let to_grid = connection.origin.unwrap_or(first).wrapping_sub(seq) % 4;
            let known = connection.origin.map(|_| to_grid as usize).ok_or(PassReason::GridUnknown);
            assert_eq!(entry.head_len(seq, Grid::Connection), known);
            assert_eq!(entry.head_len(seq, Grid::Payload).is_ok(), to_grid == 0);
            if compress {
                entry.compressed(seq, 1);
                connection.traffic.compressed += 1;
                connection.traffic.saved += 1;
            }
        }
        Err(PassReason::Resent) => assert!(again, "nothing was sent before"),
        Err(PassReason::Bypassed) => assert!(connection.resent && !again, "no resend, no bypass"),
        Err(reason) => panic!("{reason}"),
    }
}
