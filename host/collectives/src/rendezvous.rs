//! Rendezvous: ranks find each other.
//!
//! Each rank listens. All but rank 0 connect to rank 0 and say where they listen; rank 0 answers
//! with everybody's addresses. Then each rank connects to those with lower ranks and, if the link
//! has tagged connections, to the next in the ring or in the next group. Each connection begins
//! with a [handshake](crate::handshake).

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::aggregator_client::JobName;
use crate::bundle::MAX_STREAMS;
use crate::failure::LinkError;
use crate::graph::Rank;
use crate::handshake::{Acceptor, Authenticated, VERDICT};
use crate::header::Purpose;
use crate::strategies::MAX_RANKS;
use crate::stream::{Stream, io_error, listen, read_by, write_by};
use crate::tls::Tls;
use crate::token::Token;

/// The options of a link.
#[derive(Clone, Debug)]
pub struct Options {
    /// The job's secret.
    pub token: Token,
    /// The longest that ranks may wait for each other: at the start, and in each exchange.
    pub timeout: Duration,
    /// The longest that they may wait for each other at the start, if that is less than
    /// [`timeout`](Self::timeout): for jobs whose ranks have just heard of each other elsewhere, so
    /// that one that has died since does not cost all others the whole timeout. With a server, it
    /// begins when a worker has connected to it.
    pub opening: Option<Duration>,
    /// Open tagged connections too, for `wire:` codecs: each rank one, to the rank that is so many
    /// behind it. That is 1 round a ring, and the ranks of a group in a hierarchy. All ranks say
    /// the same.
    pub tagged: Option<usize>,
    /// Rank 0 is a [`Server`](crate::Server): it owns all sums, has no gradient of its own, and
    /// does what rank 1 asks for.
    pub served: bool,
    /// Encrypt connections, by TLS 1.3 with a key that the token gives. All ranks do, or none.
    pub tls: bool,
    /// TCP streams of each connection of messages, 1 to [`MAX_STREAMS`]: several fill a path that
    /// is long and fast. All ranks have the same number. Tagged connections have one.
    pub streams: usize,
    /// Only rank 0 can be reached: all others connect to it alone, and it carries what they send
    /// each other. All ranks say so, or none.
    pub relay: bool,
}

impl Options {
    /// With the timeout of five minutes, one stream, and without tagged connections, a server, TLS
    /// or a relay.
    #[must_use]
    pub const fn new(token: Token) -> Self {
        Self {
            token,
            timeout: Duration::from_secs(300),
            opening: None,
            tagged: None,
            served: false,
            tls: false,
            streams: 1,
            relay: false,
        }
    }
}

/// The ports of a rank, open but not yet connected to anybody.
#[derive(Debug)]
pub struct Listening {
    plain: TcpListener,
    tagged: Option<TcpListener>,
    tls: Option<Tls>,
    options: Options,
}

impl Listening {
    /// Listens at `address`, IPv4 or IPv6. Port 0 lets the system choose. Tagged connections have a
    /// port of their own, the next one.
    ///
    /// # Errors
    /// The system refuses, or the options do not go together.
    pub fn bind(address: SocketAddr, options: Options) -> Result<Self, LinkError> {
        if !(1..=MAX_STREAMS).contains(&options.streams) {
            return Err(LinkError::Streams(options.streams));
        }
        if options.relay && options.tagged.is_some() {
            return Err(LinkError::RelayTagged);
        }
        if options.tls && options.tagged.is_some() {
            return Err(LinkError::TlsTagged);
        }
        let tls = options.tls.then(|| Tls::new(&options.token)).transpose();
        let tls = tls.map_err(|error| io_error("make the job's key of TLS", error))?;
        let plain = listen(address, false)?;
        let tagged_port = if address.port() == 0 { 0 } else { address.port().wrapping_add(1) };
        let tagged = options.tagged.map(|_| listen(SocketAddr::new(address.ip(), tagged_port), true));
        Ok(Self { plain, tagged: tagged.transpose()?, tls, options })
    }

