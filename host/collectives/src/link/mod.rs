//! A member's connections to all others, and the exchange over them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gradwire_codecs::Registry;

use crate::failure::{Failure, LinkError};
use crate::graph::{Message, Rank};
use crate::header::{HEADER_LEN, Header, Kind, PlanName};
use crate::held::{Held, HeldTensor};
use crate::layout::{Layout, checksum};
use crate::node::{JobName, Node};
use crate::part::{Bytes, Part, Step, Values};
use crate::plan::{Coding, Job, Plan, Wire};
use crate::poll::{Command, Event, Expect, ExpectJob, Poller, Traffic, Waker};
use crate::rendezvous::Listening;
use crate::spread::SPREAD;
use crate::strategies::Strategy;

mod in_network;

pub use in_network::InNetwork;

/// A result that the network coded is compared at the first exchange, and then once in so many.
pub const COMPARE_EVERY: u64 = 100;
/// How long after its own deadline an exchange waits to be told why.
const EXPLANATION: Duration = Duration::from_secs(5);

/// A member's connections to all others.
///
/// The calling thread encodes, merges and decodes; a second one sends and receives. The first failure closes the link.
#[derive(Debug)]
pub struct Link {
    rank: Rank,
    members: usize,
    timeout: Duration,
    tagged: bool,
    sequence: u64,
    commands: Sender<Command>,
    events: Receiver<Event>,
    waker: Waker,
    traffic: Arc<Mutex<Traffic>>,
    thread: Option<JoinHandle<()>>,
    failed: Option<Failure>,
    /// A node that sums in the network, if a plan has one, and what it is told of the job.
    node: Option<Box<Node>>,
    job: JobName,
    /// Votes about sums in the network, and the last one that somebody wants all to cast now.
    voted: u64,
    halted: Cell<u64>,
}

/// What an exchange took.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// From the call to the result.
    pub time: Duration,
    /// Of that, encoding, merging and decoding.
    pub compute: Duration,
    /// What this member sends in the exchange. System calls that send its last messages may come after it, and count in the next one.
    pub traffic: Traffic,
    /// With a node in the network: who summed.
    pub in_network: Option<InNetwork>,
}

/// What an exchange did, for those who want to check it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Record {
    /// By value: the gradient as the codec took it, plus what was held back before.
    pub given: Vec<f32>,
    /// By value: what messages lost and nobody holds back, because the codec needs no feedback.
    pub dropped: Vec<f32>,
    /// Messages that were added to the result.
    pub decoded: Vec<Decoded>,
}

/// A message that was added to the result.
#[derive(Clone, PartialEq, Debug)]
pub struct Decoded {
    /// Which values of the buffer it has: ranges, one behind the other.
    pub ranges: Vec<Range<usize>>,
    /// How it is coded: the codec, or [`Raw`](gradwire_codecs::Raw).
    pub message: Message,
    /// The codec, if it is coded.
    pub coding: crate::plan::Coding,
    /// Its bytes.
    pub bytes: Bytes,
}

impl Listening {
    /// Connects to the other members of the job. `root` is where rank 0 listens; rank 0 itself ignores it.
    ///
    /// # Errors
    /// Somebody does not come in time, knows another token, or says that there are other members.
    pub fn join(self, rank: Rank, members: usize, root: SocketAddr) -> Result<Link, LinkError> {
        let proven = self.meet(rank, members, root)?;
        let timeout = self.timeout();
        let io = |what: &str, source| LinkError::Io { what: what.to_owned(), source };
        for proven in &proven {
            crate::rendezvous::prepare(&proven.stream, timeout)
                .map_err(|error| io("prepare a connection", error))?;
        }
        let (commands, inbox) = mpsc::channel();
        let (outbox, events) = mpsc::channel();
        let waker = Waker::new().map_err(|error| io("make an event counter", error))?;
        let traffic = Arc::new(Mutex::new(Traffic::default()));
        let poller =
            Poller::new(rank, members, timeout, proven, inbox, outbox, waker.clone(), traffic.clone());
        let thread = thread::Builder::new().name(format!("gradwire link {rank}")).spawn(|| poller.run());
        let thread = Some(thread.map_err(|error| io("start a thread", error))?);
        let tagged = self.is_tagged();
        Ok(Link {
            rank,
            members,
            timeout,
            tagged,
            sequence: 0,
            commands,
            events,
            waker,
            traffic,
            thread,
            failed: None,
            node: None,
            job: self.job_name(),
            voted: 0,
            halted: Cell::new(0),
        })
    }
}

