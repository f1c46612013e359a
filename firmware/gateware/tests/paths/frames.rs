//! Frames of hosts: whole ones, unusual ones, and broken ones.

use crate::support::Random;

/// The parts of a frame; [`Shape::frame`] computes lengths and checksums that are right.
#[derive(Clone, Debug)]
pub struct Shape {
    pub tags: usize,
    pub v6: bool,
    /// Of IPv4, in words of 4 bytes.
    pub ip_options: usize,
    pub tos: u8,
    pub protocol: u8,
    pub ports: [u16; 2],
    pub seq: u32,
    pub flags: u8,
    /// Of TCP; a multiple of 4 long.
    pub options: Vec<u8>,
    /// UDP over IPv4: no checksum.
    pub unsummed: bool,
    /// The checksum is left to offload.
    pub offloaded: bool,
    pub payload: Vec<u8>,
}

pub const SYN: u8 = 0x02;
pub const ACK: u8 = 0x10;

impl Shape {
    pub fn random(random: &mut Random, tos: u8, longest: usize) -> Self {
        let tcp = random.one_in(2);
        let options: &[&[u8]] = &[
            &[],
            &[],
            &[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8],
            &[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8],
            &[1, 1, 5, 10, 1, 2, 3, 4, 5, 6, 7, 8],
            &[1, 1, 19, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[30, 4, 1, 2],
            &[8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 29, 4, 0, 0, 0, 0],
            &[1, 1, 1, 77],
            &[1, 77, 1, 9],
            &[77, 200, 30, 30],
            &[2, 4, 5, 180, 0, 19, 19, 19],
        ];
        let len = match random.below(8) {
            0 => random.below(12),
            1 => random.below(80),
            2 => longest - random.below(9),
            _ => random.below(longest),
        };
        Self {
            tags: pick(random, &[0, 0, 0, 1, 1, 2, 2, 3]),
            v6: random.one_in(2),
            ip_options: if random.one_in(4) { random.below(11) } else { 0 },
            tos,
            protocol: if random.one_in(20) {
                random.next() as u8
            } else if tcp {
                6
            } else {
                17
            },
            ports: [random.next() as u16, if random.one_in(10) { 4789 } else { random.next() as u16 }],
            seq: random.next(),
            flags: if random.one_in(10) { random.next() as u8 } else { ACK },
            options: pick(random, options).to_vec(),
            unsummed: random.one_in(4),
            offloaded: random.one_in(10),
            payload: values(random, len),
        }
    }

    /// A datagram over IPv4.
    pub fn datagram(tos: u8, payload: Vec<u8>) -> Self {
        Self {
            tags: 0,
            v6: false,
            ip_options: 0,
            tos,
            protocol: 17,
            ports: [7000, 7001],
            seq: 0,
            flags: ACK,
            options: vec![],
            unsummed: false,
            offloaded: false,
            payload,
        }
    }

    fn l4_len(&self) -> usize {
        if self.protocol == 6 { 20 + self.options.len() } else { 8 }
    }

    pub fn ip_at(&self) -> usize {
        14 + 4 * self.tags
    }

    pub fn l4_at(&self) -> usize {
        self.ip_at() + if self.v6 { 40 } else { 20 + 4 * self.ip_options }
    }

    pub fn payload_at(&self) -> usize {
        self.l4_at() + self.l4_len()
    }

    pub fn frame(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for tag in 0..self.tags {
            frame.extend([[0x81, 0x00], [0x88, 0xa8]][tag % 2]);
            frame.extend([0x60, 5 + tag as u8]);
        }
        frame.extend(if self.v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
        let mut segment = Vec::new();
        segment.extend(self.ports.iter().flat_map(|port| port.to_be_bytes()));
        if self.protocol == 6 {
            segment.extend(self.seq.to_be_bytes());
            segment.extend([0, 0, 0, 1, ((self.l4_len() / 4) << 4) as u8, self.flags, 1, 0, 0, 0, 0, 0]);
            segment.extend(&self.options);
        } else {
            segment.extend(((8 + self.payload.len()) as u16).to_be_bytes());
            segment.extend([0, 0]);
        }
        segment.extend(&self.payload);
        let len = segment.len();
        let addresses = if self.v6 {
            let [high, low] = [(self.tos >> 4) | 0x60, self.tos << 4 | 0x0a];
            frame.extend([high, low, 0xbc, 0xde]);
            frame.extend((len as u16).to_be_bytes());
            frame.extend([self.protocol, 64]);
            // Of these addresses, sums of some 1300 to 1500 bytes carry when they are folded.
            frame.extend([0x53, 0xf2]);
            frame.extend((2..32).map(|n| n * 7 + 1));
            frame[frame.len() - 32..].to_vec()
        } else {
            let header = 20 + 4 * self.ip_options;
            let from = frame.len();
            frame.extend([0x40 | (header / 4) as u8, self.tos]);
            frame.extend(((header + len) as u16).to_be_bytes());
            frame.extend([0, 7, 0x40, 0, 64, self.protocol, 0, 0, 10, 0x28, 0, 1, 10, 0x28, 0, 2]);
            frame.extend((0..4 * self.ip_options).map(|n| n as u8));
            let sum = !sum(&frame[from..]);
            frame[from + 10..from + 12].copy_from_slice(&sum.to_be_bytes());
            frame[from + 12..from + 20].to_vec()
        };
        let at = if self.protocol == 6 { 16 } else { 6 };
        let pseudo = [&addresses[..], &[0, self.protocol], &(len as u16).to_be_bytes()].concat();
        let field = if self.offloaded {
            sum(&pseudo)
        } else {
            match !sum(&[&pseudo[..], &segment].concat()) {
                0 if self.protocol == 17 => 0xffff,
                field => field,
            }
        };
        if !(self.unsummed && self.protocol == 17) {
            segment[at..at + 2].copy_from_slice(&field.to_be_bytes());
        }
        frame.extend(segment);
        frame
    }
}

/// RFC 1071, in wide integers.
pub fn sum(bytes: &[u8]) -> u16 {
    let total: u64 =
        bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |b| u64::from(*b))).sum();
    if total == 0 { 0 } else { ((total - 1) % 65535 + 1) as u16 }
}

