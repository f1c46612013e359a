//! Sockets of links: opened before they are shared, read and written by a deadline.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::failure::LinkError;
use crate::socket::set_tos;
use crate::strategies::MAX_RANKS;

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

/// Time until `until`, as socket timeouts want it.
fn left(until: Instant) -> io::Result<Option<Duration>> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
}

pub(crate) fn read_by(stream: &mut TcpStream, mut bytes: &mut [u8], until: Instant) -> io::Result<()> {
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

pub(crate) fn write_by(stream: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
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
}