impl Link {
    /// This member's number.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// How many members there are.
    #[must_use]
    pub const fn members(&self) -> usize {
        self.members
    }

    /// Replaces the values of `buffer` by the sums over all members, as `plan` says, and keeps in `held` what messages lost.
    ///
    /// All members call it equally often, with one layout and one plan. The same inputs make the same bits, in every run and at
    /// every member.
    ///
    /// # Errors
    /// The arguments do not go together: nothing was exchanged, and the link is as before. Or the exchange failed somewhere: the link is
    /// closed, and `buffer` and `held` have parts of sums.
    pub fn exchange(
        &mut self,
        buffer: &mut [f32],
        layout: &Layout,
        plan: &Plan,
        held: &mut Held,
    ) -> Result<Report, LinkError> {
        self.run(buffer, layout, plan, held, None)
    }

    /// [`exchange`](Self::exchange), and writes down what it did.
    ///
    /// # Errors
    /// As there.
    pub fn exchange_recorded(
        &mut self,
        buffer: &mut [f32],
        layout: &Layout,
        plan: &Plan,
        held: &mut Held,
        record: &mut Record,
    ) -> Result<Report, LinkError> {
        self.run(buffer, layout, plan, held, Some(record))
    }

    /// Replaces `values` by their sums over all members, exactly as `f32` adds them, over a ring that no NIC touches.
    ///
    /// With [`all_reduce_comp`](Self::all_reduce_comp) this is the pair of calls of INCEPTIONN (MICRO 2018).
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub fn all_reduce(&mut self, values: &mut [f32]) -> Result<Report, LinkError> {
        let exact = Registry::BUILT_IN.codec("f32").expect("a codec of its own");
        self.ring(values, Coding::Host(exact))
    }

    /// [`all_reduce`](Self::all_reduce) over a tagged ring, which NICs or shims with the profile of `wire` compress. The link needs
    /// tagged connections.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange); members have different results, because the network has another profile.
    pub fn all_reduce_comp(&mut self, values: &mut [f32], wire: Wire) -> Result<Report, LinkError> {
        self.ring(values, Coding::Wire(wire))
    }

    fn ring(&mut self, values: &mut [f32], coding: Coding) -> Result<Report, LinkError> {
        let layout = Layout::new([("values", values.len())])?;
        // One tensor, however small, goes as it was asked for.
        let plan = Plan { small: 0, ..Plan::of(coding, Strategy::Ring) };
        self.exchange(values, &layout, &plan, &mut Held::new())
    }

    fn run(
        &mut self,
        buffer: &mut [f32],
        layout: &Layout,
        plan: &Plan,
        held: &mut Held,
        record: Option<&mut Record>,
    ) -> Result<Report, LinkError> {
        let start = Instant::now();
        if self.thread.is_none() {
            return Err(LinkError::Closed(self.failed.clone()));
        }
        if buffer.len() != layout.values() {
            return Err(LinkError::Buffer { buffer: buffer.len(), layout: layout.values() });
        }
        if let (Some(address), Coding::Wire(wire)) = (plan.in_network, plan.others.coding) {
            if let Some(record) = record {
                *record =
                    Record { given: buffer.to_vec(), dropped: vec![0.0; buffer.len()], decoded: Vec::new() };
            }
            return self.sum_in_network(buffer, layout, plan, address, wire);
        }
        if plan.is_tagged() && !self.tagged {
            return Err(LinkError::NotTagged);
        }
        let mut under_way = Vec::new();
        let mut failed = None;
        for job in plan.jobs(layout, self.members)? {
            match Running::new(job, layout, buffer, held, self, record.is_some()) {
                Ok(running) => under_way.push(running),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if let Some(error) = failed {
            under_way.into_iter().for_each(|running| running.put_back(layout, buffer, held));
            return Err(error);
        }
        self.sequence += 1;
        let before = self.traffic().send_calls;
        let mut exchange = Exchange {
            link: self,
            layout,
            plan,
            buffer,
            start,
            compute: Duration::ZERO,
            fresh: VecDeque::new(),
            urgent: VecDeque::new(),
            sent: Traffic::default(),
            record,
        };
        let result = exchange.run(&mut under_way);
        let (compute, sent) = (exchange.compute, exchange.sent);
        if let Some(record) = exchange.record {
            record.decoded = under_way.iter().flat_map(|running| running.decoded(layout)).collect();
        }
        under_way.into_iter().for_each(|running| running.put_back(layout, buffer, held));
        result.map_err(|failure| self.fail(failure))?;
        if plan.is_tagged() && self.sequence % COMPARE_EVERY == 1 {
            self.compare(
                checksum(buffer),
                "the network changed values: every shim or NIC on the ring needs the profile of the plan's wire: codec, or none",
            )?;
        }
        let traffic = Traffic { send_calls: self.traffic().send_calls - before, ..sent };
        Ok(Report { time: start.elapsed(), compute, traffic, in_network: None })
    }

    /// Waits until all members have called it, and fails if their checksums differ. `means` says what that would mean.
    ///
    /// # Errors
    /// They differ, or the link failed.
    pub fn compare(&mut self, checksum: u64, means: &str) -> Result<(), LinkError> {
        if self.thread.is_none() {
            return Err(LinkError::Closed(self.failed.clone()));
        }
        if self.members == 1 {
            return Ok(());
        }
        self.command(Command::Compare { checksum, means: means.to_owned() });
        let deadline = Instant::now() + self.timeout;
        loop {
            match self.next_event(deadline) {
                Ok(Event::Alike) => return Ok(()),
                // Nobody sends before this member has begun an exchange.
                Ok(Event::Arrived { .. } | Event::Votes { .. }) => {}
                Ok(Event::Halt { number }) => self.halted.set(number),
                Ok(Event::Failed(failure)) => return Err(self.fail(failure)),
                Err(()) => {
                    let failure = self.late((0..self.members).filter(|&rank| rank != self.rank).collect());
                    return Err(self.fail(failure));
                }
            }
        }
    }

    /// What left this member since it connected.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        *self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves: sends what is left, tells the others, and closes all connections. Dropping a link does the same.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.command(Command::Close);
            _ = thread.join();
        }
    }

