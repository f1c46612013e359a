//! An aggregator on Ethernet: frames in, frames out. It answers ARP and echo requests for its
//! address, so a network finds it without any other software.

use core::net::Ipv4Addr;

use super::aggregator::{Aggregator, Outcome, Settings, To};
use super::slot::SECTION_ROOM;
use crate::checksum::Sum;
use crate::engine::Millis;
use crate::kernels::Kernel;
use crate::verdict::outcomes;
use crate::wire::chunk::{PORT, TOS};

const ETHERNET_LEN: usize = 14;
const IPV4_LEN: usize = 20;
const UDP_LEN: usize = 8;
const ARP_LEN: usize = 28;
const HEADERS_LEN: usize = ETHERNET_LEN + IPV4_LEN + UDP_LEN;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
/// ARP for IPv4 over Ethernet (RFC 826): both types, both lengths.
const ARP_KIND: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];
const UDP: u8 = 17;
const ICMP: u8 = 1;
const TTL: u8 = 64;
/// The longest frame that is sent, without FCS.
pub const MAX_FRAME_LEN: usize = ETHERNET_LEN + 1500;

outcomes! {
    /// The effect of a frame. Datagrams are counted by what they did as well
    /// ([`Aggregator::count`]).
    Arrival {
        /// A datagram for the aggregator.
        Datagram = "datagram",
        /// An ARP request for our address, which is answered.
        Arp = "arp",
        /// An echo request, which is answered.
        Echo = "echo",
        /// For another MAC or IP address, or ARP that asks for another one.
        NotOurs = "not-ours",
        /// Neither ARP nor IPv4, or behind a VLAN tag; or IPv4 with another protocol, or ICMP that
        /// is no echo request.
        Protocol = "protocol",
        /// Another UDP port.
        Port = "port",
        /// A header is cut short, or contradicts itself.
        Malformed = "malformed",
        /// IPv4 with options.
        Options = "options",
        /// A fragment of an IP packet.
        Fragment = "fragment",
        /// The IPv4 header's checksum is wrong.
        IpChecksum = "ip-checksum",
        /// The checksum of UDP or ICMP is wrong.
        Checksum = "checksum",
        /// A datagram without a checksum: nothing vouches for its values.
        NoChecksum = "no-checksum",
        /// An echo request whose answer is too long.
        TooLong = "too-long",
    }
}

/// The address of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The MAC address of the child, or of the router towards it.
    pub mac: [u8; 6],
    /// Its address.
    pub ip: Ipv4Addr,
    /// Its UDP port.
    pub port: u16,
}

/// A frame whose IP header lies on a word, and then so does a datagram's payload: small cores copy
/// and sum it faster.
#[repr(C, align(4))]
struct Frame {
    before: [u8; 2],
    /// Behind the longest frame is room for what kernels write behind its last section.
    bytes: [u8; MAX_FRAME_LEN + SECTION_ROOM],
}

impl Frame {
    /// Writes parts one behind the other; the frame's length. None if it would be too long.
    fn answer(&mut self, parts: &[&[u8]]) -> Option<usize> {
        join(self.bytes.get_mut(..MAX_FRAME_LEN)?, parts)
    }
}

/// An aggregator with addresses. `JOBS`, `SLOTS` and `BLOCKS` are its [`Aggregator`]'s.
pub struct EthernetAggregator<const JOBS: usize, const SLOTS: usize, const BLOCKS: usize> {
    mac: [u8; 6],
    ip: Ipv4Addr,
    port: u16,
    kernel: Kernel,
    /// The aggregator itself.
    pub engine: Aggregator<Peer, JOBS, SLOTS, BLOCKS>,
    /// An answer to ARP or echo; or the last frame, of which children get copies.
    frame: Frame,
    len: usize,
    /// Of the datagram in the frame.
    sum: Sum,
    next: Next,
    counts: [u64; Arrival::ALL.len()],
}

