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
//! Nothing else that comes before the proof is read, and nothing is allocated for it. On tagged
//! connections each of these bytes is a value, because what compresses them takes everything for
//! values.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::failure::LinkError;
use crate::graph::Rank;
use crate::header::Purpose;
use crate::spread::{SPREAD, gather, spread};
use crate::strategies::MAX_RANKS;
use crate::stream::{connect, io_error, read_by, wait, write_by};
use crate::token::{self, Token};

pub(crate) const MAGIC: &[u8; 8] = b"gradwire";
pub(crate) const VERSION: u8 = 1;
pub(crate) const HELLO_LEN: usize = 8 + 1 + 1 + 4 + 4 + token::LEN;
/// The longest that one end of a handshake may take; a job's timeout, if that is shorter.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes at a time. More than a job's ranks can need at once, and a limit for strangers.
const MAX_HANDSHAKES: usize = 2 * MAX_RANKS;

/// A connection whose other end proved that it knows the token.
pub(crate) struct Authenticated {
    pub(crate) purpose: Purpose,
    pub(crate) peer: Rank,
    /// Did this rank open it?
    pub(crate) outgoing: bool,
    pub(crate) stream: TcpStream,
}

/// A rank's side of all handshakes while its link opens.
pub(crate) struct Acceptor<'a> {
    token: &'a Token,
    pub(crate) rank: Rank,
    pub(crate) ranks: usize,
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

/// The listening end's answer to a proof.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Welcome = 0,
    Ranks = 1,
    Twice = 2,
    Nobody = 3,
}

impl<'a> Acceptor<'a> {
    pub(crate) fn new(
        token: &'a Token,
        rank: Rank,
        ranks: usize,
        within: Duration,
        opening: Option<Duration>,
    ) -> Self {
        Self {
            token,
            rank,
            ranks,
            time: Mutex::new((Instant::now() + within, within)),
            opening,
            stop: AtomicBool::new(false),
            handshakes: Mutex::default(),
            busy: AtomicUsize::new(0),
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
            let number = self.enter(&stream);
            scope.spawn(move || {
                let authenticated = self.authenticate(stream, tagged);
                lock(&self.handshakes).1.remove(&number);
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
    pub(crate) fn authenticate(&self, mut stream: TcpStream, tagged: bool) -> Result<Authenticated, String> {
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
    pub(crate) fn connect(
        &self,
        to: SocketAddr,
        purpose: Purpose,
        peer: Rank,
    ) -> Result<TcpStream, LinkError> {
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
    pub(crate) fn next(&self, accepted: &Receiver<Authenticated>) -> Option<Authenticated> {
        accepted.recv_timeout(self.deadline().saturating_duration_since(Instant::now())).ok()
    }

    /// These did not connect to an address, which they were told.
    pub(crate) fn missing(&self, mut missing: Vec<Rank>, at: SocketAddr) -> LinkError {
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
