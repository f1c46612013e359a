//! One exchange under way: the jobs of a plan, each of some partitions, driven by what arrives.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Decoded, Link, Record};
use crate::failure::{Failure, LinkError};
use crate::graph::Rank;
use crate::header::{HEADER_LEN, Header, Kind, PlanName};
use crate::job::Job;
use crate::layout::{Hash, Layout};
use crate::part::{Part, Step, Values};
use crate::plan::{Plan, PlanError};
use crate::poll::{Command, Event, Expect, ExpectJob, Traffic};
use crate::residuals::{Residual, Residuals, is_zero};
use crate::spread::SPREAD;

/// A job under way.
pub(super) struct Running {
    job: Job,
    plan: PlanName,
    /// The codec whose states these are, and the momentum that is put on gradients in its place: for small tensors, which it does not code.
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

impl Running {
    pub(super) fn new(
        job: Job,
        plan: &Plan,
        layout: &Layout,
        buffer: &[f32],
        residuals: &mut Residuals,
        link: &Link,
        keep: bool,
    ) -> Result<Self, LinkError> {
        let parts = (0..job.partitions).map(|partition| {
            let graph = job.graph(link.ranks, link.rank, partition);
            Ok(Part::new(graph.map_err(PlanError::from)?, keep))
        });
        let parts: Vec<Part> = parts.collect::<Result<_, LinkError>>()?;
        let tensor = |at: usize| &layout.tensors()[at];
        // All tensors of one job are alike in this.
        let (name, range) = tensor(job.tensors[0]);
        let momentum = plan.momentum(name, range.len());
        let coding = if momentum == 0.0 { job.coding } else { plan.others.coding };
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

    pub(super) fn decoded(&self, layout: &Layout) -> Vec<Decoded> {
        let parts = self.parts.iter().enumerate();
        let decoded = parts.flat_map(|(at, part)| {
            part.decoded().map(move |(message, bytes)| Decoded {
                ranges: places(&self.job, layout, at),
                message,
                coding: self.job.coding,
                bytes: bytes.clone(),
            })
        });
        decoded.collect()
    }
}

/// One exchange under way.
pub(super) struct Exchange<'a> {
    link: &'a Link,
    layout: &'a Layout,
    plan: &'a Plan,
    buffer: &'a mut [f32],
    start: Instant,
    /// Time that encoding, merging and decoding took.
    pub(super) compute: Duration,
    /// Jobs and partitions that nothing arrived for yet, in the order of this rank's turns.
    fresh: VecDeque<(usize, usize)>,
    /// Jobs and partitions that something arrived for: the others wait for what comes of it.
    urgent: VecDeque<(usize, usize)>,
    /// Bytes and messages that the thread was given.
    pub(super) sent: Traffic,
    pub(super) record: Option<&'a mut Record>,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(
        link: &'a Link,
        layout: &'a Layout,
        plan: &'a Plan,
        buffer: &'a mut [f32],
        start: Instant,
        record: Option<&'a mut Record>,
    ) -> Self {
        let (fresh, urgent) = (VecDeque::new(), VecDeque::new());
        let (compute, sent) = (Duration::ZERO, Traffic::default());
        Self { link, layout, plan, buffer, start, compute, fresh, urgent, sent, record }
    }

    /// Runs all jobs to their ends.
    pub(super) fn run(&mut self, jobs: &mut [Running]) -> Result<(), Failure> {
        if let Some(record) = &mut self.record {
            record.given = vec![0.0; self.buffer.len()];
            record.dropped = vec![0.0; self.buffer.len()];
        }
        // The first messages may be here already, and a server that only receives wakes the thread with nothing else.
        self.link.command(Command::Begin(Arc::new(self.expect(jobs))));
        for (job, running) in jobs.iter().enumerate() {
            let order = running.job.order(self.link.ranks, self.link.rank);
            self.fresh.extend(order.map(|part| (job, part)));
        }
        let deadline = self.start + self.link.timeout;
        let mut left = jobs.iter().map(|running| running.parts.len()).sum::<usize>();
        while left > 0 {
            while let Ok(event) = self.link.next_event(Instant::now()) {
                self.arrived(event, jobs)?;
            }
            if let Some((job, part)) = self.urgent.pop_front().or_else(|| self.fresh.pop_front()) {
                left -= usize::from(self.advance(job, part, &mut jobs[job])?);
                continue;
            }
            match self.link.next_event(deadline) {
                Ok(event) => self.arrived(event, jobs)?,
                Err(()) => {
                    let parts = jobs.iter().flat_map(|running| &running.parts);
                    let mut waiting: Vec<Rank> =
                        parts.flat_map(Part::awaited).map(|(from, _)| from).collect();
                    waiting.sort_unstable();
                    waiting.dedup();
                    return Err(self.link.late(waiting));
                }
            }
        }
        self.link.command(Command::End);
        Ok(())
    }

