//! The segment header: the eight bytes before a compressed payload in routed framing (FORMAT.md
//! §5.2).
//!
//! ```text
//! 0         1         2              3          4                    6        7       8
//! | version | codec   | ToS, flags   | head_len | raw_len (u16, BE)  | parameters      |
//! ```
//!
//! [`crate::profile`] reads and writes the codec and its parameters.

use core::fmt;

use super::frame::{EXCLUDED_FLAGS, Packet, Transport};
use crate::codec::VALUE_LEN;
use crate::profile::{Profile, ProfileError};

/// Bytes of the header.
pub(crate) const HEADER_LEN: usize = 8;
/// The version this build writes, and the only one it reads.
const VERSION: u8 = 1;

/// The difference between the right checksum and that of a compressed segment: the right one, plus
/// this constant. A host without gradwire then drops the segment, and NATs' incremental updates
/// keep the difference (FORMAT.md §5.3).
///
/// No change of a single byte moves a sum by it: neither of its bytes is 0x00 or 0xff.
pub(crate) const CHECKSUM_CONSTANT: u16 = 0x6777;

const NO_CHECKSUM: u8 = 0x01;
const RESERVED: u8 = 0x02;
const TOS: u8 = 0xfc;

/// A checked segment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SegmentHeader {
    /// The frame's type of service before it was marked; the two ECN bits are 0.
    pub tos: u8,
    /// The datagram had no checksum (UDP over IPv4, RFC 768) and gets none again.
    pub no_checksum: bool,
    /// Bytes before the first value, raw.
    pub head_len: u8,
    /// Length of the restored payload in bytes.
    pub raw_len: u16,
    /// The codec and its parameters.
    pub profile: Profile,
}

impl SegmentHeader {
    /// Splits `bytes`, which come from the network, into the header and what follows it.
    ///
    /// # Errors
    /// Too short; another version or codec; a reserved bit set; invalid parameters; less than one
    /// value.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), SegmentError> {
        let Some((header, body)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Err(SegmentError::Truncated { need: HEADER_LEN, have: bytes.len() });
        };
        let [version, codec, tos, head_len, raw_high, raw_low, first, second] = *header;
        if version != VERSION {
            return Err(SegmentError::Version { got: version });
        }
        if tos & RESERVED != 0 {
            return Err(SegmentError::Reserved { got: tos });
        }
        let profile = Profile::from_bytes([codec, first, second]).map_err(SegmentError::Profile)?;
        let raw_len = u16::from_be_bytes([raw_high, raw_low]);
        if raw_len < u16::from(head_len) + 4 {
            return Err(SegmentError::NoValue { raw_len, head_len });
        }
        let no_checksum = tos & NO_CHECKSUM != 0;
        Ok((Self { tos: tos & TOS, no_checksum, head_len, raw_len, profile }, body))
    }

    /// The header of a packet that is a compressed segment in every respect but its checksum and
    /// its type of service. Random bytes look like one once in 2^30.
    #[must_use]
    pub(crate) fn recognise(packet: &Packet<'_>) -> Option<Self> {
        let (segment, body) = Self::parse(packet.payload()).ok()?;
        let possible = match packet.transport() {
            Transport::Tcp { flags, .. } => flags & EXCLUDED_FLAGS == 0 && !segment.no_checksum,
            Transport::Udp { .. } => !packet.is_tunnel(),
        };
        let (head_len, raw_len) = (usize::from(segment.head_len), usize::from(segment.raw_len));
        let values_len = raw_len - head_len; // at least one value: `parse` has seen to it
        let groups = body.get(head_len..)?;
        let tail_at = segment.profile.encoded_len(groups, values_len / VALUE_LEN)?;
        (possible && groups.len() == tail_at + values_len % VALUE_LEN).then_some(segment)
    }

    /// The header's bytes.
    #[inline(always)]
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HEADER_LEN] {
        let [raw_high, raw_low] = self.raw_len.to_be_bytes();
        let flags = if self.no_checksum { NO_CHECKSUM } else { 0 };
        let [codec, first, second] = self.profile.to_bytes();
        [VERSION, codec, self.tos & TOS | flags, self.head_len, raw_high, raw_low, first, second]
    }
}

/// Why a segment header was refused; its frame is dropped.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum SegmentError {
    /// Fewer bytes than the header has.
    Truncated {
        /// Bytes of the header.
        need: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// A version this build does not speak.
    Version {
        /// The version found.
        got: u8,
    },
    /// The reserved bit of the third byte is set.
    Reserved {
        /// The third byte.
        got: u8,
    },
    /// A codec this build does not know, or parameters that it does not have.
    Profile(ProfileError),
    /// The restored payload would not hold one whole value.
    NoValue {
        /// Length of the restored payload.
        raw_len: u16,
        /// Bytes before its first value.
        head_len: u8,
    },
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { need, have } => {
                write!(f, "segment header: expected {need} bytes, found {have}")
            }
            Self::Version { got } => {
                write!(f, "segment version {got}, expected {VERSION}")
            }
            Self::Reserved { got } => write!(f, "ToS and flags {got:#04x}, expected bit 1 to be 0"),
            Self::Profile(error) => error.fmt(f),
            Self::NoValue { raw_len, head_len } => {
                write!(f, "payload of {raw_len} bytes, expected at least {head_len} and 4")
            }
        }
    }
}

impl core::error::Error for SegmentError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Params, Split};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parsed_bytes_are_written_back_alike(bytes: [u8; 12]) {
            if let Ok((segment, body)) = SegmentHeader::parse(&bytes) {
                prop_assert_eq!(&segment.to_bytes(), &bytes[..8]);
                prop_assert_eq!(body, &bytes[8..]);
            }
        }

        #[test]
        fn written_bytes_parse_back(
            tos: u8, no_checksum: bool, head_len: u8, raw in 4u16.., b in 1u8..=14, x in -80i8..,
        ) {
            let profile = Params::new(b, Split::Dense, x).unwrap().into();
            let raw_len = raw.max(u16::from(head_len) + 4);
            let segment = SegmentHeader { tos: tos & 0xfc, no_checksum, head_len, raw_len, profile };
            let bytes = segment.to_bytes();
            prop_assert_eq!(SegmentHeader::parse(&bytes), Ok((segment, &[][..])));
        }
    }

    #[test]
    fn every_refusal_has_its_error() {
        let good = [1, 1, 0x28, 0, 0, 4, 0xa3, 0];
        assert!(SegmentHeader::parse(&good).is_ok());
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            SegmentHeader::parse(&bytes).unwrap_err()
        };
        assert_eq!(SegmentHeader::parse(&good[..7]), Err(SegmentError::Truncated { need: 8, have: 7 }));
        assert_eq!(with(0, 2), SegmentError::Version { got: 2 });
        assert_eq!(with(1, 0), SegmentError::Profile(ProfileError::Codec { got: 0 }));
        assert_eq!(with(2, 0x2a), SegmentError::Reserved { got: 0x2a });
        assert_eq!(with(3, 1), SegmentError::NoValue { raw_len: 4, head_len: 1 });
        assert!(matches!(with(6, 0xf3), SegmentError::Profile(ProfileError::Params(_))));
        assert!(matches!(with(7, 0x80), SegmentError::Profile(ProfileError::Params(_))));
    }
}
