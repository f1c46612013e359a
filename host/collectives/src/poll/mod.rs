//! The thread that owns a link's connections: it sends what is ready, receives what the exchange may receive, and tells everybody
//! when something fails.
//!
//! One thread serves all connections with `poll`, so a rank costs two threads, however many ranks there are. Its turn is
//! here; `conn` has a connection, `send` what leaves, `receive` what arrives, `ranks` who is there and what fails.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::agreement::Vote;
use crate::coordinator::Coordinator;
use crate::failure::{Failure, Weight, list};
use crate::graph::{Message, Rank};
use crate::handshake::{Authenticated, Purpose};
use crate::header::{Control, Header, MAX_CONTROL, PlanName};
use crate::part::Bytes;
use crate::plan::Order;

mod conn;
mod liveness;
mod receive;
mod send;

use conn::{Conn, NEW, Out, head};
pub(crate) use liveness::explanation;
use send::Asked;

/// What one exchange may receive.
#[derive(Debug)]
pub(crate) struct Expect {
    pub(crate) sequence: u64,
    pub(crate) layout: u64,
    pub(crate) values: u64,
    pub(crate) order: Order,
    pub(crate) jobs: Vec<ExpectJob>,
    /// By rank: how many messages.
    pub(crate) messages: Vec<usize>,
}

/// What may come of one job.
#[derive(Debug)]
pub(crate) struct ExpectJob {
    pub(crate) plan: PlanName,
    pub(crate) tagged: bool,
    /// By partition: values, and the most bytes of a message.
    pub(crate) parts: Vec<(usize, usize)>,
}

/// What the exchange asks the thread to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// An exchange begins.
    Begin(Arc<Expect>),
    /// A message has to leave. Big ones wait for their turn.
    Send { to: Rank, tagged: bool, header: Header, body: Bytes, big: bool },
    /// The exchange is over.
    End,
    /// Is this checksum the same at all ranks? If not, this is what it means.
    Compare { checksum: u64, means: String },
    /// This rank begins a sum in the network with this number: all will vote about it.
    Sum { number: u64 },
    /// This rank's part of a sum in the network is over.
    Vote { number: u64, vote: Vote },
    /// Messages of these ranks did not come in time.
    Late { waiting: Vec<Rank> },
    /// Something is wrong for certain.
    Fail(String),
    /// The server has to do this next.
    Ask(String),
    /// The rank leaves.
    Close,
}

/// What the thread tells the exchange.
#[derive(Debug)]
pub(crate) enum Event {
    /// A message arrived.
    Arrived { from: Rank, job: usize, part: usize, message: Message, body: Bytes },
    /// The checksum is the same everywhere.
    Alike,
    /// Somebody gave up on the aggregator, in the sum with this number.
    Halt { number: u64 },
    /// What all ranks have, by rank, of the sum with this number.
    Votes { number: u64, votes: Vec<Vote> },
    /// At a server: what to do next; `None` if all others have left.
    Asked(Option<Vec<u8>>),
    /// The link is closed.
    Failed(Failure),
}

/// Bytes of the exchange so far, and messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Bytes of messages and headers that were handed to the system.
    pub sent_bytes: u64,
    /// Messages sent.
    pub sent_messages: u64,
    /// System calls that sent them.
    pub send_calls: u64,
}

/// What the coordinator gathers for one link, and for how long at most.
const ENOUGH: u64 = 1 << 18;
const PATIENCE: Duration = Duration::from_micros(500);
/// The most bytes of what a server is asked.
const MAX_ASKED: usize = 1 << 24;

/// Wakes the thread.
#[derive(Clone, Debug)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)))
    }

    pub(crate) fn wake(&self) {
        // It fails only if it was woken 2^64 times already.
        _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    fn reset(&self) {
        _ = rustix::io::read(&*self.0, &mut [0u8; 8]);
    }
}

pub(crate) struct Poller {
    rank: Rank,
    ranks: usize,
    /// Is rank 0 a server?
    served: bool,
    timeout: Duration,
    conns: Vec<Conn>,
    commands: Receiver<Command>,
    events: Sender<Event>,
    waker: Waker,
    traffic: Arc<std::sync::Mutex<Traffic>>,
    expect: Option<Arc<Expect>>,
    active: bool,
    /// By rank: messages that may still come in this exchange.
    left: Vec<usize>,
    /// Connections of big messages, in the order in which these leave.
    turns: VecDeque<usize>,
    /// By receiver: what the coordinator was asked for.
    asked: Vec<Asked>,
    /// At rank 0: who sends when, if the plan wants it decided in one place. Its time starts with the link.
    coordinator: Coordinator,
    started: Instant,
    /// When each rank was heard of by control, and its last exchange.
    heard: Vec<(Instant, u64)>,
    pinged: Instant,
    compare: Compare,
    /// At rank 0: votes about the sum in the network that is under way.
    votes: BTreeMap<Rank, Vote>,
    /// At rank 0: sums in the network that all have voted about.
    voted: u64,
    /// The sum in the network that is under way: this rank has not heard the votes about it.
    ballot: Option<u64>,
    /// At a server: what it is asked, as far as it is here.
    asked_so_far: Vec<u8>,
    /// A failure that waits for a better cause.
    suspect: Option<(Failure, Instant)>,
}

