//! The places of things in an Ethernet frame: headers, payload, and what the flow table needs to
//! know.
//!
//! Two steps, because most frames need only the first: [`IpFrame::parse`] finds the IP header and
//! its type of service, [`IpFrame::packet`] the transport header and the payload. Neither believes
//! a length that the frame does not bear out, except the IP length itself: in-place framing makes
//! frames shorter than that.

use core::cmp::Ordering;

use super::flow_key::FlowKey;
use super::tcp_options::bind_payload;
use crate::checksum::Sum;
use crate::kernels::Kernel;
use crate::verdict::PassReason;

/// TCP flags, byte 13 of its header (RFC 9293 §3.1).
pub mod tcp_flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Start of the connection.
    pub const SYN: u8 = 0x02;
    /// Reset.
    pub const RST: u8 = 0x04;
    /// The acknowledgment number counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
}

/// Flags of segments that are never compressed: they carry more than a position in the stream.
pub(crate) const EXCLUDED_FLAGS: u8 = tcp_flags::SYN | tcp_flags::RST | tcp_flags::URG;

/// Bytes of an Ethernet II header.
pub(crate) const ETHERNET_LEN: usize = 14;
/// Bytes of one VLAN tag.
pub(crate) const VLAN_LEN: usize = 4;
/// The smallest frame of Ethernet without FCS; MACs pad shorter ones.
pub(crate) const MIN_FRAME_LEN: usize = 60;
/// Bytes that [`crate::engine::Ingress`] may need beyond the IP packet: Ethernet and two VLAN tags.
pub const MAX_LINK_LEN: usize = ETHERNET_LEN + 2 * VLAN_LEN;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: [u16; 2] = [0x8100, 0x88a8];
/// Bytes of an IPv4 header without options; an IPv6 header has as many, and more.
pub(super) const IPV4_LEN: usize = 20;
pub(super) const IPV6_LEN: usize = 40;
const TCP: u8 = 6;
const UDP: u8 = 17;
pub(crate) const TCP_LEN: usize = 20;
const UDP_LEN: usize = 8;
/// IPv6 extension headers that are stepped over (RFC 8200 §4).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
/// More extension headers than this are nobody's gradient traffic.
const MAX_EXTENSIONS: usize = 4;

/// The version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Ip {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

/// A frame that carries IP: where the IP header starts and what its first bytes say.
#[derive(Clone, Copy, Debug)]
pub struct IpFrame<'a> {
    frame: &'a [u8],
    /// The VLAN identifiers, outer first, 12 bits each; 0 if there is no tag.
    vlans: u32,
    ip: Ip,
    ip_at: usize,
    tos: u8,
}

/// The big-endian word at byte `at`.
#[inline]
pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

#[inline]
fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

#[inline]
fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

