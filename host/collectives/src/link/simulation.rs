//! Ranks without sockets, threads or a clock: exchanges and protocols as they are, over a simulated
//! network.
//!
//! Each connection keeps its order and has a delay of its own for each segment, so what different
//! peers send arrives in any order. A connection holds 64 KiB, as a socket's buffers do. A seed
//! makes a run, and the same seed the same run.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::exchange::{Exchange, Feedback, Place, Running};
use crate::agreement::{End, Vote};
use crate::failure::Failure;
use crate::graph::Rank;
use crate::header::Purpose;
use crate::layout::{Layout, checksum};
use crate::plan::{CollectivePlan, GraphPlan, Order};
use crate::protocol::{Command, ConnectionId, Endpoint, Event, Expect, Protocol, explanation};
use crate::residuals::Residuals;
use std::sync::Arc;

const TIMEOUT: Duration = Duration::from_secs(20);
/// The longest delay of a segment, and the longest pause of a rank before it begins the next task.
const MAX_DELAY: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(50);
/// Bytes that a connection holds.
const CAPACITY: usize = 1 << 16;
const MAX_SEGMENT: usize = 3000;

/// Numbers that look random: Steele and others' SplitMix64 (OOPSLA 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % limit as u64) as usize
    }

    fn time(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.below(most.as_micros() as usize) as u64)
    }
}

/// The tasks of a rank, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    Exchange,
    Vote,
    Compare,
    Close,
}

const TASKS: [Task; 5] = [Task::Exchange, Task::Exchange, Task::Vote, Task::Compare, Task::Close];

/// A fault of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Its connections end.
    Killed,
    /// It does nothing any more, and its connections stay.
    Silent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Alive,
    Lost(Fault),
    /// It is over, and its connections have ended.
    Gone,
}

/// One way of a connection, at its receiving end.
#[derive(Default)]
struct Pipe {
    segments: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    /// Nothing arrives before what was sent before it.
    last: Option<Instant>,
    /// When the end arrives.
    end: Option<Instant>,
}

struct Peer<'a> {
    rank: Rank,
    ranks: usize,
    life: Life,
    protocol: Protocol,
    /// By connection: the peer and the connection at the other end, and what arrives from there.
    remotes: Vec<(usize, ConnectionId)>,
    pipes: Vec<Pipe>,
    plan: &'a GraphPlan,
    layout: &'a Layout,
    buffers: VecDeque<&'a mut [f32]>,
    residuals: Residuals,
    exchange: Option<Exchange<'a>>,
    /// Its task, by its place in [`TASKS`], and whether it has begun.
    task: usize,
    begun: bool,
    sequence: u64,
    /// A rank that is alive and never begins this task.
    stalls: Option<usize>,
    /// When its task begins, or has to be done.
    due: Instant,
    late: bool,
    failure: Option<(Failure, Instant)>,
}

impl<'a> Peer<'a> {
    /// Does something for its task; `false` if there is nothing to do.
    fn work(&mut self, now: Instant, random: &mut Random) -> bool {
        let mut moved = false;
        while let Some(event) = self.protocol.poll_event() {
            moved = true;
            match event {
                Event::Arrived { from, job, part, message, body } => {
                    let exchange = self.exchange.as_mut().expect("messages come in exchanges");
                    if let Err(cause) = exchange.arrived(from, job, part, message, body) {
                        self.protocol.handle_command(Command::Fail(cause), now);
                    }
                }
                Event::Alike => self.next(now, random),
                Event::Votes { number, votes } => {
                    assert_eq!((number, votes.len()), (1, self.ranks));
                    assert!((0..self.ranks).all(|rank| votes[rank].base == rank as u32));
                    self.protocol.handle_command(Command::End, now);
                    self.next(now, random);
                }
                Event::Halt { .. } | Event::Asked(_) => {
                    unreachable!("nobody gives up, and there is no server")
                }
                Event::Failed(failure) => self.failure = Some((failure, now)),
            }
        }
        if self.failure.is_some() || self.task == TASKS.len() {
            return moved;
        }
        if let Some(exchange) = &mut self.exchange {
            match exchange.advance() {
                Ok(advanced) => moved |= advanced,
                Err(cause) => self.protocol.handle_command(Command::Fail(cause), now),
            }
            exchange.commands.drain(..).for_each(|command| self.protocol.handle_command(command, now));
            if exchange.is_done() {
                self.exchange.take().expect("just seen").put_back(&mut self.residuals);
                self.next(now, random);
                return true;
            }
        }
        if now < self.due || self.stalls == Some(self.task) {
            return moved;
        }
        if self.begun {
            if !std::mem::replace(&mut self.late, true) {
                let others = (0..self.ranks).filter(|&rank| rank != self.rank).collect();
                let waiting = self.exchange.as_ref().map_or(others, Exchange::waiting);
                self.protocol.handle_command(Command::Late { waiting }, now);
                moved = true;
            }
            return moved;
        }
        self.begin(now);
        true
    }

