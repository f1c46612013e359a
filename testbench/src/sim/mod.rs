//! A discrete-event simulator of training clusters: what a way to exchange gradients, and compression on
//! it, does to the time of an iteration.
//!
//! [`Scenario`] says everything about a run; [`Scenario::run`] is deterministic and exact to the picosecond.
//! `model` and `compute` say when gradients appear, a mechanism (one file each) says who sends what to whom,
//! `compression` says how many bits that is, and `network` says how long it takes.
//!
//! Source: Chang et al., 'How to Train your DNN: The Network Operator Edition'; `published` holds its cells.

mod aggregation;
mod butterfly;
mod check;
pub mod claims;
mod compression;
mod compute;
pub mod figures;
mod hierarchical_aggregators;
mod hierarchical_rings;
mod mechanism;
mod model;
mod network;
mod ps;
pub mod published;
mod ring;
mod time;
pub mod trace;

pub use check::{Excess, LIMIT, Work};
pub use compression::{Compression, Content, Headers, Place, RECORDED, Ratios, Wire};
pub use compute::{Jitter, Profile};
pub use mechanism::{Assignment, Mechanism, Order};
pub use model::{MOST, Model, Parameter, VALUE_BITS, Variable};
pub use network::{Cost, Links, Racks};
pub use time::{Picos, SECOND, picos, seconds, transmission};

use compute::{Done, Worker};
use mechanism::{Cluster, Exchange};
use network::{Event, Network};

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// A model that gradwire does not bring along.
    #[error("no model is called {name}")]
    UnknownModel {
        /// The name asked for.
        name: String,
    },
    /// A model without parameters.
    #[error("model {name} has no parameters")]
    EmptyModel {
        /// The model.
        name: String,
    },
    /// A model file that is not the CSV it should be.
    #[error("not a model CSV: {0}")]
    Csv(csv::Error),
    /// A compression that the grammar does not know.
    #[error("{text} is not 16bit, in-nic:RATIOS or on-host:RATIOS@ENCODE,DECODE")]
    BadCompression {
        /// The text given.
        text: String,
    },
    /// A mechanism that the grammar does not know.
    #[error("no mechanism is called {text}")]
    BadMechanism {
        /// The text given.
        text: String,
    },
    /// Butterfly mixing pairs workers in log2 W rounds.
    #[error("butterfly mixing needs a power of two of workers, not {workers}")]
    NotAPowerOfTwo {
        /// Workers of the scenario.
        workers: u32,
    },
    /// Hierarchies need groups of equal size.
    #[error("{workers} workers do not divide into groups of {group}")]
    UnevenGroups {
        /// Workers of the scenario.
        workers: u32,
        /// Workers in a group.
        group: u32,
    },
    /// A number that has to be positive, or within what the scenario holds, is not.
    #[error("{what} is out of range")]
    OutOfRange {
        /// The number's name.
        what: &'static str,
    },
    /// A run that would take too long or too much memory.
    #[error(
        "up to {} million events and {} MB, more than the {} million and {} MB that a run may take; {excess}",
        work.events / 1_000_000, work.memory / 1_000_000, LIMIT.events / 1_000_000, LIMIT.memory / 1_000_000
    )]
    TooLarge {
        /// What it would take at most.
        work: Work,
        /// What makes it so large; printed as the remedy.
        excess: Excess,
    },
    /// A trace that is not what [`trace`] reads.
    #[error("trace line {line}: {reason}")]
    BadTrace {
        /// Line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// Events between two calls of the function that watches a run.
const WATCHED: u64 = 1 << 18;

/// A run: the model, the cluster and the way gradients are exchanged.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Sizes.
    pub model: Model,
    /// Compute times; [`Profile::of`] the model, or from a trace.
    pub profile: Profile,
    /// Workers, from 1.
    pub workers: u32,
    /// The network.
    pub links: Links,
    /// The way gradients are exchanged.
    pub mechanism: Mechanism,
    /// Codec and headers.
    pub wire: Wire,
    /// Largest message in bits, for every mechanism that sends whole parameters; `None` does not cut them.
    pub message: Option<u64>,
    /// Aggregation starts with the first bits of the last copy, not when it is whole.
    pub cut_through: bool,
    /// Wait for all parameters before the next iteration begins.
    pub barrier: bool,
    /// Updates that a forward pass may miss: 0, or 1 for pipelined SGD. Needs `barrier` to be off.
    pub staleness: u32,
    /// Variation of compute time.
    pub jitter: Jitter,
    /// Workers that begin their first pass late: (worker, by how much).
    pub late: Vec<(u32, Picos)>,
    /// Simulate every worker even where they are all alike.
    pub full: bool,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Time of an iteration. With a barrier: until all gradients are in. Without: the mean distance of the
    /// times at which the first row's gradient is in, from the first to the third iteration, or from the
    /// fourth to the eighth of a pipeline.
    pub iteration: Picos,
    /// Events processed.
    pub events: u64,
    /// Bits that left each host, workers first, in all iterations that were run.
    pub sent: Vec<u64>,
    /// Bits that arrived at each host.
    pub received: Vec<u64>,
}

