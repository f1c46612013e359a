//! Profiles: a codec and its parameters, and how a segment header names them (FORMAT.md §5.2).
//!
//! Rules, headers and kernels hand a profile on as a whole. What depends on the codec is asked here or in
//! [`crate::kernels`], by a `match` without `_`: another codec does not compile until each place knows it.

use core::fmt;

use crate::codec::{Params, ParamsError, groups_len};

/// The codec of [`crate::codec`], as byte 1 of a segment header names it.
const CLASSES: u8 = 1;

/// A codec and its parameters: all that a decoder has to know beside the length of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Profile {
    /// Codec 1: bursts of eight values, each of one of four classes ([`crate::codec`]).
    Classes(Params),
}

impl Profile {
    /// Codec 1 with its default parameters: bound 2^-10.
    pub const DEFAULT: Self = Self::Classes(Params::DEFAULT);

    /// The profile that the three bytes of a segment header name: its byte 1, the codec, then its bytes 6 and 7,
    /// the codec's parameters. They may come from the network.
    ///
    /// # Errors
    /// Another codec, or parameters that its codec does not have.
    pub const fn from_bytes([codec, first, second]: [u8; 3]) -> Result<Self, ProfileError> {
        match codec {
            CLASSES => match Params::from_exponents(first >> 4, first & 0x0f, second as i8) {
                Ok(params) => Ok(Self::Classes(params)),
                Err(refused) => Err(ProfileError::Params(refused)),
            },
            got => Err(ProfileError::Codec { got }),
        }
    }

    /// Its three bytes in a segment header, in the order of [`Self::from_bytes`].
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 3] {
        match self {
            Self::Classes(params) => [CLASSES, params.b() << 4 | params.k(), params.x() as u8],
        }
    }

    /// The guaranteed bound on the absolute error of a value, exactly.
    #[must_use]
    pub const fn bound(self) -> f32 {
        match self {
            Self::Classes(params) => params.bound(),
        }
    }

    /// How many bytes at the start of `bytes` are the code of `values` values, found without decoding one. None if
    /// `bytes` are no such code.
    #[must_use]
    pub fn encoded_len(self, bytes: &[u8], values: usize) -> Option<usize> {
        match self {
            Self::Classes(_) => groups_len(bytes, values),
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
        Self::Classes(params)
    }
}

// By hand: derived, an enum takes four bytes for its variant, and every input of a corpus would mean something else.
#[cfg(feature = "arbitrary")]
impl<'a> arbitrary::Arbitrary<'a> for Profile {
    fn arbitrary(u: &mut arbitrary::Unstructured<'a>) -> arbitrary::Result<Self> {
        u.arbitrary().map(Self::Classes)
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
    /// The codec's parameters are invalid.
    Params(ParamsError),
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Codec { got } => write!(f, "codec {got}, expected {CLASSES}"),
            Self::Params(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ProfileError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// All 2^24: three bytes name at most one profile, and it writes the same three.
    #[test]
    fn what_is_read_is_written_alike() {
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
        assert_eq!(profiles, pairs * (80 + 128));
    }
}