impl<'a> IpFrame<'a> {
    /// Finds the IP header behind at most two VLAN tags.
    ///
    /// # Errors
    /// [`PassReason::NotIp`], or [`PassReason::Malformed`] if the IP header is not what the
    /// EtherType says.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, PassReason> {
        let mut ip_at = ETHERNET_LEN;
        let mut vlans = 0;
        let mut ethertype = be16(frame, ip_at - 2).ok_or(PassReason::NotIp)?;
        for _ in 0..2 {
            if !ETHERTYPE_VLAN.contains(&ethertype) {
                break;
            }
            vlans = vlans << 12 | u32::from(be16(frame, ip_at).ok_or(PassReason::NotIp)? & 0x0fff);
            ip_at += VLAN_LEN;
            ethertype = be16(frame, ip_at - 2).ok_or(PassReason::NotIp)?;
        }
        let (ip, version, header_len) = match ethertype {
            ETHERTYPE_IPV4 => (Ip::V4, 4, IPV4_LEN),
            ETHERTYPE_IPV6 => (Ip::V6, 6, IPV6_LEN),
            _ => return Err(PassReason::NotIp),
        };
        let first = be16(frame, ip_at).ok_or(PassReason::Malformed)?;
        if first >> 12 != version || frame.len() < ip_at + header_len {
            return Err(PassReason::Malformed);
        }
        // IPv4: version, IHL, ToS. IPv6: version, traffic class, the top of the flow label.
        let tos = match ip {
            Ip::V4 => first as u8,
            Ip::V6 => (first >> 4) as u8,
        };
        Ok(Self { frame, vlans, ip, ip_at, tos })
    }

    /// The whole frame.
    #[must_use]
    pub const fn frame(&self) -> &'a [u8] {
        self.frame
    }

    /// Offset of the IP header.
    #[must_use]
    pub const fn ip_at(&self) -> usize {
        self.ip_at
    }

    /// The type of service (IPv6: traffic class), ECN included.
    #[must_use]
    pub const fn tos(&self) -> u8 {
        self.tos
    }

    /// The version of IP.
    #[must_use]
    pub const fn ip(&self) -> Ip {
        self.ip
    }

    /// Whether this could start a TCP connection; cheap, and right for frames without IPv4 options
    /// and extension headers. [`IpFrame::packet`] decides; with options or extension headers it has
    /// to.
    #[inline]
    #[must_use]
    pub fn may_be_syn(&self) -> bool {
        let flags_at = match self.ip {
            Ip::V4 => match self.frame.get(self.ip_at) {
                Some(0x45) if self.frame.get(self.ip_at + 9) != Some(&TCP) => return false,
                Some(0x45) => self.ip_at + IPV4_LEN + 13,
                _ => return true,
            },
            Ip::V6 => match self.frame.get(self.ip_at + 6) {
                Some(&TCP) => self.ip_at + IPV6_LEN + 13,
                Some(&(HOP_BY_HOP | ROUTING | DESTINATION)) => return true,
                _ => return false,
            },
        };
        self.frame.get(flags_at).is_some_and(|flags| flags & tcp_flags::SYN != 0)
    }

    /// Finds the transport header and the payload.
    ///
    /// # Errors
    /// [`PassReason::Fragment`], [`PassReason::Protocol`], [`PassReason::UdpOptions`], or
    /// [`PassReason::Malformed`] if a header is cut short, lies outside the IP packet, or
    /// contradicts itself.
    // Always: handed over in memory, the parts that were just written would be read before they can
    // be.
    #[inline(always)]
    pub fn packet(&self) -> Result<Packet<'a>, PassReason> {
        self.packet_where(false)
    }

    /// [`IpFrame::packet`], but a UDP datagram is as long as the IP packet has room for, whatever
    /// its own length says.
    ///
    /// # Errors
    /// As there, but for [`PassReason::UdpOptions`].
    #[cold]
    #[inline(never)]
    pub(crate) fn packet_by_ip_len(self) -> Result<Packet<'a>, PassReason> {
        self.packet_where(true)
    }

    #[inline(always)]
    fn packet_where(&self, any_udp_len: bool) -> Result<Packet<'a>, PassReason> {
        let (frame, ip_at) = (self.frame, self.ip_at);
        let (protocol, l4_at, end) = match self.ip {
            Ip::V4 => self.ipv4()?,
            Ip::V6 => self.ipv6()?,
        };
        let (transport, payload_at) = match protocol {
            TCP => tcp(frame, l4_at)?,
            UDP => udp(frame, l4_at, end, any_udp_len)?,
            _ => return Err(PassReason::Protocol),
        };
        // Both ends are bounded by an IP length field: no sum here overflows.
        if payload_at > end || payload_at > frame.len() {
            return Err(PassReason::Malformed);
        }
        debug_assert!(ip_at < l4_at && l4_at < payload_at);
        Ok(Packet { ip_frame: *self, transport, l4_at, payload_at, end })
    }

    /// Protocol, offset of the transport header, offset of the packet's end.
    #[inline]
    fn ipv4(&self) -> Result<(u8, usize, usize), PassReason> {
        let header = self.frame.get(self.ip_at..).and_then(|rest| rest.first_chunk::<IPV4_LEN>());
        let header = header.ok_or(PassReason::Malformed)?;
        let header_len = 4 * usize::from(header[0] & 0x0f);
        let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header_len < IPV4_LEN || total_len < header_len {
            return Err(PassReason::Malformed);
        }
        // More fragments, or an offset; reserved and don't-fragment bits do not matter (RFC 791
        // §3.1).
        if u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
            return Err(PassReason::Fragment);
        }
        Ok((header[9], self.ip_at + header_len, self.ip_at + total_len))
    }

    /// Protocol, offset of the transport header, offset of the packet's end.
    #[inline(always)] // as `packet`
    fn ipv6(&self) -> Result<(u8, usize, usize), PassReason> {
        let malformed = PassReason::Malformed;
        let payload_len = usize::from(be16(self.frame, self.ip_at + 4).ok_or(malformed)?);
        let mut next = *self.frame.get(self.ip_at + 6).ok_or(malformed)?;
        let mut at = self.ip_at + IPV6_LEN;
        let end = at + payload_len;
        for place in 0..=MAX_EXTENSIONS {
            match next {
                // Only directly behind the IPv6 header (RFC 8200 §4.1).
                HOP_BY_HOP if place == 0 => {}
                ROUTING | DESTINATION => {}
                FRAGMENT => return Err(PassReason::Fragment),
                _ => return Ok((next, at, end)),
            }
            let extension = self.frame.get(at..).and_then(|rest| rest.first_chunk::<4>()).ok_or(malformed)?;
            // Until the last segment the destination is not the one that checksums are over (RFC
            // 8200 §8.1).
            if next == ROUTING && extension[3] != 0 {
                return Err(PassReason::Protocol);
            }
            let extension_len = 8 * (usize::from(extension[1]) + 1);
            if next == DESTINATION && has_home_address(self.frame.get(at..at + extension_len).unwrap_or(&[]))
            {
                return Err(PassReason::Protocol);
            }
            next = extension[0];
            at += extension_len;
        }
        Err(PassReason::Protocol)
    }
}

