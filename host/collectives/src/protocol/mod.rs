//! The protocol between ranks, without sockets, threads or a clock.
//!
//! Bytes, commands and the time go in; bytes, [events](Event) and the next timeout come out. So a
//! simulation and a fuzzer drive the same code as the thread that has the sockets. Whoever drives a
//! [`Protocol`] makes this turn again and again:
//!
//! 1. [`handle_command`](Protocol::handle_command) for what the exchange asks for,
//! 2. for each connection, [`poll_transmit`](Protocol::poll_transmit) and, for what left,
//!    [`handle_sent`](Protocol::handle_sent),
//! 3. for each connection that has bytes, [`room`](Protocol::room) and
//!    [`handle_filled`](Protocol::handle_filled); at its end, [`handle_end`](Protocol::handle_end),
//! 4. [`handle_timeout`](Protocol::handle_timeout), at the latest at
//!    [`next_timeout`](Protocol::next_timeout),
//! 5. [`poll_event`](Protocol::poll_event) until there is none, and
//!    [`poll_finish`](Protocol::poll_finish).
//!
//! Nothing that a peer sends makes it panic, loop, or keep more than the exchange's own layout,
//! [`MAX_ANSWERS`] control frames for each peer, and [`MAX_REQUEST`] bytes of requests.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use crate::agreement::{End, Vote};
use crate::failure::{Failure, Weight, list};
use crate::graph::{Message, Rank};
use crate::header::{Control, Header, Kind, MAX_CONTROL};
pub use crate::header::{PlanName, Purpose};
use crate::part::Bytes;

mod arrival;
mod ballot;
mod command;
mod comparison;
mod connection;
mod ending;
mod framing;
mod liveness;
mod requests;
#[cfg(test)]
mod tests;
mod turns;

use ballot::Ballot;
pub use command::{Command, Endpoint, Event, Expect, ExpectJob};
use comparison::Comparison;
use connection::{Connection, Leaves, Out};
use ending::closed;
use liveness::Liveness;
pub(crate) use liveness::explanation;
pub use requests::MAX_REQUEST;
use requests::Requests;
use turns::Turns;

/// The most control frames that wait for a peer which does not read them, before it is an error to
/// send what has to be answered.
pub const MAX_ANSWERS: usize = 1 << 14;
/// Bytes of a connection that are read at once when nobody wants them any more.
const DISCARD: usize = 1 << 16;

/// One end of a connection, by its place in what [`Protocol::new`] is given.
pub type ConnectionId = usize;

/// A phase of the protocol.
enum Phase {
    /// It exchanges.
    Open,
    /// It failed: all hear why, and then close.
    Failing {
        failure: Failure,
        /// They have until then to hear it.
        until: Instant,
        /// Was rank 0 connected when this rank failed?
        had_root: bool,
    },
    /// This rank says goodbye. First all that waits is sent; then the others have a moment to read
    /// it.
    Leaving { until: Instant, sent: bool },
    /// It is over.
    Closed,
}

/// A rank's side of the protocol.
pub struct Protocol {
    rank: Rank,
    ranks: usize,
    /// Is rank 0 a server?
    served: bool,
    timeout: Duration,
    connections: Vec<Connection>,
    /// The exchange that this rank began last.
    expect: Option<Arc<Expect>>,
    /// Is it under way?
    active: bool,
    /// By rank: messages of it that may still begin to arrive.
    owed: Vec<usize>,
    turns: Turns,
    liveness: Liveness,
    comparison: Comparison,
    ballot: Ballot,
    requests: Requests,
    phase: Phase,
    /// A place for bytes that nobody wants any more.
    discard: Vec<u8>,
    events: VecDeque<Event>,
}

