//! One exchange under way: the jobs of a plan, each of some partitions, driven by messages that
//! arrive.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::{Decoded, Record};
use crate::coding::Coding;
use crate::failure::LinkError;
use crate::graph::{Message, Rank};
use crate::header::{HEADER_LEN, PlanName};
use crate::job::Job;
use crate::layout::{Hash, Layout};
use crate::part::{Bytes, Part, Step, Values};
use crate::plan::{GraphPlan, PlanError};
use crate::poll::Traffic;
use crate::protocol::{Command, Expect, ExpectJob};
use crate::residuals::{Residual, Residuals, is_zero};
use crate::spread::SPREAD;
use crate::strategies::are_apart;

/// A job under way.
pub(super) struct Running {
    job: Job,
    plan: PlanName,
    /// The codec whose states these are, and the momentum that is put on gradients in its place:
    /// for small tensors, which it does not code.
    codec: String,
    momentum: f32,
    sum: Vec<f32>,
    states: Vec<Vec<f32>>,
    parts: Vec<Part>,
    /// By partition: has the gradient been given?
    given: Vec<bool>,
    /// Small tensors together, which are not one behind the other in the buffer.
    gathered: Option<Vec<f32>>,
}

/// Error feedback of a job: gradients join their residuals.
#[derive(Clone, Copy)]
pub(super) struct Feedback {
    /// The codec whose states the residuals have.
    pub(super) coding: Coding,
    /// The momentum that is put on gradients in its place: for small tensors, which it does not
    /// code.
    pub(super) momentum: f32,
}

impl Running {
    pub(super) fn new(
        job: Job,
        Feedback { coding, momentum }: Feedback,
        layout: &Layout,
        buffer: &[f32],
        residuals: &mut Residuals,
        (rank, ranks): (Rank, usize),
        keep: bool,
    ) -> Result<Self, LinkError> {
        let parts = (0..job.partitions).map(|partition| {
            let graph = job.graph(ranks, rank, partition);
            Ok(Part::new(graph.map_err(PlanError::from)?, keep))
        });
        let parts: Vec<Part> = parts.collect::<Result<_, LinkError>>()?;
        let tensor = |at: usize| &layout.tensors()[at];
        let state_len = |values| if momentum == 0.0 { coding.codec().state_len(values) } else { values };
        let mut running = Self {
            plan: PlanName::new(&format!("{} {}", job.strategy, job.coding)),
            codec: coding.to_string(),
            momentum,
            sum: Vec::new(),
            states: Vec::new(),
            given: vec![false; parts.len()],
            parts,
            gathered: None,
            job,
        };
        let codec = &running.codec;
        if let [at] = running.job.tensors[..] {
            let lens = (0..running.job.partitions).map(|part| state_len(running.job.part(part).len()));
            let taken = residuals.take(&tensor(at).0, tensor(at).1.len(), codec, lens)?;
            (running.sum, running.states) = (taken.sum, taken.states);
            return Ok(running);
        }
        let mut gathered = Vec::with_capacity(running.job.values);
        let mut states = Vec::new();
        for &at in &running.job.tensors {
            let (name, range) = tensor(at);
            let gradient = &buffer[range.clone()];
            gathered.extend(gradient);
            let lens = std::iter::once(state_len(range.len()));
            let mut taken = residuals.take(name, range.len(), codec, lens)?;
            if is_zero(gradient) {
                // Its residual stays where it is, since the others' gradients send the message.
                let zeros = Residual {
                    sum: vec![0.0; range.len()],
                    states: vec![vec![0.0; state_len(range.len())]],
                    codec: codec.clone(),
                };
                residuals.put(name, std::mem::replace(&mut taken, zeros));
            }
            running.sum.extend(taken.sum);
            states.extend(taken.states.concat());
        }
        running.states = vec![states];
        running.gathered = Some(gathered);
        Ok(running)
    }

    /// Puts the residuals back, and the gathered ones into the buffer.
    pub(super) fn put_back(mut self, layout: &Layout, buffer: &mut [f32], residuals: &mut Residuals) {
        let codec = self.codec;
        if let [at] = self.job.tensors[..] {
            residuals.put(&layout.tensors()[at].0, Residual { sum: self.sum, codec, states: self.states });
            return;
        }
        let gathered = self.gathered.take().unwrap_or_default();
        let mut from = 0;
        for &at in &self.job.tensors {
            let (name, range) = &layout.tensors()[at];
            let part = from..from + range.len();
            from = part.end;
            buffer[range.clone()].copy_from_slice(&gathered[part.clone()]);
            let state = self.states[0].get(part.clone()).unwrap_or_default().to_vec();
            residuals.put_to(
                name,
                Residual { sum: self.sum[part].to_vec(), codec: codec.clone(), states: vec![state] },
            );
        }
    }

