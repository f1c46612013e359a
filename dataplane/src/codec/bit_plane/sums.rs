//! Sections of sums, defined value by value (docs/aggregation-protocol.md §2): laid out as codec
//! 2's sections of values, but each sum is held exactly. Its plane value is the magnitude less one
//! where codec 2's is the bin. A sum beyond [`MAX_CODED`] is raw, and its four bytes are the
//! integer.

use super::value::Coded;
use super::{SECTION_VALUES, section};

/// The largest magnitude of a sum that is not raw.
pub const MAX_CODED: u32 = 1 << 13;

const fn encode_sum(sum: i32) -> Coded {
    match sum.unsigned_abs() {
        0 => Coded::Zero,
        magnitude @ 1..=MAX_CODED => Coded::Bin { negative: sum < 0, index: (magnitude - 1) as u16 },
        _ => Coded::Raw(sum as u32),
    }
}

const fn decode_sum(coded: Coded) -> i32 {
    match coded {
        Coded::Zero => 0,
        Coded::Bin { negative: true, index } => -(index as i32) - 1,
        Coded::Bin { negative: false, index } => index as i32 + 1,
        Coded::Raw(bits) => bits as i32,
    }
}

/// Encodes at most [`SECTION_VALUES`] sums to a section at the start of `out`; its length. None if
/// it does not fit, or if there are more sums.
#[must_use]
pub fn encode(sums: &[i32], out: &mut [u8]) -> Option<usize> {
    if sums.len() > SECTION_VALUES {
        return None;
    }
    section::encode(sums, out, |sum| encode_sum(*sum))
}

/// Fills `sums`, at most [`SECTION_VALUES`], from the section at the start of `bytes`; its length.
/// None if there is no such section; `sums` then holds nothing of use.
#[must_use]
pub fn decode(bytes: &[u8], sums: &mut [i32]) -> Option<usize> {
    if sums.len() > SECTION_VALUES {
        return None;
    }
    section::decode(bytes, sums, decode_sum)
}

/// Whether the section of `sums` sums at the start of `bytes` may have raw ones; any answer if
/// there is no such section.
#[must_use]
pub(crate) fn may_have_raw(bytes: &[u8], sums: usize) -> bool {
    section::may_have_raw(bytes, sums)
}
