//! The header of each message, and the frames of the control connections.
//!
//! ```text
//! 0        4      5        8          16       24       32    36     40         44    48       52    56
//! | "gwc1" | kind | zeros  | sequence | layout | values | job | part | partitions | tag | elements | len | plan (40 bytes) |
//! ```
//! Numbers are little-endian. `values` are the buffer's and `elements` the part's. `plan` is
//! strategy and codec, cut to 40 bytes.

use crate::agreement::Vote;
use crate::graph::{Format, Rank};

pub(crate) const HEADER_LEN: usize = 96;
const PLAN_LEN: usize = 40;
const MAGIC: [u8; 4] = *b"gwc1";

/// The use of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Purpose {
    /// Between rank 0 and another: failures, signs of life, comparisons.
    Control = 1,
    /// Messages of host codecs, in both directions.
    Data = 2,
    /// `f32` that the dataplane compresses, from a rank to the next in the ring.
    Tagged = 3,
}

/// A rank's description of a message, so that the receiver can tell whether both mean the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) sequence: u64,
    pub(crate) layout: u64,
    pub(crate) values: u64,
    pub(crate) job: u32,
    pub(crate) part: u32,
    pub(crate) partitions: u32,
    pub(crate) tag: u32,
    pub(crate) elements: u32,
    pub(crate) len: u32,
    pub(crate) plan: PlanName,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A message of values.
    Message(Format),
    /// The sender leaves; nothing follows.
    Bye,
}

/// Strategy and codec, as far as they fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlanName([u8; PLAN_LEN]);

impl PlanName {
    /// Cuts the text to 40 bytes.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut name = [0; PLAN_LEN];
        let len = text.len().min(PLAN_LEN);
        name[..len].copy_from_slice(&text.as_bytes()[..len]);
        Self(name)
    }
}

impl std::fmt::Display for PlanName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A peer's bytes are printed only where they are plain.
        let plain = self.0.iter().filter(|byte| byte.is_ascii_graphic() || **byte == b' ');
        plain.map(|byte| char::from(*byte)).try_for_each(|c| write!(f, "{c}"))
    }
}

impl Header {
    /// The one that says that nothing follows.
    pub(crate) fn bye(sequence: u64) -> Self {
        Self {
            kind: Kind::Bye,
            sequence,
            layout: 0,
            values: 0,
            job: 0,
            part: 0,
            partitions: 0,
            tag: 0,
            elements: 0,
            len: 0,
            plan: PlanName::new(""),
        }
    }

    pub(crate) fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = match self.kind {
            Kind::Message(Format::Raw) => 1,
            Kind::Message(Format::Coded) => 2,
            Kind::Bye => 3,
        };
        for (at, long) in [(8, self.sequence), (16, self.layout), (24, self.values)] {
            bytes[at..at + 8].copy_from_slice(&long.to_le_bytes());
        }
        let short = [self.job, self.part, self.partitions, self.tag, self.elements, self.len];
        for (i, short) in short.into_iter().enumerate() {
            bytes[32 + 4 * i..36 + 4 * i].copy_from_slice(&short.to_le_bytes());
        }
        bytes[56..].copy_from_slice(&self.plan.0);
        bytes
    }

    /// `None` if no rank of this version writes it.
    pub(crate) fn parse(bytes: &[u8; HEADER_LEN]) -> Option<Self> {
        let kind = match bytes[4] {
            1 => Kind::Message(Format::Raw),
            2 => Kind::Message(Format::Coded),
            3 => Kind::Bye,
            _ => return None,
        };
        if bytes[..4] != MAGIC || bytes[5..8] != [0; 3] {
            return None;
        }
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let short =
            |i: usize| u32::from_le_bytes(bytes[32 + 4 * i..36 + 4 * i].try_into().expect("four bytes"));
        Some(Self {
            kind,
            sequence: long(8),
            layout: long(16),
            values: long(24),
            job: short(0),
            part: short(1),
            partitions: short(2),
            tag: short(3),
            elements: short(4),
            len: short(5),
            plan: PlanName(bytes[56..].try_into().expect("the rest")),
        })
    }
}

