//! A slot: the sums of one chunk, who has added to them, and what became of them.

use crate::engine::Millis;
use crate::kernels::Kernel;
use crate::sums::{NOT_A_NUMBER, OVER, Summable};
use crate::wire::chunk::{
    BLOCK_VALUES, Blocks, HEADER_LEN, MAX_BLOCKS, Part, all_blocks_mask, values_of_block,
};

/// Room for a section, and for what fast encoders write behind it.
pub(super) const SECTION_ROOM: usize = 1024;

/// How far a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Some have not contributed.
    Adding,
    /// All have, and the aggregator above has not answered with all of the result.
    Above,
    /// The sums are the result, or there is none because a value was over the limit.
    Done,
}

/// The sums of a chunk. `BLOCKS` is the most that it may have.
pub(super) struct Slot<const BLOCKS: usize> {
    sums: [[i32; BLOCK_VALUES]; BLOCKS],
    /// A bit for each lane that somebody's NaN or infinity is in.
    not_numbers: [u128; BLOCKS],
    /// A bit for each worker that the sums of the block have.
    seen: [u64; BLOCKS],
    /// When the result was sent to all.
    pub(super) sent: Millis,
    /// The occupant is a chunk of this epoch.
    pub(super) epoch: u32,
    pub(super) seq: u32,
    /// Blocks that hold the result of the aggregator above.
    from_above: u16,
    values: u16,
    pub(super) profile: Summable,
    pub(super) peak: u8,
    /// Workers that those who have begun to contribute stand for.
    pub(super) workers: u8,
    pub(super) phase: Phase,
    /// A value was beyond the limit.
    pub(super) over: bool,
}

impl<const BLOCKS: usize> Slot<BLOCKS> {
    pub(super) const fn new() -> Self {
        Self {
            sums: [[0; BLOCK_VALUES]; BLOCKS],
            not_numbers: [0; BLOCKS],
            seen: [0; BLOCKS],
            sent: Millis(0),
            epoch: 0,
            seq: 0,
            from_above: 0,
            values: 0,
            profile: Summable::ONE,
            peak: 0,
            workers: 0,
            phase: Phase::Done,
            over: false,
        }
    }

    /// Forgets the occupant; the next one is to follow `seq`.
    pub(super) fn vacate(&mut self, epoch: u32, seq: u32) {
        (self.epoch, self.seq, self.values, self.phase) = (epoch, seq, 0, Phase::Done);
    }

    /// Empties the slot for another chunk.
    pub(super) fn restart(&mut self, epoch: u32, seq: u32, part: &Part<'_>) {
        let values = part.blocks.values();
        // The rest is not looked at.
        self.sums.iter_mut().take(values.div_ceil(BLOCK_VALUES)).for_each(|sums| sums.fill(0));
        self.not_numbers = [0; BLOCKS];
        self.seen = [0; BLOCKS];
        (self.epoch, self.seq) = (epoch, seq);
        (self.values, self.profile) = (values as u16, part.profile);
        (self.from_above, self.peak, self.workers) = (0, 0, 0);
        (self.phase, self.over) = (Phase::Adding, false);
    }

    /// Values of the chunk.
    pub(super) fn values(&self) -> usize {
        self.values.into()
    }

    /// Whether a part is of this chunk as its other parts are.
    pub(super) fn agrees(&self, part: &Part<'_>) -> bool {
        self.values() == part.blocks.values() && self.profile == part.profile
    }

    fn blocks(&self) -> usize {
        self.values().div_ceil(BLOCK_VALUES)
    }

    /// Blocks that the sums lack of a worker.
    pub(super) fn missing(&self, worker: u8) -> u16 {
        let seen = self.seen.iter().take(self.blocks()).enumerate();
        seen.fold(0, |all, (block, seen)| all | u16::from(seen >> (worker & 63) & 1 == 0) << (block & 15))
    }

    /// Those of `members` that have not contributed all.
    pub(super) fn waits_for(&self, members: u64) -> u64 {
        members & !self.seen.iter().take(self.blocks()).fold(u64::MAX, |all, seen| all & seen)
    }

    /// Whether nothing of a worker's has been added.
    pub(super) fn has_none_of(&self, worker: u8) -> bool {
        self.seen.iter().all(|seen| seen >> (worker & 63) & 1 == 0)
    }

    /// Adds a worker's blocks, as far as they were not added before. `false` if a section is none, or bytes follow the last
    /// one; nothing has changed then.
    pub(super) fn add_values(&mut self, kernel: Kernel, worker: u8, part: &Part<'_>, limit: i32) -> bool {
        let mut units = [[0; BLOCK_VALUES]; BLOCKS];
        let read = |section: &[u8], units: &mut [i32; BLOCK_VALUES], count: usize| {
            kernel.decode_units(section, units.get_mut(..count)?, part.profile, limit)
        };
        if !read_all(part, &mut units, read) {
            return false;
        }
        self.add(kernel, worker, part, &units);
        true
    }

