//! The handshake of a connection between ranks: each end proves that it knows the job's token, and
//! says which rank it is of how many.
//!
//! Sizes in bytes:
//!
//! ```text
//! who connects                                                   who listens
//! "gradwire" | version (1) | purpose (1) | rank (4) | ranks (4) | nonce (32)  ->
//!                                                    <-  nonce (32) | proof (32)
//! proof (32)                                         ->
//!                                                    <-  verdict (1) | ranks (4)
//! ```
//! Of several streams of data, the purpose is 64, and eight times their count less one, and the
//! stream's number. The verdict about another count of streams has the right one in place of ranks.
//!
//! If rank 0 [relays](crate::relay), two others that connect to each other both connect to rank 0
//! for each stream, with the purpose 4, and without TLS. Behind the verdict:
//!
//! ```text
//! rank of the other end (4) | number of the stream (1)  ->
//!                                                       <-  1 (1), when all ranks have come
//! ```
//! From there on, rank 0 carries what they say: the handshake of a connection of data between them.
//!
//! If the job has [TLS](crate::tls), all of this is inside. Nothing else that comes before the
//! proof is read, and nothing is allocated for it. On tagged connections each of these bytes is a
//! value, because what compresses them takes everything for values.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::failure::LinkError;
use crate::graph::Rank;
use crate::header::Purpose;
use crate::protocol::Endpoint;
use crate::socket::left;
use crate::spread::{SPREAD, gather, spread};
use crate::strategies::MAX_RANKS;
use crate::stream::{Stream, connect, io_error, read_by, wait, write_by};
use crate::tls::{self, Tls, Unsafe};
use crate::token::{self, Token};

pub(crate) const MAGIC: &[u8; 8] = b"gradwire";
pub(crate) const VERSION: u8 = 1;
pub(crate) const HELLO_LEN: usize = 8 + 1 + 1 + 4 + 4 + token::LEN;
/// The time that others wait longer than itself for rank 0 to say whom it missed.
pub(crate) const VERDICT: Duration = Duration::from_secs(2);
/// The longest that one end of a handshake may take; a job's timeout, if that is shorter.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The purpose of a connection to a rank that relays.
const RELAY: u8 = 4;
/// The bit of a [purpose](purpose_byte) of several streams.
const STREAM: u8 = 1 << 6;
/// Bytes of a handshake of another kind that are read before it is refused.
const MAX_UNREAD: usize = 1 << 16;
/// Handshakes at a time. More than a job's ranks can need at once, and a limit for strangers.
const MAX_HANDSHAKES: usize = 2 * MAX_RANKS;

/// A connection whose other end proved that it knows the token.
pub(crate) struct Authenticated {
    pub(crate) purpose: Purpose,
    pub(crate) peer: Rank,
    /// Did this rank open it?
    pub(crate) outgoing: bool,
    /// Its number among those of its endpoint.
    pub(crate) number: usize,
    pub(crate) stream: Stream,
}

impl Authenticated {
    pub(crate) const fn endpoint(&self) -> Endpoint {
        Endpoint { purpose: self.purpose, peer: self.peer, outgoing: self.outgoing }
    }
}

/// A connection's purpose as one byte. Among several streams of data it has their count and its own
/// number.
fn purpose_byte(purpose: Purpose, number: usize, streams: usize) -> u8 {
    match purpose {
        Purpose::Data if streams > 1 => STREAM | (streams as u8 - 1) << 3 | number as u8,
        _ => purpose as u8,
    }
}

/// Purpose, number and count of streams; `None` if no rank of this version writes it.
fn parse_purpose(byte: u8, tagged: bool) -> Option<(Purpose, usize, usize)> {
    let (number, count) = (usize::from(byte & 7), usize::from(byte >> 3 & 7) + 1);
    match byte {
        1 => Some((Purpose::Control, 0, 1)),
        2 => Some((Purpose::Data, 0, 1)),
        3 if tagged => Some((Purpose::Tagged, 0, 1)),
        _ if byte & !63 == STREAM && number < count && count > 1 => Some((Purpose::Data, number, count)),
        _ => None,
    }
}