    fn expect(&self, jobs: &[Running]) -> Expect {
        let mut messages = vec![0; self.link.ranks];
        for (from, _) in jobs.iter().flat_map(|running| &running.parts).flat_map(Part::awaited) {
            messages[from] += 1;
        }
        let jobs = jobs.iter().map(|running| {
            let part = |part| {
                let values = running.job.part(part).len();
                (values, running.job.longest(values))
            };
            ExpectJob {
                plan: running.plan,
                tagged: running.job.coding.is_tagged(),
                parts: (0..running.job.partitions).map(part).collect(),
            }
        });
        Expect {
            sequence: self.link.sequence,
            layout: self.layout.hash(),
            values: self.layout.values() as u64,
            order: self.plan.order,
            jobs: jobs.collect(),
            messages,
        }
    }

    fn arrived(&mut self, event: Event, jobs: &mut [Running]) -> Result<(), Failure> {
        match event {
            Event::Arrived { from, job, part, message, body } => {
                // The thread has checked that there is such a part.
                if !jobs[job].parts[part].arrived(from, message, body) {
                    return Err(self.wrong(format!(
                        "rank {from} sent message {} of part {part}, which nobody waits for",
                        message.tag
                    )));
                }
                self.urgent.push_back((job, part));
                Ok(())
            }
            Event::Failed(failure) => Err(failure),
            Event::Halt { number } => {
                self.link.halted.set(number);
                Ok(())
            }
            Event::Alike | Event::Votes { .. } | Event::Asked(_) => Ok(()),
        }
    }

    /// Does all that can be done for a partition; is it done?
    fn advance(&mut self, job: usize, part: usize, running: &mut Running) -> Result<bool, Failure> {
        if running.parts[part].is_done() {
            return Ok(false);
        }
        let began = Instant::now();
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
        let coding = running.job.coding;
        if !std::mem::replace(&mut running.given[part], true) {
            if is_zero(result) {
                running.parts[part].set_idle();
            } else if running.momentum == 0.0 {
                coding.codec().give(result, sum, state);
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
        let seed = seed(self.link.sequence, self.link.rank, job, part);
        let mut sends = false;
        let graph = &mut running.parts[part];
        loop {
            match graph.step(coding.codecs(), &mut values, seed) {
                Ok(None) => break,
                Ok(Some(Step::Computed(_))) => {}
                Ok(Some(Step::Send(to, message, body))) => {
                    let header = Header {
                        kind: Kind::Message(message.format),
                        sequence: self.link.sequence,
                        layout: self.layout.hash(),
                        values: self.layout.values() as u64,
                        job: job as u32,
                        part: part as u32,
                        partitions: running.job.partitions as u32,
                        tag: message.tag,
                        elements: range.len() as u32,
                        len: body.len() as u32,
                        plan: running.plan,
                    };
                    let bytes = body.len() + HEADER_LEN * if coding.is_tagged() { SPREAD } else { 1 };
                    self.sent.sent_bytes += bytes as u64;
                    self.sent.sent_messages += 1;
                    let big = bytes > self.plan.bulk;
                    self.link.tell(Command::Send { to, tagged: coding.is_tagged(), header, body, big });
                    sends = true;
                }
                Err((message, malformed)) => {
                    let name = &self.layout.tensors()[running.job.tensors[0]].0;
                    return Err(self.wrong(format!(
                        "message {} of tensor '{name}', part {part}, is malformed: {malformed}",
                        message.tag
                    )));
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
        self.compute += began.elapsed();
        if sends {
            self.link.waker.wake();
        }
        Ok(running.parts[part].is_done())
    }

    /// Tells everybody that something is wrong, and waits for what everybody is told.
    fn wrong(&self, cause: String) -> Failure {
        self.link.command(Command::Fail(cause));
        self.link.verdict()
    }
}

/// Adds a gradient by way of its velocity. What is not finite reaches all once, and no velocity remembers it.
fn give(momentum: f32, gradient: &[f32], sum: &mut [f32], velocity: &mut [f32]) {
    for ((sum, velocity), new) in sum.iter_mut().zip(velocity).zip(gradient) {
        *velocity = momentum * *velocity + new;
        *sum += *velocity;
        if !velocity.is_finite() {
            *velocity = 0.0;
        }
    }
}

/// Where the values of a partition are in the buffer.
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
