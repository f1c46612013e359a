//! A rank's connections to all others, and the exchange over them.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gradwire::kernels::Kernel;
use gradwire_codecs::Registry;

use crate::aggregator_client::{AggregatorClient, JobName};
use crate::coding::{Coding, Wire};
use crate::failure::{Failure, LinkError};
use crate::graph::{Message, Rank};
use crate::job::Job;
use crate::layout::{Layout, checksum};
use crate::part::Bytes;
use crate::plan::{Choice, CollectivePlan, GraphPlan, MAX_BYTES, PlanError};
use crate::poll::{Channels, Poller, Traffic, Waker};
use crate::protocol::{Command, Event, explanation};
use crate::relay::Relay;
use crate::rendezvous::Listening;
use crate::residuals::Residuals;
use crate::strategies::Strategy;
use crate::sums::Sums;

mod exchange;
mod in_network;
mod served;
#[cfg(test)]
mod simulation;

use exchange::{Exchange, Feedback, Place, Running};
pub use in_network::InNetwork;

/// A result that the network coded is compared at the first exchange, and then once in so many.
pub const COMPARE_EVERY: u64 = 100;
/// The time that an exchange waits longer than the connections' thread to be told why it failed.
const EXPLANATION: Duration = Duration::from_secs(3);

/// A rank's connections to all others.
///
/// The calling thread encodes, merges and decodes; a second one sends and receives. The first
/// failure closes the link.
#[derive(Debug)]
pub struct Link {
    rank: Rank,
    ranks: usize,
    timeout: Duration,
    tagged: Option<usize>,
    tls: bool,
    /// Is rank 0 a server?
    served: bool,
    /// At a server: where requests come, until it takes them.
    requests: Option<Receiver<Option<Vec<u8>>>>,
    sequence: u64,
    commands: Sender<Command>,
    events: Receiver<Event>,
    waker: Waker,
    traffic: Arc<Mutex<Traffic>>,
    thread: Option<JoinHandle<()>>,
    /// At rank 0, if it carries what others send each other.
    relay: Option<Relay>,
    failed: Option<Failure>,
    /// An aggregator that sums in the network, if a plan has one, and what it is told of the job.
    aggregator: Option<Box<AggregatorClient>>,
    job: JobName,
    /// Votes about sums in the network, and the last one that somebody wants all to cast now.
    voted: u64,
    halted: u64,
}

/// The cost of an exchange.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// From the call to the result.
    pub time: Duration,
    /// Of that, encoding, merging and decoding.
    pub compute: Duration,
    /// Messages that this rank sends in the exchange. System calls that send its last messages may
    /// come after it, and count in the next one.
    pub traffic: Traffic,
    /// With an aggregator in the network: who summed.
    pub in_network: Option<InNetwork>,
}

impl Report {
    /// This exchange and another one after it.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        let mut traffic = self.traffic;
        traffic.sent_bytes += next.traffic.sent_bytes;
        traffic.sent_messages += next.traffic.sent_messages;
        traffic.send_calls += next.traffic.send_calls;
        let in_network = next.in_network.or(self.in_network);
        Self { time: self.time + next.time, compute: self.compute + next.compute, traffic, in_network }
    }

    /// Exchanges that began at `start` and are over now, with what happened between them as
    /// computing.
    pub(crate) fn finish(self, start: Instant) -> Self {
        let time = start.elapsed();
        Self { time, compute: self.compute + time.saturating_sub(self.time), ..self }
    }
}

/// A record of an exchange, for those who want to check it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Record {
    /// By value: the gradient as the codec took it, plus the residual.
    pub given: Vec<f32>,
    /// By value: what messages lost, and no residual has, because the codec needs no feedback.
    pub dropped: Vec<f32>,
    /// Messages that were added to the result.
    pub decoded: Vec<Decoded>,
}

/// A message that was added to the result.
#[derive(Clone, PartialEq, Debug)]
pub struct Decoded {
    /// Which values of the buffer it has: ranges, one behind the other.
    pub ranges: Vec<Range<usize>>,
    /// Its coding: the codec, or [`Raw`](gradwire_codecs::Raw).
    pub message: Message,
    /// The codec, if it is coded.
    pub coding: Coding,
    /// Its bytes.
    pub bytes: Bytes,
}

