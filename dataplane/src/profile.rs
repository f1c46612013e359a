//! Profiles: a codec and its parameters, and how a segment header names them (FORMAT.md §5.2).
//!
//! Rules, headers and kernels hand a profile on as a whole. What depends on the codec is asked here
//! or in [`crate::kernels`], by a `match` without `_`: another codec does not compile until each
//! place knows it.

use core::fmt;

use crate::codec::bit_plane::{self, Bound, BoundError, sections_len};
use crate::codec::{self, DecodeError, EncodeError, Params, ParamsError, groups_len};

/// [`Profile::SizeClass`], as byte 1 of a segment header names it.
const SIZE_CLASS: u8 = 1;
/// [`Profile::BitPlane`], as byte 1 of a segment header names it.
const BIT_PLANE: u8 = 2;

/// A codec and its parameters: all that a decoder has to know beside the length of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Profile {
    /// Codec 1: bursts of eight values, each of one of four classes ([`crate::codec`]).
    SizeClass(Params),
    /// Codec 2: bit planes of the values that are not zero ([`crate::codec::bit_plane`]).
    BitPlane(Bound),
}

impl Profile {
    /// Codec 1 with its default parameters: bound 2^-10.
    pub const DEFAULT: Self = Self::SizeClass(Params::DEFAULT);

    /// The profile that the three bytes of a segment header name: its byte 1, the codec, then its
    /// bytes 6 and 7, the codec's parameters. They may come from the network.
    ///
    /// # Errors
    /// Another codec, or parameters that its codec does not have.
    pub const fn from_bytes([codec, first, second]: [u8; 3]) -> Result<Self, ProfileError> {
        match codec {
            SIZE_CLASS => match Params::from_exponents(first >> 4, first & 0x0f, second as i8) {
                Ok(params) => Ok(Self::SizeClass(params)),
                Err(refused) => Err(ProfileError::Params(refused)),
            },
            BIT_PLANE if first != 0 => Err(ProfileError::Spare { got: first }),
            BIT_PLANE => match Bound::new(second as i8) {
                Ok(bound) => Ok(Self::BitPlane(bound)),
                Err(refused) => Err(ProfileError::Bound(refused)),
            },
            got => Err(ProfileError::Codec { got }),
        }
    }

