//! Frames for tests, built byte by byte from the RFCs and verified by `etherparse`; nothing here
//! calls the code under test.
#![allow(unreachable_pub, reason = "nobody depends on a program of tests")]

use etherparse::{SlicedPacket, TransportSlice};

pub mod aggregation;
pub mod bit_plane;
pub mod engines;
pub mod golden;
pub mod laws;

/// One frame, in the terms of its headers.
#[derive(Clone, Debug)]
pub struct Spec {
    /// VLAN tags, outer first: EtherType and TCI.
    pub vlans: Vec<(u16, u16)>,
    /// IPv4 with this many words of options, or IPv6 with these extension headers (next-header
    /// number and length in units of 8 bytes).
    pub ip: IpSpec,
    pub tos: u8,
    pub transport: TransportSpec,
    pub payload: Vec<u8>,
}

#[derive(Clone, Debug)]
pub enum IpSpec {
    V4 { option_words: u8 },
    V6 { extensions: Vec<(u8, u8)> },
}

#[derive(Clone, Debug)]
pub enum TransportSpec {
    Tcp { seq: u32, flags: u8, options: Vec<u8> },
    Udp { checksum: bool },
}

pub const ACK: u8 = 0x10;
pub const SYN: u8 = 0x02;
/// NOP, NOP, timestamps.
pub const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 1, 2, 3, 4, 5, 6, 7];

impl Spec {
    /// A tagged TCP segment over IPv4.
    pub fn tcp(seq: u32, flags: u8, payload: &[u8]) -> Self {
        Self {
            vlans: vec![],
            ip: IpSpec::V4 { option_words: 0 },
            tos: 0x28,
            transport: TransportSpec::Tcp { seq, flags, options: TIMESTAMPS.to_vec() },
            payload: payload.to_vec(),
        }
    }

    /// A tagged UDP datagram over IPv4.
    pub fn udp(payload: &[u8]) -> Self {
        let transport = TransportSpec::Udp { checksum: true };
        Self { transport, ..Self::tcp(0, 0, payload) }
    }

