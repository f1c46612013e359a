//! Agreement after a sum in the network: does everybody have everything, and if not, which rank
//! does what?
//!
//! Each exchange through an aggregator ends with a vote. A rank says up to which chunk it has all
//! results, and which later ones it has. A rank that has a chunk knows that everybody has the one a
//! window before, so later ones are few. If anybody lacks anything, all ranks know from the votes
//! alone who sends which chunks to whom, and end with the same bits.

use std::ops::Range;

use crate::graph::Rank;

/// A rank's vote when it is done with an aggregator, or has given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vote {
    /// Does it have all results, or why not?
    pub end: End,
    /// The epoch that it would give the next attempt.
    pub epoch: u32,
    /// Blocks of 128 values in a chunk, as the aggregator has them; 0 if the rank knows nothing of
    /// that.
    pub blocks: u8,
    /// It has all chunks before this one.
    pub base: u32,
    /// A bit for each of the chunks from `base` on.
    pub later: u64,
}

/// The end of a rank's part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It has all results.
    Complete = 0,
    /// The aggregator gave no answer.
    Silent = 1,
    /// The aggregator refused.
    Refused = 2,
    /// Another rank gave up first.
    Stopped = 3,
    /// A value was too large to be summed as an integer.
    TooLarge = 4,
    /// The aggregator was not tried.
    Skipped = 5,
}

impl Vote {
    pub(crate) const LEN: usize = 18;

    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.end as u8;
        bytes[1..5].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[5..9].copy_from_slice(&self.base.to_le_bytes());
        bytes[9] = self.blocks;
        bytes[10..].copy_from_slice(&self.later.to_le_bytes());
        bytes
    }

    /// `None` if no rank of this version writes it.
    pub(crate) fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let [end, e0, e1, e2, e3, b0, b1, b2, b3, blocks, later @ ..] = *bytes;
        let end = match end {
            0 => End::Complete,
            1 => End::Silent,
            2 => End::Refused,
            3 => End::Stopped,
            4 => End::TooLarge,
            5 => End::Skipped,
            _ => return None,
        };
        Some(Self {
            end,
            epoch: u32::from_le_bytes([e0, e1, e2, e3]),
            blocks,
            base: u32::from_le_bytes([b0, b1, b2, b3]),
            later: u64::from_le_bytes(later),
        })
    }

    pub(crate) fn has(&self, chunk: u32) -> bool {
        chunk < self.base || (chunk - self.base < 64 && self.later >> (chunk - self.base) & 1 == 1)
    }

    /// The same without any chunk.
    fn of_nothing(self) -> Self {
        Self {
            base: 0,
            later: 0,
            end: if self.end == End::Complete { End::Stopped } else { self.end },
            ..self
        }
    }

    /// A vote about `chunks` chunks that contradicts itself.
    fn is_wrong(&self, chunks: u32) -> bool {
        self.base > chunks || (self.end == End::Complete && self.base < chunks)
    }
}

impl End {
    /// Why the aggregator did not sum all; nothing if it did, or if another rank has the reason.
    pub(crate) const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Silent => Some("silent"),
            Self::Refused => Some("refused"),
            Self::TooLarge => Some("too-large"),
            Self::Skipped => Some("not-tried"),
            Self::Complete | Self::Stopped => None,
        }
    }
}

/// Blocks of a chunk, if no rank has heard of the aggregator.
const MAX_BLOCKS: u8 = 16;

/// Blocks of the chunks that the votes are about. Who had other chunks, of an earlier time of the
/// aggregator, has nothing.
pub(crate) fn same_chunks(votes: &mut [Vote]) -> u8 {
    let known = votes.iter().map(|vote| vote.blocks).find(|blocks| (1..=MAX_BLOCKS).contains(blocks));
    let blocks = known.unwrap_or(MAX_BLOCKS);
    for vote in votes.iter_mut().filter(|vote| vote.blocks != blocks) {
        *vote = vote.of_nothing();
    }
    blocks
}

/// The source of a few chunks that somebody lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// This rank has them, and sends them to those who lack one.
    Copy { from: Rank, to: Vec<Rank> },
    /// Nobody has them: all send their own values to this rank, which sums.
    Sum { owner: Rank },
}

/// Chunks that have the same way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Batch {
    pub(crate) chunks: Range<u32>,
    pub(crate) way: Way,
}

/// The most chunks of a batch: few enough for ranks to share the work, many enough for headers not
/// to count.
const MOST: u32 = 16;

