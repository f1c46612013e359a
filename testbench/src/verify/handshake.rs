//! Which TCP connection a segment belongs to, and where that connection's stream starts: by what
//! its two ends say to each other, whatever an engine believes.
//!
//! A host may send several SYNs with different numbers before one connection comes about: a
//! listener that uses SYN cookies answers each SYN that it sees with another number, a client that
//! was refused tries again from the same port, and anybody behind the same engine may send a SYN in
//! another host's name. The one that counts is the one that the other side accepts, by its
//! acknowledgement number (RFC 9293 section 3.5).

use std::collections::BTreeMap;

use super::frame::{Flow, Tcp};
use super::stream::Unwrapper;

/// All handshakes of a capture.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    flows: BTreeMap<Flow, Starts>,
}

/// One direction of all connections that two ports had.
#[derive(Debug, Default)]
struct Starts {
    present: Option<Present>,
    /// SYNs since the present connection began, by the sequence number behind them.
    syns: Vec<SynSeen>,
    /// The one of them that the other side has accepted, until the first segment behind it.
    accepted: Option<SynSeen>,
}

/// A SYN.
#[derive(Clone, Copy, Debug)]
struct SynSeen {
    origin: u32,
    /// One of its copies had an option that binds the payload.
    binds: bool,
    /// It answers the other side's SYN.
    answers: bool,
}

/// The connection that segments belong to.
#[derive(Debug)]
struct Present {
    origin: Option<u32>,
    unwrapper: Unwrapper,
    /// Positions of the bytes sent; a FIN counts as one.
    lowest: i64,
    highest: i64,
    /// A FIN of this direction, or an RST of either.
    ended: bool,
}

/// A connection begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begins {
    /// Sequence number of its first byte. `None` if the capture does not show it: it has no SYN, or
    /// several and no sign which of them counts.
    pub(crate) origin: Option<u32>,
    /// Its SYN had an option that binds the payload.
    pub(crate) binds: bool,
}

impl From<Option<SynSeen>> for Begins {
    fn from(seen: Option<SynSeen>) -> Self {
        Self { origin: seen.map(|seen| seen.origin), binds: seen.is_some_and(|seen| seen.binds) }
    }
}

impl Handshakes {
    /// Takes note of the next segment of a capture, which has `len` bytes of payload. `Some` if a
    /// connection begins with it that it belongs to; SYNs belong to none.
    pub(crate) fn begins(&mut self, flow: Flow, tcp: Tcp, len: u32) -> Option<Begins> {
        if tcp.rst || tcp.ack.is_some() {
            let back = self.flows.entry(flow.reversed()).or_default();
            if tcp.rst {
                back.end();
            } else if let Some(ack) = tcp.ack {
                back.acknowledged(ack, tcp.syn);
            }
        }
        let starts = self.flows.entry(flow).or_default();
        if tcp.syn {
            starts.note_syn(tcp);
            return None;
        }
        // Sequence numbers that it takes.
        let space = i64::from(len) + i64::from(tcp.fin);
        let begins = starts.which(tcp.seq, space);
        if let Some(Begins { origin, .. }) = begins {
            if origin.is_some() {
                starts.syns.clear();
            }
            let base = origin.unwrap_or(tcp.seq);
            starts.present = Some(Present {
                origin,
                unwrapper: Unwrapper::new(base),
                lowest: i64::from(tcp.seq.wrapping_sub(base).cast_signed()).min(0),
                highest: 0,
                ended: false,
            });
        }
        if let Some(present) = &mut starts.present {
            let position = present.unwrapper.position(tcp.seq);
            present.lowest = present.lowest.min(position);
            present.highest = present.highest.max(position + space);
        }
        if tcp.fin || tcp.rst {
            starts.end();
        }
        begins
    }
}

impl Starts {
    fn end(&mut self) {
        if let Some(present) = &mut self.present {
            present.ended = true;
        }
    }

    fn note_syn(&mut self, syn: Tcp) {
        let (origin, binds, answers) = (syn.first_byte(), syn.binds, syn.ack.is_some());
        if let Some(known) = self.syns.iter_mut().find(|seen| seen.origin == origin) {
            known.answers |= answers;
            known.binds |= binds;
        } else if self.present.as_ref().is_none_or(|present| present.origin != Some(origin)) {
            self.syns.push(SynSeen { origin, binds, answers });
        }
    }

    /// The other side acknowledged this number. A SYN is accepted by a SYN that acknowledges it, a
    /// SYN that answers one by any other segment.
    fn acknowledged(&mut self, ack: u32, syn: bool) {
        if self.accepted.is_none() {
            let accepted = |seen: &&SynSeen| seen.origin == ack && seen.answers != syn;
            self.accepted = self.syns.iter().find(accepted).copied();
        }
    }

    /// Whether a segment that is no SYN is the first of a new connection. It takes `space` sequence
    /// numbers from `seq` on.
    fn which(&mut self, seq: u32, space: i64) -> Option<Begins> {
        if let Some(seen) = self.accepted.take() {
            return Some(Some(seen).into());
        }
        let follows = self.syns.iter().find(|seen| seen.origin == seq).copied();
        let sole = if let [seen] = self.syns[..] { Some(seen) } else { None };
        match &mut self.present {
            None => Some(follows.or(sole).into()),
            // Nobody accepted another start: who sends a SYN into a live connection does not move
            // its stream.
            Some(Present { origin: Some(_), ended: false, .. }) => None,
            Some(Present { origin: None, ended: false, .. }) => {
                follows.or(sole).map(|seen| Some(seen).into())
            }
            Some(present) => {
                let position = present.unwrapper.position(seq);
                let old = present.lowest..=present.highest;
                let resent = old.contains(&position) && position + space <= present.highest;
                match follows {
                    Some(_) => Some(follows.into()),
                    None if resent || self.syns.is_empty() => None,
                    None => Some(sole.into()),
                }
            }
        }
    }
}
