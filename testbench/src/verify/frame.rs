//! Looks into a frame with `etherparse`, which shares no code with the dataplane: the verifier of
//! frames.

use std::net::IpAddr;
use std::ops::Range;

use etherparse::checksum::Sum16BitWords;
use etherparse::err::{Layer, packet::SliceError};
use etherparse::{Ipv6ExtensionSlice, LaxNetSlice, LaxSlicedPacket, NetSlice, SlicedPacket, TransportSlice};

use super::eligible;

/// One direction of a TCP connection, or of a pair of UDP ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// Sender.
    pub source: (IpAddr, u16),
    /// Receiver.
    pub destination: (IpAddr, u16),
}

impl Flow {
    /// The other direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { source: self.destination, destination: self.source }
    }
}

impl std::fmt::Display for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (from, to) = (self.source, self.destination);
        write!(f, "{} port {} to {} port {}", from.0, from.1, to.0, to.1)
    }
}

/// The result of a receiving host's sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// It is right.
    Valid,
    /// UDP: the sender computed none.
    Absent,
    /// It is the sum of the pseudo-header alone: a capture from the sending host, whose card
    /// computes the rest.
    LeftToCard,
    /// It is wrong: the receiving host drops the segment.
    Wrong,
    /// A routing header: the address to add may not be the one in the IP header.
    NotVerified,
}

impl Checksum {
    /// Whether a host that receives the segment accepts it. What only looks as if it had been left
    /// to a card, one segment in 65,536 by chance, is wrong to a receiver.
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        matches!(self, Self::Valid | Self::Absent)
    }
}

/// The fields of a TCP header, but for its ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number, if the ACK flag is set.
    pub ack: Option<u32>,
    /// Whether it opens the connection.
    pub syn: bool,
    /// Whether it says that no new bytes follow.
    pub fin: bool,
    /// Whether it aborts or refuses the connection.
    pub rst: bool,
    /// Whether it has an option that binds the payload to what the sender sent (FORMAT.md section
    /// 5.1).
    pub binds: bool,
}

impl Tcp {
    /// Sequence number of the first payload byte: a SYN takes one before it.
    #[must_use]
    pub const fn first_byte(self) -> u32 {
        self.seq.wrapping_add(self.syn as u32)
    }
}

/// The fields of the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp(Tcp),
    /// UDP.
    Udp,
}

/// TCP or UDP in a frame. Ranges and offsets are in bytes of the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The source and the destination.
    pub flow: Flow,
    /// TCP or UDP.
    pub transport: Transport,
    /// The payload.
    pub payload: Range<usize>,
    /// The two bytes of the checksum.
    pub checksum_at: Range<usize>,
    /// Whether it is right.
    pub checksum: Checksum,
    /// The right one, as it would stand in the frame; `None` if that is not known.
    pub right_checksum: Option<u16>,
}

/// An IP packet in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Type of service or traffic class.
    pub tos: u8,
    /// IPv4: whether the header checksum is right. IPv6 has none.
    pub ip_checksum_ok: bool,
    /// TCP or UDP, if it is whole and not a fragment.
    pub segment: Option<Segment>,
}

impl View {
    /// Looks into an Ethernet frame; `None` if it holds no IP packet whose headers are whole.
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let packet = SlicedPacket::from_ethernet(frame).ok()?;
        let (tos, ip_checksum_ok, addresses, routed) = match packet.net.as_ref()? {
            NetSlice::Ipv4(ip) => {
                let header = ip.header();
                // Over the bytes: a header taken apart has no reserved bits.
                let holds = Sum16BitWords::new().add_slice(header.slice()).ones_complement() == 0;
                let tos = header.dcp().value() << 2 | header.ecn().value();
                let addresses = (header.source_addr().into(), header.destination_addr().into());
                (tos, holds, addresses, false)
            }
            NetSlice::Ipv6(ip) => {
                let header = ip.header();
                let addresses = (header.source_addr().into(), header.destination_addr().into());
                let is_routing = |ext| matches!(ext, Ipv6ExtensionSlice::Routing(_));
                (header.traffic_class(), true, addresses, ip.extensions().clone().into_iter().any(is_routing))
            }
            NetSlice::Arp(_) => return None,
        };
        let segment = packet.transport.and_then(|transport| segment(frame, &transport, addresses, routed));
        Some(Self { tos, ip_checksum_ok, segment })
    }
}

/// Whether an Ethernet frame is shorter than its IP packet says.
#[must_use]
pub fn is_cut_short(frame: &[u8]) -> bool {
    let Err(SliceError::Len(error)) = SlicedPacket::from_ethernet(frame) else { return false };
    matches!(error.layer, Layer::Ipv4Packet | Layer::Ipv6Packet)
}