/// A connection to a rank that relays: the rank that connected, the one that it wants, and the
/// number of the stream.
type Half = (Rank, Rank, usize);

/// A connection that was accepted, and whose other end proved that it knows the token.
pub(crate) enum Met {
    Rank(Authenticated),
    /// One to be relayed.
    Half(Half, TcpStream),
}

/// A rank's side of all handshakes while its link opens.
pub(crate) struct Acceptor<'a> {
    token: &'a Token,
    tls: Option<&'a Tls>,
    pub(crate) rank: Rank,
    pub(crate) ranks: usize,
    streams: usize,
    /// When this rank gives up, and how long that is from when it began.
    time: Mutex<(Instant, Duration)>,
    opening: Option<Duration>,
    /// The rank that opens a tagged connection to this one, if one does.
    pub(crate) before: Option<Rank>,
    stop: AtomicBool,
    /// Connections whose handshake is under way, and how many there were.
    handshakes: Mutex<(u64, BTreeMap<u64, TcpStream>)>,
    busy: AtomicUsize,
    /// At a rank that relays: connections that wait for the other rank's.
    halves: Option<(Mutex<BTreeMap<Half, TcpStream>>, Condvar)>,
    /// The cause for which nobody need wait.
    failed: Mutex<Option<LinkError>>,
    here: Mutex<BTreeSet<(Purpose, Rank, usize)>>,
    refused: Mutex<Vec<String>>,
}

/// The listening end's answer to a proof.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Welcome = 0,
    Ranks = 1,
    Twice = 2,
    Nobody = 3,
    Streams = 4,
}

