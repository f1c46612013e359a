//! Checks what a rank makes of any bytes from its peers: it neither panics nor waits for ever, and
//! keeps no more than its layout.
//!
//! An input is a job (four bytes: ranks, this rank, order, flags), and then steps. The low four
//! bits of a step's first byte are its kind, the high ones the connection:
//!
//! | kind | then | what happens |
//! |---|---|---|
//! | 0 to 2 | a length, so many bytes | these bytes arrive |
//! | 3, 4 | 6 bytes | a message arrives whose header fits the exchange, but for what the bytes change |
//! | 5 to 7 | a kind of frame, a length, so many bytes | a control frame arrives |
//! | 8 | | the connection ends |
//! | 9, 10 | a byte | time passes |
//! | 11 | a length | so many bytes of what waits leave |
//! | 12 to 15 | a byte | this rank does something: its next exchange, a message, a comparison, a vote |
//!
//! Two ranks take each input, one its bytes as they come and one byte by byte: both do the same.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use gradwire_collectives::Order;
use gradwire_collectives::coordinator::Limits;
use gradwire_collectives::graph::{Format, Message};
use gradwire_collectives::protocol::{
    Command, End, Endpoint, Event, Expect, ExpectJob, MAX_ANSWERS, MAX_REQUEST, PlanName, Protocol, Purpose,
    Vote,
};

const TIMEOUT: Duration = Duration::from_secs(20);
const HEADER_LEN: usize = 96;
/// Strategy and codec of a job, and by partition its values and the most bytes of a message.
type Planned = (&'static str, &'static [(usize, usize)]);
const JOBS: [Planned; 2] = [("ring f32", &[(5, 20), (4, 16)]), ("ring wire:2:10", &[(3, 12)])];
/// Messages of each other rank in an exchange.
const MESSAGES: usize = 3;
const LAYOUT: u64 = 0x1234_5678_9abc_def0;
const VALUES: u64 = 12;

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }
}

/// A rank, and what its exchange knows of it.
struct Rank {
    me: usize,
    ranks: usize,
    order: Order,
    tagged: bool,
    endpoints: Vec<Endpoint>,
    protocol: Protocol,
    /// At most so many bytes of a piece that arrives.
    piece: usize,
    now: Instant,
    sequence: u64,
    active: bool,
    compares: bool,
    /// Sums in the network that were voted about, and whether this rank has voted about the next
    /// one.
    decided: u64,
    votes: bool,
    /// By rank: messages of this exchange that arrived.
    arrived: Vec<usize>,
    asked: usize,
    failed: bool,
    /// Bytes that arrived, that this rank's own exchange made, and that left.
    input: usize,
    own: usize,
    sent: usize,
    pings: usize,
    /// What happened, to compare.
    log: Vec<String>,
}

impl Rank {
    fn new([ranks, me, order, flags]: [u8; 4], piece: usize, now: Instant) -> Self {
        let ranks = 1 + usize::from(ranks) % 4;
        let (me, tagged) = (usize::from(me) % ranks, flags & 1 == 1 && ranks > 1);
        let order =
            [Order::Turns, Order::Free, Order::Coordinated(Limits::default())][usize::from(order) % 3];
        let others = || (0..ranks).filter(|&rank| rank != me);
        let end = |purpose, outgoing| move |peer| Endpoint { purpose, peer, outgoing };
        let control = others().filter(|&peer| me == 0 || peer == 0);
        let mut endpoints: Vec<Endpoint> = control.map(end(Purpose::Control, me != 0)).collect();
        endpoints.extend(others().map(end(Purpose::Data, false)));
        if tagged {
            endpoints.push(end(Purpose::Tagged, false)((me + ranks - 1) % ranks));
            endpoints.push(end(Purpose::Tagged, true)((me + 1) % ranks));
        }
        let protocol = Protocol::new(me, ranks, flags & 2 == 2, TIMEOUT, endpoints.clone(), now);
        Self {
            me,
            ranks,
            order,
            tagged,
            endpoints,
            protocol,
            piece,
            now,
            sequence: 0,
            active: false,
            compares: false,
            decided: 0,
            votes: false,
            arrived: vec![0; ranks],
            asked: 0,
            failed: false,
            input: 0,
            own: 0,
            sent: 0,
            pings: 0,
            log: Vec::new(),
        }
    }