/// Whether a header with destination options has Mobile IPv6's home address. Checksums are over
/// that one then, in place of the source (RFC 6275 §6.3).
#[inline(never)]
fn has_home_address(header: &[u8]) -> bool {
    const PAD1: u8 = 0;
    const HOME_ADDRESS: u8 = 0xc9;
    let mut options = header.get(2..).unwrap_or(&[]);
    // At most 2046 bytes; every turn takes at least one.
    while let [kind, rest @ ..] = options {
        options = match *kind {
            PAD1 => rest,
            HOME_ADDRESS => return true,
            _ => match rest.split_first() {
                Some((len, rest)) => rest.get(usize::from(*len)..).unwrap_or(&[]),
                None => &[],
            },
        };
    }
    false
}

/// Transport and offset of the payload.
#[inline]
fn tcp(frame: &[u8], at: usize) -> Result<(Transport, usize), PassReason> {
    let header = frame.get(at..).and_then(|rest| rest.first_chunk::<TCP_LEN>());
    let header = header.ok_or(PassReason::Malformed)?;
    let header_len = 4 * usize::from(header[12] >> 4);
    if header_len < TCP_LEN {
        return Err(PassReason::Malformed);
    }
    let seq = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    Ok((Transport::Tcp { seq, flags: header[13] }, at + header_len))
}

/// Transport and offset of the payload.
#[inline]
fn udp(frame: &[u8], at: usize, end: usize, any_len: bool) -> Result<(Transport, usize), PassReason> {
    let len = usize::from(be16(frame, at + 4).ok_or(PassReason::Malformed)?);
    if at + len != end {
        if len < UDP_LEN || at + len > end {
            return Err(PassReason::Malformed);
        }
        if !any_len {
            return Err(PassReason::UdpOptions);
        }
    }
    let checksum = be16(frame, at + 6).ok_or(PassReason::Malformed)?;
    Ok((Transport::Udp { checksum }, at + UDP_LEN))
}