/// The next frame to send, before the aggregator is asked for one.
#[derive(Clone, Copy)]
enum Next {
    Nothing,
    /// The frame as it is.
    Answer,
    /// The frame, to each child of a job from this one on.
    Copies {
        job: u16,
        child: usize,
    },
}

impl<const JOBS: usize, const SLOTS: usize, const BLOCKS: usize> EthernetAggregator<JOBS, SLOTS, BLOCKS> {
    /// An aggregator that knows no job. It listens at the protocol's port.
    #[must_use]
    pub const fn new(mac: [u8; 6], ip: Ipv4Addr, settings: Settings<Peer>) -> Self {
        Self {
            mac,
            ip,
            port: PORT,
            kernel: settings.kernel,
            engine: Aggregator::new(settings),
            frame: Frame { before: [0; 2], bytes: [0; MAX_FRAME_LEN + SECTION_ROOM] },
            len: 0,
            sum: Sum::word(0),
            next: Next::Nothing,
            counts: [0; Arrival::ALL.len()],
        }
    }

    /// From now on it listens at another UDP port, and sends from there. Groups stay at the
    /// protocol's.
    pub const fn listen_at(&mut self, port: u16) {
        self.port = port;
    }

    /// The number of frames that arrived like this; it wraps at 2^64.
    #[must_use]
    pub fn count(&self, arrival: Arrival) -> u64 {
        self.counts.get(arrival as usize).copied().unwrap_or(0)
    }

    /// Takes a frame, without FCS. Afterwards, [`Self::emit`] has what is to be sent; what a caller
    /// leaves there is lost with the next frame.
    pub fn process(&mut self, frame: &[u8], now: Millis) -> (Arrival, Option<Outcome>) {
        self.next = Next::Nothing;
        let (arrival, outcome) = match self.arrive(frame, now) {
            Ok(done) => done,
            Err(arrival) => (arrival, None),
        };
        if let Some(count) = self.counts.get_mut(arrival as usize) {
            *count = count.wrapping_add(1);
        }
        (arrival, outcome)
    }

