//! Headers of frames that tests, oracles and the bench make, by `etherparse` and not by the
//! dataplane.

use etherparse::{IpNumber, Ipv4Header};

/// An IPv4 header with this type of service. `etherparse` fills in length and checksum when it
/// writes the whole packet.
#[must_use]
pub fn ipv4(tos: u8, protocol: IpNumber, source: [u8; 4], destination: [u8; 4]) -> Ipv4Header {
    let mut header = Ipv4Header::new(0, 64, protocol, source, destination).expect("an empty payload fits");
    header.dscp = (tos >> 2).try_into().expect("six bits");
    header.ecn = (tos & 3).try_into().expect("two bits");
    header
}
