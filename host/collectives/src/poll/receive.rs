//! What arrives: nothing is allocated for it before a header says what the exchange waits for.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Instant;

use super::conn::{Conn, Input, NEW};
use super::{Event, MAX_ASKED, Poller, Stop};
use crate::agreement::{End, Vote};
use crate::coordinator::LinkId;
use crate::failure::{Failure, Weight, list};
use crate::graph::{Message, Rank};
use crate::handshake::Purpose;
use crate::header::{CONTROL_HEAD, Control, Header, Kind};
use crate::spread::gather;

impl Poller {
    /// Takes what has arrived on one connection.
    pub(super) fn read(&mut self, at: usize) -> Result<(), Stop> {
        // A peer that sends without end does not keep the others waiting.
        for _ in 0..16 {
            let conn = &mut self.conns[at];
            if conn.parked.is_some() || conn.left {
                return Ok(());
            }
            let head_len = conn.purpose.head_len();
            let into = match &mut conn.input {
                Input::Head { bytes, at } => &mut bytes[*at..head_len],
                Input::Message { bytes, at, .. } | Input::Control { bytes, at, .. } => &mut bytes[*at..],
            };
            if !into.is_empty() {
                match (&conn.stream).read(into) {
                    Ok(0) => {
                        self.closed(at, "");
                        return Ok(());
                    }
                    Ok(len) => match &mut conn.input {
                        Input::Head { at, .. } | Input::Message { at, .. } | Input::Control { at, .. } => {
                            *at += len;
                        }
                    },
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => {
                        self.closed(at, &error.to_string());
                        return Ok(());
                    }
                }
            }
            self.took(at)?;
        }
        Ok(())
    }

    /// Something was read; is a header, a message or a frame whole?
    fn took(&mut self, at: usize) -> Result<(), Stop> {
        let conn = &mut self.conns[at];
        let peer = conn.peer;
        match &mut conn.input {
            Input::Head { bytes, at: CONTROL_HEAD } if conn.purpose == Purpose::Control => {
                let head = bytes.first_chunk().expect("longer");
                match Control::body_len(head) {
                    Some(len) => conn.input = Input::Control { kind: head[0], bytes: vec![0; len], at: 0 },
                    None => {
                        return Err(
                            self.certain(format!("rank {peer} sent a control frame that is too long"))
                        );
                    }
                }
                // A frame may have no body, and nothing else may come behind it.
                if let Input::Control { bytes, .. } = &self.conns[at].input
                    && bytes.is_empty()
                {
                    return self.took(at);
                }
            }
            Input::Control { kind, bytes, at: have } if *have == bytes.len() => {
                let frame = Control::parse(*kind, bytes);
                conn.input = NEW;
                match frame {
                    Some(frame) => self.frame(at, frame)?,
                    None => {
                        return Err(self.certain(format!(
                            "rank {peer} sent an unknown control frame: do all run the same version?"
                        )));
                    }
                }
            }
            Input::Head { bytes, at: have } if *have == conn.purpose.head_len() => {
                let gathered = (conn.purpose == Purpose::Tagged).then(|| gather(bytes));
                let head = gathered.as_deref().unwrap_or(bytes).first_chunk().expect("as long");
                let header = Header::parse(head);
                conn.input = NEW;
                match header {
                    Some(header) => self.header(at, header)?,
                    None => {
                        return Err(self.certain(format!(
                            "rank {peer} sent something that is no message: do all run the same version?"
                        )));
                    }
                }
            }
            Input::Message { bytes, at: have, .. } if *have == bytes.len() => {
                let Input::Message { header, message, bytes, .. } = std::mem::replace(&mut conn.input, NEW)
                else {
                    unreachable!("just matched")
                };
                let (job, part) = (header.job as usize, header.part as usize);
                let body = Arc::new(bytes);
                _ = self.events.send(Event::Arrived { from: peer, job, part, message, body });
            }
            _ => {}
        }
        Ok(())
    }