    fn begin(&mut self, now: Instant) {
        (self.begun, self.due) = (true, now + TIMEOUT);
        match TASKS[self.task] {
            Task::Exchange => {
                self.sequence += 1;
                let buffer = self.buffers.pop_front().expect("one for each exchange");
                let place = Place { rank: self.rank, ranks: self.ranks, sequence: self.sequence };
                let jobs = self.plan.jobs(self.layout, self.ranks).unwrap().into_iter().map(|job| {
                    let me = (self.rank, self.ranks);
                    let feedback = Feedback { coding: job.coding, momentum: 0.0 };
                    Running::new(job, feedback, self.layout, buffer, &mut self.residuals, me, false).unwrap()
                });
                let jobs = jobs.collect();
                self.exchange = Some(Exchange::new(place, self.layout, self.plan, buffer, jobs, None));
            }
            Task::Vote => {
                self.sequence += 1;
                let expect = Expect {
                    sequence: self.sequence,
                    layout: self.layout.hash(),
                    values: self.layout.values() as u64,
                    order: Order::Free,
                    jobs: Vec::new(),
                    messages: vec![0; self.ranks],
                };
                let vote = Vote { end: End::Complete, epoch: 1, blocks: 1, base: self.rank as u32, later: 0 };
                for command in [
                    Command::Begin(Arc::new(expect)),
                    Command::Sum { number: 1 },
                    Command::Vote { number: 1, vote },
                ] {
                    self.protocol.handle_command(command, now);
                }
            }
            Task::Compare => {
                let compare = Command::Compare { checksum: 7, means: String::new() };
                self.protocol.handle_command(compare, now);
            }
            Task::Close => {
                self.protocol.handle_command(Command::Close, now);
                self.task += 1;
            }
        }
    }

    fn next(&mut self, now: Instant, random: &mut Random) {
        self.task += 1;
        (self.begun, self.late, self.due) = (false, false, now + random.time(MAX_PAUSE));
    }

    /// When it has something to do, if nothing arrives.
    fn wakes(&self) -> Option<Instant> {
        let task = self.failure.is_none()
            && self.task < TASKS.len()
            && !self.late
            && self.stalls.is_none_or(|task| task != self.task);
        let arrives = self.pipes.iter().enumerate().filter(|(at, _)| self.protocol.wants_bytes(*at));
        let arrives = arrives.filter_map(|(_, pipe)| pipe.segments.front().map(|(at, _)| *at).or(pipe.end));
        arrives.chain(self.protocol.next_timeout()).chain(task.then_some(self.due)).min()
    }
}

/// The setting of a run.
struct Scenario<'s> {
    plan: &'s str,
    ranks: usize,
    seed: u64,
    fault: Option<(Rank, Fault, usize)>,
    stalls: Option<(Rank, usize)>,
}

/// The outcome of a run.
struct Outcome {
    steps: usize,
    /// The tasks that the lost rank had begun.
    victim_at: usize,
    /// When it was lost.
    lost: Option<Duration>,
    /// By rank: why it failed, and when.
    failures: Vec<Option<(String, Duration)>>,
    /// By rank, the results of its exchanges.
    results: Vec<Vec<Vec<f32>>>,
    /// By rank: how many of its tasks it did.
    done: Vec<usize>,
}