impl Protocol {
    /// A rank that is connected to all others by these connections. If it is `served`, rank 0 is a
    /// server.
    #[must_use]
    pub fn new(
        rank: Rank,
        ranks: usize,
        served: bool,
        timeout: Duration,
        connections: impl IntoIterator<Item = Endpoint>,
        now: Instant,
    ) -> Self {
        Self {
            rank,
            ranks,
            served,
            timeout,
            connections: connections.into_iter().map(Connection::new).collect(),
            expect: None,
            active: false,
            owed: vec![0; ranks],
            turns: Turns::new(rank, ranks, now),
            liveness: Liveness::new(rank, ranks, served, timeout, now),
            comparison: Comparison::new(ranks),
            ballot: Ballot::new(rank, ranks),
            requests: Requests::default(),
            phase: Phase::Open,
            discard: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// Takes what the exchange asks for.
    pub fn handle_command(&mut self, command: Command, now: Instant) {
        if !matches!(self.phase, Phase::Open) {
            // The exchange has not heard yet that it failed.
            return;
        }
        let result = match command {
            Command::Begin(expect) => self.begin(expect, now),
            Command::Send { to, job, part, message, body, big } => {
                self.send(to, job, part, message, body, big, now)
            }
            Command::End => self.end(),
            Command::Compare { checksum, means } => self.compare(checksum, means, now),
            Command::Sum { number } => {
                self.ballot.begin(number);
                self.deserted()
            }
            Command::Vote { number, vote } => self.vote(number, vote),
            Command::Late { waiting } => Err(self.late(&waiting)),
            Command::Fail(cause) => Err(self.certain(cause)),
            Command::Ask(text) => {
                let mut parts = text.as_bytes().chunks(MAX_CONTROL - 1).peekable();
                while let Some(part) = parts.next() {
                    let ask = Control::Ask { last: parts.peek().is_none(), text: part.to_vec() };
                    self.control(0, &ask);
                }
                Ok(())
            }
            Command::Close => {
                self.leave(now);
                Ok(())
            }
        };
        self.settle(result, now);
    }

    /// May bytes of this connection be read now? If not, they wait where they are, and so does
    /// their sender.
    #[must_use]
    pub fn wants_bytes(&self, at: ConnectionId) -> bool {
        let connection = &self.connections[at];
        match self.phase {
            Phase::Open => connection.parked.is_none() && !connection.left,
            Phase::Failing { .. } => connection.is_control() && !connection.left,
            Phase::Leaving { .. } => !connection.left,
            Phase::Closed => false,
        }
    }

    /// The place for the next bytes of this connection; `None` if they have to wait. It is never
    /// empty.
    pub fn room(&mut self, at: ConnectionId) -> Option<&mut [u8]> {
        if !self.wants_bytes(at) {
            return None;
        }
        if matches!(self.phase, Phase::Leaving { .. }) {
            self.discard.resize(DISCARD, 0);
            return Some(&mut self.discard);
        }
        Some(self.connections[at].framer.room())
    }

    /// So many bytes were put into the [`room`](Self::room).
    pub fn handle_filled(&mut self, at: ConnectionId, len: usize, now: Instant) {
        if !self.wants_bytes(at) || matches!(self.phase, Phase::Leaving { .. }) {
            return;
        }
        let peer = self.connections[at].peer;
        match self.connections[at].framer.fill(len) {
            Ok(None) => {}
            Ok(Some(arrived)) => {
                let result = self.arrived(at, arrived, now);
                self.settle(result, now);
            }
            Err(malformed) => {
                let failure = self.certain(format!("rank {peer} sent {malformed}"));
                self.settle(Err(failure), now);
            }
        }
    }

    /// Takes bytes as they come, and returns how many: the others have to wait.
    pub fn handle_bytes(&mut self, at: ConnectionId, mut bytes: &[u8], now: Instant) -> usize {
        let mut taken = 0;
        while !bytes.is_empty()
            && let Some(room) = self.room(at)
        {
            let len = room.len().min(bytes.len());
            room[..len].copy_from_slice(&bytes[..len]);
            self.handle_filled(at, len, now);
            (taken, bytes) = (taken + len, &bytes[len..]);
        }
        taken
    }

    /// The connection ended, for this reason if there is one. If that was no farewell, there may be
    /// a better cause, which is still on its way.
    pub fn handle_end(&mut self, at: ConnectionId, why: &str, now: Instant) {
        self.turns.remove(at);
        let connection = &mut self.connections[at];
        connection.out.clear();
        connection.backlog = false;
        if std::mem::replace(&mut connection.left, true) || !matches!(self.phase, Phase::Open) {
            self.settle(Ok(()), now);
            return;
        }
        let peer = connection.peer;
        self.liveness.left(peer);
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        let cause = format!("{}{why}", closed(peer));
        self.liveness.suspect(Failure { reporter: self.rank, cause, weight: Weight::Closed }, now);
    }

    /// Does anything wait to leave on this connection, and may it?
    #[must_use]
    pub fn wants_to_send(&self, at: ConnectionId) -> bool {
        self.connections[at]
            .out
            .front()
            .is_some_and(|out| out.leaves == Leaves::AtOnce || self.turns.is_next(at))
    }

    /// Bytes that may leave on this connection now, of many messages at once.
    #[must_use]
    pub fn poll_transmit(&self, at: ConnectionId) -> Vec<IoSlice<'_>> {
        self.connections[at].ready(&self.turns, at)
    }

    /// So many bytes of [`poll_transmit`](Self::poll_transmit) have left. Returns how many messages
    /// that completes.
    pub fn handle_sent(&mut self, at: ConnectionId, len: usize, now: Instant) -> u64 {
        let connection = &mut self.connections[at];
        let peer = connection.peer;
        let (mut messages, mut granted) = (0, 0);
        for out in connection.sent(len) {
            messages += u64::from(out.body.is_some());
            if out.leaves != Leaves::AtOnce {
                self.turns.pop();
            }
            granted += u32::from(out.leaves == Leaves::Granted);
        }
        for _ in 0..granted {
            if let Some((to, frame)) = self.turns.left(peer, now) {
                self.control(to, &frame);
            }
        }
        self.settle(Ok(()), now);
        messages
    }

    /// Do bytes that have left still wait, because whoever moves them encrypts them, too? A rank
    /// that leaves waits for them.
    pub fn handle_backlog(&mut self, at: ConnectionId, waits: bool, now: Instant) {
        if std::mem::replace(&mut self.connections[at].backlog, waits) && !waits {
            self.settle(Ok(()), now);
        }
    }

    /// A connection on which nothing more leaves, so that its end may be told: each once.
    pub fn poll_finish(&mut self) -> Option<ConnectionId> {
        let all = match self.phase {
            Phase::Leaving { sent, .. } => sent,
            // The others close when they have read why.
            Phase::Failing { .. } => false,
            Phase::Open | Phase::Closed => return None,
        };
        let root = self.rank == 0;
        let done =
            |connection: &Connection| all || root && connection.is_control() && connection.is_flushed();
        let at = self.connections.iter().position(|connection| !connection.finished && done(connection))?;
        self.connections[at].finished = true;
        Some(at)
    }

    /// Does what the time asks for.
    pub fn handle_timeout(&mut self, now: Instant) {
        let result = if matches!(self.phase, Phase::Open) { self.look_after(now) } else { Ok(()) };
        self.settle(result, now);
    }

    /// The time at which [`handle_timeout`](Self::handle_timeout) has something to do, if nothing
    /// happens before.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Open => {
                let waits = self.active || self.comparison.waits();
                [self.liveness.next_timeout(waits), self.turns.next_timeout()].into_iter().flatten().min()
            }
            Phase::Failing { until, .. } | Phase::Leaving { until, .. } => Some(until),
            Phase::Closed => None,
        }
    }

    /// The next event for the exchange.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Is it over? Then connections may close.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }
}

