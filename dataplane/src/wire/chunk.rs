//! Packets of aggregation: what members and aggregators say to each other about chunks of values (FORMAT.md §11).
//!
//! ```text
//! 0         1      2          4            8            12       13        14           16       17     18    19  20
//! | version | kind | job (BE) | epoch (BE) | seq (BE)   | worker | workers | values(BE) | blocks | peak | 0   | y  |
//! ```
//!
//! [`Packet::parse`] takes any bytes. What it returns is whole and agrees with itself. Sections are not read here: decoding
//! them is what checks them.

use core::fmt;

use crate::codec::VALUE_LEN;
pub use crate::codec::planar::sums::BLOCK_VALUES;
use crate::codec::planar::{Bound, max_encoded_len};

/// The UDP port that aggregators listen at.
pub const PORT: u16 = 59255;
/// The type of service of these packets; it is neither a rule's nor the mark.
pub const TOS: u8 = 0x38;
/// Bytes of the header.
pub const HEADER_LEN: usize = 20;
/// Bytes of a block's values.
pub const BLOCK_LEN: usize = BLOCK_VALUES * VALUE_LEN;
/// The most blocks of a chunk.
pub const MAX_BLOCKS: usize = 16;
/// The most values of a chunk.
pub const MAX_VALUES: usize = MAX_BLOCKS * BLOCK_VALUES;
/// Bytes of the longest section of a block.
pub const MAX_SECTION_LEN: usize = max_encoded_len(BLOCK_LEN);
/// The smallest IP MTU: the worst block still fits behind the headers of IPv4 and UDP.
pub const MIN_MTU: u16 = (20 + 8 + HEADER_LEN + MAX_SECTION_LEN) as u16;
/// The longest packet of a member that asks for Ethernet's MTU.
pub const MAX_PACKET_LEN: usize = 1500 - 20 - 8;
/// The most members of one aggregator.
pub const MAX_MEMBERS: usize = 64;
/// The most chunks that a member may have under way.
pub const MAX_WINDOW: usize = 64;

const VERSION: u8 = 1;
/// In place of a worker's number: the packet is an aggregator's.
const AGGREGATOR: u8 = 0xff;
/// The largest biased exponent of a finite value.
const MAX_PEAK: u8 = 254;

mod kind {
    pub(super) const CONTRIBUTE: u8 = 1;
    pub(super) const RESULT: u8 = 2;
    pub(super) const HELLO: u8 = 3;
    pub(super) const WELCOME: u8 = 4;
    pub(super) const WAITING: u8 = 5;
    pub(super) const REFUSE: u8 = 6;
    pub(super) const QUERY: u8 = 7;
    pub(super) const MISSING: u8 = 8;
    pub(super) const PARTIAL: u8 = 9;
    pub(super) const RESCALE: u8 = 10;
}

/// Which chunk a packet is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Head {
    /// The job.
    pub job: u16,
    /// The job's epoch; later ones are larger in serial arithmetic (RFC 1982).
    pub epoch: u32,
    /// The chunk's sequence number, from 0 in each epoch; 0 in hellos and welcomes.
    pub seq: u32,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Packet<'a> {
    /// Which chunk it is about.
    pub head: Head,
    /// What it says.
    pub body: Body<'a>,
}

/// What a packet says. `worker` is a member's number at its aggregator, below [`MAX_MEMBERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Body<'a> {
    /// Member: these are my values. The sections are codec 2's.
    Contribute {
        /// The sender.
        worker: u8,
        /// Its values.
        part: Part<'a>,
    },
    /// Aggregator of a rack: this is the sum of my members. The sections are of sums.
    Partial {
        /// The sender.
        worker: u8,
        /// How many workers the sum is of.
        workers: u8,
        /// The sum.
        part: Part<'a>,
    },
    /// Aggregator: this is the sum of all. The sections are of sums.
    Result {
        /// How many workers the sum is of.
        workers: u8,
        /// The sum.
        part: Part<'a>,
    },
    /// Aggregator: a value is too large to be summed in this unit; there will be no result.
    Rescale {
        /// The largest biased exponent of the chunk's finite values.
        peak: u8,
    },
    /// Member: I take part.
    Hello {
        /// The sender.
        worker: u8,
        /// Members of the aggregator that is asked.
        members: u8,
        /// Workers of the whole job.
        total: u8,
        /// What the member can have at most.
        limits: Limits,
        /// Who knows this number belongs to the job.
        key: u64,
    },
    /// Aggregator: you take part.
    Welcome {
        /// What holds for the job.
        limits: Limits,
        /// The IPv4 group of results; 0 if each member gets a copy.
        group: [u8; 4],
        /// The job's key.
        key: u64,
    },
    /// Aggregator: I cannot serve you.
    Refuse {
        /// Why.
        reason: Refusal,
        /// The job's epoch at the aggregator; the packet's own if the aggregator has no such job.
        epoch: u32,
    },
    /// Member: what about this chunk?
    Query {
        /// The sender.
        worker: u8,
    },
    /// Aggregator: I wait for these.
    Waiting {
        /// A bit for each worker; none if an aggregator above has to answer.
        workers: u64,
    },
    /// Aggregator: I lack these blocks of yours.
    Missing {
        /// A bit for each block.
        blocks: u16,
    },
}