/// Fields of the transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Transport {
    /// RFC 9293.
    Tcp {
        /// Sequence number of the first payload byte (of the SYN, if there is one).
        seq: u32,
        /// The flags of [`tcp_flags`].
        flags: u8,
    },
    /// RFC 768.
    Udp {
        /// The checksum field; 0 if the sender computed none.
        checksum: u16,
    },
}

/// The end of a frame, compared with the IP packet in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Before the packet does, as its IP length says: in-place framing, or a frame that was cut.
    Short,
    /// With the packet.
    Exact,
    /// Behind it: padding, or bytes that are nobody's.
    Trailing,
}

/// A TCP or UDP packet whose headers are whole and consistent with each other.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    ip_frame: IpFrame<'a>,
    transport: Transport,
    l4_at: usize,
    /// At most the frame's length, and at most `end`.
    payload_at: usize,
    /// The end of the packet by its IP length; may lie behind the frame's end.
    end: usize,
}

impl<'a> Packet<'a> {
    /// Its frame, as far as the IP header.
    pub(crate) const fn ip_frame(&self) -> &IpFrame<'a> {
        &self.ip_frame
    }

    /// The whole frame.
    #[must_use]
    pub const fn frame(&self) -> &'a [u8] {
        self.ip_frame.frame
    }

    /// The version of IP.
    #[must_use]
    pub const fn ip(&self) -> Ip {
        self.ip_frame.ip
    }

    /// The type of service (IPv6: traffic class), ECN included.
    #[must_use]
    pub const fn tos(&self) -> u8 {
        self.ip_frame.tos
    }

    /// Fields of the transport header.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        self.transport
    }

    /// Offset of the IP header.
    #[must_use]
    pub const fn ip_at(&self) -> usize {
        self.ip_frame.ip_at
    }

    /// Length of the VLAN tags in bytes.
    #[must_use]
    pub const fn tags_len(&self) -> usize {
        self.ip_frame.ip_at - ETHERNET_LEN
    }

    /// Offset of the transport header.
    #[must_use]
    pub const fn l4_at(&self) -> usize {
        self.l4_at
    }

    /// Offset of the payload.
    #[must_use]
    pub const fn payload_at(&self) -> usize {
        self.payload_at
    }

    /// Offset of the transport's checksum field.
    #[must_use]
    pub const fn l4_checksum_at(&self) -> usize {
        match self.transport {
            Transport::Tcp { .. } => self.l4_at + 16,
            Transport::Udp { .. } => self.l4_at + 6,
        }
    }

    /// Length of the IP packet as its header says.
    #[must_use]
    pub const fn ip_len(&self) -> usize {
        self.end - self.ip_frame.ip_at
    }

    /// Length of the payload as the IP header says.
    #[must_use]
    pub const fn payload_len(&self) -> usize {
        self.end - self.payload_at
    }

    /// Compares the frame's length with that of its IP packet.
    #[inline]
    #[must_use]
    pub fn extent(&self) -> Extent {
        match self.ip_frame.frame.len().cmp(&self.end) {
            Ordering::Less => Extent::Short,
            Ordering::Equal => Extent::Exact,
            Ordering::Greater => Extent::Trailing,
        }
    }

    /// The sum of the headers ([`Self::header_sum`]), if the packet is all in its frame and its
    /// checksums are right, or left to offload. Asked of a packet of the host: what was wrong
    /// before must not become right.
    ///
    /// # Errors
    /// [`PassReason::Malformed`] if the frame ends before the packet, [`PassReason::IpChecksum`],
    /// [`PassReason::L4Checksum`].
    #[inline]
    pub fn verify(&self, kernel: Kernel) -> Result<Sum, PassReason> {
        self.verify_with(|payload| kernel.sum(payload))
    }

    /// As [`Self::verify`], with `sum` for the sum of the payload.
    ///
    /// # Errors
    /// As there.
    #[inline(always)] // as `packet`
    pub(crate) fn verify_with(&self, sum: impl FnOnce(&[u8]) -> Sum) -> Result<Sum, PassReason> {
        if self.extent() == Extent::Short {
            return Err(PassReason::Malformed);
        }
        if !self.ip_checksum_holds() {
            return Err(PassReason::IpChecksum);
        }
        let header_sum = self.header_sum();
        let none = matches!(self.transport, Transport::Udp { checksum: 0 });
        if none || self.l4_sum(header_sum, sum).is_zero() || self.l4_checksum_is_offloaded() {
            Ok(header_sum)
        } else {
            Err(PassReason::L4Checksum)
        }
    }

    /// Everything behind the transport header, up to the packet's end or the frame's.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        let rest = self.ip_frame.frame.get(self.payload_at..).unwrap_or(&[]);
        rest.get(..self.payload_len()).unwrap_or(rest)
    }

    /// Everything up to the payload.
    #[inline]
    #[must_use]
    pub fn headers(&self) -> &'a [u8] {
        self.ip_frame.frame.get(..self.payload_at).unwrap_or(&[])
    }

    /// Whether the IPv4 header's checksum is right; IPv6 has none.
    #[inline]
    #[must_use]
    pub fn ip_checksum_holds(&self) -> bool {
        match self.ip_frame.ip {
            Ip::V6 => true,
            Ip::V4 => Sum::of_words(self.words(self.ip_frame.ip_at, self.l4_at)).is_zero(),
        }
    }

    /// The sum of addresses and protocol: of the pseudo-header all but the length (RFC 9293 §3.1,
    /// RFC 768, RFC 8200 §8.1).
    #[inline]
    fn address_sum(&self) -> Sum {
        let at = self.ip_frame.ip_at;
        let addresses = match self.ip_frame.ip {
            Ip::V4 => self.words(at + 12, at + 20),
            Ip::V6 => self.words(at + 8, at + 40),
        };
        Sum::of_words(addresses) + Sum::word(self.protocol().into())
    }

    /// Whole words of the headers; none if they are not there.
    #[inline]
    fn words(&self, at: usize, end: usize) -> &'a [[u8; 4]] {
        self.ip_frame.frame.get(at..end).unwrap_or(&[]).as_chunks().0
    }

    /// The sum of the pseudo-header for a transport segment of `l4_len` bytes.
    #[inline]
    #[must_use]
    pub fn pseudo_sum(&self, l4_len: usize) -> Sum {
        // A length from an IP length field fits 16 bits.
        self.address_sum() + Sum::word(l4_len as u16)
    }

    /// The sum of what the transport's checksum covers, but for payload and the pseudo-header's
    /// length: addresses, protocol, and the transport header with its checksum.
    // `verify_with` has read half of these words. A soft core's image is smaller with a call.
    #[cfg_attr(target_arch = "x86_64", inline(always))]
    #[must_use]
    pub fn header_sum(&self) -> Sum {
        self.address_sum() + Sum::of_words(self.words(self.l4_at, self.payload_at))
    }

    /// The sum of pseudo-header and segment: zero if the checksum is right. Only for packets that
    /// lie wholly in their frame. `header_sum` is that of the packet, and `sum` makes that of its
    /// payload.
    #[inline]
    #[must_use]
    pub fn l4_sum(&self, header_sum: Sum, sum: impl FnOnce(&[u8]) -> Sum) -> Sum {
        header_sum + Sum::word((self.end - self.l4_at) as u16) + sum(self.payload())
    }

    /// The transport's checksum field.
    #[inline]
    #[must_use]
    pub fn l4_checksum(&self) -> u16 {
        be16(self.ip_frame.frame, self.l4_checksum_at()).unwrap_or(0)
    }

    /// Whether the checksum is left to offload: the field holds the pseudo-header's sum, not
    /// inverted.
    #[must_use]
    pub fn l4_checksum_is_offloaded(&self) -> bool {
        Sum::word(self.l4_checksum()).equals(self.pseudo_sum(self.end - self.l4_at))
    }

    /// Whether a checksum field holds the zero that no sender computes: the sum of a header with a
    /// protocol in it is never 0, so its complement is never 0xffff.
    #[must_use]
    pub(crate) fn has_negative_zero(&self) -> bool {
        let ip_checksum = match self.ip_frame.ip {
            Ip::V4 => be16(self.ip_frame.frame, self.ip_frame.ip_at + 10),
            Ip::V6 => None,
        };
        self.l4_checksum() == u16::MAX || ip_checksum == Some(u16::MAX)
    }

    /// The flow that the packet belongs to.
    #[inline]
    #[must_use]
    pub fn flow_key(&self) -> FlowKey {
        let (frame, at) = (self.ip_frame.frame, self.ip_frame.ip_at);
        let word = |at| be64(frame, at).unwrap_or(0);
        let ports = u64::from(be32(frame, self.l4_at).unwrap_or(0));
        let version = matches!(self.ip_frame.ip, Ip::V6);
        let rest = ports << 32 | u64::from(self.ip_frame.vlans) << 8 | u64::from(version);
        FlowKey(match self.ip_frame.ip {
            Ip::V4 => [word(at + 12), 0, 0, 0, rest],
            Ip::V6 => [word(at + 8), word(at + 16), word(at + 24), word(at + 32), rest],
        })
    }

    /// Whether the UDP destination port is a tunnel's or RDMA's. Their payload has headers that the
    /// tagged socket never saw, because they inherit the ToS of what they carry.
    #[inline]
    #[must_use]
    pub(crate) fn is_tunnel(&self) -> bool {
        const PORTS: [u16; 5] = [
            4789, // VXLAN, RFC 7348
            8472, // VXLAN, Linux's default
            6081, // Geneve, RFC 8926
            2152, // GTP-U, 3GPP TS 29.281
            4791, // RoCEv2, InfiniBand Architecture Annex A17
        ];
        let port = be16(self.ip_frame.frame, self.l4_at + 2).unwrap_or(0);
        matches!(self.transport, Transport::Udp { .. }) && PORTS.contains(&port)
    }

    /// Whether a TCP option signs or renumbers the payload: changing it would break the connection.
    #[cfg_attr(target_arch = "x86_64", inline(always))] // as `header_sum`
    #[must_use]
    pub fn has_binding_option(&self) -> bool {
        /// NOP, NOP, timestamps (RFC 7323 appendix A): what nearly every data segment has.
        const USUAL: u32 = 0x0101_080a;
        if !matches!(self.transport, Transport::Tcp { .. }) {
            return false;
        }
        let options = self.tcp_options();
        if options.len() == 12 && be32(options, 0) == Some(USUAL) {
            return false;
        }
        bind_payload(options)
    }

    /// The options of a TCP header, with their padding.
    #[inline]
    #[must_use]
    pub fn tcp_options(&self) -> &'a [u8] {
        self.ip_frame.frame.get(self.l4_at + TCP_LEN..self.payload_at).unwrap_or(&[])
    }

    /// The acknowledgment number of a TCP segment; it counts if the segment has the flag.
    #[must_use]
    pub(crate) fn ack(&self) -> u32 {
        be32(self.ip_frame.frame, self.l4_at + 8).unwrap_or(0)
    }

    const fn protocol(&self) -> u8 {
        match self.transport {
            Transport::Tcp { .. } => TCP,
            Transport::Udp { .. } => UDP,
        }
    }
}
