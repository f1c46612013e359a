//! How ranks find each other, and prove that they belong to one job.
//!
//! Each rank listens. All but rank 0 connect to rank 0 and say where they listen; rank 0 answers with everybody's addresses. Then each
//! rank connects to those with lower ranks and, if the link has tagged connections, to the next in the ring. Each
//! connection starts so (sizes in bytes):
//!
//! ```text
//! who connects                                                     who listens
//! "gradwire" | version (1) | purpose (1) | rank (4) | ranks (4) | nonce (32)  ->
//!                                                    <-  nonce (32) | proof (32)
//! proof (32)                                         ->
//!                                                    <-  verdict (1) | number (4)
//! ```
//! Nothing else that comes before the proof is read, and nothing is allocated for it. On tagged connections each of these bytes is a value,
//! because what compresses them takes everything for values.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::aggregator_client::JobName;
use crate::failure::LinkError;
use crate::graph::Rank;
use crate::socket::set_tos;
use crate::spread::{SPREAD, gather, spread};
use crate::strategies::MAX_RANKS;
use crate::token::{self, Token};

/// The type of service of connections that the dataplane compresses: DSCP AF11.
pub const TAG: u8 = 0x28;
const MAGIC: &[u8; 8] = b"gradwire";
const VERSION: u8 = 1;
const HELLO_LEN: usize = 8 + 1 + 1 + 4 + 4 + token::LEN;
/// How long one end of a handshake may take; a job's timeout, if that is shorter.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How much longer than itself others wait for rank 0 to say whom it missed.
const VERDICT: Duration = Duration::from_secs(2);
/// Handshakes at a time. More than a job's ranks can need at once, and a limit for strangers.
const MAX_HANDSHAKES: usize = 2 * MAX_RANKS;

/// What a link needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// The job's secret.
    pub token: Token,
    /// How long ranks may wait for each other: at the start, and in each exchange.
    pub timeout: Duration,
    /// How long they may wait for each other at the start, if that is less than [`timeout`](Self::timeout): for jobs whose ranks have just
    /// heard of each other elsewhere, so that one that has died since does not cost all others the whole timeout. With a server, it begins when
    /// a worker has connected to it.
    pub opening: Option<Duration>,
    /// Open tagged connections round the ring too, for `wire:` codecs.
    pub tagged: bool,
    /// Rank 0 is a [`Server`](crate::Server): it owns all sums, has no gradient of its own, and does what rank 1 asks for.
    pub served: bool,
}

impl Options {
    /// With the timeout of five minutes, and without tagged connections or a server.
    #[must_use]
    pub const fn new(token: Token) -> Self {
        Self { token, timeout: Duration::from_secs(300), opening: None, tagged: false, served: false }
    }
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Purpose {
    /// Between rank 0 and another: failures, signs of life, comparisons.
    Control = 1,
    /// Messages of host codecs, in both directions.
    Data = 2,
    /// `f32` that the dataplane compresses, from a rank to the next in the ring.
    Tagged = 3,
}

/// A connection whose other end proved that it knows the token.
pub(crate) struct Authenticated {
    pub(crate) purpose: Purpose,
    pub(crate) peer: Rank,
    /// Did this rank open it?
    pub(crate) outgoing: bool,
    pub(crate) stream: TcpStream,
}

/// The ports of a rank, open but not yet connected to anybody.
#[derive(Debug)]
pub struct Listening {
    plain: TcpListener,
    tagged: Option<TcpListener>,
    options: Options,
}

impl Listening {
    /// Listens at `address`, IPv4 or IPv6. Port 0 lets the system choose. Tagged connections have a port of their own, the
    /// next one.
    ///
    /// # Errors
    /// The system refuses.
    pub fn bind(address: SocketAddr, options: Options) -> Result<Self, LinkError> {
        let plain = listen(address, false)?;
        let tagged_port = if address.port() == 0 { 0 } else { address.port().wrapping_add(1) };
        let tagged = options.tagged.then(|| listen(SocketAddr::new(address.ip(), tagged_port), true));
        Ok(Self { plain, tagged: tagged.transpose()?, options })
    }

    /// Where others reach this rank: of rank 0, they have to know it.
    ///
    /// # Errors
    /// The system refuses.
    pub fn address(&self) -> Result<SocketAddr, LinkError> {
        self.plain.local_addr().map_err(|error| io_error("read the address listened at", error))
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.options.timeout
    }