    /// The address at which others reach this rank: of rank 0, they have to know it.
    ///
    /// # Errors
    /// The system refuses.
    pub fn address(&self) -> Result<SocketAddr, LinkError> {
        self.plain.local_addr().map_err(|error| io_error("read the address listened at", error))
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.options.timeout
    }

    pub(crate) fn tagged(&self) -> Option<usize> {
        self.options.tagged
    }

    /// How many behind a rank is the one to which it has a tagged connection, if that is another.
    fn stride(&self, ranks: usize) -> Option<usize> {
        self.options.tagged.map(|group| group % ranks).filter(|&stride| stride > 0)
    }

    pub(crate) fn is_served(&self) -> bool {
        self.options.served
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The name by which an aggregator in the network knows the job: of the token, without telling
    /// it.
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
    ) -> Result<(Vec<Authenticated>, Vec<[TcpStream; 2]>), LinkError> {
        if rank >= ranks || ranks > MAX_RANKS {
            return Err(LinkError::Ranks { rank, ranks });
        }
        if ranks == 1 {
            return Ok(Default::default());
        }
        let Options { token, timeout, opening, served, streams, relay, .. } = &self.options;
        let within = opening.filter(|_| !served).map_or(*timeout, |opening| opening.min(*timeout));
        let before = self.stride(ranks).map(|stride| (rank + ranks - stride) % ranks);
        let acceptor =
            Acceptor::new(token, self.tls.as_ref(), rank, ranks, *streams, *relay, within, *opening, before);
        thread::scope(|scope| {
            let (sender, accepted) = mpsc::channel();
            let tagged = self.tagged.iter().map(|listener| (listener, true));
            for (listener, tagged) in std::iter::once((&self.plain, false)).chain(tagged) {
                let (acceptor, sender) = (&acceptor, sender.clone());
                scope.spawn(move || acceptor.accept(listener, tagged, &sender, scope));
            }
            let connections = self.connect_all(&acceptor, &accepted, root, &sender, scope);
            let all = connections.and_then(|connections| Ok((connections, acceptor.pairs(root)?)));
            acceptor.close();
            all
        })
    }

