//! A slot: the sums of one chunk, who has added to them, and what became of them.

use crate::engine::Millis;
use crate::kernels::{Adder, Kernel, Unsummable};
use crate::sums::{NOT_A_NUMBER, OVER, Summable};
use crate::wire::chunk::{
    BLOCK_VALUES, Blocks, HEADER_LEN, Head, MAX_BLOCKS, Part, all_blocks_mask, values_of_block,
};

/// A result that was sent to all, or to a child, is not sent to that child for so long: the answer
/// to a query that crossed it would be in vain.
const HOLD_MS: u64 = 10;
/// Room for a section, and for what fast encoders write behind it.
pub(super) const SECTION_ROOM: usize = 1024;

/// The progress of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Some have not contributed.
    Adding,
    /// All have, and the parent has not answered with all of the result.
    AtParent,
    /// The sums are the result, or there is none because a value was over the limit.
    Done,
}

/// Room for what the sections of a part are read to. What it holds from one part to the next has no
/// meaning: zeroing it for each costs small cores a third of what adding does.
pub(super) type Scratch<const BLOCKS: usize> = [[i32; BLOCK_VALUES]; BLOCKS];

/// The destination of a block that is added.
enum To<'a> {
    /// To no sums yet: what is there has no meaning.
    First(&'a mut [i32; BLOCK_VALUES]),
    /// To the sums of others.
    More(&'a mut [i32; BLOCK_VALUES]),
    /// Nowhere, since the child's block was added before.
    None,
}

/// The sums of a chunk. `BLOCKS` is the most that it may have.
pub(super) struct Slot<const BLOCKS: usize> {
    sums: [[i32; BLOCK_VALUES]; BLOCKS],
    /// A bit for each lane that somebody's NaN or infinity is in.
    not_numbers: [u128; BLOCKS],
    /// A bit for each child that the sums of the block have.
    seen: [u64; BLOCKS],
    /// When the result was sent to all.
    sent: Millis,
    /// A bit for each child that got it again in the last piece of time that anybody did, and in
    /// the piece before.
    repeated: [u64; 2],
    /// The number of that piece.
    piece: u64,
    /// The occupant is a chunk of this epoch.
    pub(super) epoch: u32,
    pub(super) seq: u32,
    /// Blocks that hold the result of the parent.
    from_parent: u16,
    values: u16,
    pub(super) profile: Summable,
    pub(super) peak: u8,
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
            repeated: [0; 2],
            piece: 0,
            epoch: 0,
            seq: 0,
            from_parent: 0,
            values: 0,
            profile: Summable::ONE,
            peak: 0,
            phase: Phase::Done,
            over: false,
        }
    }

    /// Forgets the occupant; the next one is to follow `seq`.
    pub(super) fn vacate(&mut self, epoch: u32, seq: u32) {
        (self.epoch, self.seq, self.values, self.phase) = (epoch, seq, 0, Phase::Done);
    }

    /// Empties the slot for another chunk.
    fn restart(&mut self, epoch: u32, seq: u32, part: &Part<'_>) {
        let values = part.blocks.values();
        // Sums begin with what is first added to a block.
        self.not_numbers = [0; BLOCKS];
        self.seen = [0; BLOCKS];
        (self.epoch, self.seq) = (epoch, seq);
        (self.values, self.profile) = (values as u16, part.profile);
        (self.from_parent, self.peak) = (0, 0);
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

    /// The result goes to all.
    pub(super) fn goes_to_all(&mut self, now: Millis) {
        (self.sent, self.repeated) = (now, [0; 2]);
    }

    /// Whether a child that asks gets the result again. If results of later chunks have overtaken
    /// it, it does not cross what was sent to all. But whoever writes a child's address could have
    /// it flooded, so it gets the result at most once in 10 ms, and in any 20 if it asks: two bits
    /// a child, where the time of each would take 128 bytes a slot.
    pub(super) fn repeats(&mut self, child: u8, is_overtaken: bool, now: Millis) -> bool {
        if !is_overtaken && now.since(self.sent) < HOLD_MS {
            return false;
        }
        let piece = now.0 / HOLD_MS;
        if piece != self.piece {
            let [last, _] = self.repeated;
            self.repeated = [0, if piece == self.piece.wrapping_add(1) { last } else { 0 }];
            self.piece = piece;
        }
        let [these, before] = &mut self.repeated;
        let bit = 1 << (child & 63);
        let is_due = (*these | *before) & bit == 0;
        if is_due {
            *these |= bit;
        }
        is_due
    }

    /// Blocks that the sums lack of a child.
    pub(super) fn missing(&self, child: u8) -> u16 {
        let seen = self.seen.iter().take(self.blocks()).enumerate();
        seen.fold(0, |all, (block, seen)| all | u16::from(seen >> (child & 63) & 1 == 0) << (block & 15))
    }

    /// Those of `children` that have not contributed all.
    pub(super) fn waits_for(&self, children: u64) -> u64 {
        children & !self.seen.iter().take(self.blocks()).fold(u64::MAX, |all, seen| all & seen)
    }

    /// Adds a child's blocks, as far as they were not added before; if `starts`, to a chunk that
    /// takes the slot. `false` if a section is none, or bytes follow the last one; nothing has
    /// changed then, but `scratch`.
    pub(super) fn add_values(
        &mut self,
        kernel: Kernel,
        child: u8,
        part: &Part<'_>,
        limit: i32,
        scratch: &mut Scratch<BLOCKS>,
        starts: Option<Head>,
    ) -> bool {
        if let Some(adder) = kernel.adder(part.profile, limit) {
            return self.add_codes(adder, child, part, starts);
        }
        let read =
            |section: &[u8], units: &mut [i32]| kernel.decode_units(section, units, part.profile, limit);
        if !read_all(part, scratch, read) {
            return false;
        }
        self.add_units(kernel, child, part, scratch, starts);
        true
    }

    /// As [`Self::add_values`]. All but a chunk's last block are whole groups, so the sections of a
    /// part are one code.
    fn add_codes(&mut self, adder: Adder, child: u8, part: &Part<'_>, starts: Option<Head>) -> bool {
        let values = part.blocks.each().map(|(_, count)| count).sum();
        let Some(mut codes) = adder.codes(part.sections, values) else { return false };
        self.add(child, part, starts, |_, to| match to {
            To::First(sums) => codes.begin(sums),
            To::More(sums) => codes.add(sums),
            To::None => {
                codes.skip();
                Unsummable::default()
            }
        });
        true
    }

    /// Adds a rack's sums, each of at most `limit`; else as [`Self::add_values`]. `false` also if a
    /// sum is beyond that.
    pub(super) fn add_sums(
        &mut self,
        kernel: Kernel,
        child: u8,
        part: &Part<'_>,
        limit: i32,
        scratch: &mut Scratch<BLOCKS>,
        starts: Option<Head>,
    ) -> bool {
        if !read_all(part, scratch, |section, sums| kernel.decode_sums(section, sums)) {
            return false;
        }
        let is_lie =
            |sum: &i32| !matches!(*sum, NOT_A_NUMBER | OVER) && sum.unsigned_abs() > limit.unsigned_abs();
        if part.blocks.each().any(|(block, _)| scratch.get(block).is_some_and(|sums| sums.iter().any(is_lie)))
        {
            return false;
        }
        self.add_units(kernel, child, part, scratch, starts);
        true
    }

    fn add_units(
        &mut self,
        kernel: Kernel,
        child: u8,
        part: &Part<'_>,
        units: &Scratch<BLOCKS>,
        starts: Option<Head>,
    ) {
        self.add(child, part, starts, |block, to| {
            let Some(units) = units.get(block) else { return Unsummable::default() };
            // Units beyond the chunk's last value are zeros.
            match to {
                To::First(sums) => {
                    sums.fill(0);
                    kernel.add(units, sums)
                }
                To::More(sums) => kernel.add(units, sums),
                To::None => Unsummable::default(),
            }
        });
    }

    /// Has `add` add the blocks of a part, one after the other. All of it has been read: what is
    /// refused takes no slot.
    fn add(
        &mut self,
        child: u8,
        part: &Part<'_>,
        starts: Option<Head>,
        mut add: impl FnMut(usize, To<'_>) -> Unsummable,
    ) {
        if let Some(Head { epoch, seq, .. }) = starts {
            self.restart(epoch, seq, part);
        }
        let bit = 1 << (child & 63);
        for (block, _) in part.blocks.each() {
            let (Some(sums), Some(seen), Some(not_numbers)) =
                (self.sums.get_mut(block), self.seen.get_mut(block), self.not_numbers.get_mut(block))
            else {
                continue;
            };
            let to = match *seen {
                0 => To::First(sums),
                seen if seen & bit == 0 => To::More(sums),
                _ => To::None,
            };
            let unsummable = add(block, to);
            *seen |= bit;
            *not_numbers |= unsummable.not_numbers;
            self.over |= unsummable.over;
        }
        self.peak = self.peak.max(part.peak);
    }

    /// Takes the result of the parent in place of the sums. `false` as [`Self::add_values`].
    pub(super) fn take_result(
        &mut self,
        kernel: Kernel,
        part: &Part<'_>,
        scratch: &mut Scratch<BLOCKS>,
    ) -> bool {
        let read = |section: &[u8], sums: &mut [i32]| kernel.decode_result(section, sums, part.profile);
        if !read_all(part, scratch, read) {
            return false;
        }
        for (block, count) in part.blocks.each() {
            let (Some(results), Some(sums)) = (scratch.get(block), self.sums.get_mut(block)) else {
                continue;
            };
            let Some(not_numbers) = self.not_numbers.get_mut(block) else { continue };
            // The results themselves say which of them is no number.
            *not_numbers = 0;
            sums.iter_mut().zip(results).take(count).for_each(|(sum, result)| *sum = *result);
        }
        self.from_parent |= part.blocks.mask();
        self.peak = self.peak.max(part.peak);
        true
    }

    /// Whether all blocks hold the result of the parent.
    pub(super) fn is_from_parent(&self) -> bool {
        self.from_parent == all_blocks_mask(self.values())
    }

    /// A block's sums, and what stands for those that are none; the first of a partial sum's block
    /// says that the chunk has a value over the limit.
    #[cold]
    fn marked(&self, mut sums: [i32; BLOCK_VALUES], mut unsummable: u128) -> [i32; BLOCK_VALUES] {
        while unsummable != 0 {
            if let Some(sum) = sums.get_mut(unsummable.trailing_zeros() as usize) {
                *sum = NOT_A_NUMBER;
            }
            unsummable &= unsummable - 1;
        }
        if self.over {
            sums[0] = OVER;
        }
        sums
    }

    /// Encodes the sums from block `first` on, as many blocks as fit `most` bytes, behind the room
    /// for a header. The blocks and the packet's length; None if none is left. Sections go straight
    /// to `out` as long as it has room for more than them.
    pub(super) fn encode(
        &self,
        kernel: Kernel,
        first: usize,
        out: &mut [u8],
        most: usize,
    ) -> Option<(Blocks, usize)> {
        let mut at = HEADER_LEN;
        let mut count = 0;
        for block in first..self.blocks().min(MAX_BLOCKS) {
            let unsummable = *self.not_numbers.get(block)?;
            let marked;
            let mut sums = self.sums.get(block)?;
            if unsummable != 0 || self.over {
                marked = self.marked(*sums, unsummable);
                sums = &marked;
            }
            let sums = sums.get(..values_of_block(self.values(), block))?;
            let code = |to: &mut [u8]| match self.phase {
                // A partial sum.
                Phase::AtParent => kernel.encode_sums(sums, to),
                _ => kernel.encode_result(sums, to, self.profile),
            };
            let Some(room) = out.get_mut(at..) else { break };
            let len = if room.len() >= SECTION_ROOM {
                code(room)?
            } else {
                let mut section = [0; SECTION_ROOM];
                let len = code(&mut section)?;
                let Some(room) = room.get_mut(..len) else { break };
                room.copy_from_slice(section.get(..len)?);
                len
            };
            if at + len > most {
                break;
            }
            (at, count) = (at + len, count + 1);
        }
        Some((Blocks::new(self.values(), first, count)?, at))
    }
}

/// Reads the sections of a part with `read`, each to the place of its block; behind the last of a
/// block's numbers are zeros. `false` if a section is none, a block has no place, or bytes follow
/// the last one.
pub(super) fn read_all(
    part: &Part<'_>,
    blocks: &mut [[i32; BLOCK_VALUES]],
    read: impl Fn(&[u8], &mut [i32]) -> Option<usize>,
) -> bool {
    let mut rest = part.sections;
    for (block, count) in part.blocks.each() {
        let Some((to, behind)) = blocks.get_mut(block).and_then(|to| to.split_at_mut_checked(count)) else {
            return false;
        };
        behind.fill(0);
        let Some(len) = read(rest, to) else { return false };
        let Some(after) = rest.get(len..) else { return false };
        rest = after;
    }
    rest.is_empty()
}
