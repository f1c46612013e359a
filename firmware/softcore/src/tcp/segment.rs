//! Which frames are TCP's: those that the aggregator would count as another protocol.

use core::net::Ipv4Addr;

use super::wire::Neighbour;
use crate::aggregation::{IP, MAC};

const TCP: u8 = 6;
/// An Ethernet header, one of IPv4 without options, and one of TCP without options.
const HEADERS_LEN: usize = 14 + 20 + 20;

/// A TCP segment for our addresses: whole, and without IP options. Its checksums are not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment<'a> {
    /// The sender of the frame.
    pub(super) from: Neighbour,
    /// Our port.
    pub(super) port: u16,
    /// It wants to open a connection.
    pub(super) is_syn: bool,
    /// The IP packet, and the padding of a short frame.
    pub(super) packet: &'a [u8],
}

impl<'a> Segment<'a> {
    /// None for a frame that is not TCP's.
    pub(super) fn parse(frame: &'a [u8]) -> Option<Self> {
        let headers = frame.first_chunk::<HEADERS_LEN>()?;
        let (ethernet, ip_and_tcp) = headers.split_first_chunk::<14>()?;
        let (ip, tcp) = ip_and_tcp.split_first_chunk::<20>()?;
        let (to, from_and_type) = ethernet.split_first_chunk::<6>()?;
        let (mac, ethertype) = from_and_type.split_first_chunk::<6>()?;
        let [version, _, _, _, _, _, f0, f1, _, protocol, _, _, s0, s1, s2, s3, destination @ ..] = *ip;
        // More fragments, or an offset.
        let is_fragment = u16::from_be_bytes([f0, f1]) & 0x3fff != 0;
        if *to != MAC
            || ethertype != [0x08, 0x00]
            || version != 0x45
            || protocol != TCP
            || is_fragment
            || destination != IP.octets()
        {
            return None;
        }
        let [_, _, d0, d1, _, _, _, _, _, _, _, _, _, flags, ..] = *tcp else { return None };
        const SYN: u8 = 2;
        const ACK: u8 = 16;
        Some(Self {
            from: Neighbour { ip: Ipv4Addr::new(s0, s1, s2, s3), mac: *mac },
            port: u16::from_be_bytes([d0, d1]),
            is_syn: flags & (SYN | ACK) == SYN,
            packet: frame.get(14..)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: [u8; 6] = [2, 0, 0, 0, 1, 3];

    fn frame() -> Vec<u8> {
        let ip = [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 103, 10, 0, 0, 9];
        let tcp = [0x9c, 0x40, 0x24, 0xbf, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 4, 0, 0, 0, 0, 0];
        [&MAC[..], &FROM, &[8, 0], &ip, &tcp, &[0; 6]].concat()
    }

    #[test]
    fn a_syn_is_seen_with_its_sender() {
        let frame = frame();
        let segment = Segment::parse(&frame).unwrap();
        assert_eq!(segment.from, Neighbour { ip: Ipv4Addr::new(10, 0, 0, 103), mac: FROM });
        assert_eq!((segment.port, segment.is_syn, segment.packet), (9407, true, &frame[14..]));
    }

    #[test]
    fn an_answer_is_no_syn() {
        let mut frame = frame();
        frame[14 + 20 + 13] = 0x12;
        assert!(!Segment::parse(&frame).unwrap().is_syn);
    }

    /// Each byte that decides is changed: the frame is the aggregator's then.
    #[test]
    fn all_else_is_the_aggregators() {
        // The MAC address, the type, the version with the header's length, the flag for more
        // fragments and the offset, the protocol, the address.
        let deciding = (0..6).chain(12..15).chain([20, 21, 23]).chain(30..34);
        for at in deciding {
            let mut frame = frame();
            frame[at] ^= 0x21;
            assert_eq!(Segment::parse(&frame), None, "byte {at}");
        }
        for len in 0..HEADERS_LEN {
            assert_eq!(Segment::parse(&frame()[..len]), None, "{len} bytes");
        }
        assert_eq!(Segment::parse(&[&[0xff; 6], &frame()[6..]].concat()), None);
    }
}