    fn arrive(&mut self, frame: &[u8], now: Millis) -> Result<(Arrival, Option<Outcome>), Arrival> {
        let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_LEN>().ok_or(Arrival::Malformed)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ethertype @ ..] = *ethernet;
        let (to, from) = ([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5]);
        if to != self.mac && to != [0xff; 6] {
            return Err(Arrival::NotOurs);
        }
        match ethertype {
            ETHERTYPE_ARP => self.arp(packet).map(|()| (Arrival::Arp, None)),
            ETHERTYPE_IPV4 if to == self.mac => self.ipv4(from, packet, now),
            _ => Err(Arrival::Protocol),
        }
    }

    /// Answers a request for our address.
    fn arp(&mut self, packet: &[u8]) -> Result<(), Arrival> {
        let (arp, _) = packet.split_first_chunk::<ARP_LEN>().ok_or(Arrival::Malformed)?;
        let (kind, rest) = arp.split_first_chunk::<6>().ok_or(Arrival::Malformed)?;
        let (operation, rest) = rest.split_first_chunk::<2>().ok_or(Arrival::Malformed)?;
        let (asker, rest) = rest.split_first_chunk::<10>().ok_or(Arrival::Malformed)?;
        let asked = rest.last_chunk::<4>().ok_or(Arrival::Malformed)?;
        if *kind != ARP_KIND {
            return Err(Arrival::Malformed);
        }
        if *operation != [0, 1] || *asked != self.ip.octets() {
            return Err(Arrival::NotOurs);
        }
        let asker_mac = asker.first_chunk::<6>().ok_or(Arrival::Malformed)?;
        let parts: [&[u8]; 8] =
            [asker_mac, &self.mac, &ETHERTYPE_ARP, &ARP_KIND, &[0, 2], &self.mac, &self.ip.octets(), asker];
        self.len = self.frame.answer(&parts).ok_or(Arrival::TooLong)?;
        self.next = Next::Answer;
        Ok(())
    }

    fn ipv4(
        &mut self,
        from: [u8; 6],
        packet: &[u8],
        now: Millis,
    ) -> Result<(Arrival, Option<Outcome>), Arrival> {
        let header = packet.first_chunk::<IPV4_LEN>().ok_or(Arrival::Malformed)?;
        let [first, _, t0, t1, _, _, f0, f1, _, protocol, _, _, s0, s1, s2, s3, d0, d1, d2, d3] = *header;
        let (source, destination) = (Ipv4Addr::new(s0, s1, s2, s3), Ipv4Addr::new(d0, d1, d2, d3));
        if first != 0x45 {
            return Err(if first >> 4 == 4 && first & 15 > 5 {
                Arrival::Options
            } else {
                Arrival::Malformed
            });
        }
        if !Sum::of(header).is_zero() {
            return Err(Arrival::IpChecksum);
        }
        if destination != self.ip {
            return Err(Arrival::NotOurs);
        }
        // More fragments, or an offset.
        if u16::from_be_bytes([f0, f1]) & 0x3fff != 0 {
            return Err(Arrival::Fragment);
        }
        let total = usize::from(u16::from_be_bytes([t0, t1]));
        // A MAC pads short frames.
        let segment = packet.get(IPV4_LEN..total).ok_or(Arrival::Malformed)?;
        match protocol {
            ICMP => self.echo(from, source, segment).map(|()| (Arrival::Echo, None)),
            UDP => self.udp(from, source, segment, now).map(|outcome| (Arrival::Datagram, Some(outcome))),
            _ => Err(Arrival::Protocol),
        }
    }

    /// Answers an echo request (RFC 792).
    fn echo(&mut self, from: [u8; 6], source: Ipv4Addr, message: &[u8]) -> Result<(), Arrival> {
        let ([kind, code, _, _], data) = message.split_first_chunk::<4>().ok_or(Arrival::Malformed)?;
        if (*kind, *code) != (8, 0) {
            return Err(Arrival::Protocol);
        }
        if !self.kernel.sum(message).is_zero() {
            return Err(Arrival::Checksum);
        }
        let checksum = self.kernel.sum(data).field().to_be_bytes();
        let header = ipv4_header(self.ip, source, ICMP, 0, message.len()).ok_or(Arrival::TooLong)?;
        let parts: [&[u8]; 7] = [&from, &self.mac, &ETHERTYPE_IPV4, &header, &[0, 0], &checksum, data];
        self.len = self.frame.answer(&parts).ok_or(Arrival::TooLong)?;
        self.next = Next::Answer;
        Ok(())
    }

    fn udp(
        &mut self,
        from: [u8; 6],
        source: Ipv4Addr,
        segment: &[u8],
        now: Millis,
    ) -> Result<Outcome, Arrival> {
        let (header, _) = segment.split_first_chunk::<UDP_LEN>().ok_or(Arrival::Malformed)?;
        let [s0, s1, d0, d1, l0, l1, c0, c1] = *header;
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        let datagram = segment.get(UDP_LEN..len).ok_or(Arrival::Malformed)?;
        if u16::from_be_bytes([d0, d1]) != self.port {
            return Err(Arrival::Port);
        }
        if [c0, c1] == [0, 0] {
            return Err(Arrival::NoChecksum);
        }
        let sum = pseudo_sum(source, self.ip, len) + Sum::of(header) + self.kernel.sum(datagram);
        if !sum.is_zero() {
            return Err(Arrival::Checksum);
        }
        let peer = Peer { mac: from, ip: source, port: u16::from_be_bytes([s0, s1]) };
        Ok(self.engine.process(datagram, peer, now))
    }

    /// Writes the next frame to send to `out`, which has room for [`MAX_FRAME_LEN`] bytes; its
    /// length, without FCS. MACs pad it.
    pub fn emit(&mut self, out: &mut [u8]) -> Option<usize> {
        match self.next {
            Next::Answer => {
                self.next = Next::Nothing;
                return join(out, &[self.frame.bytes.get(..self.len)?]);
            }
            Next::Copies { job, child } => {
                if let Some(peer) = self.engine.children(job).nth(child) {
                    self.next = Next::Copies { job, child: child + 1 };
                    return self.address(peer, out);
                }
                self.next = Next::Nothing;
            }
            Next::Nothing => {}
        }
        let emitted = self.engine.emit(self.frame.bytes.get_mut(HEADERS_LEN..)?)?;
        self.len = HEADERS_LEN + emitted.len;
        self.sum = self.kernel.sum(self.frame.bytes.get(HEADERS_LEN..self.len)?);
        match emitted.to {
            To::One(peer) => self.address(peer, out),
            To::Group(group) => {
                let [_, b, c, d] = group;
                // RFC 1112 §6.4: the lower 23 bits of the group.
                let mac = [0x01, 0x00, 0x5e, b & 0x7f, c, d];
                self.address(Peer { mac, ip: group.into(), port: PORT }, out)
            }
            To::Each { job } => {
                self.next = Next::Copies { job, child: 1 };
                let first = self.engine.children(job).next()?;
                self.address(first, out)
            }
        }
    }

    /// Writes the datagram that stands in the frame, with headers for `to`.
    fn address(&self, to: Peer, out: &mut [u8]) -> Option<usize> {
        let datagram = self.frame.bytes.get(HEADERS_LEN..self.len)?;
        let len = UDP_LEN + datagram.len();
        let header = ipv4_header(self.ip, to.ip, UDP, TOS, len)?;
        let ([s0, s1], [d0, d1]) = (self.port.to_be_bytes(), to.port.to_be_bytes());
        let [l0, l1] = u16::try_from(len).ok()?.to_be_bytes();
        let udp = [s0, s1, d0, d1, l0, l1];
        let sum = pseudo_sum(self.ip, to.ip, len) + Sum::of(&udp) + self.sum;
        // RFC 768: 0 would say that there is none; 0xffff is the other zero.
        let checksum = if sum.field() == 0 { u16::MAX } else { sum.field() }.to_be_bytes();
        join(out, &[&to.mac, &self.mac, &ETHERTYPE_IPV4, &header, &udp, &checksum, datagram])
    }
}