    /// Asks the thread to do something, soon.
    fn tell(&self, command: Command) {
        // If the thread is gone, an event says why.
        _ = self.commands.send(command);
    }

    /// Asks the thread to do something now.
    fn command(&self, command: Command) {
        self.tell(command);
        self.waker.wake();
    }

    fn next_event(&self, deadline: Instant) -> Result<Event, ()> {
        match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(event) => Ok(event),
            Err(RecvTimeoutError::Timeout) => Err(()),
            Err(RecvTimeoutError::Disconnected) => Ok(Event::Failed(self.lost())),
        }
    }

    fn lost(&self) -> Failure {
        let cause = format!("member {}'s sending thread ended", self.rank);
        Failure { reporter: self.rank, cause, weight: crate::failure::Weight::Certain }
    }

    /// Says that messages did not come in time, and waits for what everybody is told.
    fn late(&self, waiting: Vec<Rank>) -> Failure {
        self.command(Command::Late { waiting });
        self.verdict()
    }

    fn verdict(&self) -> Failure {
        let deadline = Instant::now() + EXPLANATION;
        loop {
            match self.next_event(deadline) {
                Ok(Event::Failed(failure)) => return failure,
                Ok(_) => {}
                Err(()) => return self.lost(),
            }
        }
    }

    fn fail(&mut self, failure: Failure) -> LinkError {
        self.failed = Some(failure.clone());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
        LinkError::Failed(failure)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.end();
    }
}

/// A job under way.
struct Running {
    job: Job,
    plan: PlanName,
    sum: Vec<f32>,
    states: Vec<Vec<f32>>,
    parts: Vec<Part>,
    /// By partition: has the gradient been given?
    given: Vec<bool>,
    /// Small tensors together, which are not one behind the other in the buffer.
    gathered: Option<Vec<f32>>,
}