    /// Does a message's header say what this exchange waits for? Nothing is allocated before that is clear.
    pub(super) fn header(&mut self, at: usize, header: Header) -> Result<(), Stop> {
        let peer = self.conns[at].peer;
        let format = match header.kind {
            Kind::Message(format) => format,
            Kind::Bye => {
                self.conns[at].left = true;
                return self.left(peer);
            }
        };
        let begun = self.expect.as_ref().map_or(0, |expect| expect.sequence);
        if header.sequence == begun + 1 {
            self.conns[at].parked = Some(header);
            return Ok(());
        }
        let mine = self.rank;
        let Some(expect) = self.expect.clone().filter(|expect| expect.sequence == header.sequence) else {
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
        if known
            .is_none_or(|known| known.plan != header.plan || known.parts.len() != header.partitions as usize)
        {
            let mine_says = known.map_or_else(
                || "nothing".to_owned(),
                |known| format!("'{}' in {} partitions", known.plan, known.parts.len()),
            );
            return Err(self.certain(format!(
                "ranks {peer} and {mine} disagree about part {job} of the plan: rank {peer} has '{}' in {} partitions, \
                 rank {mine} has {mine_says}; give all the same plan",
                header.plan, header.partitions
            )));
        }
        let (elements, most) =
            known.and_then(|known| known.parts.get(part)).copied().unwrap_or((usize::MAX, 0));
        let tagged = self.conns[at].purpose == Purpose::Tagged;
        let wrong = if elements != header.elements as usize {
            format!("a partition of {} values", header.elements)
        } else if header.len as usize > most {
            format!("a message of {} bytes, where {most} are the most", header.len)
        } else if known.is_some_and(|known| known.tagged != tagged) {
            "a message on a connection of the other kind".to_owned()
        } else if self.left[peer] == 0 {
            "more messages than the exchange has".to_owned()
        } else {
            self.left[peer] -= 1;
            let message = Message { tag: header.tag, format };
            let bytes = vec![0; header.len as usize];
            self.conns[at].input = Input::Message { header, message, bytes, at: 0 };
            // An empty message is whole already.
            return self.took(at);
        };
        Err(self.certain(format!("rank {peer} sent {wrong}: do all run the same version?")))
    }

    fn frame(&mut self, at: usize, frame: Control) -> Result<(), Stop> {
        let peer = self.conns[at].peer;
        self.heard[peer].0 = Instant::now();
        match frame {
            Control::Ping => {
                let sequence = self.expect.as_ref().map_or(0, |expect| expect.sequence);
                self.control(peer, &Control::Pong { sequence });
            }
            Control::Pong { sequence } => self.heard[peer].1 = sequence,
            Control::Failed(failure) if self.rank == 0 => {
                if failure.weight > Weight::Closed {
                    return Err(Stop::Failed(self.explain(Failure { reporter: peer, ..failure })));
                }
                self.suspect.get_or_insert((Failure { reporter: peer, ..failure }, Instant::now()));
            }
            // What rank 0 says is what everybody is told.
            Control::Failed(failure) => return Err(Stop::Failed(failure)),
            Control::Compare { number, checksum } if self.rank == 0 => {
                self.compared(peer, number, checksum)?;
            }
            Control::Alike { number } if self.rank != 0 && number == self.compare.number => {
                self.compare.waits = false;
                _ = self.events.send(Event::Alike);
            }
            Control::Wish { to, bytes } if self.rank == 0 && to < self.ranks && to != peer => {
                self.wish(LinkId { from: peer, to }, bytes)?;
            }
            Control::Done { to } if self.rank == 0 && self.coordinator.done(LinkId { from: peer, to }) => {}
            Control::Go { to, messages } if self.rank != 0 => self.go(to, messages)?,
            Control::Vote { number, vote } if self.rank == 0 => self.voted(peer, number, vote)?,
            Control::Halt { number } if self.rank != 0 => _ = self.events.send(Event::Halt { number }),
            Control::Votes { number, votes } if self.rank != 0 && votes.len() == self.ranks => {
                self.ballot = None;
                _ = self.events.send(Event::Votes { number, votes });
            }
            Control::Ask { last, text } if self.served && self.rank == 0 && peer == 1 => {
                self.asked_so_far.extend(text);
                if self.asked_so_far.len() > MAX_ASKED {
                    return Err(
                        self.certain(format!("rank {peer} asks for more than {MAX_ASKED} bytes can say"))
                    );
                }
                if last {
                    _ = self.events.send(Event::Asked(Some(std::mem::take(&mut self.asked_so_far))));
                }
            }
            Control::Ask { .. }
            | Control::Vote { .. }
            | Control::Halt { .. }
            | Control::Votes { .. }
            | Control::Compare { .. }
            | Control::Alike { .. }
            | Control::Wish { .. }
            | Control::Go { .. }
            | Control::Done { .. } => {
                return Err(self.certain(format!("rank {peer} sent a control frame out of place")));
            }
            // Its last messages may still be on their way on the other connections.
            Control::Bye => {
                self.conns[at].left = true;
                if self.rank == 0 {
                    self.coordinator.forget(peer);
                } else {
                    self.release();
                }
                self.deserted()?;
                let here = |conn: &Conn| conn.purpose == Purpose::Control && !conn.left;
                if self.served && self.rank == 0 && !self.conns.iter().any(here) {
                    _ = self.events.send(Event::Asked(None));
                }
            }
        }
        Ok(())
    }

    /// At rank 0: a rank's checksum is here.
    pub(super) fn compared(&mut self, from: Rank, number: u64, checksum: u64) -> Result<(), Stop> {
        // A rank is at most one comparison ahead, since each waits for all.
        if number > self.compare.number + 1 {
            return Err(self.certain(format!("rank {from} compares results that rank 0 does not have")));
        }
        let have = self.compare.have.entry(number).or_default();
        have.insert(from, checksum);
        if have.len() < self.ranks {
            return Ok(());
        }
        let have = self.compare.have.remove(&number).unwrap_or_default();
        let own = have[&0];
        let others: Vec<Rank> = have.iter().filter(|(_, sum)| **sum != own).map(|(rank, _)| *rank).collect();
        if let Some(other) = others.first() {
            let cause = format!(
                "checksums differ: rank 0 has {own:016x}, rank {other} has {:016x}{}; {}",
                have[other],
                if others.len() > 1 {
                    format!(" (and so ranks {})", list(&others[1..]))
                } else {
                    String::new()
                },
                self.compare.means
            );
            return Err(self.certain(cause));
        }
        for rank in 1..self.ranks {
            self.control(rank, &Control::Alike { number });
        }
        self.compare.waits = false;
        _ = self.events.send(Event::Alike);
        Ok(())
    }

    /// At rank 0: a rank's part of a sum in the network is over. If the aggregator failed it, nobody need wait for the aggregator any more.
    pub(super) fn voted(&mut self, from: Rank, number: u64, vote: Vote) -> Result<(), Stop> {
        // A rank is at most one sum ahead of what all have voted about, since each waits for all.
        if number != self.voted + 1 {
            return Err(self.certain(format!(
                "rank {from} votes about sum {number}, and all others about {}",
                self.voted + 1
            )));
        }
        let first_to_give_up =
            vote.end != End::Complete && self.votes.values().all(|vote| vote.end == End::Complete);
        self.votes.insert(from, vote);
        if self.votes.len() == self.ranks {
            self.voted = number;
            self.ballot = None;
            let votes: Vec<Vote> = std::mem::take(&mut self.votes).into_values().collect();
            for rank in 1..self.ranks {
                self.control(rank, &Control::Votes { number, votes: votes.clone() });
            }
            _ = self.events.send(Event::Votes { number, votes });
        } else if first_to_give_up {
            for rank in 1..self.ranks {
                self.control(rank, &Control::Halt { number });
            }
            _ = self.events.send(Event::Halt { number });
        }
        Ok(())
    }

    /// Has somebody left whose vote, or whose count of votes, this rank waits for?
    pub(super) fn deserted(&mut self) -> Result<(), Stop> {
        let Some(number) = self.ballot else { return Ok(()) };
        let control = |conn: &&Conn| conn.purpose == Purpose::Control && conn.left;
        let gone = self.conns.iter().filter(control).find(|conn| !self.votes.contains_key(&conn.peer));
        match gone.map(|conn| conn.peer) {
            // If a connection closed without a goodbye, its cause is not known yet.
            Some(peer) if self.suspect.is_none() => {
                Err(self.certain(format!("rank {peer} left before all had voted about sum {number}")))
            }
            _ => Ok(()),
        }
    }
}