    fn jobs(&self) -> &'static [Planned] {
        if self.tagged { &JOBS } else { &JOBS[..1] }
    }

    fn command(&mut self, command: Command) {
        self.protocol.handle_command(command, self.now);
        self.look();
    }

    /// Begins an exchange, or ends the one that is under way.
    fn exchange(&mut self) {
        self.active = !self.active;
        if !self.active {
            return self.command(Command::End);
        }
        self.sequence += 1;
        self.arrived.fill(0);
        self.asked = 0;
        let job = |(at, (plan, parts)): (usize, &Planned)| ExpectJob {
            plan: PlanName::new(plan),
            tagged: (at == 1).then_some(1),
            parts: parts.to_vec(),
        };
        let messages = (0..self.ranks).map(|rank| if rank == self.me { 0 } else { MESSAGES });
        self.command(Command::Begin(Arc::new(Expect {
            sequence: self.sequence,
            layout: LAYOUT,
            values: VALUES,
            order: self.order,
            jobs: self.jobs().iter().enumerate().map(job).collect(),
            messages: messages.collect(),
        })));
    }

    fn act(&mut self, kind: u8, choice: u8) {
        let choice = usize::from(choice);
        let to = choice % self.ranks;
        let number = self.decided + 1;
        let vote = Vote {
            end: if choice < 128 { End::Complete } else { End::Silent },
            epoch: 1,
            blocks: 1,
            base: 2,
            later: 3,
        };
        match kind {
            12 => self.exchange(),
            13 if self.active && to != self.me => {
                let job = usize::from(choice >= 128 && self.tagged && to == (self.me + 1) % self.ranks);
                let message = Message { tag: 1, format: Format::Raw };
                let body = Arc::new(vec![7; JOBS[job].1[0].1]);
                self.own += 600;
                self.command(Command::Send { to, job, part: 0, message, body, big: choice & 64 == 64 });
            }
            14 if !self.compares && self.ranks > 1 => {
                self.compares = true;
                self.own += 24 * self.ranks;
                self.command(Command::Compare { checksum: 7, means: "it means nothing".into() });
            }
            15 if self.active && !self.votes => {
                self.votes = true;
                self.own += 120 * self.ranks;
                self.command(Command::Sum { number });
                self.command(Command::Vote { number, vote });
            }
            _ => {}
        }
    }

    /// Bytes arrive, as far as the rank takes them.
    fn arrive(&mut self, at: usize, bytes: &[u8]) {
        for piece in bytes.chunks(self.piece) {
            let mut rest = piece;
            while !rest.is_empty()
                && let Some(room) = self.protocol.room(at)
            {
                // Nothing that a header says makes it larger.
                assert!(!room.is_empty() && room.len() <= 1 << 16, "room for {} bytes", room.len());
                let len = room.len().min(rest.len());
                room[..len].copy_from_slice(&rest[..len]);
                self.protocol.handle_filled(at, len, self.now);
                self.input += len;
                rest = &rest[len..];
            }
        }
        self.look();
    }

    /// At most so many bytes leave.
    fn leave(&mut self, at: usize, mut most: usize) {
        while most > 0 && self.protocol.wants_to_send(at) {
            let ready: usize = self.protocol.poll_transmit(at).iter().map(|slice| slice.len()).sum();
            assert!(ready > 0, "it wants to send nothing");
            let len = ready.min(most);
            self.protocol.handle_sent(at, len, self.now);
            (self.sent, most) = (self.sent + len, most - len);
        }
        self.look();
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.pings += self.ranks;
        self.protocol.handle_timeout(self.now);
        self.look();
    }

    /// Reads what happened, and checks it.
    fn look(&mut self) {
        while let Some(event) = self.protocol.poll_event() {
            assert!(!self.failed, "{event:?} after the failure");
            self.log.push(format!("{event:?}"));
            match event {
                Event::Arrived { from, job, part, message: _, body } => {
                    let (_, most) = self.jobs()[job].1[part];
                    self.arrived[from] += 1;
                    assert!(body.len() <= most && from != self.me && self.arrived[from] <= MESSAGES);
                }
                Event::Alike => assert!(std::mem::take(&mut self.compares), "nobody compares"),
                Event::Halt { number } => assert_eq!(number, self.decided + 1),
                Event::Votes { number, votes } => {
                    assert!(std::mem::take(&mut self.votes), "this rank has not voted");
                    self.decided += 1;
                    assert_eq!((number, votes.len()), (self.decided, self.ranks));
                }
                Event::Asked(asked) => {
                    self.asked += asked.map_or(0, |asked| asked.len());
                    assert!(self.me == 0 && self.asked <= 2 * MAX_REQUEST);
                }
                Event::Failed(failure) => {
                    assert!(failure.cause.contains(char::is_alphabetic), "{failure:?}");
                    self.failed = true;
                }
            }
        }
        let (closed, due) = (self.protocol.is_closed(), self.protocol.next_timeout());
        assert!(closed || !self.failed, "it failed, and is not over");
        let waits = self.ranks > 1 && (self.active || self.compares);
        assert!(closed || !waits || due.is_some() || self.has_left(), "it waits without end");
    }

    /// Is nobody left whom this rank could look after?
    fn has_left(&self) -> bool {
        (0..self.endpoints.len())
            .all(|at| self.endpoints[at].purpose != Purpose::Control || !self.protocol.wants_bytes(at))
    }

    /// Time passes until nothing more is due, and at last the exchange gives up.
    fn end(&mut self) {
        if !self.protocol.is_closed() {
            let waiting = (0..self.ranks).filter(|&rank| rank != self.me).collect();
            let waits = self.active || self.compares || self.votes;
            self.command(if waits { Command::Late { waiting } } else { Command::Close });
        }
        for at in 0..self.endpoints.len() {
            self.leave(at, usize::MAX);
        }
        // By then all have explained what happened, or a rank that leaves waits no longer for them.
        let until = self.now + 2 * TIMEOUT;
        for _ in 0..1000 {
            let Some(due) = self.protocol.next_timeout() else { break };
            assert!(due <= until, "it waits for longer than its timeout");
            self.now = self.now.max(due);
            self.protocol.handle_timeout(self.now);
            self.look();
        }
        assert!(self.protocol.is_closed(), "it waits for ever");
        // A byte that arrives makes no more than a broadcast of votes, and so many answers wait at
        // most.
        let broadcast = self.ranks * (16 + 18 * self.ranks);
        let failure = self.ranks * 5000;
        let most = self.own + (self.input / 8 + 1) * broadcast.min(MAX_ANSWERS) + 8 * self.pings + failure;
        assert!(
            self.sent <= most,
            "{} bytes left, of {} that came and {} of its own",
            self.sent,
            self.input,
            self.own
        );
    }
}