    pub(crate) fn is_tagged(&self) -> bool {
        self.tagged.is_some()
    }

    pub(crate) fn is_served(&self) -> bool {
        self.options.served
    }

    /// What an aggregator in the network knows the job by: of the token, without telling it.
    pub(crate) fn job_name(&self) -> JobName {
        let [a, b, c, d, e, f, g, h, i, j, ..] = self.options.token.proof(b"node", &[]);
        JobName { number: u16::from_le_bytes([a, b]), key: u64::from_le_bytes([c, d, e, f, g, h, i, j]) }
    }

    /// Connects to all ranks. `root` is where rank 0 listens.
    pub(crate) fn connect_ranks(
        &self,
        rank: Rank,
        ranks: usize,
        root: SocketAddr,
    ) -> Result<Vec<Authenticated>, LinkError> {
        if rank >= ranks || ranks > MAX_RANKS {
            return Err(LinkError::Ranks { rank, ranks });
        }
        if ranks == 1 {
            return Ok(Vec::new());
        }
        let Options { token, timeout, opening, served, .. } = &self.options;
        let within = opening.filter(|_| !served).map_or(*timeout, |opening| opening.min(*timeout));
        let acceptor = Acceptor { opening: *opening, ..Acceptor::new(token, rank, ranks, within) };
        thread::scope(|scope| {
            let (sender, accepted) = mpsc::channel();
            let tagged = self.tagged.iter().map(|listener| (listener, true));
            for (listener, tagged) in std::iter::once((&self.plain, false)).chain(tagged) {
                let (acceptor, sender) = (&acceptor, sender.clone());
                scope.spawn(move || acceptor.accept(listener, tagged, &sender, scope));
            }
            let connections = self.connect_all(&acceptor, &accepted, root);
            acceptor.close();
            connections
        })
    }

    fn connect_all(
        &self,
        acceptor: &Acceptor,
        accepted: &Receiver<Authenticated>,
        root: SocketAddr,
    ) -> Result<Vec<Authenticated>, LinkError> {
        let (rank, ranks) = (acceptor.rank, acceptor.ranks);
        let mut connections: Vec<Authenticated> = Vec::new();
        let table = if rank == 0 {
            let table = self.table(acceptor, accepted, root, &mut connections);
            if let Err((missing, error)) = table {
                // The others wait for the table, and would blame this rank. Some may not have been listened to yet.
                connections.extend(accepted.try_iter());
                for connection in
                    connections.iter_mut().filter(|connection| connection.purpose == Purpose::Control)
                {
                    _ = write_by(&mut connection.stream, &gave_up(missing), Instant::now() + VERDICT);
                }
                return Err(error);
            }
            table.unwrap_or_default()
        } else {
            let mut stream = acceptor.connect(root, Purpose::Control, 0)?;
            let mine = (self.address()?, self.tagged.as_ref().map(TcpListener::local_addr));
            let tagged = mine.1.transpose().map_err(|error| io_error("read an address", error))?;
            let lost = |error| io_error(&format!("exchange addresses with rank 0 at {root}"), error);
            write_by(&mut stream, &entry(mine.0, tagged), acceptor.deadline()).map_err(lost)?;
            let table = read_table(&mut stream, ranks, acceptor.deadline() + VERDICT).map_err(lost)?;
            let table = table.map_err(|missing| acceptor.missing(vec![missing], root))?;
            connections.push(Authenticated { purpose: Purpose::Control, peer: 0, outgoing: true, stream });
            table
        };
        let next = (rank + 1) % ranks;
        // Where the others were told that this rank is.
        let told = if rank == 0 { root } else { table[rank].0 };
        for (peer, (plain, tagged)) in table.into_iter().enumerate() {
            // Who listens everywhere is reached where rank 0 saw it; rank 0 itself, where this rank saw it.
            let reach = |at: SocketAddr| {
                if at.ip().is_unspecified() { SocketAddr::new(root.ip(), at.port()) } else { at }
            };
            if peer < rank {
                let stream = acceptor.connect(reach(plain), Purpose::Data, peer)?;
                connections.push(Authenticated { purpose: Purpose::Data, peer, outgoing: true, stream });
            }
            if peer == next && self.tagged.is_some() {
                let why =
                    "it has no tagged connections, this rank has: give all ranks the same options".into();
                let refused = LinkError::Refused { address: plain.to_string(), rank, why };
                let stream = acceptor.connect(reach(tagged.ok_or(refused)?), Purpose::Tagged, peer)?;
                connections.push(Authenticated { purpose: Purpose::Tagged, peer, outgoing: true, stream });
            }
        }
        let before = (rank + ranks - 1) % ranks;
        let mut missing: BTreeSet<(Purpose, Rank)> =
            (rank + 1..ranks).map(|peer| (Purpose::Data, peer)).collect();
        missing.extend(self.tagged.as_ref().map(|_| (Purpose::Tagged, before)));
        // Rank 0 may have got some of these while it waited for the control connections.
        for connection in connections.iter().filter(|connection| !connection.outgoing) {
            missing.remove(&(connection.purpose, connection.peer));
        }
        while !missing.is_empty() {
            let connection = acceptor.next(accepted);
            let connection = connection
                .ok_or_else(|| acceptor.missing(missing.iter().map(|(_, peer)| *peer).collect(), told))?;
            missing.remove(&(connection.purpose, connection.peer));
            connections.push(connection);
        }
        Ok(connections)
    }