/// The header of an IPv4 packet with so many bytes behind it, which may not be fragmented.
fn ipv4_header(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, tos: u8, len: usize) -> Option<[u8; IPV4_LEN]> {
    const DONT_FRAGMENT: u8 = 0x40;
    let [t0, t1] = u16::try_from(IPV4_LEN + len).ok()?.to_be_bytes();
    let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (from.octets(), to.octets());
    let with = |[c0, c1]: [u8; 2]| {
        [0x45, tos, t0, t1, 0, 0, DONT_FRAGMENT, 0, TTL, protocol, c0, c1, s0, s1, s2, s3, d0, d1, d2, d3]
    };
    Some(with(Sum::of(&with([0; 2])).field().to_be_bytes()))
}

/// The sum of UDP's pseudo-header (RFC 768).
fn pseudo_sum(from: Ipv4Addr, to: Ipv4Addr, len: usize) -> Sum {
    Sum::of(&from.octets()) + Sum::of(&to.octets()) + Sum::word(UDP.into()) + Sum::word(len as u16)
}

/// Writes parts one behind the other; their length. None if they do not fit.
fn join(out: &mut [u8], parts: &[&[u8]]) -> Option<usize> {
    let mut at = 0;
    for part in parts {
        out.get_mut(at..)?.get_mut(..part.len())?.copy_from_slice(part);
        at += part.len();
    }
    Some(at)
}
