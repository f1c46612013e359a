//! Options that the ranks' and an aggregator's sockets share.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

/// Room for a datagram: longer than any that an Ethernet carries.
pub(crate) const DATAGRAM_ROOM: usize = 2048;

/// Time until `until`, as socket timeouts want it.
pub(crate) fn left(until: Instant) -> io::Result<Option<Duration>> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
}

/// Marks what a socket of the family of `address` sends from now on.
pub(crate) fn set_tos(socket: impl AsFd, address: SocketAddr, tos: u8) -> io::Result<()> {
    match address {
        SocketAddr::V4(_) => sockopt::set_ip_tos(socket, tos)?,
        SocketAddr::V6(_) => sockopt::set_ipv6_tclass(socket, tos.into())?,
    }
    Ok(())
}