    fn decoded(&self, layout: &Layout) -> Vec<Decoded> {
        let coding = self.job.coding;
        let messages = self.parts.iter().enumerate().flat_map(|(at, part)| {
            part.decoded().map(move |(message, bytes)| (places(&self.job, layout, at), message, bytes))
        });
        let decoded = messages.flat_map(|(ranges, message, bytes)| match &self.job.batch {
            None => vec![Decoded { ranges, message, coding, bytes: bytes.clone() }],
            Some(batch) => {
                let tensors = self.job.tensors.iter().map(|&at| layout.tensors()[at].1.clone());
                let messages = batch.split(bytes).unwrap_or_default();
                let each = tensors.zip(messages).filter(|(_, bytes)| !bytes.is_empty());
                let decoded = each.map(|(range, bytes)| Decoded {
                    ranges: vec![range],
                    message,
                    coding,
                    bytes: Bytes::new(bytes.to_vec()),
                });
                decoded.collect()
            }
        });
        decoded.collect()
    }
}

/// A rank of so many, in the exchange of this number.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) rank: Rank,
    pub(super) ranks: usize,
    pub(super) sequence: u64,
}

/// One exchange under way. It knows no network and no clock: its [commands](Self::commands) go to
/// the protocol, whose events come back.
pub(super) struct Exchange<'a> {
    place: Place,
    layout: &'a Layout,
    plan: &'a GraphPlan,
    buffer: &'a mut [f32],
    jobs: Vec<Running>,
    /// Jobs and partitions that nothing arrived for yet, in the order of this rank's turns.
    fresh: VecDeque<(usize, usize)>,
    /// Jobs and partitions that something arrived for: the others wait for what comes of it.
    urgent: VecDeque<(usize, usize)>,
    /// Partitions that are not done.
    left: usize,
    /// Commands for the protocol.
    pub(super) commands: Vec<Command>,
    /// Bytes and messages that it was given.
    pub(super) sent: Traffic,
    record: Option<&'a mut Record>,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(
        place: Place,
        layout: &'a Layout,
        plan: &'a GraphPlan,
        buffer: &'a mut [f32],
        jobs: Vec<Running>,
        mut record: Option<&'a mut Record>,
    ) -> Self {
        if let Some(record) = &mut record {
            record.given = vec![0.0; buffer.len()];
            record.dropped = vec![0.0; buffer.len()];
        }
        let order = |(job, running): (usize, &Running)| {
            running.job.order(place.ranks, place.rank).map(move |part| (job, part))
        };
        let fresh: VecDeque<_> = jobs.iter().enumerate().flat_map(order).collect();
        let (left, sent) = (fresh.len(), Traffic::default());
        let (urgent, commands) = (VecDeque::new(), Vec::new());
        let mut exchange =
            Self { place, layout, plan, buffer, jobs, fresh, urgent, left, commands, sent, record };
        // The first messages may be here already, and a server that only receives has nothing else
        // to say.
        exchange.commands.push(Command::Begin(Arc::new(exchange.expect())));
        exchange.end_if_done();
        exchange
    }

    fn end_if_done(&mut self) {
        if self.left == 0 {
            self.commands.push(Command::End);
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Ranks whose messages are missing.
    pub(super) fn waiting(&self) -> Vec<Rank> {
        let parts = self.jobs.iter().flat_map(|running| &running.parts);
        let mut waiting: Vec<Rank> = parts.flat_map(Part::awaited).map(|(from, _)| from).collect();
        waiting.sort_unstable();
        waiting.dedup();
        waiting
    }

    /// Puts residuals back, and gathered tensors into the buffer.
    pub(super) fn put_back(self, residuals: &mut Residuals) {
        if let Some(record) = self.record {
            record.decoded = self.jobs.iter().flat_map(|running| running.decoded(self.layout)).collect();
        }
        self.jobs.into_iter().for_each(|running| running.put_back(self.layout, self.buffer, residuals));
    }

    fn expect(&self) -> Expect {
        let mut messages = vec![0; self.place.ranks];
        for (from, _) in self.jobs.iter().flat_map(|running| &running.parts).flat_map(Part::awaited) {
            messages[from] += 1;
        }
        let jobs = self.jobs.iter().map(|running| {
            let part = |part| {
                let values = running.job.part(part).len();
                (values, running.job.longest(values))
            };
            ExpectJob {
                plan: running.plan,
                tagged: running.job.tagged(),
                parts: (0..running.job.partitions).map(part).collect(),
            }
        });
        Expect {
            sequence: self.place.sequence,
            layout: self.layout.hash(),
            values: self.layout.values() as u64,
            order: self.plan.order,
            jobs: jobs.collect(),
            messages,
        }
    }

    /// Takes a message. The error says what is wrong with it.
    pub(super) fn arrived(
        &mut self,
        from: Rank,
        job: usize,
        part: usize,
        message: Message,
        body: Bytes,
    ) -> Result<(), String> {
        // The protocol has checked that there is such a part.
        if !self.jobs[job].parts[part].arrived(from, message, body) {
            let tag = message.tag;
            return Err(format!("rank {from} sent message {tag} of part {part}, which nobody waits for"));
        }
        self.urgent.push_back((job, part));
        Ok(())
    }

    /// Does all that can be done for one partition; `false` if everything waits for messages. The
    /// error says what is wrong with one.
    pub(super) fn advance(&mut self) -> Result<bool, String> {
        let Some((job, part)) = self.urgent.pop_front().or_else(|| self.fresh.pop_front()) else {
            return Ok(false);
        };
        if !self.jobs[job].parts[part].is_done() {
            self.step(job, part)?;
            if self.jobs[job].parts[part].is_done() {
                self.left -= 1;
                self.end_if_done();
            }
        }
        Ok(true)
    }

    fn step(&mut self, job: usize, part: usize) -> Result<(), String> {
        let running = &mut self.jobs[job];
        let range = running.job.part(part);
        let tensor =
            running.gathered.is_none().then(|| self.layout.tensors()[running.job.tensors[0]].1.start);
        // Where the partition is in the buffer, if it is in one place.
        let place = tensor.map(|start| start + range.start..start + range.end);
        let result = match (&mut running.gathered, &place) {
            (Some(gathered), _) => &mut gathered[range.clone()],
            (None, Some(place)) => &mut self.buffer[place.clone()],
            (None, None) => unreachable!("a job without a place of its own is gathered"),
        };
        let (sum, state) = (&mut running.sum[range.clone()], &mut running.states[part][..]);
        if !std::mem::replace(&mut running.given[part], true) {
            if is_zero(result) {
                running.parts[part].set_idle();
            } else if running.momentum == 0.0 {
                running.job.codecs().result.give(result, sum, state);
            } else {
                give(running.momentum, result, sum, state);
            }
            if let Some(record) = &mut self.record {
                let mut from = &*sum;
                for to in places(&running.job, self.layout, part) {
                    let (values, rest) = from.split_at(to.len());
                    record.given[to].copy_from_slice(values);
                    from = rest;
                }
            }
        }
        let mut dropped = self.record.is_some().then(|| vec![0.0; sum.len()]);
        let mut values = Values { sum, state, result, dropped: dropped.as_deref_mut() };
        let seed = seed(self.place.sequence, self.place.rank, job, part);
        let tagged = running.job.tagged();
        let graph = &mut running.parts[part];
        loop {
            match graph.step(running.job.codecs(), &mut values, seed) {
                Ok(None) => break,
                Ok(Some(Step::Computed(_))) => {}
                Ok(Some(Step::Send(to, message, body))) => {
                    let spreads = tagged.is_some_and(|group| are_apart(group, self.place.rank, to));
                    let bytes = body.len() + HEADER_LEN * if spreads { SPREAD } else { 1 };
                    self.sent.sent_bytes += bytes as u64;
                    self.sent.sent_messages += 1;
                    let big = bytes > self.plan.bulk;
                    self.commands.push(Command::Send { to, job, part, message, body, big });
                }
                Err((message, malformed)) => {
                    let name = &self.layout.tensors()[running.job.tensors[0]].0;
                    return Err(format!(
                        "message {} of tensor '{name}', part {part}, is malformed: {malformed}",
                        message.tag
                    ));
                }
            }
        }
        if let (Some(record), Some(dropped)) = (&mut self.record, dropped) {
            let mut from = &dropped[..];
            for to in places(&running.job, self.layout, part) {
                let (values, rest) = from.split_at(to.len());
                record.dropped[to].iter_mut().zip(values).for_each(|(dropped, lost)| *dropped += lost);
                from = rest;
            }
        }
        Ok(())
    }
}

/// Adds a gradient by way of its velocity. What is not finite reaches all once, and no velocity
/// remembers it.
fn give(momentum: f32, gradient: &[f32], sum: &mut [f32], velocity: &mut [f32]) {
    for ((sum, velocity), new) in sum.iter_mut().zip(velocity).zip(gradient) {
        *velocity = momentum * *velocity + new;
        *sum += *velocity;
        if !velocity.is_finite() {
            *velocity = 0.0;
        }
    }
}

/// The places of a partition's values in the buffer.
fn places(job: &Job, layout: &Layout, part: usize) -> Vec<Range<usize>> {
    let wanted = job.part(part);
    let mut start = 0;
    let mut places = Vec::new();
    for &at in &job.tensors {
        let tensor = &layout.tensors()[at].1;
        let (from, to) = (wanted.start.max(start), wanted.end.min(start + tensor.len()));
        if from < to {
            places.push(tensor.start + from - start..tensor.start + to - start);
        }
        start += tensor.len();
    }
    places
}

/// The seed of a rank's messages of one partition in one exchange.
fn seed(sequence: u64, rank: Rank, job: usize, part: usize) -> u64 {
    let mut hash = Hash::new();
    for number in [sequence, rank as u64, job as u64, part as u64] {
        hash.bytes(&number.to_le_bytes());
    }
    hash.0
}