/// Decides which rank does what about chunks that somebody lacks; nothing if all have everything. A
/// rank whose vote makes no sense is an error.
pub(crate) fn decide(votes: &[Vote], chunks: u32) -> Result<Vec<Batch>, Rank> {
    if let Some(wrong) = votes.iter().position(|vote| vote.is_wrong(chunks)) {
        return Err(wrong);
    }
    let first = votes.iter().map(|vote| vote.base).min().unwrap_or(chunks);
    let mut batches: Vec<Batch> = Vec::new();
    let mut sums = 0;
    for chunk in first..chunks {
        let to: Vec<Rank> = (0..votes.len()).filter(|&rank| !votes[rank].has(chunk)).collect();
        let from = (0..votes.len()).find(|&rank| votes[rank].has(chunk));
        let last = batches.last_mut().filter(|last| {
            last.chunks.end == chunk
                && last.chunks.len() < MOST as usize
                && match (&last.way, from) {
                    (Way::Copy { from, to: lack }, Some(rank)) => *from == rank && *lack == to,
                    (Way::Sum { .. }, None) => true,
                    _ => false,
                }
        });
        match (last, from) {
            (Some(last), _) => last.chunks.end += 1,
            (None, Some(_)) if to.is_empty() => {}
            (None, Some(from)) => {
                batches.push(Batch { chunks: chunk..chunk + 1, way: Way::Copy { from, to } });
            }
            (None, None) => {
                let way = Way::Sum { owner: sums % votes.len() };
                sums += 1;
                batches.push(Batch { chunks: chunk..chunk + 1, way });
            }
        }
    }
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vote(base: u32, later: u64) -> Vote {
        Vote { end: End::Silent, epoch: 7, blocks: 16, base, later }
    }

    #[test]
    fn votes_come_back_and_others_are_refused() {
        for end in [End::Complete, End::Silent, End::Refused, End::Stopped, End::TooLarge, End::Skipped] {
            let vote = Vote { end, epoch: 0x0102_0304, blocks: 9, base: 5 << 24, later: 1 << 63 | 6 };
            assert_eq!(Vote::parse(&vote.to_bytes()), Some(vote));
        }
        assert_eq!(Vote::parse(&[6; Vote::LEN]), None);
    }

    /// Rank 0 has chunks 0 to 2 and 4, rank 1 those to 3, rank 2 those to 2; nobody has 5.
    #[test]
    fn chunks_that_somebody_has_are_copied_and_the_rest_is_summed() {
        let batches = decide(&[vote(3, 0b10), vote(4, 0), vote(3, 0)], 6).unwrap();
        let ways: Vec<(Range<u32>, Way)> =
            batches.into_iter().map(|batch| (batch.chunks, batch.way)).collect();
        assert_eq!(
            ways,
            [
                (3..4, Way::Copy { from: 1, to: vec![0, 2] }),
                (4..5, Way::Copy { from: 0, to: vec![1, 2] }),
                (5..6, Way::Sum { owner: 0 }),
            ]
        );
    }

    #[test]
    fn a_rank_that_had_other_chunks_has_nothing() {
        let mut votes = [Vote { blocks: 0, ..vote(0, 0) }, Vote { blocks: 2, ..vote(5, 1) }, vote(7, 0)];
        assert_eq!(same_chunks(&mut votes), 2);
        assert_eq!(votes.map(|vote| vote.base), [0, 5, 0]);
        assert_eq!(same_chunks(&mut [Vote { blocks: 0, ..vote(0, 0) }]), 16);
        // Complete, but of other chunks.
        let mut votes = [Vote { blocks: 2, ..vote(5, 1) }, Vote { end: End::Complete, ..vote(9, 0) }];
        same_chunks(&mut votes);
        assert!(decide(&votes, 30).is_ok());
    }

    #[test]
    fn sums_are_shared_by_all() {
        let batches = decide(&[vote(0, 0); 3], 100).unwrap();
        let owners: Vec<Way> = batches.iter().map(|batch| batch.way.clone()).collect();
        let owner = |at: usize| Way::Sum { owner: at % 3 };
        assert_eq!(owners, (0..7).map(owner).collect::<Vec<_>>());
        assert_eq!(batches.last().unwrap().chunks, 96..100);
    }

    #[test]
    fn all_complete_means_nothing_to_do_and_contradictions_have_a_name() {
        let complete = Vote { end: End::Complete, ..vote(9, 0) };
        assert_eq!(decide(&[complete; 4], 9), Ok(vec![]));
        assert_eq!(decide(&[complete, vote(10, 0)], 9), Err(1));
        assert_eq!(decide(&[Vote { base: 8, ..complete }, complete], 9), Err(0));
    }

    proptest! {
        /// Everybody ends with every chunk, from somebody who has it, and each chunk is in one
        /// batch at most.
        #[test]
        fn everybody_gets_everything(
            votes in prop::collection::vec((0u32..40, any::<u64>()), 1..9),
            more in 0u32..80,
        ) {
            let votes: Vec<Vote> = votes.into_iter().map(|(base, later)| vote(base, later)).collect();
            let chunks = votes.iter().map(|vote| vote.base).max().unwrap() + more;
            let mut have: Vec<Vec<bool>> =
                votes.iter().map(|vote| (0..chunks).map(|chunk| vote.has(chunk)).collect()).collect();
            let mut end = 0;
            for batch in decide(&votes, chunks).unwrap() {
                prop_assert!(batch.chunks.start >= end && batch.chunks.len() <= MOST as usize);
                end = batch.chunks.end;
                for chunk in batch.chunks.clone() {
                    let chunk = chunk as usize;
                    match &batch.way {
                        Way::Copy { from, to } => {
                            prop_assert!(have[*from][chunk] && !to.contains(from));
                            to.iter().for_each(|&to| have[to][chunk] = true);
                        }
                        Way::Sum { owner } => {
                            prop_assert!(*owner < votes.len() && have.iter().all(|have| !have[chunk]));
                            have.iter_mut().for_each(|have| have[chunk] = true);
                        }
                    }
                }
            }
            prop_assert!(have.iter().flatten().all(|&has| has));
        }
    }
}
