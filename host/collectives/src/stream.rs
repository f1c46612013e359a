//! Sockets of links: opened before they are shared, read and written by a deadline.

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::failure::LinkError;
use crate::socket::{left, set_tos};
use crate::strategies::MAX_RANKS;
use crate::tls::Session;

/// The type of service of connections that the dataplane compresses: DSCP AF11.
pub const TAG: u8 = 0x28;

pub(crate) fn io_error(what: &str, source: io::Error) -> LinkError {
    LinkError::Io { what: what.to_owned(), source }
}

/// A socket of the address's family. One to be tagged is so before it connects or listens, so its
/// SYN, or the SYN-ACK of what connects to it, is too: the dataplane learns from them where values
/// start.
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

pub(crate) fn listen(address: SocketAddr, tagged: bool) -> Result<TcpListener, LinkError> {
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

pub(crate) fn connect(to: SocketAddr, tagged: bool, deadline: Instant) -> io::Result<TcpStream> {
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
pub(crate) fn wait(fd: &impl AsFd, flags: PollFlags, time: Duration) -> io::Result<bool> {
    let time = Timespec::try_from(time).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut [PollFd::new(fd, flags)], Some(&time)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A connection between ranks: TCP, or TLS over it.
pub(crate) struct Stream {
    tcp: TcpStream,
    tls: Option<Box<Session>>,
}

impl Stream {
    pub(crate) fn new(tcp: TcpStream, tls: Option<Session>) -> Self {
        Self { tcp, tls: tls.map(Box::new) }
    }

    /// Of a connection without TLS.
    pub(crate) fn into_tcp(self) -> TcpStream {
        self.tcp
    }

    pub(crate) const fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.tcp.read(room),
            Some(tls) => tls.read(&self.tcp, room),
        }
    }

    /// May `read` give bytes though the socket has none?
    pub(crate) fn has_more(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_more())
    }

    pub(crate) fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.tcp.write_vectored(slices),
            Some(tls) => tls.write(&self.tcp, slices),
        }
    }

    /// Writes what it took and the socket did not.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| tls.flush(&self.tcp))
    }

    /// Has the system all that it took?
    pub(crate) fn is_flushed(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.is_flushed())
    }
}

pub(crate) fn read_by(stream: &mut Stream, mut bytes: &mut [u8], until: Instant) -> io::Result<()> {
    stream.tcp.set_nonblocking(false)?;
    while !bytes.is_empty() {
        stream.tcp.set_read_timeout(left(until)?)?;
        match stream.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => bytes = &mut bytes[len..],
            Err(error) => retry(error)?,
        }
    }
    Ok(())
}

pub(crate) fn write_by(stream: &mut Stream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    stream.tcp.set_nonblocking(false)?;
    while !bytes.is_empty() || !stream.is_flushed() {
        stream.tcp.set_write_timeout(left(until)?)?;
        let written =
            if bytes.is_empty() { stream.flush().map(|()| 0) } else { stream.write(&[IoSlice::new(bytes)]) };
        match written {
            Ok(len) => bytes = &bytes[len..],
            Err(error) => retry(error)?,
        }
    }
    Ok(())
}

/// Is an error of a socket that blocks none? Its timeout looks like one of a socket that does not.
fn retry(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
        _ => Err(error),
    }
}

/// Prepares a connection for the exchange: never blocks, sends at once, and notices a host that is
/// gone.
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
    use crate::tls::Tls;

    #[test]
    fn sockets_are_tagged_before_they_connect_or_listen() {
        // Many containers have no IPv6.
        let there = |at: &&str| *at == "127.0.0.1:0" || TcpListener::bind(at).is_ok();
        for at in ["127.0.0.1:0", "[::1]:0"].into_iter().filter(there) {
            let [plain, tagged] = [false, true].map(|tagged| {
                let listener = listen(at.parse().unwrap(), tagged).unwrap();
                let soon = Instant::now() + Duration::from_secs(10);
                let far = connect(listener.local_addr().unwrap(), tagged, soon).unwrap();
                (listener, far)
            });
            let tos = |socket: &dyn AsFd| match at.starts_with('[') {
                true => sockopt::ipv6_tclass(socket.as_fd()).unwrap() as u8,
                false => sockopt::ip_tos(socket.as_fd()).unwrap(),
            };
            assert_eq!([tos(&tagged.0), tos(&tagged.1)], [TAG; 2], "{at}");
            assert_eq!([tos(&plain.0), tos(&plain.1)], [0; 2], "{at}");
            // What is accepted answers with the type of service of its listener.
            while !wait(&tagged.0, PollFlags::IN, Duration::from_secs(1)).unwrap() {}
            assert_eq!(tos(&tagged.0.accept().unwrap().0), TAG, "{at}");
        }
    }

    /// Bytes that a stranger sees of a message between two ranks, in this direction.
    fn seen(tls: Option<&Tls>, message: &[u8]) -> Vec<u8> {
        let until = Instant::now() + Duration::from_secs(120);
        let there = TcpListener::bind("127.0.0.1:0").unwrap();
        let between = TcpListener::bind("127.0.0.1:0").unwrap();
        let (to, at) = (there.local_addr().unwrap(), between.local_addr().unwrap());
        std::thread::scope(|scope| {
            let stranger = scope.spawn(move || {
                let (near, far) = (between.accept().unwrap().0, TcpStream::connect(to).unwrap());
                let back = [far.try_clone().unwrap(), near.try_clone().unwrap()];
                scope.spawn(move || io::copy(&mut &back[0], &mut &back[1]));
                let (mut bytes, mut piece) = (Vec::new(), [0; 1000]);
                while let len @ 1.. = (&near).read(&mut piece).unwrap() {
                    bytes.extend(&piece[..len]);
                    (&far).write_all(&piece[..len]).unwrap();
                }
                far.shutdown(std::net::Shutdown::Write).unwrap();
                bytes
            });
            scope.spawn(move || {
                let tcp = TcpStream::connect(at).unwrap();
                let session = tls.map(|tls| tls.connect(&tcp, until).unwrap());
                let mut stream = Stream::new(tcp, session);
                write_by(&mut stream, message, until).unwrap();
                stream.tcp().shutdown(std::net::Shutdown::Write).unwrap();
            });
            let tcp = there.accept().unwrap().0;
            let session = tls.map(|tls| tls.accept(&tcp, until).unwrap());
            let (mut stream, mut bytes) = (Stream::new(tcp, session), vec![0; message.len()]);
            read_by(&mut stream, &mut bytes, until).unwrap();
            assert!(bytes == message, "another message arrived");
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            drop(stream);
            stranger.join().unwrap()
        })
    }

    #[test]
    fn a_stranger_on_the_path_sees_no_plain_text() {
        let message: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        let tls = Tls::new(&crate::token::Token::random().unwrap()).unwrap();
        let (clear, first, second) =
            (seen(None, &message), seen(Some(&tls), &message), seen(Some(&tls), &message));
        assert!(clear == message && first.len() > message.len());
        // Any eight bytes of the message are four from the start of a value, once.
        let found = |seen: &[u8]| {
            seen.windows(8).any(|eight| {
                let [a, b] =
                    [&eight[..4], &eight[4..]].map(|four| u32::from_le_bytes(four.try_into().unwrap()));
                a < 300_000 && b == a + 1
            })
        };
        assert!(found(&clear) && !found(&first) && !found(&second));
        assert!(first[first.len() - 1000..] != second[second.len() - 1000..], "the same key twice");
    }
}