    /// Its three bytes in a segment header, in the order of [`Self::from_bytes`].
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 3] {
        match self {
            Self::SizeClass(params) => [SIZE_CLASS, params.b() << 4 | params.k(), params.x() as u8],
            Self::BitPlane(bound) => [BIT_PLANE, 0, bound.y() as u8],
        }
    }

    /// The number of its codec, as segment headers and reports have it.
    #[must_use]
    pub const fn codec(self) -> u8 {
        let [codec, ..] = self.to_bytes();
        codec
    }

    /// The guaranteed bound on the absolute error of a value, exactly.
    #[must_use]
    pub const fn bound(self) -> f32 {
        match self {
            Self::SizeClass(params) => params.bound(),
            Self::BitPlane(bound) => bound.bound(),
        }
    }

    /// Encodes as the codec's definition says, [`codec::encode_payload`] or
    /// [`bit_plane::encode_payload`]: slow, and the reference for every [`crate::kernels::Kernel`].
    ///
    /// # Errors
    /// `values` is not a multiple of 4 long, or its code does not fit; `coded` then holds nothing
    /// of use.
    pub fn encode_payload(self, values: &[u8], coded: &mut [u8]) -> Result<usize, EncodeError> {
        match self {
            Self::SizeClass(params) => codec::encode_payload(values, coded, params),
            Self::BitPlane(bound) => bit_plane::encode_payload(values, coded, bound),
        }
    }

    /// Decodes as the codec's definition says, [`codec::decode_payload`] or
    /// [`bit_plane::decode_payload`].
    ///
    /// # Errors
    /// `values` is not a multiple of 4 long, or `coded` does not start with a code of as many
    /// values; `values` then holds nothing of use.
    pub fn decode_payload(self, coded: &[u8], values: &mut [u8]) -> Result<usize, DecodeError> {
        match self {
            Self::SizeClass(params) => codec::decode_payload(coded, values, params),
            Self::BitPlane(bound) => bit_plane::decode_payload(coded, values, bound),
        }
    }

    /// The most bytes that `values_len` bytes of values encode to.
    #[must_use]
    pub const fn max_encoded_len(self, values_len: usize) -> usize {
        match self {
            Self::SizeClass(_) => codec::max_encoded_len(values_len),
            Self::BitPlane(_) => bit_plane::max_encoded_len(values_len),
        }
    }

    /// The number of bytes at the start of `bytes` that are the code of `values` values, found
    /// without decoding one. None if `bytes` are no such code.
    #[must_use]
    pub fn encoded_len(self, bytes: &[u8], values: usize) -> Option<usize> {
        match self {
            Self::SizeClass(_) => groups_len(bytes, values),
            Self::BitPlane(_) => sections_len(bytes, values),
        }
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl From<Params> for Profile {
    fn from(params: Params) -> Self {
        Self::SizeClass(params)
    }
}

impl From<Bound> for Profile {
    fn from(bound: Bound) -> Self {
        Self::BitPlane(bound)
    }
}

// By hand: derived, an enum takes four bytes for its variant. A first byte from 240 on, of which
// codec 1 uses the remainder by 14, stands for codec 2, so inputs from the time of one codec still
// mean what they did.
#[cfg(feature = "arbitrary")]
impl<'a> arbitrary::Arbitrary<'a> for Profile {
    fn arbitrary(u: &mut arbitrary::Unstructured<'a>) -> arbitrary::Result<Self> {
        if u.peek_bytes(1).is_some_and(|first| first >= [240].as_slice()) {
            let _first = u.arbitrary::<u8>()?;
            return u.arbitrary().map(Self::BitPlane);
        }
        u.arbitrary().map(Self::SizeClass)
    }
}

/// Why the bytes of a profile were refused.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ProfileError {
    /// A codec this build does not know.
    Codec {
        /// The codec found.
        got: u8,
    },
    /// The parameters are none of codec 1.
    Params(ParamsError),
    /// The first byte of codec 2's parameters is not 0.
    Spare {
        /// The byte found.
        got: u8,
    },
    /// The bound is none of codec 2.
    Bound(BoundError),
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Codec { got } => write!(f, "codec {got}, expected {SIZE_CLASS} or {BIT_PLANE}"),
            Self::Params(error) => error.fmt(f),
            Self::Spare { got } => {
                write!(f, "first byte of codec {BIT_PLANE}'s parameters {got:#04x}, expected 0")
            }
            Self::Bound(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ProfileError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// All 2^24: three bytes name at most one profile, and it writes the same three.
    #[test]
    fn profiles_that_are_read_are_written_alike() {
        let mut profiles = 0;
        for number in 0..1u32 << 24 {
            let [_, bytes @ ..] = number.to_be_bytes();
            if let Ok(profile) = Profile::from_bytes(bytes) {
                assert_eq!(profile.to_bytes(), bytes);
                profiles += 1;
            }
        }
        // FORMAT.md §3.1: b from 1 to 14, k from b-7 (at least 0) to b, x from -80 to 127.
        let pairs: u32 = (1..=14u32).map(|b| b - b.saturating_sub(7) + 1).sum();
        // Section 3.7: y from -94 to 111.
        assert_eq!(profiles, pairs * (80 + 128) + 94 + 112);
    }

    #[test]
    fn a_profile_tells_its_codec_and_its_bound() {
        for (bytes, codec, bound) in
            [([1, 0xa3, 0], 1, -10), ([1, 0x81, 0xfe], 1, -10), ([2, 0, 0xf4], 2, -12)]
        {
            let profile = Profile::from_bytes(bytes).unwrap();
            assert_eq!((profile.codec(), profile.bound()), (codec, 2f32.powi(bound)));
        }
    }
}