impl Running {
    fn new(
        job: Job,
        layout: &Layout,
        buffer: &[f32],
        held: &mut Held,
        link: &Link,
        keep: bool,
    ) -> Result<Self, LinkError> {
        let parts = (0..job.partitions).map(|partition| {
            let graph = job.strategy.graph(link.members, link.rank, partition);
            Ok(Part::new(graph.map_err(crate::plan::PlanError::from)?, keep))
        });
        let parts: Vec<Part> = parts.collect::<Result<_, LinkError>>()?;
        let tensor = |at: usize| &layout.tensors()[at];
        let mut running = Self {
            plan: PlanName::new(&format!("{} {}", job.strategy, job.coding)),
            sum: Vec::new(),
            states: Vec::new(),
            given: vec![false; parts.len()],
            parts,
            gathered: None,
            job,
        };
        let codec = running.job.coding.to_string();
        if let [at] = running.job.tensors[..] {
            let lens = (0..running.job.partitions)
                .map(|part| running.job.coding.codec().state_len(running.job.part(part).len()));
            let taken = held.take(&tensor(at).0, tensor(at).1.len(), &codec, lens)?;
            (running.sum, running.states) = (taken.sum, taken.states);
            return Ok(running);
        }
        let mut gathered = Vec::with_capacity(running.job.values);
        // All fit, or nothing is taken.
        for &at in &running.job.tensors {
            let taken = held.take(&tensor(at).0, tensor(at).1.len(), &codec, std::iter::once(0))?;
            held.put(&tensor(at).0, taken);
        }
        for &at in &running.job.tensors {
            let taken = held.take(&tensor(at).0, tensor(at).1.len(), &codec, std::iter::once(0))?;
            running.sum.extend(taken.sum);
            gathered.extend(&buffer[tensor(at).1.clone()]);
        }
        running.states = vec![Vec::new()];
        running.gathered = Some(gathered);
        Ok(running)
    }

    /// Brings the held-back values back, and the gathered ones into the buffer.
    fn put_back(mut self, layout: &Layout, buffer: &mut [f32], held: &mut Held) {
        let codec = self.job.coding.to_string();
        if let [at] = self.job.tensors[..] {
            held.put(&layout.tensors()[at].0, HeldTensor { sum: self.sum, codec, states: self.states });
            return;
        }
        let gathered = self.gathered.take().unwrap_or_default();
        let mut from = 0;
        for &at in &self.job.tensors {
            let (name, range) = &layout.tensors()[at];
            let part = from..from + range.len();
            from = part.end;
            buffer[range.clone()].copy_from_slice(&gathered[part.clone()]);
            held.put(
                name,
                HeldTensor { sum: self.sum[part].to_vec(), codec: codec.clone(), states: vec![Vec::new()] },
            );
        }
    }

    fn decoded(&self, layout: &Layout) -> Vec<Decoded> {
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
struct Exchange<'a> {
    link: &'a Link,
    layout: &'a Layout,
    plan: &'a Plan,
    buffer: &'a mut [f32],
    start: Instant,
    compute: Duration,
    /// Jobs and partitions that nothing arrived for yet, in the order of this member's turns.
    fresh: VecDeque<(usize, usize)>,
    /// Jobs and partitions that something arrived for: the others wait for what comes of it.
    urgent: VecDeque<(usize, usize)>,
    /// Bytes and messages that the thread was given.
    sent: Traffic,
    record: Option<&'a mut Record>,
}

impl Exchange<'_> {
    fn run(&mut self, jobs: &mut [Running]) -> Result<(), Failure> {
        if let Some(record) = &mut self.record {
            record.given = vec![0.0; self.buffer.len()];
            record.dropped = vec![0.0; self.buffer.len()];
        }
        // The first messages may be here already, and a server that only receives wakes the thread with nothing else.
        self.link.command(Command::Begin(Arc::new(self.expect(jobs))));
        for (job, running) in jobs.iter().enumerate() {
            // The partition of the next member first: so members send to different ones.
            let (count, first) = (running.parts.len(), self.link.rank + 1);
            self.fresh.extend((0..count).map(|i| (job, (first + i) % count)));
        }
        let deadline = self.start + self.link.timeout;
        let mut left = jobs.iter().map(|running| running.parts.len()).sum::<usize>();
        while left > 0 {
            while let Ok(event) = self.link.events.try_recv() {
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
        let mut messages = vec![0; self.link.members];
        for (from, _) in jobs.iter().flat_map(|running| &running.parts).flat_map(Part::awaited) {
            messages[from] += 1;
        }
        let jobs = jobs.iter().map(|running| {
            let codecs = running.job.coding.codecs();
            let part = |part| {
                let values = running.job.part(part).len();
                let coded = codecs.partial.bound(values).max(codecs.result.bound(values));
                (values, coded.max(4 * values))
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
                        "member {from} sent message {} of part {part}, which nobody waits for",
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
            Event::Alike | Event::Votes { .. } => Ok(()),
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
            coding.codec().give(result, sum, state);
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

/// The seed of a member's messages of one partition in one exchange.
fn seed(sequence: u64, rank: Rank, job: usize, part: usize) -> u64 {
    let mut hash = crate::layout::Hash::new();
    for number in [sequence, rank as u64, job as u64, part as u64] {
        hash.bytes(&number.to_le_bytes());
    }
    hash.0
}
