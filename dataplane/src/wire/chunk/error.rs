//! Why a packet is none.

use core::fmt;

use crate::profile::ProfileError;
use crate::sums::UnitError;

use super::{HEADER_LEN, Limits, MAX_PEAK, VERSION};

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
    /// A child's number that its kind cannot have.
    Child {
        /// The number found.
        got: u8,
    },
    /// Bytes 18 and 19 are no codec's parameters.
    Profile(ProfileError),
    /// They are those of a profile whose values cannot be summed.
    Unit(UnitError),
    /// Blocks that no chunk of so many values has.
    Blocks {
        /// Values of the chunk.
        values: usize,
        /// The first block.
        first: usize,
        /// The number of blocks.
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
            Self::Child { got } => write!(f, "child {got}, which its kind cannot have"),
            Self::Profile(error) => error.fmt(f),
            Self::Unit(error) => error.fmt(f),
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