impl Scenario {
    /// The published setting: one mechanism on 32 workers at 25 Gbit/s, no latency, no headers, no codec.
    #[must_use]
    pub fn new(model: Model, mechanism: Mechanism) -> Self {
        Self {
            profile: Profile::of(&model),
            model,
            workers: 32,
            links: Links { bandwidth: 25_000_000_000, exceptions: Vec::new(), latency: 0, racks: None },
            mechanism,
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

    /// Iterations a run simulates: one up to a barrier; without, three, or ten so that a pipeline fills.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        match (self.barrier, self.staleness) {
            (true, _) => 1,
            (false, 0) => 3,
            (false, _) => 10,
        }
    }

    /// Whether one worker can stand for all.
    #[must_use]
    pub fn symmetric(&self) -> bool {
        let alike =
            self.links.exceptions.is_empty() && self.links.racks.is_none() && self.jitter.amount == 0.0;
        let symmetric =
            matches!(self.mechanism, Mechanism::Ring { messages: true, .. } | Mechanism::Butterfly);
        alike && symmetric && !self.full
    }

    /// Simulates.
    ///
    /// # Errors
    /// [`check`](Self::check) refuses the scenario.
    pub fn run(&self) -> Result<Outcome, SimError> {
        self.run_watched(|_| ())
    }

    /// Simulates, and now and then calls `watch` with the events done so far; [`check`](Self::check) says how
    /// many there are at most.
    ///
    /// # Errors
    /// [`check`](Self::check) refuses the scenario.
    pub fn run_watched(&self, watch: impl FnMut(u64)) -> Result<Outcome, SimError> {
        self.check()?;
        Ok(match self.mechanism {
            Mechanism::Ps { .. } => self.simulate(ps::Ps::new(self), watch),
            Mechanism::Ring { .. } => self.simulate(ring::Ring::new(self), watch),
            Mechanism::Butterfly => self.simulate(butterfly::Butterfly::new(self), watch),
            Mechanism::HierarchicalAggregators { group } => {
                self.simulate(hierarchical_aggregators::Aggregators::new(self, group), watch)
            }
            Mechanism::HierarchicalRings { group } => {
                self.simulate(hierarchical_rings::Rings::new(self, group), watch)
            }
        })
    }

    fn simulate<E: Exchange>(&self, mut exchange: E, mut watch: impl FnMut(u64)) -> Outcome {
        let symmetric = self.symmetric();
        let workers = if symmetric { 1 } else { self.workers };
        let copies = symmetric.then(|| self.workers - 1);
        let network = Network::new(&self.links, workers, exchange.others(), copies, self.cut_through);
        let mut cluster = Cluster::new(self, network, workers);
        exchange.start(&mut cluster);
        let mut watched = 0;
        while let Some(event) = cluster.network.next_event() {
            if cluster.network.events() - watched >= WATCHED {
                watched = cluster.network.events();
                watch(watched);
            }
            match event {
                Event::Computed { worker } => {
                    if let Done::Gradient { parameter, iteration } = cluster.row_done(worker) {
                        exchange.gradient(&mut cluster, worker, parameter, iteration);
                    }
                    cluster.compute(worker);
                }
                Event::Arrived { host, message } => exchange.arrived(&mut cluster, host, message),
                Event::Delivered { host, message, announced } => {
                    if !announced {
                        exchange.arrived(&mut cluster, host, message);
                    }
                    exchange.delivered(&mut cluster, host, message);
                }
                Event::AtSwitch { message, tail } => exchange.at_switch(&mut cluster, message, tail),
            }
        }
        cluster.outcome()
    }
}