/// The type of service (IPv6: traffic class) behind at most two VLAN tags, if the IP header is
/// whole. By the bytes themselves: `etherparse` refuses packets for what follows.
#[must_use]
pub fn type_of_service(frame: &[u8]) -> Option<u8> {
    let mut at = 12;
    while at < 20 && matches!(frame.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8])) {
        at += 4;
    }
    match frame.get(at..)? {
        [0x08, 0x00, 0x40..=0x4f, tos, rest @ ..] if rest.len() >= 18 => Some(*tos),
        [0x86, 0xdd, high @ 0x60..=0x6f, low, rest @ ..] if rest.len() >= 38 => Some(high << 4 | low >> 4),
        _ => None,
    }
}

fn segment(
    frame: &[u8],
    transport: &TransportSlice<'_>,
    (source, destination): (IpAddr, IpAddr),
    routed: bool,
) -> Option<Segment> {
    let (ports, header, payload, checksum_offset, found, right, kind) = match transport {
        TransportSlice::Tcp(tcp) => {
            let right = match (source, destination) {
                (IpAddr::V4(a), IpAddr::V4(b)) => tcp.calc_checksum_ipv4(a.octets(), b.octets()).ok(),
                (IpAddr::V6(a), IpAddr::V6(b)) => tcp.calc_checksum_ipv6(a.octets(), b.octets()).ok(),
                _ => None,
            };
            let ports = (tcp.source_port(), tcp.destination_port());
            let kind = Transport::Tcp(Tcp {
                seq: tcp.sequence_number(),
                ack: tcp.ack().then(|| tcp.acknowledgment_number()),
                syn: tcp.syn(),
                fin: tcp.fin(),
                rst: tcp.rst(),
                binds: eligible::binds(tcp.options()),
            });
            (ports, tcp.header_slice(), tcp.payload(), 16, tcp.checksum(), right, kind)
        }
        TransportSlice::Udp(udp) => {
            let (header, payload) = (udp.to_header(), udp.payload());
            let right = match (source, destination) {
                (IpAddr::V4(a), IpAddr::V4(b)) => {
                    header.calc_checksum_ipv4_raw(a.octets(), b.octets(), payload).ok()
                }
                (IpAddr::V6(a), IpAddr::V6(b)) => {
                    header.calc_checksum_ipv6_raw(a.octets(), b.octets(), payload).ok()
                }
                _ => None,
            };
            let ports = (udp.source_port(), udp.destination_port());
            (ports, udp.header_slice(), payload, 6, udp.checksum(), right, Transport::Udp)
        }
        _ => return None,
    };
    let checksum = match right {
        // RFC 768: zero means that the sender computed none.
        _ if kind == Transport::Udp && found == 0 => Checksum::Absent,
        _ if routed => Checksum::NotVerified,
        Some(right) if right == found => Checksum::Valid,
        _ if found == pseudo_header_sum(source, destination, kind, header.len() + payload.len()) => {
            Checksum::LeftToCard
        }
        _ => Checksum::Wrong,
    };
    let checksum_at = offset_in(frame, header) + checksum_offset;
    let payload_at = offset_in(frame, payload);
    Some(Segment {
        flow: Flow { source: (source, ports.0), destination: (destination, ports.1) },
        transport: kind,
        payload: payload_at..payload_at + payload.len(),
        checksum_at: checksum_at..checksum_at + 2,
        checksum,
        right_checksum: right.filter(|_| !routed),
    })
}

/// Makes the IPv4 header checksum right, and the one of TCP or UDP right but for `plus`, which is
/// added to it in one's complement (RFC 1071). What a frame does not have, or is not whole, stays
/// as it is.
pub fn repair_checksums(frame: &mut [u8], plus: u16) {
    let ip_header = match LaxSlicedPacket::from_ethernet(frame).ok().and_then(|packet| packet.net) {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            Some(offset_in(frame, header.slice())..offset_in(frame, header.slice()) + header.slice().len())
        }
        _ => None,
    };
    if let Some(header) = ip_header.and_then(|range| frame.get_mut(range)) {
        header[10..12].fill(0);
        let checksum = Sum16BitWords::new().add_slice(header).ones_complement();
        header[10..12].copy_from_slice(&checksum.to_ne_bytes());
    }
    let Some(segment) = View::of(frame).and_then(|view| view.segment) else { return };
    if let Some(right) = segment.right_checksum {
        frame[segment.checksum_at].copy_from_slice(&add_ones_complement(right, plus).to_be_bytes());
    }
}

/// The sum of two 16-bit words in one's complement (RFC 1071).
#[must_use]
pub const fn add_ones_complement(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u16
}

