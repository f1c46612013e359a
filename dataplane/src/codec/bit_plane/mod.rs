//! Codec 2: bit-plane groups over compacted non-zero values, defined value by value (FORMAT.md §3.7
//! and §4.2).
//!
//! A section of at most 512 values says which of them are not zero, and then holds bit planes of
//! those alone: a group of eight takes as many bytes as its largest magnitude has bits. A value is
//! restored in the middle of its bin, which is two bounds wide and never crosses a power of two, so
//! every byte-wise mix of a value and its decoded form is within the bound.
//!
//! The functions here are the definition: plain, branchy, and the reference for every faster
//! kernel.

mod section;
pub mod sums;
mod value;

pub use value::{Bound, BoundError, Coded, decode_value, encode_value};

use super::{DecodeError, EncodeError, VALUE_LEN};

/// Values of a section; the last one of a payload may have fewer.
pub const SECTION_VALUES: usize = 512;
/// Items of a group: their bits at one weight are one byte.
pub const GROUP_ITEMS: usize = 8;

const SECTION_LEN: usize = SECTION_VALUES * VALUE_LEN;

/// The most bytes that `values_len` bytes of values encode to.
#[must_use]
pub const fn max_encoded_len(values_len: usize) -> usize {
    let (sections, rest) = (values_len / SECTION_LEN, values_len % SECTION_LEN);
    sections * max_section_len(SECTION_VALUES)
        + if rest == 0 { 0 } else { max_section_len(rest.div_ceil(VALUE_LEN)) }
}

/// The longest section of `values` values: a flat map, and a group of raw values for each byte of
/// it.
const fn max_section_len(values: usize) -> usize {
    // Mode and map; of a group its signs, half a byte of code, which are raw, width, planes and raw
    // values.
    let octets = values.div_ceil(8);
    1 + octets + octets.div_ceil(2) + octets * (1 + 1 + 1 + 9 + 32)
}

/// Encodes `values` (little-endian `f32`s, any alignment) to sections in `out`; returns their
/// length.
///
/// # Errors
/// `values` is not a multiple of 4 long, or the sections do not fit; `out` then holds nothing of
/// use.
pub fn encode_payload(values: &[u8], out: &mut [u8], bound: Bound) -> Result<usize, EncodeError> {
    let (values, []) = values.as_chunks::<VALUE_LEN>() else {
        return Err(EncodeError::Unaligned { len: values.len() });
    };
    let have = out.len();
    let mut at = 0;
    for section in values.chunks(SECTION_VALUES) {
        let room = out.get_mut(at..).unwrap_or(&mut []);
        let coded = |value: &[u8; VALUE_LEN]| encode_value(u32::from_le_bytes(*value), bound);
        at += section::encode(section, room, coded).ok_or(EncodeError::NoRoom { have })?;
    }
    Ok(at)
}

/// Decodes sections until `values` (little-endian `f32`s, any alignment) is full; returns how many
/// bytes of `sections` that took. What follows them is the caller's to check.
///
/// # Errors
/// `values` is not a multiple of 4 long, or a section is cut short or is none; `values` then holds
/// nothing of use.
pub fn decode_payload(sections: &[u8], values: &mut [u8], bound: Bound) -> Result<usize, DecodeError> {
    let len = values.len();
    let (values, []) = values.as_chunks_mut::<VALUE_LEN>() else {
        return Err(DecodeError::Unaligned { len });
    };
    let mut at = 0;
    for section in values.chunks_mut(SECTION_VALUES) {
        let rest = sections.get(at..).unwrap_or(&[]);
        let restored = |coded| decode_value(coded, bound).to_le_bytes();
        at += section::decode(rest, section, restored).ok_or(DecodeError::Section { at })?;
    }
    Ok(at)
}

/// The length of the sections of `values` values at the start of `sections`; None if
/// [`decode_payload`] would refuse them. It decodes nothing, and needs no room.
#[must_use]
pub(crate) fn sections_len(sections: &[u8], values: usize) -> Option<usize> {
    let (mut at, mut left) = (0, values);
    while left > 0 {
        let section = left.min(SECTION_VALUES);
        at += section::len(sections.get(at..)?, section)?;
        left -= section;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// Mostly small bytes, so that modes, codes and widths are often right.
        #[test]
        fn sections_len_is_what_decoding_takes(
            sections in prop::collection::vec(prop_oneof![4 => 0u8..4, 1 => any::<u8>()], 0..200), values in 0usize..40,
        ) {
            let decoded = decode_payload(&sections, &mut vec![0; 4 * values], Bound::new(0).unwrap());
            prop_assert_eq!(sections_len(&sections, values), decoded.ok());
        }
    }
}
