//! The thread that owns a link's connections: it sends what is ready, receives what the exchange may receive, and tells everybody
//! when something fails.
//!
//! One thread serves all connections with `poll`, so a member costs two threads, however many members there are.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::coordinator::{Coordinator, LinkId};
use crate::failure::{Failure, Weight, list};
use crate::graph::{Message, Rank};
use crate::header::{CONTROL_HEAD, Control, HEADER_LEN, Header, Kind, PlanName};
use crate::part::Bytes;
use crate::plan::Order;
use crate::rendezvous::{Proven, Purpose};
use crate::spread::{SPREAD, gather, spread};

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
    /// Is this checksum the same at all members? If not, this is what it means.
    Compare { checksum: u64, means: String },
    /// Messages of these members did not come in time.
    Late { waiting: Vec<Rank> },
    /// Something is wrong for certain.
    Fail(String),
    /// The member leaves.
    Close,
}

/// What the thread tells the exchange.
#[derive(Debug)]
pub(crate) enum Event {
    /// A message arrived.
    Arrived { from: Rank, job: usize, part: usize, message: Message, body: Bytes },
    /// The checksum is the same everywhere.
    Alike,
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

/// How long rank 0 waits for a better cause than a closed connection.
const GRACE: Duration = Duration::from_millis(300);
/// How long a member that reported a failure waits for what rank 0 makes of it, and rank 0 for all to hear of it.
const FAREWELL: Duration = Duration::from_secs(2);
/// What the coordinator gathers for one link, and for how long at most.
const ENOUGH: u64 = 1 << 18;
const PATIENCE: Duration = Duration::from_micros(500);
/// Messages that may wait for the coordinator, so that no member fills rank 0's memory.
const MOST_WISHES: usize = 1 << 20;
/// Slices of one `writev`.
const MOST_SLICES: usize = 64;

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
    members: usize,
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
    /// When each member was heard of by control, and its last exchange.
    heard: Vec<(Instant, u64)>,
    pinged: Instant,
    compare: Compare,
    /// A failure that waits for a better cause.
    suspect: Option<(Failure, Instant)>,
}

/// Big messages to one member that the coordinator decides about.
#[derive(Clone, Default)]
struct Asked {
    /// Connections of those that wait for its word, in their order.
    waiting: VecDeque<usize>,
    /// By batch: how many may leave and have not left.
    granted: VecDeque<u32>,
}

/// A comparison of checksums.
#[derive(Default)]
struct Compare {
    number: u64,
    means: String,
    /// At rank 0: by number, what each member has.
    have: BTreeMap<u64, BTreeMap<Rank, u64>>,
}

struct Conn {
    purpose: Purpose,
    peer: Rank,
    outgoing: bool,
    stream: TcpStream,
    out: VecDeque<Out>,
    input: Input,
    /// The header of a message of the next exchange, which waits for its beginning.
    parked: Option<Header>,
    left: bool,
}

struct Out {
    head: Vec<u8>,
    body: Option<Bytes>,
    at: usize,
    /// It waits for its turn.
    big: bool,
    /// The coordinator says when that is.
    asked: bool,
}

impl Out {
    fn len(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, |body| body.len())
    }
}

#[expect(
    clippy::large_enum_variant,
    reason = "one for each connection; in a box it would be allocated for each message"
)]
enum Input {
    Head { bytes: [u8; SPREAD * HEADER_LEN], at: usize },
    Message { header: Header, message: Message, bytes: Vec<u8>, at: usize },
    Control { kind: u8, bytes: Vec<u8>, at: usize },
}

const NEW: Input = Input::Head { bytes: [0; SPREAD * HEADER_LEN], at: 0 };

impl Purpose {
    /// Bytes before a message or a frame.
    const fn head_len(self) -> usize {
        match self {
            Self::Control => CONTROL_HEAD,
            Self::Data => HEADER_LEN,
            Self::Tagged => SPREAD * HEADER_LEN,
        }
    }
}