/// Bytes as values that are far apart, as they travel on tagged connections.
fn spread(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| (f32::from(*byte) * 36_028_797_018_963_968.0).to_le_bytes()).collect()
}

/// A message that fits the exchange, but for what `odd` says.
fn message(rank: &Rank, at: usize, [job, part, odd, by, len, ahead]: [u8; 6]) -> Vec<u8> {
    let jobs = rank.jobs();
    let job = usize::from(job) % jobs.len();
    let (plan, parts) = jobs[job];
    let part = usize::from(part) % parts.len();
    let (values, most) = parts[part];
    let mut header = vec![0; HEADER_LEN];
    header[..4].copy_from_slice(b"gwc1");
    header[4] = 1 + ahead % 3;
    for (at, long) in [(8, rank.sequence + u64::from(ahead >= 192)), (16, LAYOUT), (24, VALUES)] {
        header[at..at + 8].copy_from_slice(&long.to_le_bytes());
    }
    let len = if usize::from(len) > most { most } else { usize::from(len) };
    for (i, short) in [job, part, parts.len(), 3, values, len].into_iter().enumerate() {
        header[32 + 4 * i..36 + 4 * i].copy_from_slice(&(short as u32).to_le_bytes());
    }
    header[56..56 + plan.len()].copy_from_slice(plan.as_bytes());
    // Most of the time nothing is changed.
    if let Some(byte) = header.get_mut(usize::from(odd)) {
        *byte ^= by;
    }
    if rank.endpoints[at].purpose == Purpose::Tagged {
        header = spread(&header);
    }
    header.extend(vec![9; len]);
    header
}