/// A comparison of checksums.
#[derive(Default)]
struct Compare {
    number: u64,
    /// Does this rank wait for the others?
    waits: bool,
    means: String,
    /// At rank 0: by number, what each rank has.
    have: BTreeMap<u64, BTreeMap<Rank, u64>>,
}

/// Ends the thread's work.
enum Stop {
    /// The link was closed.
    Closed,
    /// It failed.
    Failed(Failure),
}

impl Poller {
    #[expect(clippy::too_many_arguments, reason = "called once, by the link that makes all of these")]
    pub(crate) fn new(
        rank: Rank,
        ranks: usize,
        served: bool,
        timeout: Duration,
        connections: Vec<Authenticated>,
        commands: Receiver<Command>,
        events: Sender<Event>,
        waker: Waker,
        traffic: Arc<std::sync::Mutex<Traffic>>,
    ) -> Self {
        let conns = connections.into_iter().map(|connection| Conn {
            purpose: connection.purpose,
            peer: connection.peer,
            outgoing: connection.outgoing,
            stream: connection.stream,
            out: VecDeque::new(),
            input: NEW,
            parked: None,
            left: false,
        });
        let mut conns: Vec<Conn> = conns.collect();
        // Control connections first: what they say explains what happens on the others.
        conns.sort_by_key(|conn| (conn.purpose, conn.peer));
        let now = Instant::now();
        Self {
            rank,
            ranks,
            served,
            timeout,
            conns,
            commands,
            events,
            waker,
            traffic,
            expect: None,
            active: false,
            left: vec![0; ranks],
            turns: VecDeque::new(),
            asked: vec![Asked::default(); ranks],
            coordinator: Coordinator::new(ENOUGH, PATIENCE),
            started: now,
            heard: vec![(now, 0); ranks],
            pinged: now,
            compare: Compare::default(),
            votes: BTreeMap::new(),
            voted: 0,
            ballot: None,
            asked_so_far: Vec::new(),
            suspect: None,
        }
    }

    /// Works until the link closes or fails.
    pub(crate) fn run(mut self) {
        let stop = loop {
            if let Err(stop) = self.turn() {
                break stop;
            }
        };
        if let Stop::Failed(failure) = stop {
            let failure = self.tell(failure);
            _ = self.events.send(Event::Failed(failure));
        }
    }