    /// The same flow's SYN, so that the first byte of the stream has sequence number `origin`.
    pub fn syn(&self, origin: u32) -> Self {
        let transport =
            TransportSpec::Tcp { seq: origin.wrapping_sub(1), flags: SYN, options: vec![2, 4, 5, 180] };
        Self { transport, payload: vec![], ..self.clone() }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for (ethertype, tci) in &self.vlans {
            frame.extend(ethertype.to_be_bytes());
            frame.extend(tci.to_be_bytes());
        }
        let protocol = match self.transport {
            TransportSpec::Tcp { .. } => 6,
            TransportSpec::Udp { .. } => 17,
        };
        let mut l4 = self.l4();
        let (addresses, ip) = match &self.ip {
            IpSpec::V4 { option_words } => {
                frame.extend([0x08, 0x00]);
                let addresses = vec![10, 40, 0, 1, 10, 40, 0, 2];
                let len = 20 + 4 * usize::from(*option_words);
                let mut ip = vec![0x40 | (len / 4) as u8, self.tos];
                ip.extend(((len + l4.len()) as u16).to_be_bytes());
                ip.extend([0x12, 0x34, 0x40, 0x00, 64, protocol, 0, 0]);
                ip.extend(&addresses);
                ip.resize(len, 1); // NOP
                let sum = checksum(&ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                (addresses, ip)
            }
            IpSpec::V6 { extensions } => {
                frame.extend([0x86, 0xdd]);
                let addresses: Vec<u8> = (0..32).map(|i| if i == 0 || i == 16 { 0xfd } else { i }).collect();
                let len: usize = extensions.iter().map(|(_, units)| 8 * (usize::from(*units) + 1)).sum();
                let first = u32::from(self.tos) << 20 | 6 << 28 | 0xabcde;
                let mut ip = first.to_be_bytes().to_vec();
                ip.extend(((len + l4.len()) as u16).to_be_bytes());
                let mut numbers: Vec<u8> = extensions.iter().map(|(number, _)| *number).collect();
                numbers.push(protocol);
                ip.extend([numbers[0], 64]);
                ip.extend(&addresses);
                for ((_, units), next) in extensions.iter().zip(&numbers[1..]) {
                    let start = ip.len();
                    ip.extend([*next, *units]);
                    ip.resize(start + 8 * (usize::from(*units) + 1), 0);
                }
                (addresses, ip)
            }
        };
        if !matches!(self.transport, TransportSpec::Udp { checksum: false }) {
            let mut covered = addresses;
            covered.extend([0, protocol]);
            covered.extend((l4.len() as u16).to_be_bytes());
            covered.extend(&l4);
            let at = if protocol == 6 { 16 } else { 6 };
            let sum = match checksum(&covered) {
                0 if protocol == 17 => 0xffff,
                sum => sum,
            };
            l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        frame.extend(ip);
        frame.extend(l4);
        frame
    }

    /// Offset of the payload in the frame.
    pub fn payload_at(&self) -> usize {
        self.bytes().len() - self.payload.len()
    }

    /// Offset of the transport's checksum field.
    pub fn l4_checksum_at(&self) -> usize {
        let l4_at = self.bytes().len() - self.l4().len();
        l4_at + if matches!(self.transport, TransportSpec::Tcp { .. }) { 16 } else { 6 }
    }

    fn l4(&self) -> Vec<u8> {
        let mut l4 = vec![0x9c, 0x40, 0x15, 0x18]; // 40000 -> 5400
        match &self.transport {
            TransportSpec::Tcp { seq, flags, options } => {
                l4.extend(seq.to_be_bytes());
                l4.extend([0, 0, 0, 1, (5 + options.len() as u8 / 4) << 4, *flags, 1, 0, 0, 0, 0, 0]);
                l4.extend(options);
            }
            TransportSpec::Udp { .. } => {
                l4.extend(((8 + self.payload.len()) as u16).to_be_bytes());
                l4.extend([0, 0]);
            }
        }
        l4.extend(&self.payload);
        l4
    }
}

/// RFC 1071, plainly.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|w| u64::from(w[0]) << 8 | w.get(1).map_or(0, |b| u64::from(*b)));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The payload that a receiving host would take from a frame: the payload, or nothing if it would
/// drop the frame.
pub fn host_accepts(frame: &[u8]) -> Option<Vec<u8>> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    if let Some(ipv4) = packet.net.as_ref()?.ipv4_ref() {
        let header = ipv4.header();
        if header.header_checksum() != header.to_header().calc_header_checksum() {
            return None;
        }
    }
    let right = l4_checksum(&packet)?;
    match packet.transport? {
        TransportSlice::Tcp(tcp) => same_zero(tcp.checksum(), right).then(|| tcp.payload().to_vec()),
        TransportSlice::Udp(udp) => {
            (udp.checksum() == 0 || udp.checksum() == right).then(|| udp.payload().to_vec())
        }
        _ => None,
    }
}

/// The right checksum of a TCP segment or UDP datagram.
fn l4_checksum(packet: &SlicedPacket<'_>) -> Option<u16> {
    let ip = packet.net.as_ref()?;
    match packet.transport.as_ref()? {
        TransportSlice::Tcp(tcp) => if let Some(ipv4) = ip.ipv4_ref() {
            tcp.calc_checksum_ipv4(ipv4.header().source(), ipv4.header().destination())
        } else {
            let header = ip.ipv6_ref()?.header();
            tcp.calc_checksum_ipv6(header.source(), header.destination())
        }
        .ok(),
        TransportSlice::Udp(udp) => {
            let header = udp.to_header();
            if let Some(ipv4) = ip.ipv4_ref() {
                header.calc_checksum_ipv4(&ipv4.header().to_header(), udp.payload())
            } else {
                header.calc_checksum_ipv6(&ip.ipv6_ref()?.header().to_header(), udp.payload())
            }
            .ok()
        }
        _ => None,
    }
}

/// Makes the IPv4 header checksum right, and the transport's right but for `plus` (ones'
/// complement), if the frame has them.
pub fn repair_checksums(frame: &mut [u8], plus: u16) {
    repair_ipv4_checksum(frame);
    let l4 = SlicedPacket::from_ethernet(frame).ok().and_then(|packet| {
        let field = match packet.transport.as_ref()? {
            TransportSlice::Tcp(tcp) => &tcp.slice()[16..18],
            TransportSlice::Udp(udp) => &udp.slice()[6..8],
            _ => return None,
        };
        Some((field.as_ptr().addr() - frame.as_ptr().addr(), l4_checksum(&packet)?))
    });
    if let Some((at, right)) = l4 {
        let (sum, carry) = right.overflowing_add(plus);
        frame[at..at + 2].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
    }
}

/// Makes the IPv4 header checksum right, if the frame has one.
pub fn repair_ipv4_checksum(frame: &mut [u8]) {
    if frame[12..14] == [0x08, 0x00]
        && let Some(header) = frame.get_mut(14..14 + 4 * usize::from(frame[14] & 0x0f))
        && header.len() >= 20
    {
        header[10..12].fill(0);
        let sum = checksum(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

/// 0 and 0xffff are the same number to a receiver that sums up.
fn same_zero(a: u16, b: u16) -> bool {
    a == b || (a.min(b), a.max(b)) == (0, 0xffff)
}

/// Little-endian bytes of `values`.
pub fn le_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Values of a usual gradient: most below 2^-10, some above, all from a fixed seed.
pub fn gradient(count: usize) -> Vec<f32> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..count).map(|_| next().powi(5) * 2.0).collect()
}