    /// Rank 0: waits for everybody's addresses, and tells them to all. An error comes with the first rank that it is about.
    #[expect(clippy::type_complexity, reason = "called once")]
    fn table(
        &self,
        acceptor: &Acceptor,
        accepted: &Receiver<Authenticated>,
        root: SocketAddr,
        connections: &mut Vec<Authenticated>,
    ) -> Result<Vec<(SocketAddr, Option<SocketAddr>)>, (Rank, LinkError)> {
        let own = || {
            let tagged = self.tagged.as_ref().map(TcpListener::local_addr).transpose();
            Ok((self.address()?, tagged.map_err(|error| io_error("read an address", error))?))
        };
        let mut table = vec![None; acceptor.ranks];
        table[0] = Some(own().map_err(|error| (0, error))?);
        while let Some(first) = table.iter().position(Option::is_none) {
            let Some(mut connection) = acceptor.next(accepted) else {
                let missing = (0..acceptor.ranks).filter(|&rank| table[rank].is_none()).collect();
                return Err((first, acceptor.missing(missing, root)));
            };
            acceptor.begun();
            let peer = connection.peer;
            if connection.purpose == Purpose::Control {
                let seen = connection.stream.peer_addr();
                let read =
                    seen.and_then(|seen| read_entry(&mut connection.stream, acceptor.deadline(), seen.ip()));
                let lost = |error| (peer, io_error(&format!("read the address of rank {peer}"), error));
                table[peer] = Some(read.map_err(lost)?);
            }
            connections.push(connection);
        }
        let table: Vec<_> = table.into_iter().flatten().collect();
        let bytes: Vec<u8> = table.iter().flat_map(|(plain, tagged)| entry(*plain, *tagged)).collect();
        for connection in connections.iter_mut().filter(|connection| connection.purpose == Purpose::Control) {
            let peer = connection.peer;
            let lost = |error| (peer, io_error(&format!("send addresses to rank {peer}"), error));
            write_by(&mut connection.stream, &bytes, acceptor.deadline()).map_err(lost)?;
        }
        Ok(table)
    }
}

/// Where a job's connections are proved.
struct Acceptor<'a> {
    token: &'a Token,
    rank: Rank,
    ranks: usize,
    /// When this rank gives up, and how long that is from when it began.
    time: Mutex<(Instant, Duration)>,
    opening: Option<Duration>,
    stop: AtomicBool,
    /// Connections whose handshake is under way, and how many there were.
    handshakes: Mutex<(u64, BTreeMap<u64, TcpStream>)>,
    busy: AtomicUsize,
    here: Mutex<BTreeSet<(Purpose, Rank)>>,
    refused: Mutex<Vec<String>>,
}

/// What the listening end answers to a proof.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Welcome = 0,
    Ranks = 1,
    Twice = 2,
    Nobody = 3,
}