/// A frame of a control connection: kind, three zeros, length of the body, body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Control {
    /// Rank 0 asks whether the rank is alive.
    Ping,
    /// It is, and this exchange is the last that it began.
    Pong { sequence: u64 },
    /// Something failed.
    Failed(crate::failure::Failure),
    /// A rank's checksum of a comparison with this number.
    Compare { number: u64, checksum: u64 },
    /// All checksums of the comparison with this number were alike.
    Alike { number: u64 },
    /// The rank leaves.
    Bye,
    /// A rank wants to send a big message.
    Wish { to: Rank, bytes: u64 },
    /// A rank may send so many big messages that it asked for, the oldest first.
    Go { to: Rank, messages: u32 },
    /// A rank has sent these.
    Done { to: Rank },
    /// A rank's vote at the end of a sum in the network with this number.
    Vote { number: u64, vote: Vote },
    /// Somebody gave up on the aggregator: all vote now.
    Halt { number: u64 },
    /// The votes of all ranks, by rank.
    Votes { number: u64, votes: Vec<Vote> },
    /// A part of what rank 1 asks a server to do next; the `last` one makes it whole.
    Ask { last: bool, text: Vec<u8> },
}

pub(crate) const CONTROL_HEAD: usize = 8;
/// The longest body.
pub(crate) const MAX_CONTROL: usize = 4096;