/// Whole numbers, whose sums `f32` has exactly.
fn value(rank: Rank, exchange: usize, at: usize) -> i32 {
    (rank as i32 * 131 + exchange as i32 * 17 + at as i32 * 7) % 201 - 100
}

fn tensors() -> Layout {
    Layout::new([("weights", 3000), ("bias", 5), ("more", 40), ("conv", 1200)]).unwrap()
}

fn graphs(plan: &str) -> GraphPlan {
    plan.parse::<CollectivePlan>().unwrap().graph().unwrap().clone()
}

fn run(scenario: &Scenario) -> Outcome {
    let (plan, layout) = (graphs(scenario.plan), tensors());
    let ranks = scenario.ranks;
    let exchanges = TASKS.iter().filter(|task| **task == Task::Exchange).count();
    let buffer = |rank: Rank, exchange: usize| {
        (0..layout.values()).map(|at| value(rank, exchange, at) as f32).collect::<Vec<f32>>()
    };
    let buffers = |rank: Rank| (0..exchanges).map(|exchange| buffer(rank, exchange)).collect::<Vec<_>>();
    let mut results: Vec<Vec<Vec<f32>>> = (0..ranks).map(buffers).collect();
    let start = Instant::now();
    let mut simulation = Simulation::new(scenario, &plan, &layout, &mut results, start);
    simulation.run(scenario);
    let since = |at: Instant| at.duration_since(start);
    let failures = simulation
        .peers
        .iter()
        .map(|peer| peer.failure.as_ref().map(|(failure, at)| (failure.to_string(), since(*at))));
    let (steps, lost, victim_at) = (simulation.steps, simulation.lost.map(since), simulation.victim_at);
    let done = simulation.peers.iter().map(|peer| peer.task).collect();
    let failures = failures.collect();
    drop(simulation);
    Outcome { steps, victim_at, lost, failures, results, done }
}

struct Simulation<'a> {
    now: Instant,
    random: Random,
    peers: Vec<Peer<'a>>,
    steps: usize,
    lost: Option<Instant>,
    victim_at: usize,
}

impl<'a> Simulation<'a> {
    fn new(
        scenario: &Scenario,
        plan: &'a GraphPlan,
        layout: &'a Layout,
        results: &'a mut [Vec<Vec<f32>>],
        start: Instant,
    ) -> Self {
        let ranks = scenario.ranks;
        // Who opens it, and to whom.
        let mut all: Vec<(Purpose, Rank, Rank)> =
            (1..ranks).map(|rank| (Purpose::Control, rank, 0)).collect();
        all.extend((0..ranks).flat_map(|to| (to + 1..ranks).map(move |from| (Purpose::Data, from, to))));
        if let Some(group) = plan.tagged() {
            all.extend((0..ranks).map(|from| (Purpose::Tagged, from, (from + group) % ranks)));
        }
        let ends = |me: Rank| {
            let mine = all.iter().enumerate().flat_map(|(id, &(purpose, from, to))| {
                let here = |peer, outgoing| (Endpoint { purpose, peer, outgoing }, id);
                [(from == me).then(|| here(to, true)), (to == me).then(|| here(from, false))]
            });
            let mut mine: Vec<(Endpoint, usize)> = mine.flatten().collect();
            mine.sort_unstable();
            mine
        };
        let ends: Vec<_> = (0..ranks).map(ends).collect();
        let remote = |me: Rank, id: usize| {
            let (_, from, to) = all[id];
            let other = if me == from { to } else { from };
            (other, ends[other].iter().position(|(_, theirs)| *theirs == id).expect("both ends"))
        };
        let mut random = Random(scenario.seed);
        let peers = results.iter_mut().enumerate().map(|(rank, buffers)| Peer {
            rank,
            ranks,
            life: Life::Alive,
            protocol: Protocol::new(
                rank,
                ranks,
                false,
                TIMEOUT,
                ends[rank].iter().map(|(end, _)| *end),
                start,
            ),
            remotes: ends[rank].iter().map(|(_, id)| remote(rank, *id)).collect(),
            pipes: ends[rank].iter().map(|_| Pipe::default()).collect(),
            plan,
            layout,
            buffers: buffers.iter_mut().map(|buffer| &mut buffer[..]).collect(),
            residuals: Residuals::new(),
            exchange: None,
            task: 0,
            begun: false,
            sequence: 0,
            stalls: scenario.stalls.filter(|(who, _)| *who == rank).map(|(_, task)| task),
            due: start + random.time(MAX_PAUSE),
            late: false,
            failure: None,
        });
        Self { now: start, peers: peers.collect(), random, steps: 0, lost: None, victim_at: 0 }
    }