impl Listening {
    /// Connects to the other ranks of the job. `root` is where rank 0 listens; rank 0 itself
    /// ignores it.
    ///
    /// # Errors
    /// Somebody does not come in time, knows another token, or says that there are other ranks.
    pub fn join(self, rank: Rank, ranks: usize, root: SocketAddr) -> Result<Link, LinkError> {
        let (connections, pairs) = self.connect_ranks(rank, ranks, root)?;
        let timeout = self.timeout();
        let io = |what: &str, source| LinkError::Io { what: what.to_owned(), source };
        for connection in &connections {
            crate::stream::prepare(connection.stream.tcp(), timeout)
                .map_err(|error| io("prepare a connection", error))?;
        }
        let relay = (!pairs.is_empty()).then(|| Relay::start(pairs, timeout)).transpose();
        let relay = relay.map_err(|error| io("relay", error))?;
        let (commands, inbox) = mpsc::channel();
        let (outbox, events) = mpsc::channel();
        let (asked, requests) = mpsc::channel();
        let waker = Waker::new().map_err(|error| io("make an event counter", error))?;
        let traffic = Arc::new(Mutex::new(Traffic::default()));
        let poller = Poller::new(
            rank,
            ranks,
            self.is_served(),
            timeout,
            connections,
            Channels { commands: inbox, events: outbox, requests: asked },
            waker.clone(),
            traffic.clone(),
        );
        let thread = thread::Builder::new().name(format!("gradwire link {rank}")).spawn(|| poller.run());
        let thread = Some(thread.map_err(|error| io("start a thread", error))?);
        let tagged = self.tagged();
        Ok(Link {
            rank,
            ranks,
            timeout,
            tagged,
            tls: self.is_tls(),
            served: self.is_served(),
            requests: (self.is_served() && rank == 0).then_some(requests),
            sequence: 0,
            commands,
            events,
            waker,
            traffic,
            thread,
            relay,
            failed: None,
            aggregator: None,
            job: self.job_name(),
            voted: 0,
            halted: 0,
        })
    }
}

impl Link {
    /// This rank's number.
    #[must_use]
    pub const fn rank(&self) -> Rank {
        self.rank
    }

    /// The number of ranks.
    #[must_use]
    pub const fn ranks(&self) -> usize {
        self.ranks
    }

    /// Replaces the values of `buffer` by the sums over all ranks, as `plan` says, and keeps in
    /// `residuals` what messages lost.
    ///
    /// All ranks call it equally often, with one layout and one plan. The same inputs make the same
    /// bits, in every run and at every rank.
    ///
    /// # Errors
    /// The arguments do not go together: nothing was exchanged, and the link is as before. Or the
    /// exchange failed somewhere: the link is closed, and `buffer` and `residuals` have parts of
    /// sums.
    pub fn exchange(
        &mut self,
        buffer: &mut [f32],
        layout: &Layout,
        plan: &CollectivePlan,
        residuals: &mut Residuals,
    ) -> Result<Report, LinkError> {
        self.run_plan(buffer, layout, plan, residuals, None)
    }

    /// [`exchange`](Self::exchange), and writes down what it did.
    ///
    /// # Errors
    /// As there.
    pub fn exchange_recorded(
        &mut self,
        buffer: &mut [f32],
        layout: &Layout,
        plan: &CollectivePlan,
        residuals: &mut Residuals,
        record: &mut Record,
    ) -> Result<Report, LinkError> {
        self.run_plan(buffer, layout, plan, residuals, Some(record))
    }

    /// Replaces `values` by their sums over all ranks, exactly as `f32` adds them, over a ring that
    /// no NIC touches.
    ///
    /// With [`all_reduce_comp`](Self::all_reduce_comp) this is the pair of calls of INCEPTIONN
    /// (MICRO 2018).
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub fn all_reduce(&mut self, values: &mut [f32]) -> Result<Report, LinkError> {
        let exact = Registry::BUILT_IN.codec("f32").expect("a codec of its own");
        self.ring(values, Coding::Host(exact))
    }

    /// [`all_reduce`](Self::all_reduce) over a tagged ring, which NICs or shims with the profile of
    /// `wire` compress. The link needs tagged connections.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange); ranks have different results, because the network has
    /// another profile.
    pub fn all_reduce_comp(&mut self, values: &mut [f32], wire: Wire) -> Result<Report, LinkError> {
        self.ring(values, Coding::Wire(wire))
    }

    fn ring(&mut self, values: &mut [f32], coding: Coding) -> Result<Report, LinkError> {
        let layout = Layout::new([("values", values.len())])?;
        // One tensor, however small, goes as it was asked for.
        let plan = GraphPlan { small: 0, ..GraphPlan::of(coding, Strategy::Ring) };
        self.exchange(values, &layout, &plan.into(), &mut Residuals::new())
    }

    /// Do these go together, and with this link? If not, nothing was done yet.
    pub(crate) fn check(
        &self,
        values: usize,
        layout: &Layout,
        plan: &CollectivePlan,
        residuals: &Residuals,
    ) -> Result<(), LinkError> {
        self.check_fit(values, layout, residuals)?;
        if self.served {
            plan.check_served()?;
        }
        match plan {
            CollectivePlan::InNetwork { .. } if self.tls => return Err(LinkError::ClearPlan),
            CollectivePlan::InNetwork { wire, .. } => {
                // What no aggregator sums, ranks send each other, at worst all in one message.
                let bytes = Sums::new(Kernel::detect(), *wire, self.ranks).longest(values);
                if bytes > MAX_BYTES {
                    return Err(PlanError::AggregatorPart { values, bytes }.into());
                }
            }
            CollectivePlan::Graph(plan) => {
                if let Some(group) = plan.all_tagged().find(|&group| Some(group) != self.tagged) {
                    return Err(LinkError::NotTagged { group });
                }
            }
        }
        Ok(())
    }

