//! Which tensors a buffer of values has.

use std::collections::BTreeSet;
use std::ops::Range;

/// The tensors of a buffer, one behind the other, by name and number of values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    tensors: Vec<(String, Range<usize>)>,
    hash: u64,
}

/// The longest name of a tensor, in bytes.
pub const MAX_NAME: usize = 4096;
/// The most values of a buffer: what a message's header can count.
pub const MAX_VALUES: usize = u32::MAX as usize;

impl Layout {
    /// These tensors.
    ///
    /// # Errors
    /// Two have one name, a name is too long, or there are too many values.
    pub fn new<N: Into<String>>(tensors: impl IntoIterator<Item = (N, usize)>) -> Result<Self, LayoutError> {
        let (mut all, mut names, mut end) = (Vec::new(), BTreeSet::new(), 0usize);
        for (name, values) in tensors {
            let (name, start) = (name.into(), end);
            if name.len() > MAX_NAME {
                return Err(LayoutError::LongName { bytes: name.len() });
            }
            if !names.insert(name.clone()) {
                return Err(LayoutError::Twice { name });
            }
            end = start.saturating_add(values);
            if end > MAX_VALUES {
                return Err(LayoutError::TooLong);
            }
            all.push((name, start..end));
        }
        let mut hash = Hash::new();
        for (name, range) in &all {
            hash.bytes(&(name.len() as u64).to_le_bytes());
            hash.bytes(name.as_bytes());
            hash.bytes(&(range.len() as u64).to_le_bytes());
        }
        Ok(Self { tensors: all, hash: hash.0 })
    }

    /// The tensors: name, and where it is in the buffer.
    #[must_use]
    pub fn tensors(&self) -> &[(String, Range<usize>)] {
        &self.tensors
    }

    /// Values of the buffer.
    #[must_use]
    pub fn values(&self) -> usize {
        self.tensors.last().map_or(0, |(_, range)| range.end)
    }

    /// A number that differs, in all likelihood, where layouts differ.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }
}

/// Fowler, Noll and Vo's hash of 64 bits, FNV-1a (draft-eastlake-fnv): it tells mistakes apart, not
/// attacks.
pub(crate) struct Hash(pub(crate) u64);

impl Hash {
    pub(crate) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// The hash of the values' bits, the same on all processors.
#[must_use]
pub fn checksum(values: &[f32]) -> u64 {
    // Eight sums side by side: one alone would wait for each multiplication.
    let mut lanes = [0xcbf2_9ce4_8422_2325u64; 8];
    for values in values.chunks(8) {
        for (lane, value) in lanes.iter_mut().zip(values) {
            *lane = (*lane ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3);
        }
    }
    let mut hash = Hash::new();
    hash.bytes(&(values.len() as u64).to_le_bytes());
    lanes.iter().for_each(|lane| hash.bytes(&lane.to_le_bytes()));
    hash.0
}

/// Why tensors make no layout.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what is wrong")]
pub enum LayoutError {
    /// Two tensors with one name.
    #[error("two tensors have the name '{name}': residuals are kept by name, so each needs its own")]
    Twice { name: String },
    /// A name that is too long.
    #[error("a tensor's name has {bytes} bytes: expected at most {MAX_NAME}")]
    LongName { bytes: usize },
    /// Too many values.
    #[error("the tensors have more than {MAX_VALUES} values: exchange them in several buffers")]
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_that_differ_have_other_hashes() {
        let layouts = [
            &[("a", 1), ("b", 2)][..],
            &[("a", 2), ("b", 1)],
            &[("b", 2), ("a", 1)],
            &[("ab", 3)],
            &[("a", 3)],
            &[],
        ];
        let hashes: BTreeSet<u64> =
            layouts.iter().map(|tensors| Layout::new(tensors.iter().copied()).unwrap().hash()).collect();
        assert_eq!(hashes.len(), layouts.len());
        assert_eq!(Layout::new([("a", 2), ("b", 3)]).unwrap().tensors()[1], ("b".into(), 2..5));
    }

    #[test]
    fn layouts_nobody_can_mean_are_refused() {
        assert_eq!(Layout::new([("a", 1), ("a", 2)]), Err(LayoutError::Twice { name: "a".into() }));
        assert_eq!(Layout::new([("a", usize::MAX), ("b", 1)]), Err(LayoutError::TooLong));
        assert_eq!(Layout::new([("a".repeat(5000), 1)]), Err(LayoutError::LongName { bytes: 5000 }));
    }

    #[test]
    fn a_checksum_sees_each_bit_and_place() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 0.0];
        let mut hashes = BTreeSet::from([checksum(&values), checksum(&values[..9])]);
        for at in 0..values.len() {
            let mut other = values;
            other[at] = f32::from_bits(other[at].to_bits() ^ 1);
            hashes.insert(checksum(&other));
        }
        let mut other = values;
        other.swap(0, 8);
        hashes.insert(checksum(&other));
        other = values;
        other[9] = -0.0;
        hashes.insert(checksum(&other));
        assert_eq!(hashes.len(), 14);
    }
}
