//! Messages and frames that arrive: each is what this rank waits for, or an error that names its
//! sender.

use std::sync::Arc;
use std::time::Instant;

use super::ballot::Count;
use super::connection::Connection;
use super::framing::Arrived;
use super::{ConnectionId, Event, Phase, Protocol, Vote};
use crate::failure::{Failure, Weight};
use crate::graph::{Message, Rank};
use crate::header::{Control, Header, Kind};

impl Protocol {
    pub(super) fn arrived(
        &mut self,
        at: ConnectionId,
        arrived: Arrived,
        now: Instant,
    ) -> Result<(), Failure> {
        match (arrived, &self.phase) {
            (Arrived::Control(frame), Phase::Open) => self.frame(at, frame, now),
            (Arrived::Control(frame), Phase::Failing { .. }) => {
                self.explained(frame);
                Ok(())
            }
            (Arrived::Header(header), Phase::Open) => self.header(at, header),
            (Arrived::Message(header, body), Phase::Open) => {
                self.whole(at, &header, body);
                Ok(())
            }
            (_, Phase::Failing { .. } | Phase::Leaving { .. } | Phase::Closed) => Ok(()),
        }
    }

    /// A message is whole.
    fn whole(&mut self, at: ConnectionId, header: &Header, body: Vec<u8>) {
        let Kind::Message(format) = header.kind else { return };
        self.events.push_back(Event::Arrived {
            from: self.connections[at].peer,
            job: header.job as usize,
            part: header.part as usize,
            message: Message { tag: header.tag, format },
            body: Arc::new(body),
        });
    }

    /// Does a message's header say what this exchange waits for? Nothing is allocated before that
    /// is clear.
    pub(super) fn header(&mut self, at: ConnectionId, header: Header) -> Result<(), Failure> {
        let Connection { peer, purpose, .. } = self.connections[at];
        if header.kind == Kind::Bye {
            self.connections[at].left = true;
            return self.no_more(peer);
        }
        let (mine, begun) = (self.rank, self.sequence());
        if header.sequence == begun + 1 {
            self.connections[at].parked = Some(header);
            return Ok(());
        }
        let Some(expect) = self.expect.as_ref().filter(|expect| expect.sequence == header.sequence) else {
            let theirs = header.sequence;
            return Err(self.certain(format!(
                "rank {peer} is at exchange {theirs}, rank {mine} at {begun}: all ranks have to exchange equally often"
            )));
        };
        if (header.layout, header.values) != (expect.layout, expect.values) {
            return Err(self.certain(format!(
                "ranks {peer} and {mine} disagree: exchange {begun} has {} values in layout {:016x} at rank {peer}, {} in layout \
                 {:016x} at rank {mine}; give all the same tensors in the same order",
                header.values, header.layout, expect.values, expect.layout
            )));
        }
        let (job, part) = (header.job as usize, header.part as usize);
        let known = expect.jobs.get(job);
        let Some(known) = known
            .filter(|known| known.plan == header.plan && known.parts.len() == header.partitions as usize)
        else {
            let mine_says = known.map_or_else(
                || "nothing".to_owned(),
                |known| format!("'{}' in {} partitions", known.plan, known.parts.len()),
            );
            return Err(self.certain(format!(
                "ranks {peer} and {mine} disagree about part {job} of the plan: rank {peer} has '{}' in {} partitions, \
                 rank {mine} has {mine_says}; give all the same plan",
                header.plan, header.partitions
            )));
        };
        let (elements, most) = known.parts.get(part).copied().unwrap_or((usize::MAX, 0));
        let wrong = if elements != header.elements as usize {
            format!("a partition of {} values", header.elements)
        } else if header.len as usize > most {
            format!("a message of {} bytes, where {most} are the most", header.len)
        } else if known.purpose(peer, self.rank) != purpose {
            "a message on a connection of the other kind".to_owned()
        } else if self.owed[peer] == 0 {
            "more messages than the exchange has".to_owned()
        } else {
            self.owed[peer] -= 1;
            if let Some((header, body)) = self.connections[at].framer.allow(header) {
                self.whole(at, &header, body);
            }
            return Ok(());
        };
        Err(self.certain(format!("rank {peer} sent {wrong}: do all run the same version?")))
    }