    /// Until nobody has anything to do, now or later.
    fn run(&mut self, scenario: &Scenario) {
        let mut still = 0;
        loop {
            let ranks = self.peers.len();
            let first = self.random.below(ranks);
            let mut moved = false;
            for me in (first..ranks).chain(0..first) {
                if scenario.fault.is_some_and(|(_, _, step)| step == self.steps) && self.lost.is_none() {
                    self.lose(scenario.fault.expect("just seen"));
                }
                moved |= self.turn(me);
                self.steps += 1;
            }
            still = if moved { still + 1 } else { 0 };
            assert!(still < 1_000_000, "ranks are busy for ever: {}", self.state());
            if moved {
                continue;
            }
            let alive = self.peers.iter().filter(|peer| peer.life == Life::Alive);
            let Some(next) = alive.filter_map(Peer::wakes).min() else { break };
            assert!(next > self.now, "something is due, and nothing comes of it: {}", self.state());
            self.now = next;
        }
        let waits = self.peers.iter().find(|peer| peer.life == Life::Alive && peer.stalls != Some(peer.task));
        assert!(waits.is_none(), "a rank waits for ever: {}", self.state());
    }

    fn state(&self) -> String {
        let states = self.peers.iter().map(|peer| {
            format!("rank {} {:?} at task {}, begun: {}", peer.rank, peer.life, peer.task, peer.begun)
        });
        states.collect::<Vec<_>>().join("; ")
    }

    fn lose(&mut self, (victim, fault, _): (Rank, Fault, usize)) {
        let peer = &mut self.peers[victim];
        self.lost = Some(self.now);
        self.victim_at = peer.task + usize::from(peer.begun);
        if peer.life == Life::Alive {
            peer.life = Life::Lost(fault);
            if fault == Fault::Killed {
                self.end_all(victim);
            }
        }
    }

    /// All connections of a rank end.
    fn end_all(&mut self, me: usize) {
        for at in 0..self.peers[me].remotes.len() {
            self.end(me, at);
        }
    }

    fn end(&mut self, me: usize, at: ConnectionId) {
        let (other, there) = self.peers[me].remotes[at];
        let arrives = self.now + self.random.time(MAX_DELAY);
        let pipe = &mut self.peers[other].pipes[there];
        let arrives = pipe.last.map_or(arrives, |last| last.max(arrives));
        pipe.end.get_or_insert(arrives);
    }

    /// Lets a rank do what it can do now; `false` if that is nothing.
    fn turn(&mut self, me: usize) -> bool {
        if self.peers[me].life != Life::Alive {
            return false;
        }
        let now = self.now;
        let mut moved = self.peers[me].work(now, &mut self.random);
        let connections = self.peers[me].remotes.len();
        let first = self.random.below(connections.max(1));
        for at in (first..connections).chain(0..first) {
            moved |= self.write(me, at);
            moved |= self.read(me, at);
        }
        while let Some(at) = self.peers[me].protocol.poll_finish() {
            self.end(me, at);
            moved = true;
        }
        let peer = &mut self.peers[me];
        if peer.protocol.next_timeout().is_some_and(|due| due <= now) {
            peer.protocol.handle_timeout(now);
            moved = true;
        }
        if peer.protocol.is_closed() {
            peer.work(now, &mut self.random);
            peer.life = Life::Gone;
            self.end_all(me);
        }
        moved
    }

