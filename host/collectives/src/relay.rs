//! The thread of rank 0 that carries bytes between ranks which cannot reach each other. Each of
//! them has connected to rank 0 for each stream between them; what they say there is between those
//! two, TLS included.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::poll::Waker;
use crate::stream::prepare;

/// Bytes of one direction that this thread holds.
const ROOM: usize = 1 << 18;
/// Times that one direction moves bytes before others have their turn.
const MAX_MOVES: usize = 8;
/// The time after which nobody who is silent is carried any more, once this rank has left.
const FAREWELL: Duration = Duration::from_secs(2);

/// The thread, until it is dropped: then it goes on as long as bytes move.
#[derive(Debug)]
pub(crate) struct Relay {
    leaves: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Carries bytes between the two of each pair, until both have said all.
    pub(crate) fn start(pairs: Vec<[TcpStream; 2]>, timeout: Duration) -> io::Result<Self> {
        let (leaves, waker) = (Arc::new(AtomicBool::new(false)), Waker::new()?);
        pairs.iter().flatten().try_for_each(|socket| prepare(socket, timeout))?;
        let pairs = pairs.into_iter().map(|sockets| Pair { sockets, ways: [Way::new(), Way::new()] });
        let carrier = Carrier { pairs: pairs.collect(), leaves: leaves.clone(), waker: waker.clone() };
        let thread = thread::Builder::new().name("gradwire relay".into()).spawn(|| carrier.run())?;
        Ok(Self { leaves, waker, thread: Some(thread) })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.leaves.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

struct Carrier {
    pairs: Vec<Pair>,
    leaves: Arc<AtomicBool>,
    waker: Waker,
}

struct Pair {
    sockets: [TcpStream; 2],
    /// From the first to the second, and back.
    ways: [Way; 2],
}

/// One direction.
struct Way {
    bytes: Vec<u8>,
    left: std::ops::Range<usize>,
    /// Nothing more comes or leaves.
    finished: bool,
}

impl Way {
    fn new() -> Self {
        Self { bytes: vec![0; ROOM], left: 0..0, finished: false }
    }

    /// Moves bytes as far as sockets have and take them. Did any move?
    fn carry(&mut self, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<bool> {
        for moves in 0..MAX_MOVES {
            let moved = if !self.left.is_empty() {
                to.write(&self.bytes[self.left.clone()]).map(|len| self.left.start += len)
            } else {
                from.read(&mut self.bytes).map(|len| {
                    self.left = 0..len;
                    self.finished = len == 0;
                })
            };
            match moved {
                Ok(()) if self.finished => {
                    // At once: no socket would say that there is something left to do. Who is gone
                    // need not hear it.
                    _ = to.shutdown(Shutdown::Write);
                    return Ok(true);
                }
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(moves > 0),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Pair {
    fn is_done(&self) -> bool {
        self.ways.iter().all(|way| way.finished)
    }

    fn carry(&mut self) -> bool {
        let [first, second] = &self.sockets;
        let mut moved = false;
        for (way, from, to) in self.ways.iter_mut().zip([(first, second), (second, first)]).map(flat) {
            if way.finished {
                continue;
            }
            match way.carry(from, to) {
                Ok(some) => moved |= some,
                Err(_) => {
                    // Both hear that the other one is gone.
                    self.sockets.iter().for_each(|socket| _ = socket.shutdown(Shutdown::Both));
                    self.ways.iter_mut().for_each(|way| way.finished = true);
                    return true;
                }
            }
        }
        moved
    }
}

fn flat<A, B, C>((a, (b, c)): (A, (B, C))) -> (A, B, C) {
    (a, b, c)
}

impl Carrier {
    fn run(mut self) {
        let mut moved = Instant::now();
        while !self.pairs.is_empty() {
            let leaves = self.leaves.load(Ordering::Relaxed);
            let left = (moved + FAREWELL).saturating_duration_since(Instant::now());
            if leaves && left.is_zero() {
                return;
            }
            self.wait(leaves.then_some(left));
            for pair in &mut self.pairs {
                if pair.carry() {
                    moved = Instant::now();
                }
            }
            self.pairs.retain(|pair| !pair.is_done());
        }
    }

    /// Waits until a socket is ready, or this rank leaves.
    fn wait(&self, time: Option<Duration>) {
        let mut fds = vec![PollFd::new(self.waker.fd(), PollFlags::IN)];
        for Pair { sockets: [first, second], ways } in &self.pairs {
            for (way, from, to) in ways.iter().zip([(first, second), (second, first)]).map(flat) {
                if !way.left.is_empty() {
                    fds.push(PollFd::new(to, PollFlags::OUT));
                } else if !way.finished {
                    fds.push(PollFd::new(from, PollFlags::IN));
                }
            }
        }
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        _ = poll(&mut fds, time.as_ref());
        self.waker.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> [TcpStream; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [near, listener.accept().unwrap().0]
    }

    /// More than sockets and the relay hold; one direction ends before the other.
    #[test]
    fn both_hear_all_that_the_other_says_and_then_its_end() {
        let [mut one, near] = pair();
        let [mut two, far] = pair();
        let relay = Relay::start(vec![[near, far]], Duration::from_secs(120)).unwrap();
        let bytes: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
        let (mut there, mut back) = (Vec::new(), Vec::new());
        thread::scope(|scope| {
            let (one, two) = (&mut one, &mut two);
            let mut writes = one.try_clone().unwrap();
            let bytes = &bytes;
            scope.spawn(move || {
                writes.write_all(bytes).unwrap();
                writes.shutdown(Shutdown::Write).unwrap();
            });
            let there = &mut there;
            scope.spawn(move || {
                two.read_to_end(there).unwrap();
                two.write_all(b"and back").unwrap();
                two.shutdown(Shutdown::Write).unwrap();
            });
            one.read_to_end(&mut back).unwrap();
        });
        assert!(there == bytes && back == b"and back");
        drop(relay);
    }

    /// The end may be what the last move of a turn reads: nothing would wake the relay again.
    #[test]
    fn an_end_is_passed_on_wherever_it_is_read() {
        for left in 0..2 {
            for more in 0..MAX_MOVES {
                let [mut from, near] = pair();
                let [mut to, far] = pair();
                from.write_all(&vec![1; more]).unwrap();
                from.shutdown(Shutdown::Write).unwrap();
                let timeout = Duration::from_secs(60);
                [&near, &far].into_iter().try_for_each(|socket| prepare(socket, timeout)).unwrap();
                to.set_read_timeout(Some(timeout)).unwrap();
                // A byte a move, after what is left of the turn before.
                let way = Way { bytes: vec![1; 1], left: 0..left, finished: false };
                let pairs = vec![Pair { sockets: [near, far], ways: [way, Way::new()] }];
                let leaves = Arc::new(AtomicBool::new(false));
                let carrier = Carrier { pairs, leaves, waker: Waker::new().unwrap() };
                let thread = thread::spawn(|| carrier.run());
                let mut all = Vec::new();
                let read = to.read_to_end(&mut all);
                assert!(read.is_ok() && all.len() == left + more, "{left} and {more} bytes: {read:?}");
                drop((from, to));
                thread.join().unwrap();
            }
        }
    }

    #[test]
    fn who_is_left_hears_that_the_other_one_is_gone() {
        let [one, near] = pair();
        let [mut two, far] = pair();
        let relay = Relay::start(vec![[near, far]], Duration::from_secs(120)).unwrap();
        drop(one);
        assert_eq!(two.read(&mut [0]).unwrap(), 0);
        drop(two);
        drop(relay);
    }
}