/// A header as it travels.
fn head(purpose: Purpose, header: &Header) -> Vec<u8> {
    let bytes = header.to_bytes();
    if purpose == Purpose::Tagged { spread(&bytes) } else { bytes.to_vec() }
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
        members: usize,
        timeout: Duration,
        proven: Vec<Proven>,
        commands: Receiver<Command>,
        events: Sender<Event>,
        waker: Waker,
        traffic: Arc<std::sync::Mutex<Traffic>>,
    ) -> Self {
        let conns = proven.into_iter().map(|proven| Conn {
            purpose: proven.purpose,
            peer: proven.peer,
            outgoing: proven.outgoing,
            stream: proven.stream,
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
            members,
            timeout,
            conns,
            commands,
            events,
            waker,
            traffic,
            expect: None,
            active: false,
            left: vec![0; members],
            turns: VecDeque::new(),
            asked: vec![Asked::default(); members],
            coordinator: Coordinator::new(ENOUGH, PATIENCE),
            started: now,
            heard: vec![(now, 0); members],
            pinged: now,
            compare: Compare::default(),
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
    /// Connections that this member neither reads nor writes now are left out: `poll` would report without end that they hang up.
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
                self.left.clone_from(&expect.messages);
                let gone = self
                    .conns
                    .iter()
                    .find(|conn| conn.left && (conn.purpose == Purpose::Control || self.left[conn.peer] > 0));
                // If a connection closed without a goodbye, its cause is not known yet.
                if let Some(gone) = gone.filter(|_| self.suspect.is_none()) {
                    let cause = format!("member {} left before exchange {}", gone.peer, expect.sequence);
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
                        self.certain(format!("member {rank} owes messages after the end of the exchange"))
                    );
                }
            }
            Command::Compare { checksum, means } => {
                self.compare.number += 1;
                self.compare.means = means;
                let number = self.compare.number;
                if self.rank == 0 {
                    self.compared(0, number, checksum)?;
                } else {
                    self.control(0, &Control::Compare { number, checksum });
                }
            }
            Command::Late { waiting } => {
                let sequence = self.expect.as_ref().map_or(0, |expect| expect.sequence);
                let cause = format!(
                    "nothing of what exchange {sequence} needs came from member{} {} within {:?}",
                    if waiting.len() == 1 { "" } else { "s" },
                    list(&waiting),
                    self.timeout
                );
                return Err(Stop::Failed(Failure {
                    reporter: self.rank,
                    cause,
                    weight: Weight::Late { sequence },
                }));
            }
            Command::Fail(cause) => return Err(self.certain(cause)),
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

    /// Puts a frame into the queue of a control connection.
    fn control(&mut self, to: Rank, frame: &Control) {
        let conn = self.conns.iter_mut().find(|conn| conn.purpose == Purpose::Control && conn.peer == to);
        if let Some(conn) = conn {
            conn.out.push_back(Out { head: frame.to_bytes(), body: None, at: 0, big: false, asked: false });
        }
    }

    /// Is there a coordinator? It leaves with rank 0.
    fn is_coordinated(&self) -> bool {
        let control = |conn: &Conn| conn.purpose == Purpose::Control && conn.peer == 0 && !conn.left;
        self.rank == 0 || self.conns.iter().any(control)
    }

    fn ask(&mut self, to: Rank, bytes: u64) -> Result<(), Stop> {
        if self.rank == 0 {
            return self.wish(LinkId { from: 0, to }, bytes);
        }
        self.control(0, &Control::Wish { to, bytes });
        Ok(())
    }

    /// At rank 0: a member asks.
    fn wish(&mut self, link: LinkId, bytes: u64) -> Result<(), Stop> {
        if self.coordinator.waiting() >= MOST_WISHES {
            return Err(self.certain(format!(
                "more than {MOST_WISHES} messages wait for the coordinator, the last of member {}: use fewer partitions, or the order turns",
                link.from
            )));
        }
        self.coordinator.wish(link, bytes, self.started.elapsed());
        Ok(())
    }

    /// At rank 0: tells members what they may send.
    fn give_slots(&mut self) -> Result<(), Stop> {
        while let Some(slot) = self.coordinator.slot(self.started.elapsed()) {
            for (LinkId { from, to }, messages) in slot {
                if from == 0 {
                    self.go(to, messages)?;
                } else {
                    self.control(from, &Control::Go { to, messages });
                }
            }
        }
        Ok(())
    }

    /// The coordinator lets some messages leave.
    fn go(&mut self, to: Rank, messages: u32) -> Result<(), Stop> {
        let asked = self.asked.get_mut(to).filter(|asked| asked.waiting.len() >= messages as usize);
        let Some(asked) = asked.filter(|_| messages > 0) else {
            return Err(self.certain("member 0 lets messages leave that nobody asked for".to_owned()));
        };
        self.turns.extend(asked.waiting.drain(..messages as usize));
        asked.granted.push_back(messages);
        Ok(())
    }

    /// A message that the coordinator let leave has left.
    fn gone(&mut self, to: Rank) {
        let granted = &mut self.asked[to].granted;
        let Some(left) = granted.front_mut() else { return };
        *left -= 1;
        if *left > 0 {
            return;
        }
        granted.pop_front();
        if self.rank == 0 {
            self.coordinator.done(LinkId { from: 0, to });
        } else {
            self.control(0, &Control::Done { to });
        }
    }

    /// There is no coordinator any more, so messages that wait for it leave in turns.
    fn release(&mut self) {
        for asked in &mut self.asked {
            self.turns.extend(asked.waiting.drain(..));
        }
    }

    fn may_write(&self, at: usize) -> bool {
        let first = self.conns[at].out.front();
        first.is_some_and(|out| !out.big || self.turns.front() == Some(&at))
    }

    /// Hands to the system what is ready for one connection and whose turn it is, many messages in one call.
    fn write(&mut self, at: usize) -> Result<(), Stop> {
        while self.may_write(at) {
            let conn = &self.conns[at];
            let mut slices = Vec::with_capacity(MOST_SLICES);
            let mut turns = self.turns.iter();
            for out in &conn.out {
                if slices.len() + 2 > MOST_SLICES || out.big && turns.next() != Some(&at) {
                    break;
                }
                let head = out.head.get(out.at..).unwrap_or(&[]);
                if !head.is_empty() {
                    slices.push(IoSlice::new(head));
                }
                let body =
                    out.body.as_ref().and_then(|body| body.get(out.at.saturating_sub(out.head.len())..));
                slices.extend(body.filter(|body| !body.is_empty()).map(IoSlice::new));
            }
            let written = match (&conn.stream).write_vectored(&slices) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    self.closed(at, &error.to_string());
                    return Ok(());
                }
            };
            let conn = &mut self.conns[at];
            let (mut rest, mut messages, mut gone) = (written, 0, 0);
            while let Some(out) = conn.out.front_mut() {
                let take = rest.min(out.len() - out.at);
                out.at += take;
                rest -= take;
                if out.at < out.len() {
                    break;
                }
                messages += u64::from(out.body.is_some());
                if out.big {
                    self.turns.pop_front();
                }
                gone += u32::from(out.asked);
                conn.out.pop_front();
            }
            let peer = conn.peer;
            if conn.purpose != Purpose::Control {
                let mut traffic = self.traffic.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                traffic.sent_bytes += written as u64;
                traffic.sent_messages += messages;
                traffic.send_calls += 1;
            }
            (0..gone).for_each(|_| self.gone(peer));
        }
        Ok(())
    }

    /// Takes what has arrived on one connection.
    fn read(&mut self, at: usize) -> Result<(), Stop> {
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
                            self.certain(format!("member {peer} sent a control frame that is too long"))
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
                            "member {peer} sent an unknown control frame: do all run the same version?"
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
                            "member {peer} sent something that is no message: do all run the same version?"
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
    fn header(&mut self, at: usize, header: Header) -> Result<(), Stop> {
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
                "member {peer} is at exchange {theirs}, member {mine} at {begun}: all members have to exchange equally often"
            )));
        };
        if (header.layout, header.values) != (expect.layout, expect.values) {
            return Err(self.certain(format!(
                "members {peer} and {mine} disagree: exchange {begun} has {} values in layout {:016x} at member {peer}, {} in layout \
                 {:016x} at member {mine}; give all the same tensors in the same order",
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
                "members {peer} and {mine} disagree about part {job} of the plan: member {peer} has '{}' in {} partitions, \
                 member {mine} has {mine_says}; give all the same plan",
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
        Err(self.certain(format!("member {peer} sent {wrong}: do all run the same version?")))
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
                _ = self.events.send(Event::Alike);
            }
            Control::Wish { to, bytes } if self.rank == 0 && to < self.members && to != peer => {
                self.wish(LinkId { from: peer, to }, bytes)?;
            }
            Control::Done { to } if self.rank == 0 && self.coordinator.done(LinkId { from: peer, to }) => {}
            Control::Go { to, messages } if self.rank != 0 => self.go(to, messages)?,
            Control::Compare { .. }
            | Control::Alike { .. }
            | Control::Wish { .. }
            | Control::Go { .. }
            | Control::Done { .. } => {
                return Err(self.certain(format!("member {peer} sent a control frame out of place")));
            }
            // Its last messages may still be on their way on the other connections.
            Control::Bye => {
                self.conns[at].left = true;
                if self.rank == 0 {
                    self.coordinator.forget(peer);
                } else {
                    self.release();
                }
            }
        }
        Ok(())
    }

    /// At rank 0: a member's checksum is here.
    fn compared(&mut self, from: Rank, number: u64, checksum: u64) -> Result<(), Stop> {
        // A member is at most one comparison ahead, since each waits for all.
        if number > self.compare.number + 1 {
            return Err(self.certain(format!("member {from} compares results that member 0 does not have")));
        }
        let have = self.compare.have.entry(number).or_default();
        have.insert(from, checksum);
        if have.len() < self.members {
            return Ok(());
        }
        let have = self.compare.have.remove(&number).unwrap_or_default();
        let own = have[&0];
        let others: Vec<Rank> = have.iter().filter(|(_, sum)| **sum != own).map(|(rank, _)| *rank).collect();
        if let Some(other) = others.first() {
            let cause = format!(
                "checksums differ: member 0 has {own:016x}, member {other} has {:016x}{}; {}",
                have[other],
                if others.len() > 1 {
                    format!(" (and so members {})", list(&others[1..]))
                } else {
                    String::new()
                },
                self.compare.means
            );
            return Err(self.certain(cause));
        }
        for rank in 1..self.members {
            self.control(rank, &Control::Alike { number });
        }
        _ = self.events.send(Event::Alike);
        Ok(())
    }

    /// A member said on a connection of messages that no more come there.
    fn left(&mut self, peer: Rank) -> Result<(), Stop> {
        let more = |conn: &Conn| conn.peer == peer && conn.purpose != Purpose::Control && !conn.left;
        if self.active && self.left[peer] > 0 && !self.conns.iter().any(more) {
            let sequence = self.expect.as_ref().map_or(0, |expect| expect.sequence);
            return Err(self.certain(format!("member {peer} left during exchange {sequence}")));
        }
        Ok(())
    }

    /// A connection closed without farewell. That may have a better reason, which is still on its way.
    fn closed(&mut self, at: usize, why: &str) {
        self.turns.retain(|turn| *turn != at);
        self.asked.iter_mut().for_each(|asked| asked.waiting.retain(|waits| *waits != at));
        let conn = &mut self.conns[at];
        let peer = conn.peer;
        conn.out.clear();
        if std::mem::replace(&mut conn.left, true) {
            return;
        }
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        let cause = format!("member {peer} closed its connection without a word (was it killed?){why}");
        let failure = Failure { reporter: self.rank, cause, weight: Weight::Closed };
        self.suspect.get_or_insert((failure, Instant::now()));
    }

    /// At rank 0: who is behind something that came late?
    fn explain(&self, failure: Failure) -> Failure {
        let Weight::Late { sequence } = failure.weight else { return failure };
        let behind: Vec<Rank> = (0..self.members).filter(|&rank| self.heard[rank].1 < sequence).collect();
        if behind.is_empty() {
            return failure;
        }
        let cause =
            format!("member {} did not begin exchange {sequence} within {:?}", list(&behind), self.timeout);
        Failure { cause, ..failure }
    }

    fn ping_every(&self) -> Duration {
        (self.timeout / 10).clamp(Duration::from_millis(20), Duration::from_secs(2))
    }

    fn next_timer(&self) -> Instant {
        let suspect = self.suspect.as_ref().map_or(Duration::from_secs(3600), |_| Duration::from_millis(10));
        let timer = Instant::now() + self.ping_every().min(suspect);
        self.coordinator.timer().map_or(timer, |at| timer.min(self.started + at))
    }

    fn timers(&mut self) -> Result<(), Stop> {
        let now = Instant::now();
        if let Some((failure, since)) = &self.suspect
            && (self.rank != 0 || now.duration_since(*since) > GRACE)
        {
            return Err(Stop::Failed(failure.clone()));
        }
        if self.rank == 0 && now.duration_since(self.pinged) > self.ping_every() {
            self.pinged = now;
            (1..self.members).for_each(|rank| self.control(rank, &Control::Ping));
        }
        self.give_slots()?;
        // Rank 0 looks after all, and all look after rank 0.
        let watched = if self.rank == 0 { 1..self.members } else { 0..1 };
        let silent = |rank: &Rank| now.duration_since(self.heard[*rank].0) > self.timeout / 2;
        let here = |rank: &Rank| self.conns.iter().all(|conn| conn.peer != *rank || !conn.left);
        if let Some(rank) = watched.into_iter().find(|rank| self.active && silent(rank) && here(rank)) {
            let cause = format!(
                "member {rank} gave no sign of life for {:?}: it is stopped, or its host or the network between is down",
                self.timeout / 2
            );
            return Err(self.certain(cause));
        }
        Ok(())
    }

    /// Tells everybody about a failure, and returns what everybody is told.
    fn tell(&mut self, failure: Failure) -> Failure {
        let until = Instant::now() + FAREWELL.min(self.timeout);
        // The other connections close last. If they closed now, whoever has not yet heard of the failure would blame this member.
        let all = std::mem::take(&mut self.conns).into_iter();
        let (control, _open): (Vec<Conn>, Vec<Conn>) = all.partition(|conn| conn.purpose == Purpose::Control);
        self.conns = control;
        self.turns.clear();
        if self.rank == 0 {
            let failure = self.explain(failure);
            for rank in 1..self.members {
                self.control(rank, &Control::Failed(failure.clone()));
            }
            self.drain(until, |_| None::<()>);
            return failure;
        }
        if failure.reporter != self.rank {
            // Rank 0 said so; there is nobody left to tell.
            return failure;
        }
        self.control(0, &Control::Failed(failure.clone()));
        self.drain(until, |frame| match frame {
            Control::Failed(first) => Some(first),
            _ => None,
        })
        .unwrap_or(failure)
    }

    /// Sends what is left on the control connections, and reads until `wanted` is there or all are closed.
    fn drain<T>(&mut self, until: Instant, wanted: impl Fn(Control) -> Option<T>) -> Option<T> {
        while Instant::now() < until && self.conns.iter().any(|conn| !conn.left) {
            for at in 0..self.conns.len() {
                if self.write(at).is_err() {
                    return None;
                }
                if self.rank == 0 && self.conns[at].out.is_empty() {
                    // The others close when they have read it.
                    _ = self.conns[at].stream.shutdown(std::net::Shutdown::Write);
                }
            }
            let ready = self.wait(until.min(Instant::now() + Duration::from_millis(50)));
            for (at, flags) in ready {
                let conn = &mut self.conns[at];
                if !flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                    continue;
                }
                let (into, control) = match &mut conn.input {
                    Input::Head { bytes, at } => (&mut bytes[*at..CONTROL_HEAD], true),
                    Input::Control { bytes, at, .. } => (&mut bytes[*at..], true),
                    Input::Message { bytes, at, .. } => (&mut bytes[*at..], false),
                };
                let len = match (&conn.stream).read(into) {
                    Ok(len) if len > 0 && control => len,
                    Err(error)
                        if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
                    {
                        continue;
                    }
                    _ => {
                        conn.left = true;
                        continue;
                    }
                };
                match &mut conn.input {
                    Input::Head { at, .. } | Input::Message { at, .. } | Input::Control { at, .. } => {
                        *at += len;
                    }
                }
                if let Input::Head { bytes, at: CONTROL_HEAD } = &conn.input {
                    let head = bytes.first_chunk().expect("longer");
                    let len = Control::body_len(head).unwrap_or(0);
                    conn.input = Input::Control { kind: head[0], bytes: vec![0; len], at: 0 };
                }
                if let Input::Control { kind, bytes, at } = &conn.input
                    && *at == bytes.len()
                {
                    let frame = Control::parse(*kind, bytes);
                    conn.input = NEW;
                    if let Some(found) = frame.and_then(&wanted) {
                        return Some(found);
                    }
                }
            }
        }
        None
    }

    /// Sends what is left, and says goodbye.
    fn farewell(&mut self) {
        self.release();
        let sequence = self.expect.as_ref().map_or(0, |expect| expect.sequence);
        for conn in &mut self.conns {
            let head = match conn.purpose {
                Purpose::Control => Control::Bye.to_bytes(),
                Purpose::Data | Purpose::Tagged => head(conn.purpose, &Header::bye(sequence)),
            };
            conn.out.push_back(Out { head, body: None, at: 0, big: false, asked: false });
        }
        let until = Instant::now() + self.timeout;
        while Instant::now() < until && self.conns.iter().any(|conn| !conn.out.is_empty()) {
            for at in 0..self.conns.len() {
                if self.write(at).is_err() {
                    return;
                }
            }
            self.wait(until.min(Instant::now() + Duration::from_millis(50)));
        }
        for conn in &self.conns {
            _ = conn.stream.shutdown(std::net::Shutdown::Write);
        }
        // What is unread when a socket closes makes it reset the connection, and then the goodbye may be lost.
        let until = Instant::now() + FAREWELL.min(self.timeout);
        let mut bin = vec![0; 1 << 16];
        while Instant::now() < until && self.conns.iter().any(|conn| !conn.left) {
            for conn in self.conns.iter_mut().filter(|conn| !conn.left) {
                match (&conn.stream).read(&mut bin) {
                    Ok(0) => conn.left = true,
                    Ok(_) => {}
                    Err(error) => conn.left = error.kind() != io::ErrorKind::WouldBlock,
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Shutdown, TcpListener};
    use std::sync::mpsc;

    use crate::graph::Format;
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

    /// What one of two members is told, and how many messages it takes, if the other one knows the token and then sends these bytes.
    fn told(rank: Rank, data: &[u8], control: &[u8]) -> (String, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let timeout = Duration::from_secs(120);
        let connect = |purpose| {
            let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (stream, _) = listener.accept().unwrap();
            crate::rendezvous::prepare(&stream, timeout).unwrap();
            (Proven { purpose, peer: 1 - rank, outgoing: false, stream }, theirs)
        };
        let (proven, mut theirs): (Vec<_>, Vec<_>) =
            [connect(Purpose::Control), connect(Purpose::Data)].into_iter().unzip();
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
            messages: vec![2; 2],
        };
        commands.send(Command::Begin(Arc::new(expect))).unwrap();
        let traffic = Arc::default();
        let waker = Waker::new().unwrap();
        let poller = Poller::new(rank, 2, timeout, proven, inbox, outbox, waker, traffic);
        // All is there before the thread starts, so it finds the same in every run.
        for (stream, bytes) in theirs.iter_mut().zip([control, data]) {
            stream.write_all(bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        }
        poller.run();
        let mut taken = 0;
        loop {
            match events.recv().unwrap() {
                Event::Failed(failure) => return (failure.cause, taken),
                Event::Arrived { .. } => taken += 1,
                Event::Alike => {}
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
            (|header| header.job = u32::MAX, "member 1 has nothing"),
            (|header| header.partitions = 3, "in 3 partitions, member 1 has 'ring f32' in 2"),
            (|header| header.plan = PlanName::new("ring q8"), "member 0 has 'ring q8'"),
            (|header| header.layout = 8, "layout 0000000000000008 at member 0"),
            (|header| header.values = u64::MAX, "18446744073709551615 values"),
            (|header| header.sequence = 3, "member 0 is at exchange 3, member 1 at 1"),
            (|header| header.kind = Kind::Bye, "member 0 left during exchange 1"),
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
        assert!(cut.0.contains("member 0 closed its connection") && cut.1 == 0, "{cut:?}");
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
            (at(0, Control::Alike { number: 0 }), "out of place"),
            (
                at(0, Control::Compare { number: 9, checksum: 0 }),
                "compares results that member 0 does not have",
            ),
        ] {
            let (told, _) = told(rank, &[], &bytes);
            assert!(told.contains(says), "{told}: expected {says}");
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
