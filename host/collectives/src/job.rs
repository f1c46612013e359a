//! A job: the exchange of a tensor.

use std::ops::Range;

use crate::batch::Batch;
use crate::coding::Coding;
use crate::graph::{Graph, Rank};
use crate::part::Codecs;
use crate::strategies::{Strategy, StrategyError};

/// One tensor, or all small ones together, and what to do about it.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// Numbers of tensors in the layout.
    pub tensors: Vec<usize>,
    /// Its coding.
    pub coding: Coding,
    /// Its strategy.
    pub strategy: Strategy,
    /// Into how many parts it is cut.
    pub partitions: usize,
    /// Values of all its tensors.
    pub values: usize,
    /// The number that its first part has for the strategy, below the ranks; the name of the tensor
    /// decides it.
    pub first: usize,
    /// Several tensors that are coded in one batch, unless they are sent as they are.
    pub batch: Option<Batch>,
}

/// Whose a tensor's first part is, of `ranks`. The name decides it: tensors of one part would all
/// be summed by one rank otherwise. It is the same in every layout, since an owner keeps its
/// residual.
pub(crate) fn first_owner(name: &str, ranks: usize) -> usize {
    // FNV-1a.
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash as usize % ranks
}

impl Job {
    /// The codecs that its graph runs with.
    #[must_use]
    pub fn codecs(&self) -> Codecs<'_> {
        self.batch.as_ref().map_or_else(|| self.coding.codecs(), |batch| Codecs::both(batch))
    }

    /// The graph of rank `me` for a part.
    ///
    /// # Errors
    /// There are no such ranks, or the strategy is not for so many.
    pub fn graph(&self, ranks: usize, me: Rank, partition: usize) -> Result<Graph, StrategyError> {
        self.strategy.graph(ranks, me, self.first + partition)
    }

    /// The ranks of a group, between which messages go on tagged connections, if any do.
    pub(crate) fn tagged(&self) -> Option<usize> {
        self.coding.tagged_group(self.strategy)
    }

    /// The most bytes of a message about so many values.
    pub(crate) fn longest(&self, values: usize) -> usize {
        let codecs = self.codecs();
        codecs.partial.bound(values).max(codecs.result.bound(values)).max(4 * values)
    }

    /// The parts, in the order in which rank `me` begins with them: that of the next rank first, so
    /// that ranks send to different ones.
    pub fn order(&self, ranks: usize, me: Rank) -> impl Iterator<Item = usize> + use<> {
        let (count, start) = (self.partitions, me + 1 + ranks - self.first);
        (0..count).map(move |i| (start + i) % count)
    }

    /// The values of a part, among those of the job.
    #[must_use]
    pub fn part(&self, partition: usize) -> Range<usize> {
        // In 128 bits nothing overflows.
        let edge = |at: usize| (self.values as u128 * at as u128 / self.partitions as u128) as usize;
        edge(partition)..edge(partition + 1)
    }
}