impl<'a> Acceptor<'a> {
    fn new(token: &'a Token, rank: Rank, ranks: usize, within: Duration) -> Self {
        Self {
            token,
            rank,
            ranks,
            time: Mutex::new((Instant::now() + within, within)),
            opening: None,
            stop: AtomicBool::new(false),
            handshakes: Mutex::default(),
            busy: AtomicUsize::new(0),
            here: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    fn deadline(&self) -> Instant {
        lock(&self.time).0
    }

    /// Somebody is there. A server and its workers start when they like, and opening has its own time from here on.
    fn begun(&self) {
        let mut time = lock(&self.time);
        if let Some(opening) = self.opening
            && Instant::now() + opening < time.0
        {
            *time = (Instant::now() + opening, opening);
        }
    }

    fn accept<'scope>(
        &'scope self,
        listener: &'scope TcpListener,
        tagged: bool,
        sender: &Sender<Authenticated>,
        scope: &'scope thread::Scope<'scope, '_>,
    ) {
        while !self.stop.load(Ordering::Relaxed) {
            if !matches!(wait(listener, PollFlags::IN, Duration::from_millis(20)), Ok(true)) {
                continue;
            }
            let Ok((stream, from)) = listener.accept() else { continue };
            if self.busy.fetch_add(1, Ordering::Relaxed) >= MAX_HANDSHAKES {
                self.busy.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let sender = sender.clone();
            let handshake = self.enter(&stream);
            scope.spawn(move || {
                let authenticated = self.authenticate(stream, tagged);
                lock(&self.handshakes).1.remove(&handshake);
                match authenticated {
                    Ok(connection) => _ = sender.send(connection),
                    Err(why) => {
                        let mut refused = lock(&self.refused);
                        if refused.len() < 8 {
                            refused.push(format!("{from}: {why}"));
                        }
                    }
                }
                self.busy.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    /// A number for a connection whose handshake begins.
    fn enter(&self, stream: &TcpStream) -> u64 {
        let mut handshakes = lock(&self.handshakes);
        handshakes.0 += 1;
        let number = handshakes.0;
        if self.stop.load(Ordering::Relaxed) {
            _ = stream.shutdown(Shutdown::Both);
        } else if let Ok(stream) = stream.try_clone() {
            handshakes.1.insert(number, stream);
        }
        number
    }

    /// All have connections, or it failed. Handshakes under way are those of strangers then, and nobody waits for them.
    fn close(&self) {
        let mut handshakes = lock(&self.handshakes);
        self.stop.store(true, Ordering::Relaxed);
        for stream in std::mem::take(&mut handshakes.1).into_values() {
            _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Proves a connection that was accepted.
    fn authenticate(&self, mut stream: TcpStream, tagged: bool) -> Result<Authenticated, String> {
        let until = self.deadline().min(Instant::now() + HANDSHAKE);
        let lost = |error: io::Error| format!("handshake not finished: {error}");
        let mut hello = [0; HELLO_LEN];
        read(&mut stream, tagged, &mut hello, until).map_err(lost)?;
        if hello[..8] != *MAGIC {
            return Err("not a gradwire peer: bad magic".into());
        }
        if hello[8] != VERSION {
            return Err(format!("handshake version {}, expected {VERSION}", hello[8]));
        }
        let number =
            |at: usize| u32::from_le_bytes([hello[at], hello[at + 1], hello[at + 2], hello[at + 3]]) as usize;
        let (peer, ranks) = (number(10), number(14));
        let purpose = match hello[9] {
            1 => Purpose::Control,
            2 => Purpose::Data,
            3 if tagged => Purpose::Tagged,
            unknown => return Err(format!("unknown purpose {unknown} (version mismatch?)")),
        };
        let nonce = Token::random().map_err(lost)?.to_hex();
        let nonce: [u8; token::LEN] = nonce.as_bytes()[..token::LEN].try_into().expect("64 digits");
        let mine = self.token.proof(b"accept", &[&hello, &nonce]);
        write(&mut stream, tagged, &[nonce, mine].concat(), until).map_err(lost)?;
        let mut theirs = [0; token::LEN];
        read(&mut stream, tagged, &mut theirs, until)
            .map_err(|_| "left when it saw this rank's proof: another token".to_owned())?;
        if !token::same(&theirs, &self.token.proof(b"connect", &[&hello, &nonce])) {
            return Err("another token".into());
        }
        let expected = match purpose {
            Purpose::Control => self.rank == 0 && peer != 0,
            Purpose::Data => peer > self.rank,
            Purpose::Tagged => (peer + 1) % self.ranks == self.rank,
        };
        let verdict = if ranks != self.ranks {
            Verdict::Ranks
        } else if !expected || peer >= ranks {
            Verdict::Nobody
        } else if !lock(&self.here).insert((purpose, peer)) {
            Verdict::Twice
        } else {
            Verdict::Welcome
        };
        let mut answer = vec![verdict as u8];
        answer.extend((self.ranks as u32).to_le_bytes());
        write(&mut stream, tagged, &answer, until).map_err(lost)?;
        match verdict {
            Verdict::Welcome => Ok(Authenticated { purpose, peer, outgoing: false, stream }),
            Verdict::Ranks => Err(format!("rank {peer} of {ranks} ranks, expected {}", self.ranks)),
            Verdict::Twice => Err(format!("a second {purpose:?} connection from rank {peer}")),
            Verdict::Nobody => Err(format!("unexpected {purpose:?} connection from rank {peer}")),
        }
    }

    /// Connects, as often as it takes until the other end listens, and proves it.
    fn connect(&self, to: SocketAddr, purpose: Purpose, peer: Rank) -> Result<TcpStream, LinkError> {
        let what = || format!("connect to rank {peer} at {to}");
        let mut stream = loop {
            match connect(to, purpose == Purpose::Tagged, self.deadline()) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() >= self.deadline() => return Err(io_error(&what(), error)),
                // It does not listen yet, or its host is not up.
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        };
        self.begun();
        let (until, tagged) = (self.deadline(), purpose == Purpose::Tagged);
        let lost = |error| io_error(&format!("prove the token to rank {peer} at {to}"), error);
        let mut hello = [0; HELLO_LEN];
        hello[..8].copy_from_slice(MAGIC);
        hello[8] = VERSION;
        hello[9] = purpose as u8;
        hello[10..14].copy_from_slice(&(self.rank as u32).to_le_bytes());
        hello[14..18].copy_from_slice(&(self.ranks as u32).to_le_bytes());
        let nonce = Token::random().map_err(lost)?.to_hex();
        hello[18..].copy_from_slice(&nonce.as_bytes()[..token::LEN]);
        write(&mut stream, tagged, &hello, until).map_err(lost)?;
        let mut answer = [[0; token::LEN]; 2];
        read(&mut stream, tagged, answer.as_flattened_mut(), until).map_err(lost)?;
        let [nonce, theirs] = answer;
        if !token::same(&theirs, &self.token.proof(b"accept", &[&hello, &nonce])) {
            return Err(LinkError::Token { address: to.to_string() });
        }
        write(&mut stream, tagged, &self.token.proof(b"connect", &[&hello, &nonce]), until).map_err(lost)?;
        let mut verdict = [0; 5];
        read(&mut stream, tagged, &mut verdict, until).map_err(lost)?;
        let ranks = u32::from_le_bytes([verdict[1], verdict[2], verdict[3], verdict[4]]);
        let why = match verdict[0] {
            0 => return Ok(stream),
            1 => format!("it expects {ranks} ranks, this rank {}: give all the same list", self.ranks),
            2 => format!("another one is rank {} already: give each its own rank", self.rank),
            _ => format!("it does not expect rank {} there: is this the address of rank {peer}?", self.rank),
        };
        Err(LinkError::Refused { address: to.to_string(), rank: self.rank, why })
    }

    /// The next rank that proved itself; nobody, if the time is over.
    fn next(&self, accepted: &Receiver<Authenticated>) -> Option<Authenticated> {
        accepted.recv_timeout(self.deadline().saturating_duration_since(Instant::now())).ok()
    }

    /// These did not connect to an address, which they were told.
    fn missing(&self, mut missing: Vec<Rank>, at: SocketAddr) -> LinkError {
        missing.dedup();
        LinkError::Missing { missing, at, within: lock(&self.time).1, refused: lock(&self.refused).clone() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes bytes of a handshake.
fn write(stream: &mut TcpStream, tagged: bool, bytes: &[u8], until: Instant) -> io::Result<()> {
    if tagged { write_by(stream, &spread(bytes), until) } else { write_by(stream, bytes, until) }
}

/// Reads bytes of a handshake.
fn read(stream: &mut TcpStream, tagged: bool, bytes: &mut [u8], until: Instant) -> io::Result<()> {
    if !tagged {
        return read_by(stream, bytes, until);
    }
    let mut values = vec![0; SPREAD * bytes.len()];
    read_by(stream, &mut values, until)?;
    bytes.copy_from_slice(&gather(&values));
    Ok(())
}

/// A rank's addresses, as rank 0 is told them and tells them: family, address, port, port of tagged connections or 0.
const ENTRY_LEN: usize = 1 + 16 + 2 + 2;

fn entry(plain: SocketAddr, tagged: Option<SocketAddr>) -> [u8; ENTRY_LEN] {
    let mut bytes = [0; ENTRY_LEN];
    match plain.ip() {
        IpAddr::V4(ip) => {
            bytes[0] = 4;
            bytes[1..5].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes[0] = 6;
            bytes[1..17].copy_from_slice(&ip.octets());
        }
    }
    bytes[17..19].copy_from_slice(&plain.port().to_le_bytes());
    bytes[19..].copy_from_slice(&tagged.map_or(0, |tagged| tagged.port()).to_le_bytes());
    bytes
}

fn parse_entry(bytes: &[u8; ENTRY_LEN]) -> io::Result<(SocketAddr, Option<SocketAddr>)> {
    let v6: [u8; 16] = bytes[1..17].try_into().expect("sixteen");
    let ip = match bytes[0] {
        4 => IpAddr::from([v6[0], v6[1], v6[2], v6[3]]),
        6 => IpAddr::from(v6),
        _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "neither IPv4 nor IPv6")),
    };
    let port = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let tagged = Some(port(19)).filter(|&port| port != 0).map(|port| SocketAddr::new(ip, port));
    Ok((SocketAddr::new(ip, port(17)), tagged))
}

/// Reads a rank's addresses. One that listens everywhere is reached where it was `seen`.
fn read_entry(
    stream: &mut TcpStream,
    until: Instant,
    seen: IpAddr,
) -> io::Result<(SocketAddr, Option<SocketAddr>)> {
    let mut bytes = [0; ENTRY_LEN];
    read_by(stream, &mut bytes, until)?;
    let (plain, tagged) = parse_entry(&bytes)?;
    let reach = |at: SocketAddr| if at.ip().is_unspecified() { SocketAddr::new(seen, at.port()) } else { at };
    Ok((reach(plain), tagged.map(reach)))
}

/// In place of a table: rank 0 waited in vain for this rank.
const GAVE_UP: u8 = 0xff;

fn gave_up(missing: Rank) -> [u8; ENTRY_LEN] {
    let mut bytes = [0; ENTRY_LEN];
    bytes[0] = GAVE_UP;
    bytes[1..5].copy_from_slice(&(missing as u32).to_le_bytes());
    bytes
}

/// Everybody's addresses, or the rank that rank 0 waited for in vain.
#[expect(clippy::type_complexity, reason = "called once")]
fn read_table(
    stream: &mut TcpStream,
    ranks: usize,
    until: Instant,
) -> io::Result<Result<Vec<(SocketAddr, Option<SocketAddr>)>, Rank>> {
    let mut bytes = vec![[0; ENTRY_LEN]; ranks];
    let (first, others) = bytes.split_at_mut(1);
    read_by(stream, first.as_flattened_mut(), until)?;
    if let [GAVE_UP, a, b, c, d, ..] = first[0] {
        return Ok(Err(u32::from_le_bytes([a, b, c, d]) as Rank));
    }
    read_by(stream, others.as_flattened_mut(), until)?;
    bytes.iter().map(parse_entry).collect::<io::Result<_>>().map(Ok)
}

fn io_error(what: &str, source: io::Error) -> LinkError {
    LinkError::Io { what: what.to_owned(), source }
}

/// A socket of the address's family. One to be tagged is so before it connects or listens, so its SYN, or the SYN-ACK of what
/// connects to it, is too: the dataplane learns from them where values start.
fn socket(address: SocketAddr, tagged: bool) -> io::Result<std::os::fd::OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        // What listens at [::] takes IPv6 alone, whatever the system's default is.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    if tagged {
        set_tos(&socket, address, TAG)?;
    }
    Ok(socket)
}

fn listen(address: SocketAddr, tagged: bool) -> Result<TcpListener, LinkError> {
    let listen = || {
        let socket = socket(address, tagged)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, MAX_RANKS as i32)?;
        let listener = TcpListener::from(socket);
        // A connection may be gone again between `poll` and `accept`.
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    listen().map_err(|error| io_error(&format!("listen at {address}"), error))
}

fn connect(to: SocketAddr, tagged: bool, deadline: Instant) -> io::Result<TcpStream> {
    let stream = TcpStream::from(socket(to, tagged)?);
    stream.set_nonblocking(true)?;
    match rustix::net::connect(&stream, &to) {
        Ok(()) => {}
        Err(rustix::io::Errno::INPROGRESS) => {
            let left = deadline.saturating_duration_since(Instant::now()).min(Duration::from_secs(5));
            if !wait(&stream, PollFlags::OUT, left)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sockopt::socket_error(&stream)??;
        }
        Err(error) => return Err(error.into()),
    }
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Waits for one event of one socket; `false` if the time is over.
fn wait(fd: &impl AsFd, flags: PollFlags, time: Duration) -> io::Result<bool> {
    let time = Timespec::try_from(time).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut [PollFd::new(fd, flags)], Some(&time)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Time until `until`, as socket timeouts want it.
fn left(until: Instant) -> io::Result<Option<Duration>> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
}

fn read_by(stream: &mut TcpStream, mut bytes: &mut [u8], until: Instant) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    while !bytes.is_empty() {
        stream.set_read_timeout(left(until)?)?;
        match stream.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => bytes = &mut bytes[len..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn write_by(stream: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    while !bytes.is_empty() {
        stream.set_write_timeout(left(until)?)?;
        match stream.write(bytes) {
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Prepares a connection for the exchange: never blocks, sends at once, and notices a host that is gone.
pub(crate) fn prepare(stream: &TcpStream, timeout: Duration) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    sockopt::set_tcp_nodelay(stream, true)?;
    let millis = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, millis)?;
    sockopt::set_socket_keepalive(stream, true)?;
    // Four questions within the timeout; the system takes whole seconds.
    let quarter = Duration::from_secs((timeout.as_secs() / 4).clamp(1, 3600));
    sockopt::set_tcp_keepidle(stream, quarter)?;
    sockopt::set_tcp_keepintvl(stream, quarter)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_tagged_before_they_connect_or_listen() {
        // Many containers have no IPv6.
        let there = |at: &&str| *at == "127.0.0.1:0" || TcpListener::bind(at).is_ok();
        for at in ["127.0.0.1:0", "[::1]:0"].into_iter().filter(there) {
            let token = Token::random().unwrap();
            let options = Options { tagged: true, ..Options::new(token) };
            let listening = Listening::bind(at.parse().unwrap(), options).unwrap();
            let tagged = listening.tagged.as_ref().unwrap();
            let far = connect(tagged.local_addr().unwrap(), true, Instant::now() + HANDSHAKE).unwrap();
            let plain = connect(listening.address().unwrap(), false, Instant::now() + HANDSHAKE).unwrap();
            let tos = |socket: &dyn AsFd| match at.starts_with('[') {
                true => sockopt::ipv6_tclass(socket.as_fd()).unwrap() as u8,
                false => sockopt::ip_tos(socket.as_fd()).unwrap(),
            };
            assert_eq!([tos(tagged), tos(&far)], [TAG; 2], "{at}");
            assert_eq!([tos(&listening.plain), tos(&plain)], [0; 2], "{at}");
            // What is accepted answers with the type of service of its listener.
            while !wait(tagged, PollFlags::IN, Duration::from_secs(1)).unwrap() {}
            assert_eq!(tos(&tagged.accept().unwrap().0), TAG, "{at}");
        }
    }

    /// How far rank 2 comes before it falls silent, or is killed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Phase {
        Nowhere,
        Connected,
        Hello,
        Proved,
        Welcome,
        Listed,
        HeardOfAll,
        ConnectedToAll,
        HelloToAll,
    }

    const PHASES: [Phase; 9] = [
        Phase::Nowhere,
        Phase::Connected,
        Phase::Hello,
        Phase::Proved,
        Phase::Welcome,
        Phase::Listed,
        Phase::HeardOfAll,
        Phase::ConnectedToAll,
        Phase::HelloToAll,
    ];

    /// Rank 2 of 3, up to here: its connections, and where it listens.
    fn come(phase: Phase, token: &Token, root: SocketAddr) -> io::Result<(Vec<TcpStream>, TcpListener)> {
        let until = Instant::now() + Duration::from_secs(600);
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut connections = Vec::new();
        let mut hello = [7; HELLO_LEN];
        hello[..8].copy_from_slice(MAGIC);
        (hello[8], hello[9]) = (VERSION, Purpose::Control as u8);
        hello[10..18].copy_from_slice(&[2, 0, 0, 0, 3, 0, 0, 0]);
        if phase > Phase::Nowhere {
            connections.push(connect(root, false, until)?);
        }
        if phase > Phase::Connected {
            write_by(&mut connections[0], &hello, until)?;
        }
        if phase > Phase::Hello {
            let mut answer = [[0; token::LEN]; 2];
            read_by(&mut connections[0], answer.as_flattened_mut(), until)?;
            write_by(&mut connections[0], &token.proof(b"connect", &[&hello, &answer[0]]), until)?;
        }
        if phase > Phase::Proved {
            read_by(&mut connections[0], &mut [0; 5], until)?;
        }
        if phase > Phase::Welcome {
            write_by(&mut connections[0], &entry(listener.local_addr()?, None), until)?;
        }
        if phase > Phase::Listed {
            let table = read_table(&mut connections[0], 3, until)?.map_err(|_| io::ErrorKind::Other)?;
            for (at, _) in table.iter().take(if phase > Phase::HeardOfAll { 2 } else { 0 }) {
                connections.push(connect(*at, false, until)?);
            }
        }
        if phase > Phase::ConnectedToAll {
            hello[9] = Purpose::Data as u8;
            connections[1..].iter_mut().try_for_each(|stream| write_by(stream, &hello, until))?;
        }
        Ok((connections, listener))
    }

    /// The timeout is longer than anybody waits; the opening has one of its own.
    fn soon(token: &Token, seconds: u64) -> Options {
        let (timeout, opening) = (Duration::from_secs(300), Some(Duration::from_secs(seconds)));
        Options { timeout, opening, ..Options::new(token.clone()) }
    }

    #[test]
    fn a_rank_that_is_lost_in_any_phase_of_opening_is_named_soon() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let lost = |phase: Phase, killed: bool| {
            // A busy machine may keep others from meeting, too: then all have more time.
            for seconds in [2, 4, 8, 16, 32, 64] {
                let token = Token::random().unwrap();
                let bind = || Listening::bind(any, soon(&token, seconds)).unwrap();
                let (zero, one) = (bind(), bind());
                let root = zero.address().unwrap();
                let told = thread::scope(|scope| {
                    let zero = scope.spawn(|| zero.connect_ranks(0, 3, root).err());
                    let one = scope.spawn(|| one.connect_ranks(1, 3, root).err());
                    let came = come(phase, &token, root);
                    let _silent = came.ok().filter(|_| !killed);
                    [zero, one].map(|rank| rank.join().unwrap().expect("an error").to_string())
                });
                let named = |told: &String| {
                    told.contains(&format!("ranks 2 did not connect within {seconds}s to 127.0.0.1:"))
                        || told.contains("cannot read the address of rank 2")
                };
                if told.iter().all(named) {
                    return;
                }
                assert!(!told.iter().any(|told| told.contains("300s")), "opening took the timeout: {told:?}");
                eprintln!("{phase:?}, killed: {killed}, {seconds} s: {told:?}");
            }
            panic!("{phase:?}, killed: {killed}: rank 2 is not named");
        };
        thread::scope(|scope| {
            for (phase, killed) in PHASES.into_iter().flat_map(|phase| [(phase, false), (phase, true)]) {
                let lost = &lost;
                scope.spawn(move || lost(phase, killed));
            }
        });
    }

    /// Nobody listens, somebody listens and says nothing, or rank 0 welcomes the others and says no more.
    #[test]
    fn a_root_that_is_lost_in_any_phase_of_opening_is_named_with_its_address() {
        for phase in ["nobody", "silent", "welcome"] {
            let token = Token::random().unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let root = listener.local_addr().unwrap();
            let listener = Some(listener).filter(|_| phase != "nobody");
            let rank = Listening::bind("127.0.0.1:0".parse().unwrap(), soon(&token, 2)).unwrap();
            let told = thread::scope(|scope| {
                let rank = scope.spawn(|| rank.connect_ranks(1, 2, root).err());
                let _proven = listener.filter(|_| phase == "welcome").map(|listener| {
                    let acceptor = Acceptor::new(&token, 0, 2, Duration::from_secs(600));
                    acceptor.authenticate(listener.accept().unwrap().0, false)
                });
                rank.join().unwrap().expect("an error").to_string()
            });
            assert!(told.contains(&format!("rank 0 at {root}")), "{phase}: {told}");
        }
    }

    #[test]
    fn addresses_come_back() {
        for at in ["127.0.0.1:80", "[fe80::1]:65535"] {
            let plain: SocketAddr = at.parse().unwrap();
            for tagged in [None, Some(SocketAddr::new(plain.ip(), 7))] {
                assert_eq!(parse_entry(&entry(plain, tagged)).unwrap(), (plain, tagged));
            }
        }
        assert!(parse_entry(&[0; ENTRY_LEN]).is_err());
    }
}
