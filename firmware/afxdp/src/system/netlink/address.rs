//! The IPv4 addresses of a network namespace, as rtnetlink tells of them (rtnetlink(7),
//! linux/if_addr.h).

use std::io;
use std::net::Ipv4Addr;

use super::{Attributes, Netlink};

const RTM_GETADDR: u16 = 22;
/// `struct ifaddrmsg`.
const INFO_LEN: usize = 8;
const AF_INET: u8 = 2;
const IFA_LOCAL: u16 = 2;

/// An address that a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The device, by index.
    pub device: u32,
    /// The address.
    pub address: Ipv4Addr,
}

/// All of them.
///
/// # Errors
/// The kernel does not answer.
pub fn held() -> io::Result<Vec<Held>> {
    let mut all = Vec::new();
    let mut info = [0; INFO_LEN];
    info[0] = AF_INET;
    Netlink::route()?.dump(RTM_GETADDR, &info, |message| all.extend(parse(message)))?;
    Ok(all)
}

pub(super) fn parse(message: &[u8]) -> Option<Held> {
    let ([AF_INET, _, _, _, a, b, c, d], attributes) = message.split_first_chunk::<INFO_LEN>()? else {
        return None;
    };
    let address = Attributes(attributes).find(IFA_LOCAL)?.first_chunk::<4>()?;
    Some(Held { device: u32::from_ne_bytes([*a, *b, *c, *d]), address: Ipv4Addr::from(*address) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_address() {
        let loopback = Held { device: 1, address: Ipv4Addr::LOCALHOST };
        assert!(held().unwrap().contains(&loopback));
    }
}
