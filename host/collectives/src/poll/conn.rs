//! A connection: what waits to leave on it, and what has arrived of the next header, message or frame.

use std::collections::VecDeque;
use std::net::TcpStream;

use crate::graph::{Message, Rank};
use crate::handshake::Purpose;
use crate::header::{CONTROL_HEAD, HEADER_LEN, Header};
use crate::part::Bytes;
use crate::spread::{SPREAD, spread};

pub(super) struct Conn {
    pub(super) purpose: Purpose,
    pub(super) peer: Rank,
    pub(super) outgoing: bool,
    pub(super) stream: TcpStream,
    pub(super) out: VecDeque<Out>,
    pub(super) input: Input,
    /// The header of a message of the next exchange, which waits for its beginning.
    pub(super) parked: Option<Header>,
    pub(super) left: bool,
}

pub(super) struct Out {
    pub(super) head: Vec<u8>,
    pub(super) body: Option<Bytes>,
    pub(super) at: usize,
    /// It waits for its turn.
    pub(super) big: bool,
    /// The coordinator says when that is.
    pub(super) asked: bool,
}

impl Out {
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, |body| body.len())
    }
}

#[expect(
    clippy::large_enum_variant,
    reason = "one for each connection; in a box it would be allocated for each message"
)]
pub(super) enum Input {
    Head { bytes: [u8; SPREAD * HEADER_LEN], at: usize },
    Message { header: Header, message: Message, bytes: Vec<u8>, at: usize },
    Control { kind: u8, bytes: Vec<u8>, at: usize },
}

pub(super) const NEW: Input = Input::Head { bytes: [0; SPREAD * HEADER_LEN], at: 0 };

impl Purpose {
    /// Bytes before a message or a frame.
    pub(super) const fn head_len(self) -> usize {
        match self {
            Self::Control => CONTROL_HEAD,
            Self::Data => HEADER_LEN,
            Self::Tagged => SPREAD * HEADER_LEN,
        }
    }
}

/// A header as it travels.
pub(super) fn head(purpose: Purpose, header: &Header) -> Vec<u8> {
    let bytes = header.to_bytes();
    if purpose == Purpose::Tagged { spread(&bytes) } else { bytes.to_vec() }
}
