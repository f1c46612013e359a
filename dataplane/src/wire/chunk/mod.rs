//! Packets of aggregation: the messages between aggregators and their children about chunks of
//! values (docs/aggregation-protocol.md).
//!
//! ```text
//! 0         1      2          4            8            12       13        14           16       17     18    19  20
//! | version | kind | job (BE) | epoch (BE) | seq (BE)   | child | workers | values(BE) | blocks | peak | profile |
//! ```
//!
//! [`Packet::parse`] takes any bytes. What it returns is whole and agrees with itself. Sections are
//! not read here: decoding them is what checks them.

mod error;
mod refusal;
mod sizes;

pub use error::ChunkError;
pub use refusal::Refusal;
pub use sizes::{
    BLOCK_LEN, BLOCK_VALUES, Blocks, Limits, MAX_BLOCKS, MAX_CHILDREN, MAX_PACKET_LEN, MAX_SECTION_LEN,
    MAX_VALUES, MAX_WINDOW, MIN_MTU, all_blocks_mask, values_of_block,
};

use crate::profile::Profile;
use crate::sums::Summable;

/// The UDP port that aggregators listen at.
pub const PORT: u16 = 59255;
/// The type of service of these packets; it is neither a rule's nor the mark.
pub const TOS: u8 = 0x38;
/// Bytes of the header.
pub const HEADER_LEN: usize = 20;
const VERSION: u8 = 1;
/// In place of a child's number: the packet is an aggregator's.
const AGGREGATOR: u8 = 0xff;
/// The largest biased exponent of a finite value.
const MAX_PEAK: u8 = 254;

/// Bytes that an aggregator has an address repeat, to see that its packets arrive there; zeros are
/// none.
pub type Cookie = [u8; 6];
/// No cookie.
pub const NO_COOKIE: Cookie = [0; 6];

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
    /// The body.
    pub body: Body<'a>,
}

/// The body of a packet. `child` is a child's number at its aggregator, below [`MAX_CHILDREN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Body<'a> {
    /// Worker: these are my values. The sections are the profile's code of each block.
    Contribute {
        /// The sender.
        child: u8,
        /// Its values.
        part: Part<'a>,
    },
    /// Aggregator of a rack, as a child: this is the sum of my children. The sections are of sums.
    Partial {
        /// The sender.
        child: u8,
        /// The number of workers the sum is of.
        workers: u8,
        /// The sum.
        part: Part<'a>,
    },
    /// Aggregator: this is the sum of all. The sections are what the profile makes of sums
    /// ([`Summable::encode_result`]).
    Result {
        /// The number of workers the sum is of.
        workers: u8,
        /// The sum.
        part: Part<'a>,
    },
    /// Aggregator: a value is too large to be summed in this unit; there will be no result.
    Rescale {
        /// The largest biased exponent of the chunk's finite values.
        peak: u8,
    },
    /// Child: I take part.
    Hello {
        /// The sender.
        child: u8,
        /// Children of the aggregator that is asked.
        children: u8,
        /// Workers of the whole job.
        total: u8,
        /// The sender is an aggregator too: it sends partial sums, and no contributions.
        is_aggregator: bool,
        /// The most that the child can have.
        limits: Limits,
        /// A secret of the job: a sender that knows it belongs to the job.
        key: u64,
        /// The cookie of the last welcome.
        cookie: Cookie,
    },
    /// Aggregator: you take part. With a cookie: say hello again with this, and then you may.
    Welcome {
        /// The job's limits; with a cookie, what the hello said.
        limits: Limits,
        /// The IPv4 group of results; 0 if each child gets a copy.
        group: [u8; 4],
        /// The job's key.
        key: u64,
        /// The cookie for the next hello.
        cookie: Cookie,
    },
    /// Aggregator: I cannot serve you.
    Refuse {
        /// Why.
        reason: Refusal,
        /// The job's epoch at the aggregator; the packet's own if the aggregator has no such job.
        epoch: u32,
    },
    /// Child: what about this chunk?
    Query {
        /// The sender.
        child: u8,
        /// Results of later chunks have come.
        is_overtaken: bool,
    },
    /// Aggregator: I wait for these.
    Waiting {
        /// A bit for each child; none if a parent has to answer.
        children: u64,
    },
    /// Aggregator: I lack these blocks of yours.
    Missing {
        /// A bit for each block.
        blocks: u16,
    },
}