    fn turn(&mut self) -> Result<(), Stop> {
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.command(command)?,
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(Stop::Closed),
            }
        }
        // Most sockets take what is ready at once, so this comes before the next wait.
        for at in 0..self.conns.len() {
            self.write(at)?;
        }
        let ready = self.wait(self.next_timer());
        for (at, flags) in ready {
            if flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                self.read(at)?;
            }
        }
        self.timers()
    }

    /// Waits for something to happen; what happened to which connections.
    ///
    /// Connections that this rank neither reads nor writes now are left out: `poll` would report without end that they hang up.
    fn wait(&self, until: Instant) -> Vec<(usize, PollFlags)> {
        let mut fds = vec![PollFd::new(&*self.waker.0, PollFlags::IN)];
        let mut which = Vec::with_capacity(self.conns.len());
        for (at, conn) in self.conns.iter().enumerate() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, conn.parked.is_none() && !conn.left);
            flags.set(PollFlags::OUT, self.may_write(at));
            if !flags.is_empty() {
                fds.push(PollFd::new(&conn.stream, flags));
                which.push(at);
            }
        }
        let time = until.saturating_duration_since(Instant::now());
        let time = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        if poll(&mut fds, Some(&time)).is_err() {
            // Interrupted: nothing is known to be ready.
            return Vec::new();
        }
        if !fds[0].revents().is_empty() {
            self.waker.reset();
        }
        let ready = which.into_iter().zip(fds.iter().skip(1).map(PollFd::revents));
        ready.filter(|(_, flags)| !flags.is_empty()).collect()
    }

    fn command(&mut self, command: Command) -> Result<(), Stop> {
        match command {
            Command::Begin(expect) => {
                self.compare.waits = false;
                self.left.clone_from(&expect.messages);
                let gone = self
                    .conns
                    .iter()
                    .find(|conn| conn.left && (conn.purpose == Purpose::Control || self.left[conn.peer] > 0));
                // If a connection closed without a goodbye, its cause is not known yet.
                if let Some(gone) = gone.filter(|_| self.suspect.is_none()) {
                    let cause = format!("rank {} left before exchange {}", gone.peer, expect.sequence);
                    return Err(self.certain(cause));
                }
                let now = Instant::now();
                self.heard.iter_mut().for_each(|(heard, _)| *heard = now);
                self.heard[self.rank].1 = expect.sequence;
                self.expect = Some(expect);
                self.active = true;
                for at in 0..self.conns.len() {
                    if let Some(header) = self.conns[at].parked.take() {
                        self.header(at, header)?;
                    }
                }
            }
            Command::Send { to, tagged, header, body, big } => {
                let purpose = if tagged { Purpose::Tagged } else { Purpose::Data };
                let fits =
                    |conn: &Conn| conn.peer == to && conn.purpose == purpose && (!tagged || conn.outgoing);
                let at = self.conns.iter().position(fits).expect("connected to everybody");
                let order = self.expect.as_ref().map_or(Order::Free, |expect| expect.order);
                let big = big && order != Order::Free;
                // Whatever the order is now, no message passes one of an earlier exchange that still waits for the coordinator.
                let behind = !self.asked[to].waiting.is_empty();
                let asked = big && (order == Order::Coordinated || behind) && self.is_coordinated();
                let out = Out { head: head(purpose, &header), body: Some(body), at: 0, big, asked };
                let bytes = out.len() as u64;
                self.conns[at].out.push_back(out);
                if asked {
                    self.asked[to].waiting.push_back(at);
                    self.ask(to, bytes)?;
                } else if big {
                    self.turns.push_back(at);
                }
            }
            Command::End => {
                self.active = false;
                if let Some(rank) = self.left.iter().position(|&left| left > 0) {
                    return Err(
                        self.certain(format!("rank {rank} owes messages after the end of the exchange"))
                    );
                }
            }
            Command::Compare { checksum, means } => {
                self.compare.number += 1;
                (self.compare.means, self.compare.waits) = (means, true);
                let now = Instant::now();
                self.heard.iter_mut().for_each(|(heard, _)| *heard = now);
                let number = self.compare.number;
                if self.rank == 0 {
                    self.compared(0, number, checksum)?;
                } else {
                    self.control(0, &Control::Compare { number, checksum });
                }
            }
            Command::Sum { number } => {
                self.ballot = Some(number);
                self.deserted()?;
            }
            Command::Vote { number, vote } => {
                self.ballot = Some(number);
                self.deserted()?;
                if self.rank == 0 {
                    self.voted(0, number, vote)?;
                } else {
                    self.control(0, &Control::Vote { number, vote });
                }
            }
            Command::Late { waiting } => {
                let sequence = self.expect.as_ref().map_or(0, |expect| expect.sequence);
                let cause = format!(
                    "exchange {sequence}: timed out after {:?} waiting for rank{} {}",
                    self.timeout,
                    if waiting.len() == 1 { "" } else { "s" },
                    list(&waiting)
                );
                return Err(Stop::Failed(Failure {
                    reporter: self.rank,
                    cause,
                    weight: Weight::Late { sequence },
                }));
            }
            Command::Fail(cause) => return Err(self.certain(cause)),
            Command::Ask(text) => {
                let mut parts = text.as_bytes().chunks(MAX_CONTROL - 1).peekable();
                while let Some(part) = parts.next() {
                    let ask = Control::Ask { last: parts.peek().is_none(), text: part.to_vec() };
                    self.control(0, &ask);
                }
            }
            Command::Close => {
                self.farewell();
                return Err(Stop::Closed);
            }
        }
        Ok(())
    }

    fn certain(&self, cause: String) -> Stop {
        Stop::Failed(Failure { reporter: self.rank, cause, weight: Weight::Certain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::sync::mpsc;

    use crate::graph::Format;
    use crate::header::{HEADER_LEN, Kind};
    use proptest::prelude::*;

    /// A message of five values, which the exchange of [`told`] waits for.
    fn header() -> Header {
        Header {
            kind: Kind::Message(Format::Raw),
            sequence: 1,
            layout: 7,
            values: 10,
            job: 0,
            part: 1,
            partitions: 2,
            tag: 0,
            elements: 5,
            len: 20,
            plan: PlanName::new("ring f32"),
        }
    }

    fn message(header: &Header) -> Vec<u8> {
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend([0; 20]);
        bytes
    }

    /// A rank in the first exchange of a job; the far ends of its connections, for these purposes and to these ranks; the exchange's
    /// ends.
    fn poller(
        rank: Rank,
        others: &[(Purpose, Rank)],
    ) -> (Poller, Vec<TcpStream>, Sender<Command>, Receiver<Event>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let timeout = Duration::from_secs(120);
        let connect = |(purpose, peer): &(Purpose, Rank)| {
            let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (stream, _) = listener.accept().unwrap();
            crate::stream::prepare(&stream, timeout).unwrap();
            (Authenticated { purpose: *purpose, peer: *peer, outgoing: false, stream }, theirs)
        };
        let (connections, theirs): (Vec<_>, Vec<_>) = others.iter().map(connect).unzip();
        let ranks = 1 + others.iter().map(|(_, peer)| *peer).fold(rank, Rank::max);
        let ((commands, inbox), (outbox, events)) = (mpsc::channel(), mpsc::channel());
        let expect = Expect {
            sequence: 1,
            layout: 7,
            values: 10,
            order: Order::Turns,
            jobs: vec![ExpectJob {
                plan: PlanName::new("ring f32"),
                tagged: false,
                parts: vec![(5, 20), (5, 20)],
            }],
            messages: vec![2; ranks],
        };
        commands.send(Command::Begin(Arc::new(expect))).unwrap();
        let traffic = Arc::default();
        let waker = Waker::new().unwrap();
        let poller = Poller::new(rank, ranks, false, timeout, connections, inbox, outbox, waker, traffic);
        (poller, theirs, commands, events)
    }

    /// What one of two ranks is told, and how many messages it takes, if the other one knows the token and then sends these bytes.
    fn told(rank: Rank, data: &[u8], control: &[u8]) -> (String, usize) {
        let others = [Purpose::Control, Purpose::Data].map(|purpose| (purpose, 1 - rank));
        let (poller, mut theirs, _commands, events) = poller(rank, &others);
        // All is there before the thread starts, so it finds the same in every run: the system may take its time even on loopback.
        for ((stream, bytes), conn) in theirs.iter_mut().zip([control, data]).zip(&poller.conns) {
            stream.write_all(bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            poll(&mut [PollFd::new(&conn.stream, PollFlags::RDHUP)], None).unwrap();
        }
        poller.run();
        let mut taken = 0;
        loop {
            match events.recv().unwrap() {
                Event::Failed(failure) => return (failure.cause, taken),
                Event::Arrived { .. } => taken += 1,
                Event::Alike | Event::Halt { .. } | Event::Votes { .. } | Event::Asked(_) => {}
            }
        }
    }

    #[test]
    fn messages_that_the_exchange_does_not_wait_for_are_refused_by_their_headers() {
        type Change = fn(&mut Header);
        let cases: [(Change, &str); 11] = [
            (|header| header.len = u32::MAX, "a message of 4294967295 bytes, where 20 are the most"),
            (|header| header.len = 21, "a message of 21 bytes, where 20 are the most"),
            (|header| header.elements = u32::MAX, "a partition of 4294967295 values"),
            (|header| header.part = u32::MAX, "a partition of 5 values"),
            (|header| header.job = u32::MAX, "rank 1 has nothing"),
            (|header| header.partitions = 3, "in 3 partitions, rank 1 has 'ring f32' in 2"),
            (|header| header.plan = PlanName::new("ring q8"), "rank 0 has 'ring q8'"),
            (|header| header.layout = 8, "layout 0000000000000008 at rank 0"),
            (|header| header.values = u64::MAX, "18446744073709551615 values"),
            (|header| header.sequence = 3, "rank 0 is at exchange 3, rank 1 at 1"),
            (|header| header.kind = Kind::Bye, "rank 0 left during exchange 1"),
        ];
        for (change, says) in cases {
            let mut wrong = header();
            change(&mut wrong);
            let (told, taken) = told(1, &[message(&header()), message(&wrong)].concat(), &[]);
            assert!(told.contains(says), "{told}: expected {says}");
            assert_eq!(taken, 1, "{told}");
        }
        let (told_of_three, taken) = told(1, &message(&header()).repeat(3), &[]);
        assert!(told_of_three.contains("more messages than the exchange has"), "{told_of_three}");
        assert_eq!(taken, 2);
        assert!(told(1, &[b'x'; 500], &[]).0.contains("something that is no message"));
        let cut = told(1, &message(&header())[..HEADER_LEN + 10], &[]);
        assert!(cut.0.contains("rank 0 disconnected") && cut.1 == 0, "{cut:?}");
    }

    #[test]
    fn control_frames_out_of_place_are_refused() {
        let at = |rank, frame: Control| (rank, frame.to_bytes());
        for ((rank, bytes), says) in [
            ((1, vec![1, 0, 0, 0, 255, 255, 255, 255]), "a control frame that is too long"),
            ((1, vec![99, 0, 0, 0, 0, 0, 0, 0]), "an unknown control frame"),
            (at(1, Control::Go { to: 0, messages: 1 }), "that nobody asked for"),
            (at(1, Control::Go { to: usize::from(u16::MAX), messages: 0 }), "that nobody asked for"),
            (at(1, Control::Wish { to: 0, bytes: 1 }), "out of place"),
            (at(0, Control::Go { to: 1, messages: 1 }), "out of place"),
            (at(0, Control::Wish { to: 1, bytes: 1 }), "out of place"),
            (at(0, Control::Wish { to: 2, bytes: 1 }), "out of place"),
            (at(0, Control::Done { to: 0 }), "out of place"),
            (at(0, Control::Ask { last: true, text: vec![0] }), "out of place"),
            (at(0, Control::Alike { number: 0 }), "out of place"),
            (
                at(0, Control::Compare { number: 9, checksum: 0 }),
                "compares results that rank 0 does not have",
            ),
        ] {
            let (told, _) = told(rank, &[], &bytes);
            assert!(told.contains(says), "{told}: expected {says}");
        }
    }

    #[test]
    fn rank_0_that_was_killed_is_named_though_another_one_heard_of_it_first() {
        for (farewell, says) in [(None, "rank 0 disconnected"), (Some(Control::Bye), "rank 1 disconnected")] {
            let others = [(Purpose::Control, 0), (Purpose::Data, 0), (Purpose::Data, 1)];
            let (poller, theirs, _commands, events) = poller(2, &others);
            let [mut control, data, first] = theirs.try_into().unwrap();
            let thread = std::thread::spawn(|| poller.run());
            drop(first);
            // The rank has reported it, and waits for what rank 0 says.
            control.read_exact(&mut [0]).unwrap();
            if let Some(farewell) = farewell {
                control.write_all(&farewell.to_bytes()).unwrap();
            }
            control.shutdown(Shutdown::Write).unwrap();
            thread.join().unwrap();
            let Event::Failed(failure) = events.recv().unwrap() else { panic!("no failure") };
            assert!(failure.cause.starts_with(says), "{failure}");
            drop(data);
        }
    }

    /// Rank 0 may have all that it needs of an exchange when another one still waits for somebody, who is stopped.
    #[test]
    fn who_is_silent_is_named_though_rank_0_waits_for_nobody() {
        for (silent, says) in
            [(true, "rank 2 gave no sign of life for 60s"), (false, "nothing came of rank 3")]
        {
            let others = [(Purpose::Control, 1), (Purpose::Control, 2), (Purpose::Control, 3)];
            let (mut poller, mut theirs, commands, events) = poller(0, &others);
            // It has not begun, so it does not watch.
            poller.commands.try_recv().unwrap();
            poller.heard.iter_mut().for_each(|(_, sequence)| *sequence = 1);
            if silent {
                poller.heard[2].0 = Instant::now().checked_sub(Duration::from_secs(100)).unwrap();
            }
            let cause = "nothing came of rank 3".to_owned();
            let late = Failure { reporter: 1, cause, weight: Weight::Late { sequence: 1 } };
            theirs[0].write_all(&Control::Failed(late).to_bytes()).unwrap();
            let thread = std::thread::spawn(|| poller.run());
            // All are told, and leave.
            theirs[0].read_exact(&mut [0]).unwrap();
            drop(theirs);
            let Event::Failed(failure) = events.recv().unwrap() else { panic!("no failure") };
            assert!(failure.cause.starts_with(says), "{failure}");
            thread.join().unwrap();
            drop(commands);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn no_bytes_of_a_peer_make_the_thread_hang_or_panic(
            data in prop::collection::vec(any::<u8>(), 0..300),
            control in prop::collection::vec(any::<u8>(), 0..60),
            good in 0usize..3,
        ) {
            let data = [message(&header()).repeat(good), data].concat();
            prop_assert!(told(1, &data, &control).1 <= good);
        }
    }
}
