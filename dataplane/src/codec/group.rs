//! One burst: eight lanes behind one tag vector.

use super::{Class, LANES, Lane, MAX_GROUP_LEN, Params, TAGS_LEN, VALUE_LEN, decode_lane, encode_lane};
use crate::codec::DecodeError;

/// An encoded burst: the tag vector, then the lanes' vectors without gaps; 2 to 34 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    bytes: [u8; MAX_GROUP_LEN],
    len: usize, // at most MAX_GROUP_LEN
}

impl Group {
    /// The group's bytes.
    #[must_use]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }

    /// Appends what fits; eight lanes always do.
    fn push(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }
}

/// Encodes a burst of up to eight values (little-endian `f32`s); lanes past the last whole value
/// are absent, with tag 0. Anything past 32 bytes is ignored.
///
/// Source: FORMAT.md §4.
#[must_use]
pub(crate) fn encode_burst(burst: &[u8], params: Params) -> Group {
    let mut group = Group { bytes: [0; MAX_GROUP_LEN], len: TAGS_LEN };
    let mut tags = 0u16;
    let (values, _) = burst.as_chunks::<VALUE_LEN>();
    for (lane, value) in values.iter().take(LANES).enumerate() {
        let Lane { class, vector } = encode_lane(u32::from_le_bytes(*value), params);
        tags |= (class as u16) << (2 * lane);
        group.push(vector.to_le_bytes().get(..class.vector_len()).unwrap_or(&[]));
    }
    let [low, high] = tags.to_le_bytes();
    (group.bytes[0], group.bytes[1]) = (low, high);
    group
}

/// Decodes the group at byte `at` of `groups` to the up to eight values of `burst` (little-endian
/// `f32`s); returns the group's length.
///
/// # Errors
/// The group is not whole, or a lane that `burst` has no value for has a tag other than 0.
///
/// Source: FORMAT.md §4.
pub(crate) fn decode_burst(
    groups: &[u8],
    at: usize,
    burst: &mut [u8],
    params: Params,
) -> Result<usize, DecodeError> {
    let rest = groups.get(at..).unwrap_or(&[]);
    let have = rest.len();
    let Some((tags, _)) = rest.split_first_chunk::<TAGS_LEN>() else {
        return Err(DecodeError::Truncated { at, need: TAGS_LEN, have });
    };
    let tags = u16::from_le_bytes(*tags);
    let (values, _) = burst.as_chunks_mut::<VALUE_LEN>();
    let lanes = values.len();
    if u32::from(tags).checked_shr(2 * lanes as u32).unwrap_or(0) != 0 {
        return Err(DecodeError::AbsentLane { at, tags, lanes });
    }
    let need = group_len(tags);
    let Some(mut vectors) = rest.get(TAGS_LEN..need) else {
        return Err(DecodeError::Truncated { at, need, have });
    };
    for (lane, value) in values.iter_mut().take(LANES).enumerate() {
        let class = Class::from_tag(tags >> (2 * lane));
        let Some((bytes, rest)) = vectors.split_at_checked(class.vector_len()) else {
            return Err(DecodeError::Truncated { at, need, have });
        };
        vectors = rest;
        let vector = bytes.iter().rev().fold(0, |high, &low| (high << 8) | u32::from(low));
        *value = decode_lane(Lane { class, vector }, params).to_le_bytes();
    }
    Ok(need)
}

/// Length of the groups of `count` values at the start of `groups`; none if
/// [`super::decode_payload`] would refuse them. It decodes nothing, and needs no room.
#[must_use]
pub(crate) fn groups_len(groups: &[u8], count: usize) -> Option<usize> {
    let (mut at, mut left) = (0, count);
    while left > 0 {
        let tags = u16::from_le_bytes(*groups.get(at..)?.first_chunk::<TAGS_LEN>()?);
        if left < LANES && tags >> (2 * left) != 0 {
            return None;
        }
        at += group_len(tags);
        left = left.saturating_sub(LANES);
    }
    (at <= groups.len()).then_some(at)
}

/// Length of the group that starts with `tags`, tag vector included: 2 to 34 bytes.
const fn group_len(tags: u16) -> usize {
    // A tag of 1, 2, 3 stands for 1, 2, 4 bytes: its value, and one more if both bits are set.
    let low = tags & 0x5555;
    let high = (tags >> 1) & 0x5555;
    TAGS_LEN + (low.count_ones() + 2 * high.count_ones() + (low & high).count_ones()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::decode_payload;
    use proptest::prelude::*;
    use std::vec;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// Mostly short groups, so that several fit.
        #[test]
        fn groups_len_is_what_decoding_takes(
            groups in prop::collection::vec(prop_oneof![4 => Just(0u8), 1 => any::<u8>()], 0..40), count in 0usize..40,
        ) {
            let decoded = decode_payload(&groups, &mut vec![0; 4 * count], Params::DEFAULT);
            prop_assert_eq!(groups_len(&groups, count), decoded.ok());
        }
    }

    #[test]
    fn group_len_is_the_sum_over_the_lanes() {
        for tags in 0..=u16::MAX {
            let vectors: usize =
                (0..LANES).map(|lane| Class::from_tag(tags >> (2 * lane)).vector_len()).sum();
            assert_eq!(group_len(tags), TAGS_LEN + vectors);
        }
    }
}
