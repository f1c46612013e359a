//! Sums in the network: what an aggregator sums, and by agreement the rest.
//!
//! First the aggregator is tried, unless it failed lately. Then all ranks vote (`agreement`). If
//! anybody lacks a result, the votes say who sends it: a rank that has it, or one that sums what
//! all ranks send it, as the whole numbers that the aggregator would have added. So all end with
//! the same bits, whatever the aggregator did.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gradwire::kernels::Kernel;
use gradwire::sums::BLOCK_VALUES;

use super::{Link, Report};
use crate::aggregator_client::{AggregatorClient, MAX_RANKS};
use crate::agreement::{Batch, End, Vote, Way, decide, same_chunks};
use crate::coding::Wire;
use crate::failure::{Failure, LinkError};
use crate::graph::{Format, Message, Rank};
use crate::header::PlanName;
use crate::layout::Layout;
use crate::part::Bytes;
use crate::plan::Order;
use crate::poll::Traffic;
use crate::protocol::{Command, Event, Expect, ExpectJob};
use crate::sums::{Sums, Wrong};

/// The result of an exchange with an aggregator in the network, at this rank.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InNetwork {
    /// Chunks of the buffer.
    pub chunks: usize,
    /// Those whose sums came from the aggregator.
    pub from_aggregator: usize,
    /// Those that another rank had and sent.
    pub copied: usize,
    /// Those that ranks summed.
    pub summed: usize,
    /// Why the aggregator did not sum all, at the first rank that says so.
    pub reason: Option<&'static str>,
}

/// A buffer as chunks.
#[derive(Clone, Copy)]
struct Chunks {
    /// Values of a chunk.
    values: usize,
    /// Values of the buffer.
    of: usize,
}

impl Chunks {
    fn count(self) -> u32 {
        // A buffer's length fits; `Worker::start` asks for the same.
        self.of.div_ceil(self.values) as u32
    }

    /// Their place in the buffer.
    fn place(self, chunks: Range<u32>) -> Range<usize> {
        let edge = |chunk: u32| (chunk as usize * self.values).min(self.of);
        edge(chunks.start)..edge(chunks.end)
    }
}

/// Tags of messages: a rank's own values, and a result.
const OWN: u32 = 0;
const RESULT: u32 = 1;

impl Link {
    pub(super) fn sum_in_network(
        &mut self,
        buffer: &mut [f32],
        layout: &Layout,
        strategy: &str,
        address: SocketAddr,
        wire: Wire,
    ) -> Result<Report, LinkError> {
        let (start, before) = (Instant::now(), self.traffic());
        if self.ranks > MAX_RANKS {
            return Err(LinkError::AggregatorClient { ranks: self.ranks });
        }
        let mut aggregator =
            match self.aggregator.take().filter(|aggregator| aggregator.serves(address, wire)) {
                Some(aggregator) => aggregator,
                None => {
                    Box::new(AggregatorClient::new(address, wire, self.rank, self.ranks, self.job).map_err(
                        |source| LinkError::Io {
                            what: format!("open a socket to the aggregator at {address}"),
                            source,
                        },
                    )?)
                }
            };
        let (packets, bytes) = (aggregator.sent_packets, aggregator.sent_bytes);
        let result = self.sum_with(&mut aggregator, buffer, layout, strategy, wire);
        let (packets, bytes) = (aggregator.sent_packets - packets, aggregator.sent_bytes - bytes);
        self.aggregator = Some(aggregator);
        let in_network = result.map_err(|failure| self.fail(failure))?;
        let after = self.traffic();
        let traffic = Traffic {
            sent_bytes: after.sent_bytes - before.sent_bytes + bytes,
            sent_messages: after.sent_messages - before.sent_messages + packets,
            send_calls: after.send_calls - before.send_calls + packets,
        };
        Ok(Report { time: start.elapsed(), compute: Duration::ZERO, traffic, in_network: Some(in_network) })
    }

