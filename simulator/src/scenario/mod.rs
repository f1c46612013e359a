//! The scenario of a run: a model on a cluster, with a way to exchange gradients and a codec.

mod aggregator;
mod compression;
mod jobs;
mod links;
mod mechanism;

pub use aggregator::AggregatorRate;
pub use compression::{
    CHUNK_VALUES, CodecPlace, Compression, Content, Packets, RECORDED_RATIOS, Ratios, SUM_RATIOS, Wire,
    WireCost,
};
pub use links::{Links, Racks};
pub use mechanism::{Assignment, Mechanism, SendOrder};

use gradwire_collectives::CollectivePlan;

use crate::time::Picos;
use crate::workload::{ComputeTimes, Jitter, Model};

/// A run: the model, the cluster and the way gradients are exchanged.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Sizes.
    pub model: Model,
    /// Compute times: [`ComputeTimes::of`] the model, or of each worker of a trace. Workers have
    /// them in turn, those beyond the last the first again.
    pub compute_times: Vec<ComputeTimes>,
    /// Workers, from 1.
    pub workers: u32,
    /// The network.
    pub links: Links,
    /// The way gradients are exchanged.
    pub mechanism: Mechanism,
    /// Of [`Mechanism::Graph`]: which parameters are exchanged together, in how many partitions, by
    /// which strategy and codec. Of `wire`, only the rates of a codec on the host count then.
    /// Without a plan, each parameter is exchanged by itself, in as many partitions as there are
    /// workers.
    pub plan: Option<CollectivePlan>,
    /// Bits of a value that the plan's codec codes; without, the most that it makes of one.
    pub coded_bits: Option<f64>,
    /// The time that each message takes its sender and its receiver, besides what its values take.
    /// Chunks for aggregators in the network have their own costs.
    pub per_message: Picos,
    /// Aggregators in the network, of [`Mechanism::InNetwork`].
    pub aggregator: AggregatorRate,
    /// Codec and headers.
    pub wire: Wire,
    /// Largest message in bits, for every mechanism that sends whole parameters; `None` does not
    /// cut them.
    pub message: Option<u64>,
    /// Aggregation starts with the first bits of the last copy, not when it is whole.
    pub cut_through: bool,
    /// Wait for all parameters before the next iteration begins. Asynchronous workers never do.
    pub barrier: bool,
    /// Updates that a forward pass may miss: 0, or K - 1 for Pipe-SGD of width K, up to
    /// [`MAX_WIDTH`](crate::MAX_WIDTH). Needs `barrier` to be off.
    pub staleness: u32,
    /// Variation of compute time.
    pub jitter: Jitter,
    /// Workers that begin their first pass late: (worker, by how much).
    pub late: Vec<(u32, Picos)>,
    /// Simulate every worker even if they are all alike.
    pub full: bool,
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    /// Time of an iteration; of asynchronous workers, of as many updates as there are workers. With
    /// a barrier: until all gradients are in. Without: the mean distance of the times at which the
    /// first row's gradient is in, from the first to the third iteration; in a pipeline of width K,
    /// from the 2K-th to the 4K-th; of asynchronous workers, from the fifth to the 20th.
    pub iteration: Picos,
    /// Events processed.
    pub events: u64,
    /// Bits that left each host, workers first, in all iterations that were run.
    pub sent: Vec<u64>,
    /// Bits that arrived at each host.
    pub received: Vec<u64>,
}

impl Scenario {
    /// The published setting: one mechanism on 32 workers at 25 Gbit/s, no latency, no headers, no
    /// codec.
    #[must_use]
    pub fn new(model: Model, mechanism: Mechanism) -> Self {
        Self {
            compute_times: vec![ComputeTimes::of(&model)],
            model,
            workers: 32,
            links: Links { bandwidth: 25_000_000_000, exceptions: Vec::new(), latency: 0, racks: None },
            mechanism,
            plan: None,
            coded_bits: None,
            per_message: 0,
            aggregator: AggregatorRate::default(),
            wire: Wire::default(),
            message: None,
            cut_through: false,
            barrier: true,
            staleness: 0,
            jitter: Jitter::default(),
            late: Vec::new(),
            full: false,
        }
    }

    /// Iterations a run simulates: one up to a barrier; without, three, or of asynchronous workers
    /// 21. A pipeline of width K has five times K: it has to fill, and its last K have the network
    /// to themselves.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.schedule().0
    }

    /// The iterations, from 0, from whose ends to whose a run is measured; of one iteration, none.
    pub(crate) fn measured(&self) -> Option<[usize; 2]> {
        self.schedule().1
    }

    /// Both. Those of a pipeline are measured over multiples of its width, with which its times may
    /// alternate.
    fn schedule(&self) -> (u32, Option<[usize; 2]>) {
        let width = self.staleness as usize + 1;
        match (self.barrier, width) {
            _ if self.mechanism.is_asynchronous() => (21, Some([4, 19])),
            (true, _) => (1, None),
            (false, 1) => (3, Some([0, 2])),
            (false, _) => (5 * width as u32, Some([2 * width - 1, 4 * width - 1])),
        }
    }

    /// Iterations that can be under way at once, at different workers. In a pipeline of width K,
    /// whoever begins iteration i + 2K has the sum of i + K, to which a worker contributes only
    /// when it is done with i.
    pub(crate) fn under_way(&self) -> usize {
        2 * (self.staleness as usize + 1)
    }

    /// Time of the slowest worker's forward and backward pass.
    #[must_use]
    pub fn compute(&self) -> Picos {
        self.compute_times.iter().map(ComputeTimes::total).max().unwrap_or(0)
    }

    /// Compute times of `worker`.
    pub(crate) fn compute_times_of(&self, worker: u32) -> &ComputeTimes {
        &self.compute_times[worker as usize % self.compute_times.len()]
    }

    /// Whether one worker can stand for all.
    #[must_use]
    pub fn symmetric(&self) -> bool {
        let alike = self.links.exceptions.is_empty()
            && self.links.racks.is_none()
            && self.jitter.amount == 0.0
            && self.compute_times.len() == 1;
        let symmetric =
            matches!(self.mechanism, Mechanism::Ring { messages: true, .. } | Mechanism::Butterfly);
        alike && symmetric && !self.full
    }
}