/// So many bytes of values, of one of several kinds.
pub fn values(random: &mut Random, len: usize) -> Vec<u8> {
    let kind = random.below(6);
    let value = |random: &mut Random| match kind {
        0 => 0.0,
        1 => f32::from_bits(random.next()),
        _ => {
            let exponent = random.below(16) as i32 - 18;
            (random.below(2000) as f32 / 1000.0 - 1.0) * 2f32.powi(exponent)
        }
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(4)).flat_map(|_| value(random).to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// Breaks a frame in one of many ways, its headers above all.
pub fn hurt(random: &mut Random, frame: &mut Vec<u8>) {
    match random.below(9) {
        0 => frame.truncate(1 + random.below(frame.len())),
        1 => frame.truncate(frame.len().saturating_sub(1 + random.below(8)).max(1)),
        2 => {
            let more = 1 + random.below(8);
            frame.extend(random.bytes(more));
        }
        3 => frame.resize(frame.len().max(60), 0),
        4 => {
            let at = random.below(frame.len());
            frame[at] ^= 1 << random.below(8);
        }
        5 => {
            let at = random.below(frame.len().min(80));
            frame[at] = random.next() as u8;
        }
        6 => {
            let at = random.below(frame.len().min(80));
            frame[at] = pick(random, &[0, 1, 2, 4, 6, 17, 44, 0x45, 0x40, 0x60, 0xff]);
        }
        7 => {
            let at = 12 + random.below(20).min(frame.len().saturating_sub(13));
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        _ => frame.truncate(1 + random.below(60.min(frame.len()))),
    }
}

/// One of a list.
pub fn pick<T: Copy>(random: &mut Random, list: &[T]) -> T {
    list[random.below(list.len())]
}