    fn check_fit(&self, values: usize, layout: &Layout, residuals: &Residuals) -> Result<(), LinkError> {
        if self.thread.is_none() {
            return Err(LinkError::Closed(self.failed.clone()));
        }
        if values != layout.values() {
            return Err(LinkError::Buffer { buffer: values, layout: layout.values() });
        }
        Ok(residuals.fits(layout)?)
    }

    fn run_plan(
        &mut self,
        buffer: &mut [f32],
        layout: &Layout,
        plan: &CollectivePlan,
        residuals: &mut Residuals,
        record: Option<&mut Record>,
    ) -> Result<Report, LinkError> {
        self.check(buffer.len(), layout, plan, residuals)?;
        match plan {
            CollectivePlan::InNetwork { address, wire } => {
                for (name, range) in layout.tensors() {
                    residuals.release(name, &mut buffer[range.clone()]);
                }
                if let Some(record) = record {
                    *record = Record {
                        given: buffer.to_vec(),
                        dropped: vec![0.0; buffer.len()],
                        decoded: Vec::new(),
                    };
                }
                self.sum_in_network(buffer, layout, &plan.strategy(), *address, *wire)
            }
            CollectivePlan::Graph(plan) => {
                let chosen = |at: usize| plan.choice_at(layout, at);
                self.run(buffer, layout, plan, &chosen, residuals, record)
            }
        }
    }

    /// [`exchange`](Self::exchange) of graphs whose choices go by the tensor's place in the layout.
    pub(crate) fn exchange_chosen(
        &mut self,
        buffer: &mut [f32],
        layout: &Layout,
        plan: &GraphPlan,
        chosen: &[Option<Choice>],
        residuals: &mut Residuals,
    ) -> Result<Report, LinkError> {
        self.check_fit(buffer.len(), layout, residuals)?;
        self.run(buffer, layout, plan, &|at| chosen[at].as_ref(), residuals, None)
    }