    fn write(&mut self, me: usize, at: ConnectionId) -> bool {
        let (other, there) = self.peers[me].remotes[at];
        let protocol = &mut self.peers[me].protocol;
        if !protocol.wants_to_send(at) {
            return false;
        }
        let bytes: Vec<u8> = protocol.poll_transmit(at).iter().flat_map(|slice| slice.to_vec()).collect();
        assert!(!bytes.is_empty(), "it wants to send nothing");
        let lost =
            self.peers[other].life == Life::Gone || self.peers[other].life == Life::Lost(Fault::Killed);
        let room = if lost { bytes.len() } else { CAPACITY - self.peers[other].pipes[there].bytes };
        let len = (1 + self.random.below(MAX_SEGMENT)).min(room).min(bytes.len());
        if len == 0 {
            return false;
        }
        self.peers[me].protocol.handle_sent(at, len, self.now);
        let arrives = self.now + self.random.time(MAX_DELAY);
        let pipe = &mut self.peers[other].pipes[there];
        let arrives = pipe.last.map_or(arrives, |last| last.max(arrives));
        pipe.last = Some(arrives);
        if !lost {
            pipe.bytes += len;
            pipe.segments.push_back((arrives, bytes[..len].to_vec()));
        }
        true
    }

    fn read(&mut self, me: usize, at: ConnectionId) -> bool {
        let Peer { protocol, pipes, .. } = &mut self.peers[me];
        let pipe = &mut pipes[at];
        if !protocol.wants_bytes(at) {
            return false;
        }
        let Some((_, segment)) = pipe.segments.front_mut().filter(|(arrives, _)| *arrives <= self.now) else {
            let ended = pipe.segments.is_empty() && pipe.end.is_some_and(|end| end <= self.now);
            if ended {
                protocol.handle_end(at, "", self.now);
            }
            return ended;
        };
        let len = (1 + self.random.below(MAX_SEGMENT)).min(segment.len());
        let taken = protocol.handle_bytes(at, &segment[..len], self.now);
        segment.drain(..taken);
        pipe.bytes -= taken;
        if segment.is_empty() {
            pipe.segments.pop_front();
        }
        taken > 0
    }
}

const PLANS: [&str; 11] = [
    "strategy = \"ring\"\ncodec = \"f32\"\nsmall = 50\nbulk = 500",
    "strategy = \"servers\"\ncodec = \"f32\"\nsmall = 50\nbulk = 500\norder = \"coordinated\"",
    "strategy = \"servers:1\"\ncodec = \"f32\"\norder = \"free\"",
    "strategy = \"hierarchy:2\"\ncodec = \"f32\"\nbulk = 0\npartitions = 7",
    "strategy = \"hierarchy:3:servers\"\ncodec = \"f32\"\nbulk = 500\norder = \"coordinated\"",
    "strategy = \"butterfly\"\ncodec = \"f32\"\nbulk = 500",
    "strategy = \"halving-doubling\"\ncodec = \"f32\"\nbulk = 500\norder = \"coordinated\"",
    "strategy = \"all-gather\"\ncodec = \"f32\"\nsmall = 0\nbulk = 100",
    "strategy = \"ring\"\ncodec = \"wire:2:10\"\nbulk = 500",
    "strategy = \"hierarchy:2\"\ncodec = \"wire:2:10\"\nbulk = 500",
    // `f16` has whole numbers up to 2048.
    "strategy = \"ring\"\ncodec = \"f32\"\nsmall = 50\nsmall_codec = \"f16\"",
];

/// Does this rank have the sums of all exchanges, within what `wire:2:10` may lose for each rank?
fn has_sums(outcome: &Outcome, plan: &str, rank: Rank, exchanges: usize) -> bool {
    let ranks = outcome.results.len();
    let off = if plan.contains("wire") { ranks as f64 / 1024.0 } else { 0.0 };
    (0..exchanges).all(|exchange| {
        outcome.results[rank][exchange].iter().enumerate().all(|(at, sum)| {
            let right: i32 = (0..ranks).map(|rank| value(rank, exchange, at)).sum();
            (f64::from(*sum) - f64::from(right)).abs() <= off
        })
    })
}