    fn connect_all<'scope>(
        &self,
        acceptor: &'scope Acceptor<'_>,
        accepted: &Receiver<Result<Authenticated, LinkError>>,
        root: SocketAddr,
        sender: &Sender<Result<Authenticated, LinkError>>,
        scope: &'scope thread::Scope<'scope, '_>,
    ) -> Result<Vec<Authenticated>, LinkError> {
        let (rank, ranks, streams) = (acceptor.rank, acceptor.ranks, self.options.streams);
        let mut connections: Vec<Authenticated> = Vec::new();
        let table = if rank == 0 {
            let table = self.table(acceptor, accepted, root, &mut connections);
            if let Err((missing, error)) = table {
                give_up(acceptor, accepted, missing, connections);
                return Err(error);
            }
            table.unwrap_or_default()
        } else {
            let mut connection = acceptor.connect(root, Purpose::Control, 0, 0)?;
            let stream = &mut connection.stream;
            let mine = (self.address()?, self.tagged.as_ref().map(TcpListener::local_addr));
            let tagged = mine.1.transpose().map_err(|error| io_error("read an address", error))?;
            let lost = |error| io_error(&format!("exchange addresses with rank 0 at {root}"), error);
            write_by(stream, &entry(mine.0, tagged), acceptor.deadline()).map_err(lost)?;
            let table =
                read_table(stream, ranks, self.options.relay, acceptor.deadline() + VERDICT).map_err(lost)?;
            let table = table.map_err(|missing| acceptor.missing(vec![missing], root))?;
            connections.push(connection);
            table
        };
        let relayed = self.options.relay && rank > 0;
        let next = self.stride(ranks).map(|stride| (rank + stride) % ranks);
        // Where the others were told that this rank is.
        let told = if rank == 0 { root } else { table[rank].0 };
        for (peer, (plain, tagged)) in table.into_iter().enumerate() {
            // Who listens everywhere is reached where rank 0 saw it; rank 0 itself, where this rank
            // saw it.
            let reach = |at: SocketAddr| {
                if at.ip().is_unspecified() { SocketAddr::new(root.ip(), at.port()) } else { at }
            };
            if peer != rank && peer > 0 && relayed {
                for number in 0..streams {
                    let sender = sender.clone();
                    scope.spawn(move || _ = sender.send(acceptor.meet(root, peer, number)));
                }
            } else if peer < rank {
                // Rank 0 may not know where a rank that it relays for reaches it.
                let at = if relayed { root } else { reach(plain) };
                let connect = |number| acceptor.connect(at, Purpose::Data, peer, number);
                connections.push(connect(0)?);
                // The others at once: each takes some round trips.
                let others = thread::scope(|scope| {
                    let start = |number| scope.spawn(move || connect(number));
                    let threads: Vec<_> = (1..streams).map(start).collect();
                    threads
                        .into_iter()
                        .map(|thread| thread.join().expect("no panic"))
                        .collect::<Result<Vec<_>, _>>()
                });
                connections.extend(others?);
            }
            if Some(peer) == next {
                let why =
                    "it has no tagged connections, this rank has: give all ranks the same options".into();
                let refused = LinkError::Refused { address: plain.to_string(), rank, why };
                connections.push(acceptor.connect(
                    reach(tagged.ok_or(refused)?),
                    Purpose::Tagged,
                    peer,
                    0,
                )?);
            }
        }
        let mut missing: BTreeSet<(Purpose, Rank, usize)> = (1..ranks)
            .filter(|peer| *peer > rank || relayed && *peer != rank)
            .flat_map(|peer| (0..streams).map(move |number| (Purpose::Data, peer, number)))
            .collect();
        missing.extend(acceptor.before.map(|before| (Purpose::Tagged, before, 0)));
        // Rank 0 may have got some of these while it waited for the control connections.
        for connection in connections.iter().filter(|connection| !connection.outgoing) {
            missing.remove(&(connection.purpose, connection.peer, connection.number));
        }
        while !missing.is_empty() {
            let connection = acceptor.next(accepted);
            let connection = connection
                .ok_or_else(|| acceptor.missing(missing.iter().map(|(_, peer, _)| *peer).collect(), told))?;
            missing.remove(&(connection.purpose, connection.peer, connection.number));
            connections.push(connection);
        }
        Ok(connections)
    }

    /// Rank 0: waits for everybody's addresses, and tells them to all. An error comes with the
    /// first rank that it is about.
    #[expect(clippy::type_complexity, reason = "called once")]
    fn table(
        &self,
        acceptor: &Acceptor,
        accepted: &Receiver<Result<Authenticated, LinkError>>,
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
                let seen = connection.stream.tcp().peer_addr();
                let read =
                    seen.and_then(|seen| read_entry(&mut connection.stream, acceptor.deadline(), seen.ip()));
                let lost = |error| (peer, io_error(&format!("read the address of rank {peer}"), error));
                table[peer] = Some(read.map_err(lost)?);
            }
            connections.push(connection);
        }
        let table: Vec<_> = table.into_iter().flatten().collect();
        let mut bytes: Vec<u8> = table.iter().flat_map(|(plain, tagged)| entry(*plain, *tagged)).collect();
        bytes[0] |= if self.options.relay { RELAYS } else { 0 };
        for connection in connections.iter_mut().filter(|connection| connection.purpose == Purpose::Control) {
            let peer = connection.peer;
            let lost = |error| (peer, io_error(&format!("send addresses to rank {peer}"), error));
            write_by(&mut connection.stream, &bytes, acceptor.deadline()).map_err(lost)?;
        }
        Ok(table)
    }
}

/// A rank's addresses, as rank 0 is told them and tells them: family, address, port, port of tagged
/// connections or 0. The family of rank 0, if it relays, has [`RELAYS`] added.
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
    stream: &mut Stream,
    until: Instant,
    seen: IpAddr,
) -> io::Result<(SocketAddr, Option<SocketAddr>)> {
    let mut bytes = [0; ENTRY_LEN];
    read_by(stream, &mut bytes, until)?;
    let (plain, tagged) = parse_entry(&bytes)?;
    let reach = |at: SocketAddr| if at.ip().is_unspecified() { SocketAddr::new(seen, at.port()) } else { at };
    Ok((reach(plain), tagged.map(reach)))
}