/// Whole blocks of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Part<'a> {
    /// Which blocks of which chunk.
    pub blocks: Blocks,
    /// The largest biased exponent of the finite values.
    pub peak: u8,
    /// The profile that codes the values. It says the unit of sums, and the bound on the error of
    /// each worker's values.
    pub profile: Summable,
    /// The blocks' sections, not yet checked: that is the decoder's work.
    pub sections: &'a [u8],
}

fn be16(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low])
}

impl<'a> Packet<'a> {
    /// Reads the payload of a datagram, which comes from the network.
    ///
    /// # Errors
    /// Too short or too long for its kind, another version or kind, a number beyond its range, a
    /// profile without a unit, or a field that is not 0 and has no meaning. The packet is dropped.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ChunkError> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Err(ChunkError::Truncated { have: bytes.len() });
        };
        let [version, kind, j0, j1, e0, e1, e2, e3, s0, s1, s2, s3, child, workers, ..] = *header;
        let [.., v0, v1, blocks, peak, p0, p1] = *header;
        if version != VERSION {
            return Err(ChunkError::Version { got: version });
        }
        let seq = u32::from_be_bytes([s0, s1, s2, s3]);
        let head = Head { job: be16(j0, j1), epoch: u32::from_be_bytes([e0, e1, e2, e3]), seq };

        let from_child = match kind {
            kind::CONTRIBUTE | kind::HELLO | kind::QUERY | kind::PARTIAL => true,
            kind::RESULT | kind::WELCOME | kind::WAITING | kind::REFUSE | kind::MISSING | kind::RESCALE => {
                false
            }
            got => return Err(ChunkError::Kind { got }),
        };
        if from_child != (usize::from(child) < MAX_CHILDREN) || (!from_child && child != AGGREGATOR) {
            return Err(ChunkError::Child { got: child });
        }
        let part = || {
            // As in a segment header, but for its byte 1: codec 1's first byte is never 0, and
            // codec 2's always.
            let codec = if p0 == 0 { 2 } else { 1 };
            let profile = Profile::from_bytes([codec, p0, p1]).map_err(ChunkError::Profile)?;
            let profile = Summable::try_from(profile).map_err(ChunkError::Unit)?;
            let values = be16(v0, v1).into();
            let (first, count) = (usize::from(blocks >> 4), usize::from(blocks & 0x0f) + 1);
            let blocks =
                Blocks::new(values, first, count).ok_or(ChunkError::Blocks { values, first, count })?;
            if peak > MAX_PEAK {
                return Err(ChunkError::Peak { got: peak });
            }
            Ok(Part { blocks, peak, profile, sections: rest })
        };
        let expect = |is: bool, byte: usize| if is { Ok(()) } else { Err(ChunkError::Field { byte }) };
        let cookie = [v0, v1, blocks, peak, p0, p1];
        // What a kind has no use for is 0.
        if !matches!(kind, kind::CONTRIBUTE | kind::RESULT | kind::PARTIAL | kind::HELLO | kind::WELCOME) {
            for (at, byte) in [(14, v0), (15, v1), (16, blocks), (18, p0), (19, p1)] {
                expect(byte == 0, at)?;
            }
            expect(peak == 0 || kind == kind::RESCALE, 17)?;
        }
        match kind {
            kind::CONTRIBUTE => expect(workers == 1, 13)?,
            kind::RESULT | kind::PARTIAL => expect(workers > 0, 13)?,
            kind::HELLO => expect(workers > 0 && usize::from(workers) <= MAX_CHILDREN, 13)?,
            kind::QUERY => expect(workers <= 1, 13)?,
            _ => expect(workers == 0, 13)?,
        }
        if matches!(kind, kind::HELLO | kind::WELCOME) {
            expect(seq == 0, 8)?;
        }
        let body = match kind {
            kind::CONTRIBUTE => Body::Contribute { child, part: part()? },
            kind::PARTIAL => Body::Partial { child, workers, part: part()? },
            kind::RESULT => Body::Result { workers, part: part()? },
            kind::RESCALE => {
                let [] = exactly(rest)?;
                expect(peak <= MAX_PEAK, 17)?;
                Body::Rescale { peak }
            }
            kind::HELLO => {
                let (limits, [total, aggregator, zeros @ ..], key) = agreement(rest)?;
                expect(zeros == [0; 2], 26)?;
                expect(aggregator <= 1, 25)?;
                expect(total > 0 && child < workers, 24)?;
                let is_aggregator = aggregator == 1;
                Body::Hello { child, children: workers, total, is_aggregator, limits, key, cookie }
            }
            kind::WELCOME => {
                let (limits, group, key) = agreement(rest)?;
                Body::Welcome { limits, group, key, cookie }
            }
            kind::REFUSE => {
                let [reason, z0, z1, z2, epoch @ ..] = exactly::<8>(rest)?;
                expect([z0, z1, z2] == [0; 3], 21)?;
                let reason = Refusal::from_byte(reason).ok_or(ChunkError::Field { byte: 20 })?;
                Body::Refuse { reason, epoch: u32::from_be_bytes(epoch) }
            }
            kind::WAITING => Body::Waiting { children: u64::from_be_bytes(exactly(rest)?) },
            kind::MISSING => Body::Missing { blocks: u16::from_be_bytes(exactly(rest)?) },
            _ => {
                let [] = exactly(rest)?;
                Body::Query { child, is_overtaken: workers == 1 }
            }
        };
        Ok(Self { head, body })
    }

    /// The first bytes of the packet: all of it but a part's sections.
    fn fields(&self) -> ([u8; HEADER_LEN], Tail) {
        let (kind, child, workers, part) = match self.body {
            Body::Contribute { child, part } => (kind::CONTRIBUTE, child, 1, Some(part)),
            Body::Partial { child, workers, part } => (kind::PARTIAL, child, workers, Some(part)),
            Body::Result { workers, part } => (kind::RESULT, AGGREGATOR, workers, Some(part)),
            Body::Hello { child, children, .. } => (kind::HELLO, child, children, None),
            Body::Query { child, is_overtaken } => (kind::QUERY, child, is_overtaken.into(), None),
            Body::Welcome { .. } => (kind::WELCOME, AGGREGATOR, 0, None),
            Body::Waiting { .. } => (kind::WAITING, AGGREGATOR, 0, None),
            Body::Refuse { .. } => (kind::REFUSE, AGGREGATOR, 0, None),
            Body::Missing { .. } => (kind::MISSING, AGGREGATOR, 0, None),
            Body::Rescale { .. } => (kind::RESCALE, AGGREGATOR, 0, None),
        };
        let [j0, j1] = self.head.job.to_be_bytes();
        let [e0, e1, e2, e3] = self.head.epoch.to_be_bytes();
        let [s0, s1, s2, s3] = self.head.seq.to_be_bytes();
        let [v0, v1, blocks, peak, p0, p1] = match (part, self.body) {
            (Some(Part { blocks, peak, profile, .. }), _) => {
                let [v0, v1, which] = blocks.to_bytes();
                let [_, p0, p1] = profile.profile().to_bytes();
                [v0, v1, which, peak, p0, p1]
            }
            (None, Body::Rescale { peak }) => [0, 0, 0, peak, 0, 0],
            (None, Body::Hello { cookie, .. } | Body::Welcome { cookie, .. }) => cookie,
            (None, _) => [0; 6],
        };
        let header = [
            VERSION, kind, j0, j1, e0, e1, e2, e3, s0, s1, s2, s3, child, workers, v0, v1, blocks, peak, p0,
            p1,
        ];
        let tail = match self.body {
            Body::Hello { total, is_aggregator, limits, key, .. } => {
                Tail::agreement(limits, [total, is_aggregator.into(), 0, 0], key)
            }
            Body::Welcome { limits, group, key, .. } => Tail::agreement(limits, group, key),
            Body::Refuse { reason, epoch } => {
                let [e0, e1, e2, e3] = epoch.to_be_bytes();
                Tail::of(&[reason as u8, 0, 0, 0, e0, e1, e2, e3])
            }
            Body::Waiting { children } => Tail::of(&children.to_be_bytes()),
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

    /// Writes all but the sections, which the caller has put behind the header. None if not even
    /// the header fits.
    #[must_use]
    pub fn write_before_sections(&self, out: &mut [u8]) -> Option<()> {
        *out.first_chunk_mut()? = self.fields().0;
        Some(())
    }
}

/// The bytes behind the header, but for sections.
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
                14 | 15 => *byte = if *byte < 128 { *byte % 8 } else { 0 },
                8..=11 | 16..=20 | 21..=27 if *byte < 128 => *byte = 0,
                _ => {}
            }
        }
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn parsed_bytes_are_written_back_alike(
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
}