/// Sizes on which a job agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Limits {
    /// Blocks of a chunk, 1 to [`MAX_BLOCKS`].
    pub blocks: u8,
    /// Chunks under way, a power of two up to [`MAX_WINDOW`].
    pub window: u8,
    /// The longest IP packet, at least [`MIN_MTU`].
    pub mtu: u16,
}

impl Limits {
    /// The largest chunks and windows, for Ethernet.
    pub const MOST: Self = Self { blocks: MAX_BLOCKS as u8, window: 16, mtu: 1500 };

    /// Whether each is within its range.
    #[must_use]
    pub const fn are_valid(self) -> bool {
        self.blocks >= 1
            && self.blocks as usize <= MAX_BLOCKS
            && self.window.is_power_of_two()
            && self.window as usize <= MAX_WINDOW
            && self.mtu >= MIN_MTU
    }

    /// The smaller of each.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.min(other.blocks),
            window: self.window.min(other.window),
            mtu: self.mtu.min(other.mtu),
        }
    }

    /// Values of a chunk.
    #[must_use]
    pub const fn values(self) -> usize {
        self.blocks as usize * BLOCK_VALUES
    }

    /// Chunks of an operation on so many values.
    #[must_use]
    pub const fn chunks(self, values: usize) -> usize {
        match self.values() {
            0 => 0,
            of_chunk => values.div_ceil(of_chunk),
        }
    }

    /// Bytes of a packet that the MTU has room for behind the headers of IPv4 and UDP.
    #[must_use]
    pub const fn packet_len(self) -> usize {
        (self.mtu as usize).saturating_sub(28)
    }
}

/// Whole blocks of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Part<'a> {
    /// Which blocks of which chunk.
    pub blocks: Blocks,
    /// The largest biased exponent of the finite values.
    pub peak: u8,
    /// The unit of sums, and the bound on the error of each worker's values.
    pub bound: Bound,
    /// The blocks' sections, not yet checked: that is the decoder's work.
    pub sections: &'a [u8],
}

/// Some of a chunk's blocks, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Blocks {
    values: u16,
    first: u8,
    count: u8,
}

impl Blocks {
    /// `count` blocks from `first` on, of a chunk with so many values. None if the chunk has no such blocks.
    #[must_use]
    pub const fn new(values: usize, first: usize, count: usize) -> Option<Self> {
        if values == 0 || values > MAX_VALUES || count == 0 {
            return None;
        }
        let all = values.div_ceil(BLOCK_VALUES);
        if first >= all || count > all - first {
            return None;
        }
        Some(Self { values: values as u16, first: first as u8, count: count as u8 })
    }

    /// Values of the whole chunk.
    #[must_use]
    pub const fn values(self) -> usize {
        self.values as usize
    }

    /// The numbers of the blocks, and how many values each has.
    pub fn each(self) -> impl Iterator<Item = (usize, usize)> {
        let (first, count, values) = (usize::from(self.first), usize::from(self.count), self.values());
        (first..first + count).map(move |block| (block, values_of_block(values, block)))
    }

    /// A bit for each of them.
    #[must_use]
    pub const fn mask(self) -> u16 {
        all_blocks_mask(self.count as usize * BLOCK_VALUES) << self.first
    }
}

