//! Sockets with a type of service, set before the handshake: the SYN carries it, too.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_ip_tos, set_ipv6_tclass, set_socket_reuseaddr, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};

/// Connects. Waits at most `patience`, here and at every later write and read.
pub(super) fn connect_tagged(to: SocketAddr, tos: u8, patience: Duration) -> io::Result<TcpStream> {
    let socket = tagged(to, tos)?;
    // A connection that is being made waits as long as a write does (socket(7), SO_SNDTIMEO).
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    connect(&socket, &to).map_err(|error| match error {
        rustix::io::Errno::INPROGRESS => io::ErrorKind::TimedOut.into(),
        error => io::Error::from(error),
    })?;
    set_socket_timeout(&socket, Timeout::Recv, Some(patience))?;
    Ok(socket.into())
}

/// Listens; connections inherit the type of service.
pub(super) fn listen_tagged(at: SocketAddr, tos: u8, backlog: u16) -> io::Result<TcpListener> {
    let socket = tagged(at, tos)?;
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &at)?;
    listen(&socket, backlog.into())?;
    Ok(socket.into())
}

/// The next connection, if there is one within `patience`.
pub(super) fn accept_within(
    listener: &TcpListener,
    patience: Option<Duration>,
) -> io::Result<(TcpStream, SocketAddr)> {
    let patience = patience.and_then(|time| Timespec::try_from(time).ok());
    loop {
        match poll(&mut [PollFd::new(listener, PollFlags::IN)], patience.as_ref()) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return listener.accept(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn tagged(address: SocketAddr, tos: u8) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    tag(&socket, address.ip(), tos)?;
    Ok(socket)
}

/// Sets the type of service of a socket for this version of IP.
pub(super) fn tag(socket: impl AsFd, address: IpAddr, tos: u8) -> io::Result<()> {
    Ok(match address {
        IpAddr::V4(_) => set_ip_tos(socket, tos),
        IpAddr::V6(_) => set_ipv6_tclass(socket, tos.into()),
    }?)
}

/// The address as an IPv4 one if it is that in IPv6's notation, with this port.
pub(super) fn with_port(address: SocketAddr, port: u16) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, port),
        // A link-local address stays one of its link.
        IpAddr::V6(_) => {
            let mut address = address;
            address.set_port(port);
            address
        }
    }
}