    fn frame(&mut self, at: ConnectionId, frame: Control, now: Instant) -> Result<(), Failure> {
        let peer = self.connections[at].peer;
        let (root, from_root) = (self.rank == 0, peer == 0);
        self.liveness.heard(peer, now);
        match frame {
            Control::Ping => {
                let sequence = self.sequence();
                self.answer(peer, &Control::Pong { sequence })
            }
            Control::Pong { sequence } => {
                self.liveness.began(peer, sequence);
                Ok(())
            }
            Control::Failed(failure) if root => {
                let failure = Failure { reporter: peer, ..failure };
                if failure.weight > Weight::Closed {
                    return Err(self.liveness.explain(failure, now));
                }
                self.liveness.suspect(failure, now);
                Ok(())
            }
            // What rank 0 says is what everybody is told.
            Control::Failed(failure) => Err(failure),
            Control::Compare { number, checksum } if root => self.compared(peer, number, checksum),
            Control::Alike { number } if from_root && self.comparison.alike(number) => {
                self.events.push_back(Event::Alike);
                Ok(())
            }
            Control::Wish { to, bytes } if root && to < self.ranks && to != peer => {
                self.turns.wish(peer, to, bytes, now).map_err(|cause| self.certain(cause))
            }
            Control::Done { to } if root && self.turns.done(peer, to, now) => Ok(()),
            Control::Go { to, messages } if from_root => {
                self.turns.go(to, messages).map_err(|cause| self.certain(cause))
            }
            Control::Vote { number, vote } if root => self.voted(peer, number, vote),
            Control::Halt { number } if from_root && self.ballot.halt(number) => {
                self.events.push_back(Event::Halt { number });
                Ok(())
            }
            Control::Votes { number, votes } if from_root && self.ballot.decide(number, votes.len()) => {
                self.events.push_back(Event::Votes { number, votes });
                Ok(())
            }
            Control::Ask { last, text } if self.served && root && peer == 1 => {
                let request = self.requests.add(last, text).map_err(|cause| self.certain(cause))?;
                self.events.extend(request.map(|request| Event::Asked(Some(request))));
                Ok(())
            }
            Control::Bye => self.bye(at, now),
            Control::Ask { .. }
            | Control::Vote { .. }
            | Control::Halt { .. }
            | Control::Votes { .. }
            | Control::Compare { .. }
            | Control::Alike { .. }
            | Control::Wish { .. }
            | Control::Go { .. }
            | Control::Done { .. } => {
                Err(self.certain(format!("rank {peer} sent a control frame out of place")))
            }
        }
    }

    /// A rank leaves. Its last messages may still be on their way on the other connections.
    fn bye(&mut self, at: ConnectionId, now: Instant) -> Result<(), Failure> {
        let peer = self.connections[at].peer;
        self.connections[at].left = true;
        self.liveness.left(peer);
        if self.rank == 0 {
            self.turns.forget(peer, now);
        } else {
            // There is no coordinator any more, so messages that wait for it leave in turns.
            self.turns.release();
        }
        self.deserted()?;
        let here = |connection: &Connection| connection.is_control() && !connection.left;
        if self.served && self.rank == 0 && !self.connections.iter().any(here) {
            self.events.push_back(Event::Asked(None));
        }
        Ok(())
    }

    /// A rank said on a connection of messages that no more come there.
    fn no_more(&self, peer: Rank) -> Result<(), Failure> {
        let more = |other: &Connection| other.peer == peer && !other.is_control() && !other.left;
        if self.active && self.owed[peer] > 0 && !self.connections.iter().any(more) {
            return Err(self.certain(format!("rank {peer} left during exchange {}", self.sequence())));
        }
        Ok(())
    }

    /// At rank 0: a rank's checksum is here.
    pub(super) fn compared(&mut self, from: Rank, number: u64, checksum: u64) -> Result<(), Failure> {
        if !self.comparison.count(from, number, checksum).map_err(|cause| self.certain(cause))? {
            return Ok(());
        }
        self.tell(&Control::Alike { number })?;
        self.events.push_back(Event::Alike);
        Ok(())
    }

    /// At rank 0: a rank's part of a sum in the network is over. If the aggregator failed it,
    /// nobody need wait for the aggregator any more.
    pub(super) fn voted(&mut self, from: Rank, number: u64, vote: Vote) -> Result<(), Failure> {
        match self.ballot.count(from, number, vote).map_err(|cause| self.certain(cause))? {
            Count::Waits => {}
            Count::Halt => {
                self.tell(&Control::Halt { number })?;
                self.events.push_back(Event::Halt { number });
            }
            Count::Decided(votes) => {
                self.tell(&Control::Votes { number, votes: votes.clone() })?;
                self.events.push_back(Event::Votes { number, votes });
            }
        }
        Ok(())
    }

    /// Has a rank left whose vote, or whose count of votes, this rank waits for?
    pub(super) fn deserted(&self) -> Result<(), Failure> {
        let gone = self.connections.iter().filter(|connection| connection.is_control() && connection.left);
        match self.ballot.missing(gone.map(|connection| connection.peer)) {
            // If a connection closed without a goodbye, its cause is not known yet.
            Some((peer, number)) if !self.liveness.suspects() => {
                Err(self.certain(format!("rank {peer} left before all had voted about sum {number}")))
            }
            _ => Ok(()),
        }
    }
}