impl Control {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        use crate::failure::Weight;
        let mut body = Vec::new();
        let kind = match self {
            Self::Ping => 1,
            Self::Pong { sequence } => {
                body.extend(sequence.to_le_bytes());
                2
            }
            Self::Failed(failure) => {
                body.extend((failure.reporter as u32).to_le_bytes());
                let (weight, sequence) = match failure.weight {
                    Weight::Closed => (0, 0),
                    Weight::Late { sequence } => (1, sequence),
                    Weight::Certain => (2, 0),
                };
                body.push(weight);
                body.extend(u64::to_le_bytes(sequence));
                let text = &failure.cause.as_bytes()[..failure.cause.len().min(MAX_CONTROL - 16)];
                body.extend(text);
                3
            }
            Self::Compare { number, checksum } => {
                body.extend(number.to_le_bytes());
                body.extend(checksum.to_le_bytes());
                4
            }
            Self::Alike { number } => {
                body.extend(number.to_le_bytes());
                5
            }
            Self::Bye => 6,
            Self::Wish { to, bytes } => {
                body.extend((*to as u32).to_le_bytes());
                body.extend(bytes.to_le_bytes());
                7
            }
            Self::Go { to, messages } => {
                body.extend((*to as u32).to_le_bytes());
                body.extend(messages.to_le_bytes());
                8
            }
            Self::Done { to } => {
                body.extend((*to as u32).to_le_bytes());
                9
            }
            Self::Vote { number, vote } => {
                body.extend(number.to_le_bytes());
                body.extend(vote.to_bytes());
                10
            }
            Self::Halt { number } => {
                body.extend(number.to_le_bytes());
                11
            }
            Self::Votes { number, votes } => {
                body.extend(number.to_le_bytes());
                votes.iter().for_each(|vote| body.extend(vote.to_bytes()));
                12
            }
            Self::Ask { last, text } => {
                body.push(u8::from(*last));
                body.extend(text);
                13
            }
        };
        let mut frame = vec![kind, 0, 0, 0];
        frame.extend((body.len() as u32).to_le_bytes());
        frame.extend(body);
        frame
    }

    /// The length of the body behind this head, if it is not too long.
    pub(crate) fn body_len(head: &[u8; CONTROL_HEAD]) -> Option<usize> {
        let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        (len <= MAX_CONTROL).then_some(len)
    }

    /// `None` if no rank of this version writes it.
    pub(crate) fn parse(kind: u8, body: &[u8]) -> Option<Self> {
        use crate::failure::{Failure, Weight};
        let long = |at: usize| {
            body.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight")))
        };
        let short =
            |at: usize| body.get(at..at + 4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four")));
        let frame = match kind {
            1 => Self::Ping,
            2 => Self::Pong { sequence: long(0)? },
            3 => {
                let reporter = short(0)? as usize;
                let weight = match body.get(4)? {
                    0 => Weight::Closed,
                    1 => Weight::Late { sequence: long(5)? },
                    2 => Weight::Certain,
                    _ => return None,
                };
                let text = String::from_utf8_lossy(body.get(13..)?);
                let cause: String = text.chars().filter(|c| !c.is_control()).collect();
                if !cause.contains(char::is_alphabetic) {
                    return None;
                }
                Self::Failed(Failure { reporter, cause, weight })
            }
            4 => Self::Compare { number: long(0)?, checksum: long(8)? },
            5 => Self::Alike { number: long(0)? },
            6 => Self::Bye,
            7 => Self::Wish { to: short(0)? as usize, bytes: long(4)? },
            8 => Self::Go { to: short(0)? as usize, messages: short(4)? },
            9 => Self::Done { to: short(0)? as usize },
            10 => Self::Vote { number: long(0)?, vote: Vote::parse(body.get(8..)?.try_into().ok()?)? },
            11 => Self::Halt { number: long(0)? },
            12 => {
                let (votes, []) = body.get(8..)?.as_chunks::<{ Vote::LEN }>() else { return None };
                let votes = votes.iter().map(Vote::parse).collect::<Option<_>>()?;
                Self::Votes { number: long(0)?, votes }
            }
            13 => {
                let (last, text) = body.split_first()?;
                Self::Ask { last: *last != 0, text: text.to_vec() }
            }
            _ => return None,
        };
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{Failure, Weight};

    #[test]
    fn headers_come_back_and_others_are_refused() {
        let header = Header {
            kind: Kind::Message(Format::Coded),
            sequence: 1 << 40,
            layout: u64::MAX,
            values: 7,
            job: 1,
            part: 2,
            partitions: 3,
            tag: 4,
            elements: 5,
            len: 6,
            plan: PlanName::new("hierarchy:4:servers low-rank:16:1024 and more"),
        };
        let bytes = header.to_bytes();
        assert_eq!(Header::parse(&bytes), Some(header.clone()));
        assert_eq!(header.plan.to_string(), "hierarchy:4:servers low-rank:16:1024 and");
        for at in 0..8 {
            let mut other = bytes;
            other[at] ^= 0x80;
            assert_eq!(Header::parse(&other), None, "byte {at}");
        }
    }

    #[test]
    fn control_frames_come_back_and_others_are_refused() {
        let vote = Vote { end: crate::agreement::End::Stopped, epoch: 1, blocks: 4, base: 2, later: 3 };
        let failure = |weight| Failure { reporter: 3, cause: "rank 2 left".into(), weight };
        for frame in [
            Control::Ping,
            Control::Pong { sequence: 9 },
            Control::Failed(failure(Weight::Closed)),
            Control::Failed(failure(Weight::Late { sequence: 5 })),
            Control::Failed(failure(Weight::Certain)),
            Control::Compare { number: 1, checksum: 2 },
            Control::Alike { number: 3 },
            Control::Bye,
            Control::Wish { to: 1, bytes: 1 << 40 },
            Control::Go { to: 2, messages: 3 },
            Control::Done { to: 4 },
            Control::Vote { number: 5, vote },
            Control::Halt { number: 6 },
            Control::Votes { number: 7, votes: vec![vote; 64] },
            Control::Ask { last: true, text: vec![7; MAX_CONTROL - 1] },
        ] {
            let bytes = frame.to_bytes();
            let (head, body) = bytes.split_first_chunk().unwrap();
            assert_eq!(Control::body_len(head), Some(body.len()));
            assert_eq!(Control::parse(head[0], body), Some(frame));
            for len in 0..body.len().min(13) {
                let short = Control::parse(head[0], &body[..len]);
                // Of no votes at all: the poller knows how many there are. And any bytes are a part
                // of what is asked.
                let none = match &short {
                    Some(Control::Votes { votes, .. }) => votes.is_empty(),
                    Some(Control::Ask { text, .. }) => text.len() + 1 == len,
                    _ => false,
                };
                assert!(short.is_none() || none, "{short:?}");
            }
        }
        assert_eq!(Control::body_len(&[1, 0, 0, 0, 1, 16, 0, 0]), None);
        assert_eq!(Control::parse(13, &[]), None);
        assert_eq!(Control::parse(14, &[0; 8]), None);
        let wordless = Failure { cause: "12".into(), ..failure(Weight::Certain) };
        assert_eq!(Control::parse(3, &Control::Failed(wordless).to_bytes()[CONTROL_HEAD..]), None);
        let long = Failure { cause: "é".repeat(9999), ..failure(Weight::Certain) };
        assert!(Control::Failed(long).to_bytes().len() <= CONTROL_HEAD + MAX_CONTROL);
    }
}
