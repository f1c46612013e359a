//! The thread that owns a link's connections: it moves bytes and time between sockets and the
//! [protocol](crate::protocol).
//!
//! One thread serves all connections with `poll`, so a rank costs two threads, however many ranks
//! there are.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::bundle::Bundle;
use crate::graph::Rank;
use crate::handshake::Authenticated;
use crate::header::Purpose;
use crate::protocol::{Command, ConnectionId, Endpoint, Event, Protocol};
use crate::stream::Stream;

/// Reads of one connection before others have their turn: a peer that sends without end does not
/// keep them waiting.
const MAX_READS: usize = 16;

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

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.0
    }

    pub(crate) fn reset(&self) {
        _ = rustix::io::read(&*self.0, &mut [0u8; 8]);
    }
}

/// The thread's ends of its channels.
pub(crate) struct Channels {
    pub(crate) commands: Receiver<Command>,
    pub(crate) events: Sender<Event>,
    /// At a server: requests, which may come before it has done what was asked before.
    pub(crate) requests: Sender<Option<Vec<u8>>>,
}

pub(crate) struct Poller {
    protocol: Protocol,
    /// By connection: its streams, and whether it counts as traffic.
    bundles: Vec<(Bundle, bool)>,
    channels: Channels,
    waker: Waker,
    traffic: Arc<Mutex<Traffic>>,
}

impl Poller {
    #[expect(clippy::too_many_arguments, reason = "called once, by the link that makes all of these")]
    pub(crate) fn new(
        rank: Rank,
        ranks: usize,
        served: bool,
        timeout: Duration,
        mut connections: Vec<Authenticated>,
        channels: Channels,
        waker: Waker,
        traffic: Arc<Mutex<Traffic>>,
    ) -> Self {
        // Control connections first: what they say explains what happens on the others.
        connections.sort_by_key(|connection| (connection.endpoint(), connection.number));
        let mut endpoints: Vec<(Endpoint, Vec<Stream>)> = Vec::new();
        for connection in connections {
            let endpoint = connection.endpoint();
            match endpoints.last_mut() {
                Some((last, streams)) if *last == endpoint => streams.push(connection.stream),
                _ => endpoints.push((endpoint, vec![connection.stream])),
            }
        }
        let ends = endpoints.iter().map(|(endpoint, _)| *endpoint);
        let protocol = Protocol::new(rank, ranks, served, timeout, ends, Instant::now());
        let bundles = endpoints
            .into_iter()
            .map(|(endpoint, streams)| (Bundle::new(streams), endpoint.purpose != Purpose::Control));
        Self { protocol, bundles: bundles.collect(), channels, waker, traffic }
    }

    /// Works until the link closes or fails.
    pub(crate) fn run(mut self) {
        while !self.protocol.is_closed() && self.turn() {}
        self.deliver();
    }

    /// One turn; `false` if the link is gone.
    fn turn(&mut self) -> bool {
        let now = Instant::now();
        loop {
            match self.channels.commands.try_recv() {
                Ok(command) => self.protocol.handle_command(command, now),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        // Most sockets take what is ready at once, so this comes before the next wait.
        for at in 0..self.bundles.len() {
            self.write(at, now);
        }
        while let Some(at) = self.protocol.poll_finish() {
            self.bundles[at].0.finish();
        }
        self.deliver();
        if self.protocol.is_closed() {
            return true;
        }
        let ready = self.wait();
        let now = Instant::now();
        for at in ready {
            self.read(at, now);
        }
        self.protocol.handle_timeout(now);
        self.deliver();
        true
    }

    fn deliver(&mut self) {
        while let Some(event) = self.protocol.poll_event() {
            match event {
                Event::Asked(request) => _ = self.channels.requests.send(request),
                event => _ = self.channels.events.send(event),
            }
        }
    }

    /// Waits for something to happen; which connections may be read.
    ///
    /// Connections that this rank neither reads nor writes now are left out: `poll` would report
    /// without end that they hang up.
    fn wait(&self) -> Vec<ConnectionId> {
        let mut fds = vec![PollFd::new(&*self.waker.0, PollFlags::IN)];
        let mut which = Vec::with_capacity(self.bundles.len());
        // Those that have read more than the protocol took: nothing more need come for them.
        let mut more = Vec::new();
        for (at, (bundle, _)) in self.bundles.iter().enumerate() {
            let (wants_bytes, wants_to_send) =
                (self.protocol.wants_bytes(at), self.protocol.wants_to_send(at));
            if wants_bytes && bundle.has_more() {
                more.push(at);
                continue;
            }
            for (socket, reads, writes) in bundle.sockets() {
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::IN, wants_bytes && reads);
                flags.set(PollFlags::OUT, wants_to_send || writes);
                if !flags.is_empty() {
                    fds.push(PollFd::new(socket, flags));
                    which.push(at);
                }
            }
        }
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        let time =
            if more.is_empty() { self.protocol.next_timeout().map(left) } else { Some(Duration::ZERO) };
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        if poll(&mut fds, time.as_ref()).is_err() {
            // Interrupted: nothing else is known to be ready.
            return more;
        }
        if !fds[0].revents().is_empty() {
            self.waker.reset();
        }
        let some = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        let ready = which.into_iter().zip(fds.iter().skip(1).map(PollFd::revents));
        more.extend(ready.filter(|(_, flags)| flags.intersects(some)).map(|(at, _)| at));
        more.dedup();
        more
    }

    /// Takes what has arrived on one connection.
    fn read(&mut self, at: ConnectionId, now: Instant) {
        for _ in 0..MAX_READS {
            let Some(room) = self.protocol.room(at) else { return };
            match self.bundles[at].0.read(room) {
                Ok(0) => self.protocol.handle_end(at, "", now),
                Ok(len) => self.protocol.handle_filled(at, len, now),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => self.protocol.handle_end(at, &error.to_string(), now),
            }
        }
    }

    /// Hands to the system what is ready for one connection and whose turn it is, many messages in
    /// one call.
    fn write(&mut self, at: ConnectionId, now: Instant) {
        loop {
            let (bundle, counts) = &mut self.bundles[at];
            let written = if self.protocol.wants_to_send(at) {
                bundle.write(&self.protocol.poll_transmit(at))
            } else {
                bundle.flush().map(|()| 0)
            };
            match written {
                Ok(0) => break,
                Ok(len) => {
                    let messages = self.protocol.handle_sent(at, len, now);
                    if *counts {
                        let mut traffic = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
                        traffic.sent_bytes += len as u64;
                        traffic.sent_messages += messages;
                        traffic.send_calls += 1;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.protocol.handle_end(at, &error.to_string(), now);
                    return;
                }
            }
        }
        self.protocol.handle_backlog(at, !self.bundles[at].0.is_flushed(), now);
    }
}