/// Commands.
impl Protocol {
    fn begin(&mut self, expect: Arc<Expect>, now: Instant) -> Result<(), Failure> {
        self.owed.clone_from(&expect.messages);
        self.turns.begin(expect.order);
        let gone = |connection: &&Connection| {
            connection.left && (connection.is_control() || self.owed[connection.peer] > 0)
        };
        // If a connection closed without a goodbye, its cause is not known yet.
        if let Some(gone) = self.connections.iter().find(gone).filter(|_| !self.liveness.suspects()) {
            let cause = format!("rank {} left before exchange {}", gone.peer, expect.sequence);
            return Err(self.certain(cause));
        }
        self.liveness.begin(expect.sequence, now);
        self.requests.begin();
        self.expect = Some(expect);
        self.active = true;
        for at in 0..self.connections.len() {
            if let Some(header) = self.connections[at].parked.take() {
                self.header(at, header)?;
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of its command")]
    fn send(
        &mut self,
        to: Rank,
        job: usize,
        part: usize,
        message: Message,
        body: Bytes,
        big: bool,
        now: Instant,
    ) -> Result<(), Failure> {
        let expect = self.expect.as_ref().expect("an exchange begins before it sends");
        let known = &expect.jobs[job];
        let header = Header {
            kind: Kind::Message(message.format),
            sequence: expect.sequence,
            layout: expect.layout,
            values: expect.values,
            job: job as u32,
            part: part as u32,
            partitions: known.parts.len() as u32,
            tag: message.tag,
            elements: known.parts[part].0 as u32,
            len: body.len() as u32,
            plan: known.plan,
        };
        let purpose = known.purpose(self.rank, to);
        let fits = |connection: &Connection| {
            let way = purpose != Purpose::Tagged || connection.outgoing;
            connection.peer == to && connection.purpose == purpose && way
        };
        let at = self.connections.iter().position(fits).expect("connected to everybody");
        let leaves = self.turns.leaves(to, big, expect.order, self.is_coordinated());
        let out = Out::message(purpose, &header, body, leaves);
        let bytes = out.len() as u64;
        self.connections[at].out.push_back(out);
        match self.turns.join(at, to, leaves, bytes, now) {
            Ok(wish) => {
                wish.into_iter().for_each(|wish| self.control(0, &wish));
                Ok(())
            }
            Err(cause) => Err(self.certain(cause)),
        }
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.active = false;
        match self.owed.iter().position(|&owed| owed > 0) {
            Some(rank) => {
                Err(self.certain(format!("rank {rank} owes messages after the end of the exchange")))
            }
            None => Ok(()),
        }
    }

    fn compare(&mut self, checksum: u64, means: String, now: Instant) -> Result<(), Failure> {
        let number = self.comparison.begin(means);
        self.liveness.all_heard(now);
        if self.rank == 0 {
            return self.compared(0, number, checksum);
        }
        self.control(0, &Control::Compare { number, checksum });
        Ok(())
    }

    fn vote(&mut self, number: u64, vote: Vote) -> Result<(), Failure> {
        self.ballot.cast(number);
        self.deserted()?;
        if self.rank == 0 {
            return self.voted(0, number, vote);
        }
        self.control(0, &Control::Vote { number, vote });
        Ok(())
    }

    fn late(&self, waiting: &[Rank]) -> Failure {
        let sequence = self.sequence();
        let cause = format!(
            "exchange {sequence}: timed out after {:?} waiting for rank{} {}",
            self.timeout,
            if waiting.len() == 1 { "" } else { "s" },
            list(waiting)
        );
        Failure { reporter: self.rank, cause, weight: Weight::Late { sequence } }
    }
}

/// Frames that leave.
impl Protocol {
    /// Puts a frame into the queue of a control connection.
    fn control(&mut self, to: Rank, frame: &Control) {
        if let Some(connection) = self.control_of(to) {
            connection.out.push_back(Out::control(frame));
        }
    }

    fn control_of(&mut self, peer: Rank) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.is_control() && connection.peer == peer)
    }

    /// [`control`](Self::control) because of what a peer sent, who may send more than it reads.
    fn answer(&mut self, to: Rank, frame: &Control) -> Result<(), Failure> {
        if self.control_of(to).is_some_and(|connection| connection.out.len() >= MAX_ANSWERS) {
            return Err(self.certain(format!("rank {to} leaves {MAX_ANSWERS} control frames unread")));
        }
        self.control(to, frame);
        Ok(())
    }

    /// At rank 0: tells all others.
    fn tell(&mut self, frame: &Control) -> Result<(), Failure> {
        (1..self.ranks).try_for_each(|rank| self.answer(rank, frame))
    }

    /// Is there a coordinator? It leaves with rank 0.
    fn is_coordinated(&self) -> bool {
        self.rank == 0 || self.has_root()
    }

    fn has_root(&self) -> bool {
        self.connections
            .iter()
            .any(|connection| connection.is_control() && connection.peer == 0 && !connection.left)
    }

    /// At rank 0: tells ranks what they may send.
    fn give_slots(&mut self, now: Instant) -> Result<(), Failure> {
        while let Some(slot) = self.turns.slot(now) {
            for (to, frame) in slot.map_err(|cause| self.certain(cause))? {
                self.answer(to, &frame)?;
            }
        }
        Ok(())
    }
}

impl Protocol {
    fn sequence(&self) -> u64 {
        self.expect.as_ref().map_or(0, |expect| expect.sequence)
    }

    fn certain(&self, cause: String) -> Failure {
        Failure { reporter: self.rank, cause, weight: Weight::Certain }
    }

    /// Asks for signs of life, and fails if there are none.
    fn look_after(&mut self, now: Instant) -> Result<(), Failure> {
        if let Some(failure) = self.liveness.known(now) {
            return Err(failure);
        }
        if self.liveness.ping(now) {
            for rank in 1..self.ranks {
                // What waits already makes a rank show that it lives.
                if self.control_of(rank).is_some_and(|connection| connection.out.is_empty()) {
                    self.control(rank, &Control::Ping);
                }
            }
        }
        self.give_slots(now)?;
        let waits = self.active || self.comparison.waits();
        match self.liveness.silent(now).filter(|_| waits) {
            Some(cause) => Err(self.certain(cause)),
            None => Ok(()),
        }
    }
}
