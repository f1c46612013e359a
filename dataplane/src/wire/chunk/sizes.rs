//! The part of a gradient that a packet is about: blocks of 128 values, chunks of blocks, and the
//! limits that a job agrees on.

use crate::codec::bit_plane::max_encoded_len;
pub use crate::sums::{BLOCK_LEN, BLOCK_VALUES};

use super::HEADER_LEN;

/// The most blocks of a chunk.
pub const MAX_BLOCKS: usize = 16;
/// The most values of a chunk.
pub const MAX_VALUES: usize = MAX_BLOCKS * BLOCK_VALUES;
/// Bytes of the longest code of a block: a section of codec 2.
pub const MAX_SECTION_LEN: usize = max_encoded_len(BLOCK_LEN);
/// The smallest IP MTU: the worst block still fits behind the headers of IPv4 and UDP.
pub const MIN_MTU: u16 = (20 + 8 + HEADER_LEN + MAX_SECTION_LEN) as u16;
/// The longest packet of a child that asks for Ethernet's MTU.
pub const MAX_PACKET_LEN: usize = 1500 - 20 - 8;
/// The most children of one aggregator.
pub const MAX_CHILDREN: usize = 64;
/// The most chunks that a child may have under way.
pub const MAX_WINDOW: usize = 64;

/// Sizes on which a job agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Limits {
    /// Blocks of a chunk, 1 to [`MAX_BLOCKS`].
    pub blocks: u8,
    /// Chunks under way, a power of two up to [`MAX_WINDOW`].
    pub window: u8,
    /// The longest IP packet, at least [`MIN_MTU`].
    pub mtu: u16,
}

impl Limits {
    /// The largest chunks and windows, for Ethernet.
    pub const MOST: Self = Self { blocks: MAX_BLOCKS as u8, window: 16, mtu: 1500 };

    /// Whether each is within its range.
    #[must_use]
    pub const fn are_valid(self) -> bool {
        self.blocks >= 1
            && self.blocks as usize <= MAX_BLOCKS
            && self.window.is_power_of_two()
            && self.window as usize <= MAX_WINDOW
            && self.mtu >= MIN_MTU
    }

    /// The smaller of each.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self {
            blocks: self.blocks.min(other.blocks),
            window: self.window.min(other.window),
            mtu: self.mtu.min(other.mtu),
        }
    }

    /// Values of a chunk.
    #[must_use]
    pub const fn values(self) -> usize {
        self.blocks as usize * BLOCK_VALUES
    }

    /// Chunks of an operation on so many values.
    #[must_use]
    pub const fn chunks(self, values: usize) -> usize {
        match self.values() {
            0 => 0,
            of_chunk => values.div_ceil(of_chunk),
        }
    }

    /// Bytes of a packet that the MTU has room for behind the headers of IPv4 and UDP.
    #[must_use]
    pub const fn packet_len(self) -> usize {
        (self.mtu as usize).saturating_sub(28)
    }
}

/// Some of a chunk's blocks, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Blocks {
    values: u16,
    first: u8,
    count: u8,
}

impl Blocks {
    /// `count` blocks from `first` on, of a chunk with so many values. None if the chunk has no
    /// such blocks.
    #[must_use]
    pub const fn new(values: usize, first: usize, count: usize) -> Option<Self> {
        if values == 0 || values > MAX_VALUES || count == 0 {
            return None;
        }
        let all = values.div_ceil(BLOCK_VALUES);
        if first >= all || count > all - first {
            return None;
        }
        Some(Self { values: values as u16, first: first as u8, count: count as u8 })
    }

    /// As they stand in a header: the chunk's values, then the first block and one less than how
    /// many there are.
    pub(super) const fn to_bytes(self) -> [u8; 3] {
        let [v0, v1] = self.values.to_be_bytes();
        [v0, v1, self.first << 4 | (self.count - 1)]
    }

    /// Values of the whole chunk.
    #[must_use]
    pub const fn values(self) -> usize {
        self.values as usize
    }

    /// The numbers of the blocks, and how many values each has.
    pub fn each(self) -> impl Iterator<Item = (usize, usize)> {
        let (first, count, values) = (usize::from(self.first), usize::from(self.count), self.values());
        (first..first + count).map(move |block| (block, values_of_block(values, block)))
    }

    /// A bit for each of them.
    #[must_use]
    pub const fn mask(self) -> u16 {
        all_blocks_mask(self.count as usize * BLOCK_VALUES) << self.first
    }
}

/// The number of values block `block` of a chunk of `values` values has; 0 if it is not there.
#[must_use]
pub const fn values_of_block(values: usize, block: usize) -> usize {
    let rest = values.saturating_sub(block * BLOCK_VALUES);
    if rest > BLOCK_VALUES { BLOCK_VALUES } else { rest }
}

/// A bit for each block of a chunk of `values` values, which are at most [`MAX_VALUES`].
#[must_use]
pub const fn all_blocks_mask(values: usize) -> u16 {
    match values.div_ceil(BLOCK_VALUES) {
        blocks @ 0..MAX_BLOCKS => (1 << blocks) - 1,
        _ => u16::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_chunk() {
        for values in 0..=MAX_VALUES + 1 {
            for first in 0..=MAX_BLOCKS {
                for count in 0..=MAX_BLOCKS + 1 {
                    let whole = values.div_ceil(BLOCK_VALUES);
                    let expected = (1..=MAX_VALUES).contains(&values) && count > 0 && first + count <= whole;
                    let blocks = Blocks::new(values, first, count);
                    assert_eq!(blocks.is_some(), expected, "{values} {first} {count}");
                    let Some(blocks) = blocks else { continue };
                    assert!(blocks.each().all(|(block, count)| blocks.mask() >> block & 1 == 1 && count > 0));
                    assert_eq!(blocks.mask().count_ones() as usize, count);
                    assert_eq!(blocks.mask() & !all_blocks_mask(values), 0);
                    if count == whole {
                        assert_eq!(blocks.each().map(|(_, count)| count).sum::<usize>(), values);
                        assert_eq!(blocks.mask(), all_blocks_mask(values));
                    }
                }
            }
        }
    }

    #[test]
    fn the_worst_block_fits_ethernet() {
        assert_eq!(MAX_SECTION_LEN, 729);
        assert_eq!(MIN_MTU, 777);
        assert!(Limits::MOST.are_valid());
        assert!(Limits::MOST.packet_len() >= HEADER_LEN + MAX_SECTION_LEN);
    }
}
