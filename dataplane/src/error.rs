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