    /// Runs graphs. With a server, they are the server's, whatever the plan says.
    fn run<'c>(
        &mut self,
        buffer: &mut [f32],
        layout: &Layout,
        plan: &'c GraphPlan,
        chosen: &dyn Fn(usize) -> Option<&'c Choice>,
        residuals: &mut Residuals,
        record: Option<&mut Record>,
    ) -> Result<Report, LinkError> {
        let jobs = self.jobs(layout, plan, chosen, Strategy::Servers(Some(1)))?;
        self.run_jobs(buffer, layout, plan, jobs, chosen, residuals, record)
    }

    fn jobs<'c>(
        &self,
        layout: &Layout,
        plan: &'c GraphPlan,
        chosen: &dyn Fn(usize) -> Option<&'c Choice>,
        with_server: Strategy,
    ) -> Result<Vec<Job>, LinkError> {
        let mut jobs = plan.jobs_of(layout, self.ranks, chosen)?;
        if self.served {
            jobs.iter_mut().for_each(|job| job.strategy = with_server);
        }
        Ok(jobs)
    }

    #[expect(clippy::too_many_arguments, reason = "called by two, which have all of these")]
    fn run_jobs<'c>(
        &mut self,
        buffer: &mut [f32],
        layout: &Layout,
        plan: &'c GraphPlan,
        all: Vec<Job>,
        chosen: &dyn Fn(usize) -> Option<&'c Choice>,
        residuals: &mut Residuals,
        record: Option<&mut Record>,
    ) -> Result<Report, LinkError> {
        let start = Instant::now();
        let mut jobs = Vec::new();
        let mut failed = None;
        for job in all {
            // All tensors of one job are alike in this.
            let first = job.tensors[0];
            let momentum = plan.momentum(chosen(first), layout.tensors()[first].1.len());
            let coding = if momentum == 0.0 { job.coding } else { plan.others.coding };
            let feedback = Feedback { coding, momentum };
            let place = (self.rank, self.ranks);
            match Running::new(job, feedback, layout, buffer, residuals, place, record.is_some()) {
                Ok(running) => jobs.push(running),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if let Some(error) = failed {
            jobs.into_iter().for_each(|running| running.put_back(layout, buffer, residuals));
            return Err(error);
        }
        self.sequence += 1;
        let before = self.traffic().send_calls;
        let place = Place { rank: self.rank, ranks: self.ranks, sequence: self.sequence };
        let mut exchange = Exchange::new(place, layout, plan, buffer, jobs, record);
        let mut compute = Duration::ZERO;
        let result = self.drive(&mut exchange, start + self.timeout, &mut compute);
        let sent = exchange.sent;
        exchange.put_back(residuals);
        result.map_err(|failure| self.fail(failure))?;
        if plan.tagged().is_some() && self.sequence % COMPARE_EVERY == 1 {
            self.compare(
                checksum(buffer),
                "the network changed values: every shim or NIC on the ring needs the profile of the plan's wire: codec, or none",
            )?;
        }
        let traffic = Traffic { send_calls: self.traffic().send_calls - before, ..sent };
        Ok(Report { time: start.elapsed(), compute, traffic, in_network: None })
    }

    /// Runs an exchange to its end, and counts the time that it computes.
    fn drive(
        &mut self,
        exchange: &mut Exchange,
        deadline: Instant,
        compute: &mut Duration,
    ) -> Result<(), Failure> {
        self.tell_all(exchange);
        while !exchange.is_done() {
            while let Ok(event) = self.next_event(Instant::now()) {
                self.take(event, exchange)?;
            }
            let began = Instant::now();
            let advanced = exchange.advance();
            *compute += began.elapsed();
            if advanced.map_err(|cause| self.wrong(cause))? {
                self.tell_all(exchange);
                continue;
            }
            match self.next_event(deadline) {
                Ok(event) => self.take(event, exchange)?,
                Err(()) => return Err(self.late(exchange.waiting())),
            }
        }
        Ok(())
    }

    fn tell_all(&self, exchange: &mut Exchange) {
        if !exchange.commands.is_empty() {
            exchange.commands.drain(..).for_each(|command| self.tell(command));
            self.waker.wake();
        }
    }

    /// Takes an event that comes during an exchange.
    fn take(&mut self, event: Event, exchange: &mut Exchange) -> Result<(), Failure> {
        match event {
            Event::Arrived { from, job, part, message, body } => {
                exchange.arrived(from, job, part, message, body).map_err(|cause| self.wrong(cause))
            }
            Event::Failed(failure) => Err(failure),
            Event::Halt { number } => {
                self.halted = number;
                Ok(())
            }
            Event::Alike | Event::Votes { .. } | Event::Asked(_) => Ok(()),
        }
    }

    /// Tells everybody that something is wrong, and waits for what everybody is told.
    fn wrong(&mut self, cause: String) -> Failure {
        self.command(Command::Fail(cause));
        self.verdict()
    }

    /// Waits until all ranks have called it, and fails if their checksums differ. `means` says what
    /// that would mean.
    ///
    /// # Errors
    /// They differ, or the link failed.
    pub fn compare(&mut self, checksum: u64, means: &str) -> Result<(), LinkError> {
        if self.thread.is_none() {
            return Err(LinkError::Closed(self.failed.clone()));
        }
        if self.ranks == 1 {
            return Ok(());
        }
        self.command(Command::Compare { checksum, means: means.to_owned() });
        let deadline = Instant::now() + self.timeout;
        loop {
            match self.next_event(deadline) {
                Ok(Event::Alike) => return Ok(()),
                // Nobody sends before this rank has begun an exchange.
                Ok(Event::Arrived { .. } | Event::Votes { .. } | Event::Asked(_)) => {}
                Ok(Event::Halt { number }) => self.halted = number,
                Ok(Event::Failed(failure)) => return Err(self.fail(failure)),
                Err(()) => {
                    let failure = self.late((0..self.ranks).filter(|&rank| rank != self.rank).collect());
                    return Err(self.fail(failure));
                }
            }
        }
    }

    /// The traffic that left this rank since it connected.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        *self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves: sends what is left, tells the others, and closes all connections. Dropping a link
    /// does the same.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.command(Command::Close);
            _ = thread.join();
        }
        self.relay = None;
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

    fn next_event(&mut self, deadline: Instant) -> Result<Event, ()> {
        match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(event) => Ok(event),
            Err(RecvTimeoutError::Timeout) => Err(()),
            Err(RecvTimeoutError::Disconnected) => Ok(Event::Failed(self.lost())),
        }
    }

    fn lost(&self) -> Failure {
        let cause = format!("rank {}'s sending thread ended", self.rank);
        Failure { reporter: self.rank, cause, weight: crate::failure::Weight::Certain }
    }

    /// Says that messages did not come in time, and waits for what everybody is told.
    fn late(&mut self, waiting: Vec<Rank>) -> Failure {
        self.command(Command::Late { waiting });
        self.verdict()
    }

    fn verdict(&mut self) -> Failure {
        let deadline = Instant::now() + explanation(self.timeout) + EXPLANATION;
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
        self.relay = None;
        LinkError::Failed(failure)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.end();
    }
}