/// The sum that a host leaves in the checksum field for its card to complete.
fn pseudo_header_sum(source: IpAddr, destination: IpAddr, transport: Transport, len: usize) -> u16 {
    let mut sum = Sum16BitWords::new();
    sum = match (source, destination) {
        (IpAddr::V4(a), IpAddr::V4(b)) => sum.add_4bytes(a.octets()).add_4bytes(b.octets()),
        (IpAddr::V6(a), IpAddr::V6(b)) => sum.add_16bytes(a.octets()).add_16bytes(b.octets()),
        _ => sum,
    };
    let protocol = match transport {
        Transport::Tcp(_) => etherparse::IpNumber::TCP,
        Transport::Udp => etherparse::IpNumber::UDP,
    };
    // An IP length bounds `len`, so the upper half is zero but for jumbograms, which nothing here
    // reads.
    let sum = sum.add_2bytes([0, protocol.0]).add_4bytes((len as u32).to_be_bytes());
    !sum.ones_complement().to_be()
}

/// The start of `part`, a slice of `frame`, in it.
fn offset_in(frame: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - frame.as_ptr().addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::ipv4;
    use etherparse::{IpHeaders, IpNumber, Ipv6Header, PacketBuilder};

    #[test]
    fn finds_payload_flow_and_checksums() {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .single_vlan(7u16.try_into().unwrap())
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(40_000, 5400, 77, 1000);
        let mut frame = Vec::new();
        builder.write(&mut frame, b"payload").unwrap();
        let view = View::of(&frame).unwrap();
        assert!(view.ip_checksum_ok);
        let segment = view.segment.unwrap();
        assert_eq!(&frame[segment.payload.clone()], b"payload");
        let expected = Transport::Tcp(Tcp { seq: 77, ..Tcp::default() });
        assert_eq!(segment.transport, expected);
        assert_eq!(segment.checksum, Checksum::Valid);
        assert_eq!(segment.flow.to_string(), "10.0.0.1 port 40000 to 10.0.0.2 port 5400");

        // Host order of the fields: 10.0.0.1, 10.0.0.2, protocol 6, 20 + 7 bytes.
        let left_to_card = 0x0a00u16 + 0x0001 + 0x0a00 + 0x0002 + 6 + 27;
        let right = frame[segment.checksum_at.clone()].to_vec();
        frame[segment.checksum_at.clone()].copy_from_slice(&left_to_card.to_be_bytes());
        assert_eq!(View::of(&frame).unwrap().segment.unwrap().checksum, Checksum::LeftToCard);
        frame[segment.checksum_at.clone()].copy_from_slice(&right);

        frame[segment.payload.start] ^= 1;
        assert_eq!(View::of(&frame).unwrap().segment.unwrap().checksum, Checksum::Wrong);
        frame[18 + 8] ^= 1;
        assert!(!View::of(&frame).unwrap().ip_checksum_ok);
    }

    #[test]
    fn udp_may_have_no_checksum() {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 64).udp(1, 2);
        let mut frame = Vec::new();
        builder.write(&mut frame, &[0; 8]).unwrap();
        let segment = View::of(&frame).unwrap().segment.unwrap();
        assert_eq!(segment.checksum, Checksum::Valid);
        frame[segment.checksum_at].fill(0);
        assert_eq!(View::of(&frame).unwrap().segment.unwrap().checksum, Checksum::Absent);
    }

    #[test]
    fn the_type_of_service_is_etherparses() {
        let builders = [
            PacketBuilder::ethernet2([2; 6], [4; 6])
                .ip(IpHeaders::Ipv4(ipv4(0x29, IpNumber::UDP, [1; 4], [2; 4]), Default::default())),
            PacketBuilder::ethernet2([2; 6], [4; 6])
                .double_vlan(1.try_into().unwrap(), 2.try_into().unwrap())
                .ip(IpHeaders::Ipv6(
                    Ipv6Header { traffic_class: 0x29, ..Ipv6Header::default() },
                    Default::default(),
                )),
        ];
        for builder in builders {
            let mut frame = Vec::new();
            builder.udp(1, 2).write(&mut frame, &[0; 8]).unwrap();
            assert_eq!(type_of_service(&frame), Some(0x29));
            assert_eq!(View::of(&frame).unwrap().tos, 0x29);
            for len in 0..frame.len() - 16 {
                assert_eq!(type_of_service(&frame[..len]), None, "{len} bytes");
            }
        }
    }

    #[test]
    fn frames_that_are_cut_short_are_not_seen() {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([1; 4], [2; 4], 64).udp(1, 2);
        builder.write(&mut frame, &[0; 8]).unwrap();
        assert!(
            (0..frame.len()).all(|len| View::of(&frame[..len]).is_none_or(|view| view.segment.is_none()))
        );
    }
}