/// Rank 0 carries what others send each other.
const RELAYS: u8 = 16;

/// Tells the other ranks whom this one, rank 0, missed: they wait for its table, and would blame
/// it. If time is left, those that are still on their way here are told, too.
fn give_up(
    acceptor: &Acceptor<'_>,
    accepted: &Receiver<Result<Authenticated, LinkError>>,
    missing: Rank,
    connections: Vec<Authenticated>,
) {
    let until = Instant::now() + VERDICT;
    let (come_by, word) = (until.min(acceptor.deadline()), gave_up(missing));
    let mut left: BTreeSet<Rank> = (1..acceptor.ranks).filter(|&rank| rank != missing).collect();
    let mut told = Vec::new();
    let late = || accepted.recv_timeout(come_by.saturating_duration_since(Instant::now())).ok();
    let mut all = connections.into_iter().chain(std::iter::from_fn(late).flatten());
    while !left.is_empty()
        && let Some(mut connection) = all.next()
    {
        if connection.purpose == Purpose::Control && left.remove(&connection.peer) {
            _ = write_by(&mut connection.stream, &word, until);
            told.push(connection.stream);
        }
    }
    // Each closes when it has read that. If this rank closed first, bytes that it has not read
    // would reset the connection, and the word could be lost.
    told.iter_mut().for_each(|stream| while read_by(stream, &mut [0], until).is_ok() {});
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
    stream: &mut Stream,
    ranks: usize,
    relay: bool,
    until: Instant,
) -> io::Result<Result<Vec<(SocketAddr, Option<SocketAddr>)>, Rank>> {
    let mut bytes = vec![[0; ENTRY_LEN]; ranks];
    let (first, others) = bytes.split_at_mut(1);
    read_by(stream, first.as_flattened_mut(), until)?;
    if let [GAVE_UP, a, b, c, d, ..] = first[0] {
        return Ok(Err(u32::from_le_bytes([a, b, c, d]) as Rank));
    }
    if (first[0][0] & RELAYS != 0) != relay {
        let theirs =
            if relay { "nothing, and this rank wants it to" } else { "data, which this rank does not want" };
        return Err(io::Error::other(format!("it relays {theirs}: give all ranks the same options")));
    }
    first[0][0] &= !RELAYS;
    read_by(stream, others.as_flattened_mut(), until)?;
    bytes.iter().map(parse_entry).collect::<io::Result<_>>().map(Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::handshake::{HELLO_LEN, MAGIC, VERSION};
    use crate::stream::connect;
    use crate::token;

    /// The phase that rank 2 reaches before it falls silent, or is killed.
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
    fn come(phase: Phase, token: &Token, root: SocketAddr) -> io::Result<(Vec<Stream>, TcpListener)> {
        let until = Instant::now() + Duration::from_secs(600);
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut connections = Vec::new();
        let mut hello = [7; HELLO_LEN];
        hello[..8].copy_from_slice(MAGIC);
        (hello[8], hello[9]) = (VERSION, Purpose::Control as u8);
        hello[10..18].copy_from_slice(&[2, 0, 0, 0, 3, 0, 0, 0]);
        if phase > Phase::Nowhere {
            connections.push(Stream::new(connect(root, false, until)?, None));
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
            let table =
                read_table(&mut connections[0], 3, false, until)?.map_err(|_| io::ErrorKind::Other)?;
            for (at, _) in table.iter().take(if phase > Phase::HeardOfAll { 2 } else { 0 }) {
                connections.push(Stream::new(connect(*at, false, until)?, None));
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

    /// Nobody listens, somebody listens and says nothing, or rank 0 welcomes the others and says no
    /// more.
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
                    let acceptor =
                        Acceptor::new(&token, None, 0, 2, 1, false, Duration::from_secs(600), None, None);
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
