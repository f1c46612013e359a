//! Frames of hosts on the wire of an aggregator, made by hand.

use softcore::aggregation::{IP, MAC};

pub(crate) fn worker_mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 1, number]
}

pub(crate) fn worker_ip(number: u8) -> [u8; 4] {
    [10, 0, 0, 100 + number]
}

/// The Internet checksum (RFC 1071), in the most obvious way.
pub(crate) fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let bytes = parts.concat();
    let words =
        bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |low| u64::from(*low)));
    let mut sum: u64 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// A frame from a worker with an IPv4 packet.
pub(crate) fn packet(number: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len() as u16).to_be_bytes();
    let header = |sum: [u8; 2]| {
        [&[0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, protocol], &sum[..], &worker_ip(number), &IP.octets()]
            .concat()
    };
    let header = header(checksum(&[&header([0; 2])]));
    [&MAC[..], &worker_mac(number), &[8, 0], &header, payload].concat()
}

/// Flags of TCP (RFC 9293 section 3.1).
pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;

/// One end of a connection to the aggregator, without a stack: it says only what a test says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Its number, as a worker's.
    pub(crate) number: u8,
    /// Its port, and the aggregator's.
    pub(crate) ports: [u16; 2],
    /// The next number that it sends, and the next that it expects.
    pub(crate) next: u32,
    pub(crate) expected: u32,
    /// The window that it gives.
    pub(crate) window: u16,
}

impl Peer {
    pub(crate) fn new(number: u8, port: u16, to: u16) -> Self {
        Self { number, ports: [port, to], next: 1000, expected: 0, window: 8000 }
    }

    /// A segment with a right checksum.
    pub(crate) fn segment(&mut self, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [source, destination] = self.ports.map(u16::to_be_bytes);
        let (next, expected, window) =
            (self.next.to_be_bytes(), self.expected.to_be_bytes(), self.window.to_be_bytes());
        let tcp = |sum: [u8; 2]| {
            let ends = [&[0x50, flags][..], &window, &sum, &[0, 0]].concat();
            [&source[..], &destination, &next, &expected, &ends, payload].concat()
        };
        let len = (20 + payload.len() as u16).to_be_bytes();
        let pseudo = [&worker_ip(self.number)[..], &IP.octets(), &[0, 6], &len].concat();
        let segment = tcp(checksum(&[&pseudo, &tcp([0; 2])]));
        let numbers = payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        self.next = self.next.wrapping_add(numbers);
        packet(self.number, 6, &segment)
    }

    /// Flags and new payload of a frame that is for this end; what comes next is expected from now
    /// on.
    pub(crate) fn take(&mut self, frame: &[u8]) -> Option<(u8, Vec<u8>)> {
        let to = [frame.get(..6)?, frame.get(30..38)?];
        let ports = [self.ports[1].to_be_bytes(), self.ports[0].to_be_bytes()].concat();
        if to != [&worker_mac(self.number)[..], &[&worker_ip(self.number)[..], &ports].concat()]
            || frame[23] != 6
        {
            return None;
        }
        assert_eq!(&frame[6..12], MAC);
        let len = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        let (segment, flags) = (&frame[34..14 + len], frame[47]);
        let pseudo = [&frame[26..34], &[0, 6], &(segment.len() as u16).to_be_bytes()].concat();
        assert_eq!(checksum(&[&pseudo, segment]), [0; 2]);
        let mut payload = segment[usize::from(segment[12] >> 4) * 4..].to_vec();
        let first = u32::from_be_bytes(segment[4..8].try_into().unwrap());
        let end = first.wrapping_add(payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0));
        // What is sent again is no news; a SYN says where to begin.
        if flags & SYN == 0 && end.wrapping_sub(self.expected) as i32 <= 0 {
            payload.clear();
        } else {
            self.expected = end;
        }
        Some((flags, payload))
    }
}