    fn sum_with(
        &mut self,
        aggregator: &mut AggregatorClient,
        buffer: &mut [f32],
        layout: &Layout,
        strategy: &str,
        wire: Wire,
    ) -> Result<InNetwork, Failure> {
        self.begin(Expect {
            sequence: self.sequence + 1,
            layout: layout.hash(),
            values: buffer.len() as u64,
            order: Order::Free,
            jobs: Vec::new(),
            messages: vec![0; self.ranks],
        });
        if aggregator.needs_epoch() {
            // The aggregator may know the job from before: all begin a later epoch, and the same
            // one.
            let proposal =
                Vote { end: End::Complete, epoch: aggregator.proposal(), blocks: 0, base: 0, later: 0 };
            let votes = self.vote(proposal)?;
            aggregator.begin(votes.iter().map(|vote| vote.epoch));
        }
        let number = self.voted + 1;
        self.command(Command::Sum { number });
        let (mut failed, deadline) = (None, Instant::now() + self.timeout);
        let attempt = aggregator.attempt(buffer, || {
            while let Ok(event) = self.events.try_recv() {
                match event {
                    Event::Halt { number } => self.halted = number,
                    Event::Failed(failure) => failed = Some(failure),
                    Event::Arrived { .. } | Event::Alike | Event::Votes { .. } | Event::Asked(_) => {}
                }
            }
            // The aggregator waits for a rank without end, but this one does not.
            failed.is_some() || self.halted == number || Instant::now() > deadline
        });
        if let Some(failure) = failed {
            return Err(failure);
        }
        let mut votes = self.vote(attempt)?;
        let reason = votes.iter().filter_map(|vote| vote.end.reason()).next();
        aggregator.ended(&votes);
        let chunks = Chunks { values: BLOCK_VALUES * usize::from(same_chunks(&mut votes)), of: buffer.len() };
        let batches = decide(&votes, chunks.count()).map_err(|rank| {
            self.wrong(format!("rank {rank} voted for what contradicts itself: do all run the same version?"))
        })?;
        let mine = votes[self.rank];
        let mut report = InNetwork { chunks: chunks.count() as usize, reason, ..InNetwork::default() };
        for chunk in (0..chunks.count()).filter(|&chunk| mine.has(chunk)) {
            let place = chunks.place(chunk..chunk + 1);
            aggregator.results(place.clone(), &mut buffer[place]);
            report.from_aggregator += 1;
        }
        self.command(Command::End);
        if !batches.is_empty() {
            let name = PlanName::new(&format!("{strategy} {wire}"));
            self.settle(chunks, buffer, layout, name, wire, &batches, &mut report)?;
        }
        Ok(report)
    }

    fn begin(&mut self, expect: Expect) {
        self.sequence = expect.sequence;
        self.command(Command::Begin(Arc::new(expect)));
    }

    /// Says what this rank has, and waits for what all have.
    fn vote(&mut self, vote: Vote) -> Result<Vec<Vote>, Failure> {
        self.voted += 1;
        self.command(Command::Vote { number: self.voted, vote });
        let deadline = Instant::now() + self.timeout;
        loop {
            match self.next_event(deadline) {
                Ok(Event::Votes { number, votes }) if number == self.voted => return Ok(votes),
                Ok(Event::Failed(failure)) => return Err(failure),
                Ok(Event::Halt { number }) => self.halted = number,
                Ok(Event::Arrived { .. } | Event::Alike | Event::Votes { .. } | Event::Asked(_)) => {}
                Err(()) => {
                    return Err(self.late((0..self.ranks).filter(|&rank| rank != self.rank).collect()));
                }
            }
        }
    }