#[test]
fn all_ranks_have_the_sums_whatever_order_messages_arrive_in() {
    for (plan, ranks) in PLANS.iter().flat_map(|plan| [1, 2, 3, 4, 5].map(|ranks| (*plan, ranks))) {
        if graphs(plan).jobs(&tensors(), ranks).is_err() {
            // A group needs as many ranks.
            continue;
        }
        for seed in 0..6 {
            let outcome = run(&Scenario { plan, ranks, seed, fault: None, stalls: None });
            for rank in 0..ranks {
                let what = format!("{plan}, {ranks} ranks, seed {seed}, rank {rank}");
                assert_eq!(outcome.failures[rank], None, "{what}");
                assert!(outcome.done[rank] == TASKS.len() && has_sums(&outcome, plan, rank, 2), "{what}");
                let bits = |rank: Rank| outcome.results[rank].iter().map(|result| checksum(result));
                assert!(bits(rank).eq(bits(0)), "{what}: another result than rank 0's");
            }
        }
    }
}

#[test]
fn a_seed_makes_the_same_run_again() {
    let scenario =
        Scenario { plan: PLANS[1], ranks: 4, seed: 3, fault: Some((2, Fault::Silent, 300)), stalls: None };
    let [a, b] = [run(&scenario), run(&scenario)];
    assert_eq!((a.steps, a.lost, a.failures), (b.steps, b.lost, b.failures));
}

/// A rank that is lost is named to all others, soon, or they have all that they wanted of it.
#[test]
fn a_rank_that_is_lost_at_any_step_is_named_to_all_within_the_deadline() {
    // Silence is seen after half the timeout; then all have the time that an explanation takes, and
    // messages that of their way.
    let longest = TIMEOUT + explanation(TIMEOUT) + Duration::from_secs(1);
    let mut named = 0;
    for (plan, ranks, fault) in [
        (PLANS[0], 3, Fault::Killed),
        (PLANS[0], 3, Fault::Silent),
        (PLANS[1], 4, Fault::Killed),
        (PLANS[1], 4, Fault::Silent),
        (PLANS[8], 2, Fault::Killed),
        (PLANS[8], 2, Fault::Silent),
    ] {
        for victim in 0..ranks {
            let seed = victim as u64;
            let steps = run(&Scenario { plan, ranks, seed, fault: None, stalls: None }).steps;
            // Each step of the first run would take minutes; so many spread over it meet each
            // phase.
            let stride = (steps / 120).max(1);
            for step in (0..steps).step_by(stride) {
                let what = format!("{plan}, {ranks} ranks, rank {victim} {fault:?} at step {step}");
                let outcome =
                    run(&Scenario { plan, ranks, seed, fault: Some((victim, fault, step)), stalls: None });
                let lost = outcome.lost.expect("lost at that step");
                for rank in (0..ranks).filter(|&rank| rank != victim) {
                    let all = outcome.done[rank] >= TASKS.len() - 1;
                    if all {
                        // It only has to close, and may do that in a job that has failed.
                        assert!(has_sums(&outcome, plan, rank, 2), "{what}: rank {rank}");
                        // Nobody compares without the rank that is lost.
                        assert!(outcome.victim_at > 3, "{what}: rank {rank} heard of nothing");
                        continue;
                    }
                    let (cause, at) = outcome.failures[rank].as_ref().expect("a failure");
                    named += 1;
                    assert!(
                        cause.contains(&format!("rank {victim} ")),
                        "{what}: rank {rank} is told '{cause}'"
                    );
                    assert!(*at <= lost + longest, "{what}: rank {rank} is told after {:?}", *at - lost);
                }
            }
        }
    }
    assert!(named > 2000, "{named} ranks were told");
}

/// A rank that is alive and does not begin a task.
#[test]
fn a_rank_that_does_not_come_is_named_to_all() {
    for (plan, ranks) in [(PLANS[0], 3), (PLANS[1], 4)] {
        for (victim, task) in (0..ranks).flat_map(|victim| (0..3).map(move |task| (victim, task))) {
            let outcome = run(&Scenario { plan, ranks, seed: 5, fault: None, stalls: Some((victim, task)) });
            for (rank, failure) in outcome.failures.iter().enumerate() {
                let (cause, _) = failure.as_ref().expect("a failure");
                let says = format!("rank {victim} did not begin exchange {} within 20s", task + 1);
                assert!(cause.contains(&says), "rank {rank} is told '{cause}': expected {says}");
            }
        }
    }
}
