//! The codecs, defined value by value (FORMAT.md §3 and §4): codec 1 with its classes, vectors and
//! groups here, codec 2 in [`bit_plane`].
//!
//! What a codec that runs on TCP must promise, because TCP may resend any byte range at any time
//! and cut it anywhere; `tests/laws.rs` holds this codec to it:
//!
//! 1. *Bound*: `|f - f'|` is at most the bound (codec 1: less) for every `f32` bit pattern, and 0
//!    if no bound can be given.
//! 2. *Idempotence*: a decoded value encodes as the value did.
//! 3. *Sign symmetry*: `-f` encodes as `f` with the other sign; zeros lose their sign.
//! 4. *Monotonicity*: `|f| <= |g|` implies `|f'| <= |g'|`.
//! 5. *Mixing*: any byte-wise mix of `f` and `f'` keeps the bound. The bits of `f'` are a subset
//!    of those of `f` (codec 2: no bin crosses a power of two).
//! 6. *Totality*: any bytes decode, or are refused with an error.
//!
//! The functions here are the definition: plain, branchy, and the reference for every faster
//! kernel.

use core::fmt;

pub mod bit_plane;
mod group;
mod lane;
mod params;

pub(crate) use group::{decode_burst, encode_burst, groups_len};
pub use lane::{Class, Lane, decode_lane, encode_lane};
pub use params::{Params, ParamsError, Split};

/// Bytes of a value.
pub const VALUE_LEN: usize = 4;
/// Lanes of a burst.
pub const LANES: usize = 8;
/// Bytes of a burst: one beat of a 256-bit bus.
pub const BURST_LEN: usize = LANES * VALUE_LEN;
/// Bytes of a tag vector.
pub const TAGS_LEN: usize = 2;
/// Bytes of the longest group: all lanes raw.
pub const MAX_GROUP_LEN: usize = TAGS_LEN + BURST_LEN;

/// The most bytes that `values_len` bytes of values encode to.
#[must_use]
pub const fn max_encoded_len(values_len: usize) -> usize {
    values_len + TAGS_LEN * values_len.div_ceil(BURST_LEN)
}

/// Encodes `values` (little-endian `f32`s, any alignment) to groups in `groups`; returns their
/// length.
///
/// # Errors
/// `values` is not a multiple of 4 long, or the groups do not fit; `groups` then holds nothing of
/// use.
pub fn encode_payload(values: &[u8], groups: &mut [u8], params: Params) -> Result<usize, EncodeError> {
    if !values.len().is_multiple_of(VALUE_LEN) {
        return Err(EncodeError::Unaligned { len: values.len() });
    }
    let have = groups.len();
    let mut at = 0;
    for burst in values.chunks(BURST_LEN) {
        let group = encode_burst(burst, params);
        let bytes = group.as_bytes();
        let end = at + bytes.len();
        let room = groups.get_mut(at..end).ok_or(EncodeError::NoRoom { have })?;
        room.copy_from_slice(bytes);
        at = end;
    }
    Ok(at)
}

/// Decodes groups until `values` (little-endian `f32`s, any alignment) is full; returns how many
/// bytes of `groups` that took. What follows them is the caller's to check.
///
/// # Errors
/// `values` is not a multiple of 4 long, the groups end too early, or a lane past the last value
/// has a tag; `values` then holds nothing of use.
pub fn decode_payload(groups: &[u8], values: &mut [u8], params: Params) -> Result<usize, DecodeError> {
    if !values.len().is_multiple_of(VALUE_LEN) {
        return Err(DecodeError::Unaligned { len: values.len() });
    }
    let mut at = 0;
    for burst in values.chunks_mut(BURST_LEN) {
        at += decode_burst(groups, at, burst, params)?;
    }
    Ok(at)
}

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
        /// Bytes that this group needs: 2 if its tag vector is missing, else its whole length.
        need: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// A section of codec 2 is cut short, or has a bit or a number that no section has.
    Section {
        /// Offset of the section, in bytes.
        at: usize,
    },
    /// A lane past the last value has a tag other than 0.
    AbsentLane {
        /// Offset of the last group, in bytes.
        at: usize,
        /// Its tag vector.
        tags: u16,
        /// The number of lanes that are present.
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
            Self::Section { at } => write!(f, "section at byte {at}: cut short, or not a section"),
            Self::AbsentLane { at, tags, lanes } => write!(
                f,
                "group at byte {at}: tag vector {tags:#06x}, expected tag 0 in every lane from {lanes} on"
            ),
        }
    }
}

impl core::error::Error for DecodeError {}