    /// Adds a rack's sums, each of at most `limit`; else as [`Self::add_values`]. `false` also if a sum is beyond that.
    pub(super) fn add_sums(&mut self, kernel: Kernel, worker: u8, part: &Part<'_>, limit: i32) -> bool {
        let mut parts = [[0; BLOCK_VALUES]; BLOCKS];
        let read = |section: &[u8], sums: &mut [i32; BLOCK_VALUES], count: usize| {
            kernel.decode_sums(section, sums.get_mut(..count)?)
        };
        if !read_all(part, &mut parts, read) {
            return false;
        }
        let is_lie =
            |sum: &i32| !matches!(*sum, NOT_A_NUMBER | OVER) && sum.unsigned_abs() > limit.unsigned_abs();
        if parts.as_flattened().iter().any(is_lie) {
            return false;
        }
        self.add(kernel, worker, part, &parts);
        true
    }

    /// Adds the blocks of a part that were not added before.
    fn add(&mut self, kernel: Kernel, worker: u8, part: &Part<'_>, units: &[[i32; BLOCK_VALUES]; BLOCKS]) {
        let of_slot = units.iter().zip(&mut self.sums).zip(&mut self.seen).zip(&mut self.not_numbers);
        let bit = 1 << (worker & 63);
        for (block, (((units, sums), seen), not_numbers)) in of_slot.enumerate() {
            if part.blocks.mask() >> (block & 15) & 1 != 0 && *seen & bit == 0 {
                *seen |= bit;
                // Units beyond the chunk's last value are zeros.
                let odd = kernel.add(units, sums);
                *not_numbers |= odd.not_numbers;
                self.over |= odd.over;
            }
        }
        self.peak = self.peak.max(part.peak);
    }

    /// Takes the result of the aggregator above in place of the sums. `false` as [`Self::add_values`].
    pub(super) fn take_result(&mut self, kernel: Kernel, part: &Part<'_>) -> bool {
        let mut results = [[0; BLOCK_VALUES]; BLOCKS];
        if !read_all(part, &mut results, read_results(kernel, part.profile)) {
            return false;
        }
        for (block, count) in part.blocks.each() {
            let (Some(results), Some(sums)) = (results.get(block), self.sums.get_mut(block)) else {
                continue;
            };
            let Some(not_numbers) = self.not_numbers.get_mut(block) else { continue };
            *not_numbers = 0;
            for (place, (result, sum)) in results.iter().zip(sums).take(count).enumerate() {
                *sum = *result;
                *not_numbers |= u128::from(*result == NOT_A_NUMBER) << (place & 127);
            }
        }
        self.from_above |= part.blocks.mask();
        self.peak = self.peak.max(part.peak);
        true
    }

    /// Whether all blocks hold the result of the aggregator above.
    pub(super) fn is_from_above(&self) -> bool {
        self.from_above == all_blocks_mask(self.values())
    }

    /// Encodes the sums from block `first` on, as many blocks as fit, behind the room for a header. The blocks and the
    /// packet's length; None if none is left.
    pub(super) fn encode(&self, kernel: Kernel, first: usize, out: &mut [u8]) -> Option<(Blocks, usize)> {
        let mut at = HEADER_LEN;
        let mut count = 0;
        for block in first..self.blocks().min(MAX_BLOCKS) {
            let mut sums = *self.sums.get(block)?;
            let mut odd = *self.not_numbers.get(block)?;
            while odd != 0 {
                if let Some(sum) = sums.get_mut(odd.trailing_zeros() as usize) {
                    *sum = NOT_A_NUMBER;
                }
                odd &= odd - 1;
            }
            if self.over && block == 0 {
                sums[0] = OVER;
            }
            let mut section = [0; SECTION_ROOM];
            let sums = sums.get(..values_of_block(self.values(), block))?;
            let len = match self.phase {
                // A partial sum.
                Phase::Above => kernel.encode_sums(sums, &mut section)?,
                _ => kernel.encode_result(sums, &mut section, self.profile)?,
            };
            let section = section.get(..len)?;
            let Some(room) = out.get_mut(at..).and_then(|out| out.get_mut(..section.len())) else { break };
            room.copy_from_slice(section);
            (at, count) = (at + section.len(), count + 1);
        }
        Some((Blocks::new(self.values(), first, count)?, at))
    }
}

/// Reads a block of a result, for [`read_all`].
pub(super) fn read_results(
    kernel: Kernel,
    profile: Summable,
) -> impl Fn(&[u8], &mut [i32; BLOCK_VALUES], usize) -> Option<usize> {
    move |coded, sums, count| kernel.decode_result(coded, sums.get_mut(..count)?, profile)
}

/// Reads the sections of a part with `read`, each to the place of its block. `false` if one is none, a block has no place, or
/// bytes follow the last one.
pub(super) fn read_all<T>(
    part: &Part<'_>,
    blocks: &mut [T],
    read: impl Fn(&[u8], &mut T, usize) -> Option<usize>,
) -> bool {
    let mut rest = part.sections;
    for (block, count) in part.blocks.each() {
        let Some(to) = blocks.get_mut(block) else { return false };
        let Some(len) = read(rest, to, count) else { return false };
        let Some(after) = rest.get(len..) else { return false };
        rest = after;
    }
    rest.is_empty()
}
