//! Every way in which the dataplane refuses its input.
//!
//! Errors are `Copy` and carry the numbers that a log line needs; nothing here allocates.

use core::fmt;

/// Why codec parameters were refused.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ParamsError {
    /// The bound exponent is not in 1..=14.
    Bound {
        /// The bound exponent given.
        got: u8,
    },
    /// The byte offset k is above b, or k+7 is below b.
    ByteOffset {
        /// The byte offset given.
        got: u8,
        /// The bound exponent it was given with.
        b: u8,
    },
    /// The scale exponent is below -80.
    Scale {
        /// The scale exponent given.
        got: i8,
    },
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bound { got } => write!(f, "bound exponent {got}, expected 1 to 14"),
            Self::ByteOffset { got, b } => {
                let least = b.saturating_sub(7);
                write!(f, "byte offset {got} with bound exponent {b}, expected {least} to {b}")
            }
            Self::Scale { got } => write!(f, "scale exponent {got}, expected -80 to 127"),
        }
    }
}

impl core::error::Error for ParamsError {}

/// Why a payload could not be encoded; nothing of the output may be used.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum EncodeError {
    /// The values are not a whole number of `f32`.
    Unaligned {
        /// Bytes given.
        len: usize,
    },
    /// The groups do not fit into the output.
    NoRoom {
        /// Length of the output in bytes.
        have: usize,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unaligned { len } => write!(f, "{len} bytes of values, expected a multiple of 4"),
            Self::NoRoom { have } => write!(f, "the groups do not fit into {have} bytes"),
        }
    }
}

impl core::error::Error for EncodeError {}

/// Why groups could not be decoded; nothing of the output may be used.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum DecodeError {
    /// The output is not a whole number of `f32`.
    Unaligned {
        /// Length of the output in bytes.
        len: usize,
    },
    /// The groups end too early.
    Truncated {
        /// Offset of the group that is not whole, in bytes.
        at: usize,
        /// Bytes that this group needs: 2 where its tag vector is missing, else its whole length.
        need: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// A lane past the last value has a tag other than 0.
    AbsentLane {
        /// Offset of the last group, in bytes.
        at: usize,
        /// Its tag vector.
        tags: u16,
        /// How many lanes are present.
        lanes: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unaligned { len } => write!(f, "room for {len} bytes of values, expected a multiple of 4"),
            Self::Truncated { at, need, have } => {
                write!(f, "group at byte {at}: expected {need} bytes, found {have}")
            }
            Self::AbsentLane { at, tags, lanes } => write!(
                f,
                "group at byte {at}: tag vector {tags:#06x}, expected tag 0 in every lane from {lanes} on"
            ),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Why the clocked model could not decode a frame; nothing of the output may be used.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum FrameError {
    /// Its groups were refused; offsets count from the first group.
    Groups(DecodeError),
    /// The restored frame does not fit into the output.
    NoRoom {
        /// Length of the output in bytes.
        have: usize,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Groups(fault) => fault.fmt(f),
            Self::NoRoom { have } => write!(f, "the frame does not fit into {have} bytes"),
        }
    }
}

impl core::error::Error for FrameError {}

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
    /// A codec this build does not know.
    Codec {
        /// The codec found.
        got: u8,
    },
    /// The reserved bit of the third byte is set.
    Reserved {
        /// The third byte.
        got: u8,
    },
    /// The codec's parameters are invalid.
    Params(ParamsError),
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
                write!(f, "segment version {got}, expected {}", crate::wire::segment::VERSION)
            }
            Self::Codec { got } => write!(f, "codec {got}, expected {}", crate::wire::segment::CODEC),
            Self::Reserved { got } => write!(f, "ToS and flags {got:#04x}, expected bit 1 to be 0"),
            Self::Params(error) => error.fmt(f),
            Self::NoValue { raw_len, head_len } => {
                write!(f, "payload of {raw_len} bytes, expected at least {head_len} and 4")
            }
        }
    }
}

impl core::error::Error for SegmentError {}

/// Why a list of rules was refused.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum RulesError {
    /// More than [`crate::rules::MAX_RULES`] rules.
    TooMany {
        /// How many there are.
        got: usize,
    },
    /// A rule looks for bits that its mask ignores.
    TosOutsideMask {
        /// Its place in the list, from 0.
        index: usize,
    },
    /// A rule matches the mark of compressed frames.
    MatchesMark {
        /// Its place in the list, from 0.
        index: usize,
        /// The mark.
        mark: u8,
    },
    /// Earlier rules match all that this one would.
    Hidden {
        /// Its place in the list, from 0.
        index: usize,
    },
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooMany { got } => write!(f, "{got} rules, expected at most {}", crate::rules::MAX_RULES),
            Self::TosOutsideMask { index } => write!(f, "rule {index}: tos has bits outside its mask"),
            Self::MatchesMark { index, mark } => write!(f, "rule {index}: matches the mark {mark:#04x}"),
            Self::Hidden { index } => write!(f, "rule {index}: earlier rules match all of it"),
        }
    }
}

impl core::error::Error for RulesError {}
