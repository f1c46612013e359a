//! Answers clients of a listening socket: one thread, no client that another one waits for.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;

use crate::telemetry::logging::Rarely;

/// The most clients at once. The oldest makes room for one more: a client that means it has asked
/// by then.
pub(crate) const MAX_CLIENTS: usize = 16;
/// The time that accepting waits after a failure: most likely there are no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// So many seconds that a client and what serves it wait for each other. In tests, longer than any
/// machine keeps a thread waiting.
pub(crate) const fn patience(seconds: u64) -> Duration {
    Duration::from_secs(if cfg!(test) { 120 } else { seconds })
}

/// The state of a client's request.
#[derive(Debug)]
pub(crate) enum Request {
    /// Its end has not come yet.
    Incomplete,
    /// This is the answer; the connection is closed behind it.
    Answer(Vec<u8>),
    /// It deserves no answer.
    Refused,
}

/// Limits on clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// For the log.
    pub(crate) name: &'static str,
    /// The longest request that is read.
    pub(crate) max_request: usize,
    /// The time that a client may take for everything, from its connection to the last byte of its
    /// answer.
    pub(crate) time: Duration,
}

/// Serves clients for as long as the process lives. `respond` gets all that a client sent so far,
/// nothing at first.
///
/// Failures are logged, at most one a minute: none of them is a reason to stop.
pub(crate) fn serve<L: AsFd, C: AsFd + Read + Write>(
    listener: &L,
    accept: impl Fn(&L) -> io::Result<C>,
    terms: Terms,
    respond: impl Fn(&[u8]) -> Request,
) -> ! {
    let Terms { name, time, .. } = terms;
    let mut clients = Vec::new();
    let mut rarely = Rarely::default();
    loop {
        let new = match next(listener, &clients) {
            Ok(new) => new,
            Err(error) => {
                if rarely.is_due(Instant::now()) {
                    tracing::warn!(%error, "{name}: cannot wait for clients");
                }
                thread::sleep(PAUSE);
                continue;
            }
        };
        if new {
            let client = accept(listener).and_then(|stream| {
                ioctl_fionbio(&stream, true)?;
                Ok(Client { stream, end: Instant::now() + time, request: Vec::new(), answer: None })
            });
            match client {
                Ok(client) => {
                    if clients.len() == MAX_CLIENTS {
                        clients.remove(0);
                    }
                    clients.push(client);
                }
                // It has gone again.
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => {}
                Err(error) => {
                    if rarely.is_due(Instant::now()) {
                        tracing::warn!(%error, "{name}: cannot accept");
                    }
                    thread::sleep(PAUSE);
                }
            }
        }
        // All of them, ready or not: they are few. One that has just come has often sent its
        // request already.
        clients.retain_mut(|client| match client.go_on(&terms, &respond) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Instant::now() < client.end
            }
            Err(error) => {
                tracing::debug!(%error, "{name}: client was not served");
                false
            }
            Ok(()) => false,
        });
    }
}

/// Waits until there is something to do; whether a client wants to be accepted.
fn next<C: AsFd>(listener: &impl AsFd, clients: &[Client<C>]) -> io::Result<bool> {
    let mut polled = vec![PollFd::new(listener, PollFlags::IN)];
    polled.extend(clients.iter().map(|client| {
        let flags = if client.answer.is_some() { PollFlags::OUT } else { PollFlags::IN };
        PollFd::new(&client.stream, flags)
    }));
    let end = clients.iter().map(|client| client.end).min();
    let left = end.map(|end| end.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    match poll(&mut polled, left.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(polled.first().is_some_and(|listener| !listener.revents().is_empty()))
}

struct Client<C> {
    stream: C,
    /// When its time is over.
    end: Instant,
    request: Vec<u8>,
    /// The answer, and how much of it is sent.
    answer: Option<(Vec<u8>, usize)>,
}

impl<C: Read + Write> Client<C> {
    /// As far as it goes without waiting; [`ErrorKind::WouldBlock`] if it is not served yet.
    fn go_on(&mut self, terms: &Terms, respond: &impl Fn(&[u8]) -> Request) -> io::Result<()> {
        while self.answer.is_none() {
            match respond(&self.request) {
                Request::Answer(answer) => self.answer = Some((answer, 0)),
                Request::Refused => return Err(ErrorKind::InvalidData.into()),
                Request::Incomplete => self.read(terms.max_request)?,
            }
        }
        if let Some((answer, sent)) = &mut self.answer {
            while let Some(rest) = answer.get(*sent..).filter(|rest| !rest.is_empty()) {
                match self.stream.write(rest)? {
                    0 => return Err(ErrorKind::WriteZero.into()),
                    len => *sent += len,
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, most: usize) -> io::Result<()> {
        let mut buffer = [0; 1024];
        let room = buffer.len().min(most.saturating_sub(self.request.len()));
        if room == 0 {
            return Err(io::Error::new(ErrorKind::InvalidData, "the request is too long"));
        }
        match self.stream.read(&mut buffer[..room])? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            len => {
                self.request.extend_from_slice(&buffer[..len]);
                Ok(())
            }
        }
    }
}