/// The zero of the machine's clock. The fuzzer looks into comparisons for values to try: with the
/// time of day among them, no run could be repeated.
static START: LazyLock<Instant> = LazyLock::new(|| {
    let now = Instant::now();
    let text = format!("{now:?}");
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok());
    let since = numbers.next().zip(numbers.next());
    since.and_then(|(seconds, nanos)| now.checked_sub(Duration::new(seconds, nanos as u32))).unwrap_or(now)
});

/// What the module says.
///
/// # Panics
/// It does not hold.
pub(crate) fn check(data: &[u8]) {
    let start = *START;
    let mut input = Input(data);
    let Some(job) = input.array::<4>() else { return };
    let mut both = [Rank::new(job, usize::MAX, start), Rank::new(job, 1, start)];
    while let Some(step) = input.byte() {
        let connections = both[0].endpoints.len();
        let (kind, at) = (step & 15, usize::from(step >> 4) % connections.max(1));
        if connections == 0 && kind < 12 && !(9..=10).contains(&kind) {
            continue;
        }
        match kind {
            0..=2 => {
                let len = input.byte().map_or(0, usize::from);
                let bytes = input.bytes(len);
                both.iter_mut().for_each(|rank| rank.arrive(at, bytes));
            }
            3 | 4 => {
                let Some(choices) = input.array() else { break };
                let bytes = message(&both[0], at, choices);
                both.iter_mut().for_each(|rank| rank.arrive(at, &bytes));
            }
            5..=7 => {
                let Some([frame, len]) = input.array() else { break };
                let body = input.bytes(len.into());
                let mut bytes = vec![frame % 15, 0, 0, 0];
                bytes.extend((body.len() as u32).to_le_bytes());
                bytes.extend(body);
                both.iter_mut().for_each(|rank| rank.arrive(at, &bytes));
            }
            8 => both.iter_mut().for_each(|rank| {
                rank.protocol.handle_end(at, "", rank.now);
                rank.look();
            }),
            9 | 10 => {
                let millis = input.byte().map_or(0, u64::from);
                let time = Duration::from_millis(if kind == 9 { millis } else { 50 * millis });
                both.iter_mut().for_each(|rank| rank.pass(time));
            }
            11 => {
                let len = input.byte().map_or(0, usize::from);
                both.iter_mut().for_each(|rank| rank.leave(at, 4 * len));
            }
            _ => {
                let choice = input.byte().unwrap_or(0);
                both.iter_mut().for_each(|rank| rank.act(kind, choice));
            }
        }
    }
    both.iter_mut().for_each(Rank::end);
    let [whole, bytewise] = both;
    assert_eq!(whole.log, bytewise.log, "the pieces in which bytes arrive matter");
    assert_eq!((whole.sent, whole.input), (bytewise.sent, bytewise.input));
}
