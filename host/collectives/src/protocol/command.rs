//! Commands, which go into the protocol beside bytes and time, and events, which come out.

use std::sync::Arc;

use super::Vote;
use crate::failure::Failure;
use crate::graph::{Message, Rank};
use crate::header::{PlanName, Purpose};
use crate::part::Bytes;
use crate::plan::Order;
use crate::strategies::are_apart;

/// One end of a connection whose other end has proved that it knows the token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Endpoint {
    /// Its use.
    pub purpose: Purpose,
    /// The rank at the other end.
    pub peer: Rank,
    /// Did this rank open it?
    pub outgoing: bool,
}

/// Messages that an exchange may receive.
#[derive(Clone, Debug)]
pub struct Expect {
    /// The number of the exchange, from 1.
    pub sequence: u64,
    /// The hash of the layout.
    pub layout: u64,
    /// Values of the buffer.
    pub values: u64,
    /// The order of big messages.
    pub order: Order,
    /// Jobs, as the plan orders them.
    pub jobs: Vec<ExpectJob>,
    /// By rank: how many messages.
    pub messages: Vec<usize>,
}

/// Messages that may come of one job.
#[derive(Clone, Debug)]
pub struct ExpectJob {
    /// Strategy and codec.
    pub plan: PlanName,
    /// The ranks of a group, between which it travels on tagged connections, if it does.
    pub tagged: Option<usize>,
    /// By partition: values, and the most bytes of a message.
    pub parts: Vec<(usize, usize)>,
}

impl ExpectJob {
    /// The connections on which it travels between two ranks.
    pub(crate) fn purpose(&self, one: Rank, other: Rank) -> Purpose {
        if self.tagged.is_some_and(|group| are_apart(group, one, other)) {
            Purpose::Tagged
        } else {
            Purpose::Data
        }
    }
}

/// A command of the exchange.
#[derive(Clone, Debug)]
pub enum Command {
    /// An exchange begins.
    Begin(Arc<Expect>),
    /// A message of the exchange that has begun has to leave. Big ones wait for their turn.
    Send {
        /// The receiver.
        to: Rank,
        /// Its job, by its place in the exchange.
        job: usize,
        /// Its partition.
        part: usize,
        /// Its name among those of its partition.
        message: Message,
        /// Its bytes.
        body: Bytes,
        /// Does it wait for its turn?
        big: bool,
    },
    /// The exchange is over.
    End,
    /// Is this checksum the same at all ranks?
    Compare {
        /// This rank's.
        checksum: u64,
        /// The cause of a failure if they differ, for people.
        means: String,
    },
    /// This rank begins a sum in the network: all will vote about it.
    Sum {
        /// One more than the last that was voted about.
        number: u64,
    },
    /// This rank's part of a sum in the network is over.
    Vote {
        /// One more than the last that was voted about.
        number: u64,
        /// The chunks that it has.
        vote: Vote,
    },
    /// Messages of these ranks did not come in time.
    Late {
        /// Ranks whose messages are missing.
        waiting: Vec<Rank>,
    },
    /// Something is wrong for certain.
    Fail(String),
    /// Rank 1 asks the server for this.
    Ask(String),
    /// The rank leaves.
    Close,
}

/// Something that the exchange has to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A message arrived.
    Arrived {
        /// The sender.
        from: Rank,
        /// Its job, by its place in the exchange.
        job: usize,
        /// Its partition.
        part: usize,
        /// Its name among those of its partition.
        message: Message,
        /// Its bytes.
        body: Bytes,
    },
    /// The checksum is the same everywhere.
    Alike,
    /// A rank gave up on the aggregator.
    Halt {
        /// In the sum with this number.
        number: u64,
    },
    /// All ranks have voted.
    Votes {
        /// About the sum with this number.
        number: u64,
        /// By rank: what it has.
        votes: Vec<Vote>,
    },
    /// At a server: what to do next; `None` if all others have left.
    Asked(Option<Vec<u8>>),
    /// The link is closed, because of this.
    Failed(Failure),
}
