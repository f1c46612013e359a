//! A connection: what waits to leave on it, and what has arrived of the next message or frame.

use std::collections::VecDeque;
use std::io::IoSlice;

use super::framing::Framer;
use super::turns::Turns;
use super::{ConnectionId, Endpoint};
use crate::graph::Rank;
use crate::header::{Control, Header, Purpose};
use crate::part::Bytes;
use crate::spread::spread;

/// The most slices that leave at once: of one `writev`.
const MAX_SLICES: usize = 64;

pub(super) struct Connection {
    pub(super) purpose: Purpose,
    pub(super) peer: Rank,
    pub(super) outgoing: bool,
    pub(super) out: VecDeque<Out>,
    pub(super) framer: Framer,
    /// The header of a message of the next exchange, which waits for its beginning.
    pub(super) parked: Option<Header>,
    /// Nothing more comes.
    pub(super) left: bool,
    /// Bytes that have left wait outside, before they go.
    pub(super) backlog: bool,
    /// Nothing more leaves.
    pub(super) finished: bool,
}

/// The moment at which a message may leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaves {
    /// When those before it on its connection have left.
    AtOnce,
    /// When it is its turn among the big messages of this rank.
    InTurn,
    /// When the coordinator has said so, and it is its turn.
    Granted,
}

/// A message or a frame that waits to leave.
pub(super) struct Out {
    head: Vec<u8>,
    pub(super) body: Option<Bytes>,
    /// Bytes that have left.
    at: usize,
    pub(super) leaves: Leaves,
}

impl Out {
    pub(super) fn message(purpose: Purpose, header: &Header, body: Bytes, leaves: Leaves) -> Self {
        Self { head: head(purpose, header), body: Some(body), at: 0, leaves }
    }

    pub(super) fn control(frame: &Control) -> Self {
        Self { head: frame.to_bytes(), body: None, at: 0, leaves: Leaves::AtOnce }
    }

    pub(super) fn len(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, |body| body.len())
    }

    /// The bytes that have not left.
    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let head = self.head.get(self.at..).unwrap_or_default();
        let body = self.body.as_ref().and_then(|body| body.get(self.at.saturating_sub(self.head.len())..));
        [head, body.unwrap_or_default()].into_iter().filter(|slice| !slice.is_empty())
    }
}

impl Connection {
    pub(super) fn new(Endpoint { purpose, peer, outgoing }: Endpoint) -> Self {
        let framer = Framer::new(purpose);
        let out = VecDeque::new();
        Self {
            purpose,
            peer,
            outgoing,
            out,
            framer,
            parked: None,
            left: false,
            backlog: false,
            finished: false,
        }
    }

    pub(super) fn is_control(&self) -> bool {
        self.purpose == Purpose::Control
    }

    /// Is everything gone?
    pub(super) fn is_flushed(&self) -> bool {
        self.out.is_empty() && !self.backlog
    }

    /// Bytes that may leave now.
    pub(super) fn ready(&self, turns: &Turns, at: ConnectionId) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(MAX_SLICES.min(2 * self.out.len()));
        let mut turns = turns.order();
        for out in &self.out {
            if slices.len() + 2 > MAX_SLICES || out.leaves != Leaves::AtOnce && turns.next() != Some(at) {
                break;
            }
            slices.extend(out.slices().map(IoSlice::new));
        }
        slices
    }

    /// So many bytes have left; returns what is whole now.
    pub(super) fn sent(&mut self, mut len: usize) -> Vec<Out> {
        let mut whole = Vec::new();
        while let Some(out) = self.out.front_mut() {
            let take = len.min(out.len() - out.at);
            out.at += take;
            len -= take;
            if out.at < out.len() {
                break;
            }
            whole.extend(self.out.pop_front());
        }
        whole
    }

    /// Nothing follows what waits already.
    pub(super) fn say_bye(&mut self, sequence: u64) {
        let head = match self.purpose {
            Purpose::Control => Control::Bye.to_bytes(),
            Purpose::Data | Purpose::Tagged => head(self.purpose, &Header::bye(sequence)),
        };
        self.out.push_back(Out { head, body: None, at: 0, leaves: Leaves::AtOnce });
    }
}

/// A header as it travels.
fn head(purpose: Purpose, header: &Header) -> Vec<u8> {
    let bytes = header.to_bytes();
    if purpose == Purpose::Tagged { spread(&bytes) } else { bytes.to_vec() }
}