    /// Brings everybody what the aggregator did not, as `batches` say.
    #[expect(clippy::too_many_arguments, reason = "called once, by the exchange that has all of these")]
    fn settle(
        &mut self,
        chunks: Chunks,
        buffer: &mut [f32],
        layout: &Layout,
        name: PlanName,
        wire: Wire,
        batches: &[Batch],
        report: &mut InNetwork,
    ) -> Result<(), Failure> {
        let sums = Sums::new(Kernel::detect(), wire, self.ranks);
        let places: Vec<_> = batches.iter().map(|batch| chunks.place(batch.chunks.clone())).collect();
        let mut messages = vec![0; self.ranks];
        for batch in batches {
            match &batch.way {
                Way::Copy { from, to } => messages[*from] += usize::from(to.contains(&self.rank)),
                Way::Sum { owner } if *owner == self.rank => {
                    let others = (0..self.ranks).filter(|&rank| rank != self.rank);
                    others.for_each(|rank| messages[rank] += 1);
                }
                Way::Sum { owner } => messages[*owner] += 1,
            }
        }
        let mut left: usize = messages.iter().sum();
        let parts = places.iter().map(|place| (place.len(), sums.longest(place.len()))).collect();
        let mut awaited = messages.clone();
        self.begin(Expect {
            sequence: self.sequence + 1,
            layout: layout.hash(),
            values: buffer.len() as u64,
            order: Order::Free,
            jobs: vec![ExpectJob { plan: name, tagged: None, parts }],
            messages,
        });
        let send = |link: &Self, to: Rank, part: usize, tag: u32, (format, body): &(Format, Bytes)| {
            let message = Message { tag, format: *format };
            link.tell(Command::Send { to, job: 0, part, message, body: body.clone(), big: false });
        };
        // By batch that this rank sums: what came, by rank.
        let mut given: BTreeMap<usize, BTreeMap<Rank, (Format, Bytes)>> = BTreeMap::new();
        for (part, batch) in batches.iter().enumerate() {
            let values = &mut buffer[places[part].clone()];
            match &batch.way {
                Way::Copy { from, to } if *from == self.rank => {
                    let result = Sums::copy(values);
                    to.iter().for_each(|&to| send(self, to, part, RESULT, &result));
                }
                Way::Copy { to, .. } => {
                    report.copied += if to.contains(&self.rank) { batch.chunks.len() } else { 0 }
                }
                Way::Sum { owner } => {
                    report.summed += batch.chunks.len();
                    let own = sums.contribution(values);
                    if *owner == self.rank {
                        given.insert(part, BTreeMap::from([(self.rank, own)]));
                    } else {
                        send(self, *owner, part, OWN, &own);
                    }
                }
            }
        }
        self.waker.wake();
        let finish =
            |link: &Self, part: usize, given: &BTreeMap<Rank, (Format, Bytes)>, values: &mut [f32]| {
                let result =
                    sums.sum(given.iter().map(|(rank, (format, body))| (*rank, *format, &body[..])), values)?;
                let others = (0..link.ranks).filter(|&rank| rank != link.rank);
                others.for_each(|to| send(link, to, part, RESULT, &result));
                link.waker.wake();
                Ok::<(), Wrong>(())
            };
        if self.ranks == 1 {
            for (part, given) in &given {
                finish(self, *part, given, &mut buffer[places[*part].clone()]).expect("just encoded");
            }
        }
        let deadline = Instant::now() + self.timeout;
        while left > 0 {
            let (from, part, Message { tag, format }, body) = match self.next_event(deadline) {
                Ok(Event::Arrived { from, part, message, body, .. }) => (from, part, message, body),
                Ok(Event::Failed(failure)) => return Err(failure),
                Ok(Event::Halt { number }) => {
                    self.halted = number;
                    continue;
                }
                Ok(Event::Alike | Event::Votes { .. } | Event::Asked(_)) => continue,
                Err(()) => {
                    let behind = (0..self.ranks).filter(|&rank| awaited[rank] > 0).collect();
                    return Err(self.late(behind));
                }
            };
            left -= 1;
            awaited[from] -= 1;
            let values = &mut buffer[places[part].clone()];
            let taken = match (&batches[part].way, tag) {
                (Way::Sum { owner }, OWN) if *owner == self.rank => {
                    let given = given.get_mut(&part).expect("every batch that this rank sums");
                    let new = given.insert(from, (format, body)).is_none();
                    match (new, given.len() == self.ranks) {
                        (false, _) => Err(Wrong),
                        (true, false) => Ok(()),
                        (true, true) => finish(self, part, given, values),
                    }
                }
                (Way::Sum { owner: whole } | Way::Copy { from: whole, .. }, RESULT) if *whole == from => {
                    sums.result(format, &body, values)
                }
                _ => Err(Wrong),
            };
            if taken.is_err() {
                return Err(self.wrong(format!(
                    "rank {from} sent what is no part of a sum: do all run the same version?"
                )));
            }
        }
        self.command(Command::End);
        Ok(())
    }
}