/// How many values block `block` of a chunk of `values` values has; 0 if it is not there.
#[must_use]
pub const fn values_of_block(values: usize, block: usize) -> usize {
    let rest = values.saturating_sub(block * BLOCK_VALUES);
    if rest > BLOCK_VALUES { BLOCK_VALUES } else { rest }
}

/// A bit for each block of a chunk of `values` values, which are at most [`MAX_VALUES`].
#[must_use]
pub const fn all_blocks_mask(values: usize) -> u16 {
    match values.div_ceil(BLOCK_VALUES) {
        blocks @ 0..MAX_BLOCKS => (1 << blocks) - 1,
        _ => u16::MAX,
    }
}

/// Declares the reasons of refusals with their bytes and names.
macro_rules! refusals {
    ($($(#[$doc:meta])* $item:ident = $byte:literal, $text:literal;)+) => {
        /// Why an aggregator refuses; the discriminant is its byte in the packet.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[repr(u8)]
        pub enum Refusal { $($(#[$doc])* $item = $byte,)+ }

        impl Refusal {
            /// Every one of them.
            pub const ALL: &'static [Self] = &[$(Self::$item),+];

            /// Its name in reports, metrics and logs; stable across versions.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$item => $text,)+ }
            }

            const fn from_byte(byte: u8) -> Option<Self> {
                match byte { $($byte => Some(Self::$item),)+ _ => None }
            }
        }

        impl fmt::Display for Refusal {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

refusals! {
    /// The aggregator has no such job: it was restarted, or the job's place was given away.
    UnknownJob = 1, "unknown-job";
    /// The hello has another key than the job of this number.
    Key = 2, "key";
    /// The job's epoch is later.
    OldEpoch = 3, "old-epoch";
    /// The hello disagrees with the job's: other numbers of workers, or other limits.
    Differs = 4, "differs";
    /// Another address has this worker's number.
    Taken = 5, "taken";
    /// The aggregator has no room for another job.
    Full = 6, "full";
    /// The worker's number, or a number of workers, is beyond what the aggregator serves.
    Workers = 7, "workers";
    /// The member is ahead of the aggregator, which must have lost the job's state.
    OutOfStep = 8, "out-of-step";
    /// The aggregator above refuses.
    Above = 9, "above";
}

fn be16(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low])
}

impl<'a> Packet<'a> {
    /// Reads the payload of a datagram, which comes from the network.
    ///
    /// # Errors
    /// Too short or too long for its kind, another version, kind or codec, a number beyond its range, or a field that is
    /// not 0 and has no meaning. The packet is dropped.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ChunkError> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Err(ChunkError::Truncated { have: bytes.len() });
        };
        let [version, kind, j0, j1, e0, e1, e2, e3, s0, s1, s2, s3, worker, workers, ..] = *header;
        let [.., v0, v1, blocks, peak, codec, y] = *header;
        if version != VERSION {
            return Err(ChunkError::Version { got: version });
        }
        let seq = u32::from_be_bytes([s0, s1, s2, s3]);
        let head = Head { job: be16(j0, j1), epoch: u32::from_be_bytes([e0, e1, e2, e3]), seq };

        let from_member = match kind {
            kind::CONTRIBUTE | kind::HELLO | kind::QUERY | kind::PARTIAL => true,
            kind::RESULT | kind::WELCOME | kind::WAITING | kind::REFUSE | kind::MISSING | kind::RESCALE => {
                false
            }
            got => return Err(ChunkError::Kind { got }),
        };
        if from_member != (usize::from(worker) < MAX_MEMBERS) || (!from_member && worker != AGGREGATOR) {
            return Err(ChunkError::Worker { got: worker });
        }
        let part = || {
            if codec != 0 {
                return Err(ChunkError::Codec { got: codec });
            }
            let bound = Bound::new(y as i8).map_err(|_| ChunkError::Bound { got: y as i8 })?;
            let values = be16(v0, v1).into();
            let (first, count) = (usize::from(blocks >> 4), usize::from(blocks & 0x0f) + 1);
            let blocks =
                Blocks::new(values, first, count).ok_or(ChunkError::Blocks { values, first, count })?;
            if peak > MAX_PEAK {
                return Err(ChunkError::Peak { got: peak });
            }
            Ok(Part { blocks, peak, bound, sections: rest })
        };
        let expect = |is: bool, byte: usize| if is { Ok(()) } else { Err(ChunkError::Field { byte }) };
        // What a kind has no use for is 0.
        let has_part = matches!(kind, kind::CONTRIBUTE | kind::RESULT | kind::PARTIAL);
        if !has_part {
            for (at, byte) in [(14, v0), (15, v1), (16, blocks), (18, codec), (19, y)] {
                expect(byte == 0, at)?;
            }
            expect(peak == 0 || kind == kind::RESCALE, 17)?;
        }
        match kind {
            kind::CONTRIBUTE => expect(workers == 1, 13)?,
            kind::RESULT | kind::PARTIAL => expect(workers > 0, 13)?,
            kind::HELLO => expect(workers > 0 && usize::from(workers) <= MAX_MEMBERS, 13)?,
            _ => expect(workers == 0, 13)?,
        }
        if matches!(kind, kind::HELLO | kind::WELCOME) {
            expect(seq == 0, 8)?;
        }
        let body = match kind {
            kind::CONTRIBUTE => Body::Contribute { worker, part: part()? },
            kind::PARTIAL => Body::Partial { worker, workers, part: part()? },
            kind::RESULT => Body::Result { workers, part: part()? },
            kind::RESCALE => {
                let [] = exactly(rest)?;
                expect(peak <= MAX_PEAK, 17)?;
                Body::Rescale { peak }
            }
            kind::HELLO => {
                let (limits, [total, zeros @ ..], key) = agreement(rest)?;
                expect(zeros == [0; 3], 25)?;
                expect(total > 0 && worker < workers, 24)?;
                Body::Hello { worker, members: workers, total, limits, key }
            }
            kind::WELCOME => {
                let (limits, group, key) = agreement(rest)?;
                Body::Welcome { limits, group, key }
            }
            kind::REFUSE => {
                let [reason, z0, z1, z2, epoch @ ..] = exactly::<8>(rest)?;
                expect([z0, z1, z2] == [0; 3], 21)?;
                let reason = Refusal::from_byte(reason).ok_or(ChunkError::Field { byte: 20 })?;
                Body::Refuse { reason, epoch: u32::from_be_bytes(epoch) }
            }
            kind::WAITING => Body::Waiting { workers: u64::from_be_bytes(exactly(rest)?) },
            kind::MISSING => Body::Missing { blocks: u16::from_be_bytes(exactly(rest)?) },
            _ => {
                let [] = exactly(rest)?;
                Body::Query { worker }
            }
        };
        Ok(Self { head, body })
    }

    /// The first bytes of the packet: all of it but a part's sections.
    fn fields(&self) -> ([u8; HEADER_LEN], Tail) {
        let (kind, worker, workers, part) = match self.body {
            Body::Contribute { worker, part } => (kind::CONTRIBUTE, worker, 1, Some(part)),
            Body::Partial { worker, workers, part } => (kind::PARTIAL, worker, workers, Some(part)),
            Body::Result { workers, part } => (kind::RESULT, AGGREGATOR, workers, Some(part)),
            Body::Hello { worker, members, .. } => (kind::HELLO, worker, members, None),
            Body::Query { worker } => (kind::QUERY, worker, 0, None),
            Body::Welcome { .. } => (kind::WELCOME, AGGREGATOR, 0, None),
            Body::Waiting { .. } => (kind::WAITING, AGGREGATOR, 0, None),
            Body::Refuse { .. } => (kind::REFUSE, AGGREGATOR, 0, None),
            Body::Missing { .. } => (kind::MISSING, AGGREGATOR, 0, None),
            Body::Rescale { .. } => (kind::RESCALE, AGGREGATOR, 0, None),
        };
        let [j0, j1] = self.head.job.to_be_bytes();
        let [e0, e1, e2, e3] = self.head.epoch.to_be_bytes();
        let [s0, s1, s2, s3] = self.head.seq.to_be_bytes();
        let [v0, v1, blocks, peak, y] = match (part, self.body) {
            (Some(Part { blocks, peak, bound, .. }), _) => {
                let [v0, v1] = blocks.values.to_be_bytes();
                [v0, v1, blocks.first << 4 | (blocks.count - 1), peak, bound.y() as u8]
            }
            (None, Body::Rescale { peak }) => [0, 0, 0, peak, 0],
            (None, _) => [0; 5],
        };
        let header = [
            VERSION, kind, j0, j1, e0, e1, e2, e3, s0, s1, s2, s3, worker, workers, v0, v1, blocks, peak, 0,
            y,
        ];
        let tail = match self.body {
            Body::Hello { total, limits, key, .. } => Tail::agreement(limits, [total, 0, 0, 0], key),
            Body::Welcome { limits, group, key } => Tail::agreement(limits, group, key),
            Body::Refuse { reason, epoch } => {
                let [e0, e1, e2, e3] = epoch.to_be_bytes();
                Tail::of(&[reason as u8, 0, 0, 0, e0, e1, e2, e3])
            }
            Body::Waiting { workers } => Tail::of(&workers.to_be_bytes()),
            Body::Missing { blocks } => Tail::of(&blocks.to_be_bytes()),
            _ => Tail::of(&[]),
        };
        (header, tail)
    }

    /// Writes the packet to the start of `out`; its length. None if it does not fit.
    #[must_use]
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let (header, tail) = self.fields();
        let sections = match self.body {
            Body::Contribute { part, .. } | Body::Partial { part, .. } | Body::Result { part, .. } => {
                part.sections
            }
            _ => &[],
        };
        let mut at = 0;
        for bytes in [&header, tail.bytes.get(..tail.len)?, sections] {
            out.get_mut(at..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
            at += bytes.len();
        }
        Some(at)
    }

    /// Writes all but the sections, which the caller has put behind the header. None if not even the header fits.
    #[must_use]
    pub fn write_before_sections(&self, out: &mut [u8]) -> Option<()> {
        *out.first_chunk_mut()? = self.fields().0;
        Some(())
    }
}

/// What follows the header, but for sections.
struct Tail {
    bytes: [u8; 16],
    len: usize,
}

impl Tail {
    fn of(from: &[u8]) -> Self {
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(from) {
            *to = *from;
        }
        Self { bytes, len: from.len() }
    }

    fn agreement(limits: Limits, middle: [u8; 4], key: u64) -> Self {
        let [m0, m1] = limits.mtu.to_be_bytes();
        let [a, b, c, d] = middle;
        let [k0, k1, k2, k3, k4, k5, k6, k7] = key.to_be_bytes();
        Self::of(&[limits.blocks, limits.window, m0, m1, a, b, c, d, k0, k1, k2, k3, k4, k5, k6, k7])
    }
}

/// The rest of a packet that has `N` bytes behind its header.
fn exactly<const N: usize>(rest: &[u8]) -> Result<[u8; N], ChunkError> {
    <[u8; N]>::try_from(rest).map_err(|_| ChunkError::Length { need: N, have: rest.len() })
}

/// Limits, four bytes and the key of a hello or a welcome.
fn agreement(rest: &[u8]) -> Result<(Limits, [u8; 4], u64), ChunkError> {
    let [blocks, window, m0, m1, a, b, c, d, key @ ..] = exactly::<16>(rest)?;
    let limits = Limits { blocks, window, mtu: be16(m0, m1) };
    if !limits.are_valid() {
        return Err(ChunkError::Limits { got: limits });
    }
    Ok((limits, [a, b, c, d], u64::from_be_bytes(key)))
}

/// Why a packet was refused. It is dropped and counted; nothing changes.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ChunkError {
    /// Shorter than a header.
    Truncated {
        /// Bytes that are there.
        have: usize,
    },
    /// A version this build does not speak.
    Version {
        /// The version found.
        got: u8,
    },
    /// A kind that there is not.
    Kind {
        /// The kind found.
        got: u8,
    },
    /// A worker's number that its kind cannot have.
    Worker {
        /// The number found.
        got: u8,
    },
    /// A codec other than 2.
    Codec {
        /// Byte 18.
        got: u8,
    },
    /// A bound that codec 2 does not have.
    Bound {
        /// Its exponent.
        got: i8,
    },
    /// Blocks that no chunk of so many values has.
    Blocks {
        /// Values of the chunk.
        values: usize,
        /// The first block.
        first: usize,
        /// How many blocks.
        count: usize,
    },
    /// A peak that no finite value has.
    Peak {
        /// The peak found.
        got: u8,
    },
    /// Limits beyond their ranges.
    Limits {
        /// Those found.
        got: Limits,
    },
    /// The body has another length than its kind.
    Length {
        /// Bytes of such a body.
        need: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// A byte has a value that its kind does not allow.
    Field {
        /// Its offset.
        byte: usize,
    },
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { have } => write!(f, "header: expected {HEADER_LEN} bytes, found {have}"),
            Self::Version { got } => write!(f, "version {got}, expected {VERSION}"),
            Self::Kind { got } => write!(f, "kind {got}, expected 1 to 10"),
            Self::Worker { got } => write!(f, "worker {got}, which its kind cannot have"),
            Self::Codec { got } => write!(f, "byte 18 is {got:#04x}, expected 0"),
            Self::Bound { got } => write!(f, "bound 2^{got}, expected 2^{} to 2^{}", Bound::MIN, Bound::MAX),
            Self::Blocks { values, first, count } => {
                write!(f, "{count} blocks from {first} on of {values} values")
            }
            Self::Peak { got } => write!(f, "peak {got}, expected at most {MAX_PEAK}"),
            Self::Limits { got: Limits { blocks, window, mtu } } => {
                write!(f, "{blocks} blocks, a window of {window}, an MTU of {mtu}")
            }
            Self::Length { need, have } => write!(f, "body: expected {need} bytes, found {have}"),
            Self::Field { byte } => write!(f, "byte {byte} has a value that its kind does not allow"),
        }
    }
}

impl core::error::Error for ChunkError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Some packet of every kind is among what this makes of any bytes.
    fn likely(mut bytes: std::vec::Vec<u8>, kind: u8) -> std::vec::Vec<u8> {
        for (at, byte) in bytes.iter_mut().enumerate() {
            match at {
                0 => *byte = 1,
                1 => *byte = kind,
                12 if *byte < 128 => *byte %= 4,
                12 => *byte = 0xff,
                13 | 24 => *byte %= 8,
                14 | 15 | 18 => *byte = if *byte < 128 { *byte % 8 } else { 0 },
                8..=11 | 16..=20 | 21..=27 if *byte < 128 => *byte = 0,
                _ => {}
            }
        }
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn what_parses_is_written_back_alike(
            bytes in prop::collection::vec(any::<u8>(), 0..40), kind in 0u8..12, shorter in any::<bool>(),
        ) {
            let mut bytes = likely(bytes, kind);
            if shorter {
                bytes.truncate(HEADER_LEN + [0, 0, 0, 16, 16, 8, 8, 0, 2, 0, 0, 0][usize::from(kind)]);
            }
            if let Ok(packet) = Packet::parse(&bytes) {
                let mut out = [0xaa; 64];
                let len = packet.write(&mut out).unwrap();
                prop_assert_eq!(&out[..len], &bytes[..]);
                prop_assert_eq!(packet.write(&mut out[..len - 1]), None);
            }
        }
    }

    #[test]
    fn blocks_are_those_of_the_chunk() {
        for values in 0..=MAX_VALUES + 1 {
            for first in 0..=MAX_BLOCKS {
                for count in 0..=MAX_BLOCKS + 1 {
                    let whole = values.div_ceil(BLOCK_VALUES);
                    let expected = (1..=MAX_VALUES).contains(&values) && count > 0 && first + count <= whole;
                    let blocks = Blocks::new(values, first, count);
                    assert_eq!(blocks.is_some(), expected, "{values} {first} {count}");
                    let Some(blocks) = blocks else { continue };
                    assert!(blocks.each().all(|(block, count)| blocks.mask() >> block & 1 == 1 && count > 0));
                    assert_eq!(blocks.mask().count_ones() as usize, count);
                    assert_eq!(blocks.mask() & !all_blocks_mask(values), 0);
                    if count == whole {
                        assert_eq!(blocks.each().map(|(_, count)| count).sum::<usize>(), values);
                        assert_eq!(blocks.mask(), all_blocks_mask(values));
                    }
                }
            }
        }
    }

    #[test]
    fn the_worst_block_fits_ethernet() {
        assert_eq!(MAX_SECTION_LEN, 729);
        assert_eq!(MIN_MTU, 777);
        assert!(Limits::MOST.are_valid());
        assert!(Limits::MOST.packet_len() >= HEADER_LEN + MAX_SECTION_LEN);
    }
}