impl<'a> Acceptor<'a> {
    #[expect(clippy::too_many_arguments, reason = "called by the port, which has all of these")]
    pub(crate) fn new(
        token: &'a Token,
        tls: Option<&'a Tls>,
        rank: Rank,
        ranks: usize,
        streams: usize,
        relays: bool,
        within: Duration,
        opening: Option<Duration>,
        before: Option<Rank>,
    ) -> Self {
        Self {
            token,
            tls,
            rank,
            ranks,
            streams,
            time: Mutex::new((Instant::now() + within, within)),
            opening,
            before,
            stop: AtomicBool::new(false),
            handshakes: Mutex::default(),
            busy: AtomicUsize::new(0),
            halves: (relays && rank == 0).then(Default::default),
            failed: Mutex::default(),
            here: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        lock(&self.time).0
    }

    /// Somebody is there. A server and its workers start when they like, and opening has its own
    /// time from here on.
    pub(crate) fn begun(&self) {
        let mut time = lock(&self.time);
        if let Some(opening) = self.opening
            && Instant::now() + opening < time.0
        {
            *time = (Instant::now() + opening, opening);
        }
    }

    pub(crate) fn accept<'scope>(
        &'scope self,
        listener: &'scope TcpListener,
        tagged: bool,
        sender: &Sender<Result<Authenticated, LinkError>>,
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
            let number = self.enter(&stream);
            scope.spawn(move || {
                let authenticated = self.authenticate(stream, tagged);
                lock(&self.handshakes).1.remove(&number);
                // From here on, closing does not end it: it is no handshake any more.
                let met = authenticated.and_then(|met| match met {
                    Met::Rank(connection) => Ok(_ = sender.send(Ok(connection))),
                    Met::Half(half, stream) => self.wait_for_the_other(half, stream),
                });
                match met {
                    Ok(()) => {}
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

    /// All are connected, or it failed. Handshakes under way are those of strangers then, and
    /// nobody waits for them.
    pub(crate) fn close(&self) {
        let mut handshakes = lock(&self.handshakes);
        self.stop.store(true, Ordering::Relaxed);
        for stream in std::mem::take(&mut handshakes.1).into_values() {
            _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Proves a connection that was accepted.
    pub(crate) fn authenticate(&self, stream: TcpStream, tagged: bool) -> Result<Met, String> {
        let until = self.deadline().min(Instant::now() + HANDSHAKE);
        let lost = |error: io::Error| format!("handshake not finished: {error}");
        // It may have been accepted from a socket that does not block.
        stream.set_nonblocking(false).map_err(lost)?;
        // One for a relay begins without TLS.
        let mut first = [0];
        if self.tls.is_some() && self.halves.is_some() {
            left(until).and_then(|left| stream.set_read_timeout(left)).map_err(lost)?;
            stream.peek(&mut first).map_err(lost)?;
        }
        let tls = self.tls.filter(|_| first[0] != MAGIC[0]);
        let session = tls.map(|tls| tls.accept(&stream, until)).transpose().map_err(|why| match why {
            Unsafe::Token => "another token".to_owned(),
            Unsafe::Plain => "it speaks no TLS, and this rank does".to_owned(),
            Unsafe::Io(error) => format!("TLS's handshake not finished: {error}"),
        })?;
        let mut stream = Stream::new(stream, session);
        let mut hello = [0; HELLO_LEN];
        read(&mut stream, tagged, &mut hello, until).map_err(lost)?;
        if self.tls.is_none() && hello.starts_with(&tls::HELLO) {
            // No TLS begins so, and the far end can say why it failed.
            _ = write_by(&mut stream, MAGIC, until);
            _ = stream.tcp().shutdown(Shutdown::Write);
            // What is unread when a socket closes would make it take that back.
            (0..MAX_UNREAD / HELLO_LEN).find(|_| read_by(&mut stream, &mut hello, until).is_err());
            return Err("it speaks TLS, and this rank does not".into());
        }
        if hello[..8] != *MAGIC {
            return Err("not a gradwire peer: bad magic".into());
        }
        if hello[8] != VERSION {
            return Err(format!("handshake version {}, expected {VERSION}", hello[8]));
        }
        let u32_at =
            |at: usize| u32::from_le_bytes([hello[at], hello[at + 1], hello[at + 2], hello[at + 3]]) as usize;
        let (peer, ranks) = (u32_at(10), u32_at(14));
        let relayed = hello[9] == RELAY && !tagged;
        if self.tls.is_some() && tls.is_none() && !relayed {
            return Err("it speaks no TLS, and this rank does".into());
        }
        let purpose =
            if relayed { Some((Purpose::Data, 0, self.streams)) } else { parse_purpose(hello[9], tagged) };
        let Some((purpose, number, streams)) = purpose else {
            return Err(format!("unknown purpose {} (version mismatch?)", hello[9]));
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
            _ if relayed => self.halves.is_some() && peer != 0,
            Purpose::Control => self.rank == 0 && peer != 0,
            Purpose::Data => peer > self.rank,
            Purpose::Tagged => Some(peer) == self.before,
        };
        let verdict = if ranks != self.ranks {
            Verdict::Ranks
        } else if !expected || peer >= ranks {
            Verdict::Nobody
        } else if purpose == Purpose::Data && streams != self.streams {
            Verdict::Streams
        } else if !relayed && !lock(&self.here).insert((purpose, peer, number)) {
            Verdict::Twice
        } else {
            Verdict::Welcome
        };
        let mut answer = vec![verdict as u8];
        let expected = if verdict == Verdict::Streams { self.streams } else { self.ranks };
        answer.extend((expected as u32).to_le_bytes());
        write(&mut stream, tagged, &answer, until).map_err(lost)?;
        match verdict {
            Verdict::Welcome if relayed => self.wanted(peer, stream, until),
            Verdict::Welcome => {
                Ok(Met::Rank(Authenticated { purpose, peer, outgoing: false, number, stream }))
            }
            Verdict::Ranks => Err(format!("rank {peer} of {ranks} ranks, expected {}", self.ranks)),
            Verdict::Twice => Err(format!("a second {purpose:?} connection from rank {peer}")),
            Verdict::Streams => {
                Err(format!("rank {peer} opens {streams} streams, expected {}", self.streams))
            }
            Verdict::Nobody if relayed => {
                Err(format!("rank {peer} asks for a relay, which this rank is not"))
            }
            Verdict::Nobody => Err(format!("unexpected {purpose:?} connection from rank {peer}")),
        }
    }

    /// Hears whom a rank wants to reach.
    fn wanted(&self, peer: Rank, mut stream: Stream, until: Instant) -> Result<Met, String> {
        let mut wanted = [0; 5];
        read_by(&mut stream, &mut wanted, until)
            .map_err(|error| format!("handshake not finished: {error}"))?;
        let [a, b, c, d, number] = wanted;
        let (to, number) = (u32::from_le_bytes([a, b, c, d]) as Rank, usize::from(number));
        if !(1..self.ranks).contains(&to) || to == peer || number >= self.streams {
            return Err(format!("rank {peer} wants stream {number} to rank {to}, which nobody has"));
        }
        Ok(Met::Half((peer, to, number), stream.into_tcp()))
    }

    /// Keeps a connection until that of the other rank is here, too.
    fn wait_for_the_other(&self, half: Half, stream: TcpStream) -> Result<(), String> {
        let (halves, more) = self.halves.as_ref().ok_or("this rank relays nothing")?;
        if lock(halves).insert(half, stream).is_some() {
            return Err(format!("a second connection from rank {} to be relayed to rank {}", half.0, half.1));
        }
        more.notify_all();
        Ok(())
    }

    /// At a rank that relays: the pairs of connections between which it does, when all have come.
    pub(crate) fn pairs(&self, at: SocketAddr) -> Result<Vec<[TcpStream; 2]>, LinkError> {
        let Some((halves, more)) = &self.halves else { return Ok(Vec::new()) };
        let ranks = 1..self.ranks;
        let all = ranks.clone().flat_map(|from| ranks.clone().map(move |to| (from, to)));
        let all = all.filter(|(from, to)| from != to);
        let all: Vec<_> =
            all.flat_map(|(from, to)| (0..self.streams).map(move |number| (from, to, number))).collect();
        let mut here = lock(halves);
        while here.len() < all.len() {
            let left = self.deadline().saturating_duration_since(Instant::now());
            if left.is_zero() {
                let missing = all.iter().filter(|half| !here.contains_key(half)).map(|half| half.0);
                return Err(self.missing(missing.collect(), at));
            }
            here = more.wait_timeout(here, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut here = std::mem::take(&mut *here);
        let mut pairs = Vec::new();
        for (from, to, number) in all.into_iter().filter(|(from, to, _)| from < to) {
            let halves = [(from, to, number), (to, from, number)].map(|half| (half.0, here.remove(&half)));
            let [(_, Some(first)), (_, Some(second))] = halves else { continue };
            for (rank, mut socket) in [(from, &first), (to, &second)] {
                let lost = |error| io_error(&format!("relay a connection of rank {rank}"), error);
                socket.write_all(&[1]).map_err(lost)?;
            }
            pairs.push([first, second]);
        }
        Ok(pairs)
    }

    /// A connection to another rank by way of one that relays.
    fn relayed(&self, by: SocketAddr, peer: Rank, number: usize) -> Result<TcpStream, LinkError> {
        let what = format!("reach rank {peer} by way of rank 0 at {by}");
        let tcp = self.dial(by, false, &what)?;
        let known = self.enter(&tcp);
        let mut stream = Stream::new(tcp, None);
        let stream = self.greet(&mut stream, by, RELAY, 0).and_then(|()| {
            let mut wanted = (peer as u32).to_le_bytes().to_vec();
            wanted.push(number as u8);
            let (until, mut here) = (self.deadline(), [0]);
            write_by(&mut stream, &wanted, until)
                .and_then(|()| read_by(&mut stream, &mut here, until + VERDICT))
                .map_err(|error| io_error(&what, error))?;
            Ok(stream.into_tcp())
        });
        lock(&self.handshakes).1.remove(&known);
        stream
    }

    /// Connects to a rank with a lower number, or is connected to by one with a higher, by way of
    /// one that relays.
    pub(crate) fn meet(&self, by: SocketAddr, peer: Rank, number: usize) -> Result<Authenticated, LinkError> {
        let tcp = self.relayed(by, peer, number)?;
        if peer < self.rank {
            return self.prove(tcp, by, Purpose::Data, peer, number);
        }
        let lost = |why: String| {
            io_error(&format!("accept rank {peer} by way of rank 0 at {by}"), io::Error::other(why))
        };
        match self.authenticate(tcp, false).map_err(lost)? {
            Met::Rank(met) if (met.peer, met.number) == (peer, number) => Ok(met),
            Met::Rank(_) | Met::Half(..) => Err(lost("it is another one".into())),
        }
    }

    /// Connects, as often as it takes until the other end listens, and proves it.
    pub(crate) fn connect(
        &self,
        to: SocketAddr,
        purpose: Purpose,
        peer: Rank,
        number: usize,
    ) -> Result<Authenticated, LinkError> {
        let what = format!("connect to rank {peer} at {to}");
        let tcp = self.dial(to, purpose == Purpose::Tagged, &what)?;
        self.prove(tcp, to, purpose, peer, number)
    }

    fn dial(&self, to: SocketAddr, tagged: bool, what: &str) -> Result<TcpStream, LinkError> {
        let stream = loop {
            match connect(to, tagged, self.deadline()) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() >= self.deadline() || self.stop.load(Ordering::Relaxed) => {
                    return Err(io_error(what, error));
                }
                // It does not listen yet, or its host is not up.
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        };
        self.begun();
        Ok(stream)
    }

    /// The handshake of the end that connected.
    fn prove(
        &self,
        stream: TcpStream,
        to: SocketAddr,
        purpose: Purpose,
        peer: Rank,
        number: usize,
    ) -> Result<Authenticated, LinkError> {
        let until = self.deadline();
        let session =
            self.tls.map(|tls| tls.connect(&stream, until)).transpose().map_err(|why| match why {
                Unsafe::Token => LinkError::Token { address: to.to_string() },
                Unsafe::Plain => LinkError::Tls { address: to.to_string(), theirs: false },
                Unsafe::Io(error) => io_error(&format!("agree on TLS with rank {peer} at {to}"), error),
            })?;
        let mut stream = Stream::new(stream, session);
        self.greet(&mut stream, to, purpose_byte(purpose, number, self.streams), peer)?;
        Ok(Authenticated { purpose, peer, outgoing: true, number, stream })
    }

    /// Proves the token to the far end, and has its verdict.
    fn greet(&self, stream: &mut Stream, to: SocketAddr, purpose: u8, peer: Rank) -> Result<(), LinkError> {
        let (until, tagged) = (self.deadline(), purpose == Purpose::Tagged as u8);
        let lost = |error| io_error(&format!("prove the token to rank {peer} at {to}"), error);
        let mut hello = [0; HELLO_LEN];
        hello[..8].copy_from_slice(MAGIC);
        hello[8] = VERSION;
        hello[9] = purpose;
        hello[10..14].copy_from_slice(&(self.rank as u32).to_le_bytes());
        hello[14..18].copy_from_slice(&(self.ranks as u32).to_le_bytes());
        let nonce = Token::random().map_err(lost)?.to_hex();
        hello[18..].copy_from_slice(&nonce.as_bytes()[..token::LEN]);
        write(stream, tagged, &hello, until).map_err(lost)?;
        let mut answer = [[0; token::LEN]; 2];
        if let Err(error) = read(stream, tagged, answer.as_flattened_mut(), until) {
            // Of an alert of TLS, less has arrived than is read.
            let theirs = self.tls.is_none() && answer[0].starts_with(&tls::ALERT);
            let tls = LinkError::Tls { address: to.to_string(), theirs };
            return Err(if theirs { tls } else { lost(error) });
        }
        let [nonce, theirs] = answer;
        if !token::same(&theirs, &self.token.proof(b"accept", &[&hello, &nonce])) {
            return Err(LinkError::Token { address: to.to_string() });
        }
        write(stream, tagged, &self.token.proof(b"connect", &[&hello, &nonce]), until).map_err(lost)?;
        let mut verdict = [0; 5];
        read(stream, tagged, &mut verdict, until).map_err(lost)?;
        let expected = u32::from_le_bytes([verdict[1], verdict[2], verdict[3], verdict[4]]);
        let why = match verdict[0] {
            0 => return Ok(()),
            4 => {
                format!("it expects {expected} streams, this rank {}: give all ranks the same", self.streams)
            }
            1 => format!("it expects {expected} ranks, this rank {}: give all the same list", self.ranks),
            2 => format!("another one is rank {} already: give each its own rank", self.rank),
            _ => format!("it does not expect rank {} there: is this the address of rank {peer}?", self.rank),
        };
        Err(LinkError::Refused { address: to.to_string(), rank: self.rank, why })
    }

    /// The next rank that proved itself; nobody, if the time is over.
    pub(crate) fn next(
        &self,
        accepted: &Receiver<Result<Authenticated, LinkError>>,
    ) -> Option<Authenticated> {
        match accepted.recv_timeout(self.deadline().saturating_duration_since(Instant::now())).ok()? {
            Ok(connection) => Some(connection),
            Err(error) => {
                *lock(&self.failed) = Some(error);
                None
            }
        }
    }

    /// These did not connect to an address, which they were told; or the cause, if it is known.
    pub(crate) fn missing(&self, mut missing: Vec<Rank>, at: SocketAddr) -> LinkError {
        if let Some(error) = lock(&self.failed).take() {
            return error;
        }
        missing.dedup();
        LinkError::Missing { missing, at, within: lock(&self.time).1, refused: lock(&self.refused).clone() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes bytes of a handshake.
fn write(stream: &mut Stream, tagged: bool, bytes: &[u8], until: Instant) -> io::Result<()> {
    if tagged { write_by(stream, &spread(bytes), until) } else { write_by(stream, bytes, until) }
}

/// Reads bytes of a handshake.
fn read(stream: &mut Stream, tagged: bool, bytes: &mut [u8], until: Instant) -> io::Result<()> {
    if !tagged {
        return read_by(stream, bytes, until);
    }
    let mut values = vec![0; SPREAD * bytes.len()];
    read_by(stream, &mut values, until)?;
    bytes.copy_from_slice(&gather(&values));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::bundle::MAX_STREAMS;

    #[test]
    fn purposes_come_back_and_others_are_refused() {
        let streams =
            (2..=MAX_STREAMS).flat_map(|count| (0..count).map(move |number| (Purpose::Data, number, count)));
        let single = [Purpose::Control, Purpose::Data, Purpose::Tagged].map(|purpose| (purpose, 0, 1));
        let all: BTreeMap<u8, _> = single
            .into_iter()
            .chain(streams)
            .map(|said| (purpose_byte(said.0, said.1, said.2), said))
            .collect();
        assert_eq!(all.len(), 3 + (2..=8).sum::<usize>());
        for byte in 0..=u8::MAX {
            assert_eq!(parse_purpose(byte, true), all.get(&byte).copied(), "{byte}");
        }
        assert_eq!(parse_purpose(3, false), None);
    }
}
