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
    /// A trace that is not what [`trace`] reads.
    #[error("trace line {line}: {reason}")]
    BadTrace {
        /// Line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

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

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// See [`SimError`].
    pub fn check(&self) -> Result<(), SimError> {
        let (workers, links) = (self.workers, &self.links);
        let racks_fit = links.racks.is_none_or(|racks| racks.size > 0 && racks.oversubscription > 0.0);
        let ranges = [
            (workers > 0, "the number of workers"),
            (links.bandwidth > 0 && links.exceptions.iter().all(|&(_, rate)| rate > 0), "the bandwidth"),
            (links.exceptions.iter().all(|&(worker, _)| worker < workers), "the worker of a link rate"),
            (self.late.iter().all(|&(worker, _)| worker < workers), "the worker that is late"),
            (racks_fit, "the rack size or oversubscription"),
            (self.message != Some(0), "the message size"),
            (self.jitter.amount >= 0.0 && self.jitter.amount <= 1e6, "the jitter"),
            (!self.barrier || self.staleness == 0, "the staleness, which a barrier forbids,"),
            (self.staleness <= 1, "the staleness"),
            (self.profile.forward.len() == self.model.parameters.len(), "the profile's length"),
            (!matches!(self.mechanism, Mechanism::Ps { servers: 0, .. }), "the number of servers"),
        ];
        if let Some(&(_, what)) = ranges.iter().find(|(holds, _)| !holds) {
            return Err(SimError::OutOfRange { what });
        }
        // Beyond it the clock could overflow.
        if self.longest() > 5e6 {
            return Err(SimError::OutOfRange { what: "the time of an iteration (weeks)" });
        }
        match self.mechanism {
            Mechanism::Butterfly if !workers.is_power_of_two() => Err(SimError::NotAPowerOfTwo { workers }),
            Mechanism::HierarchicalAggregators { group } | Mechanism::HierarchicalRings { group }
                if group == 0 || !workers.is_multiple_of(group) =>
            {
                Err(SimError::UnevenGroups { workers, group })
            }
            _ => Ok(()),
        }
    }

    /// An upper bound of the run's time in seconds: nothing overlaps, on the slowest link.
    fn longest(&self) -> f64 {
        let links = &self.links;
        let uplinks = links.racks.map(|racks| links.bandwidth as f64 / racks.oversubscription);
        let rates = links.exceptions.iter().map(|&(_, rate)| rate as f64).chain(uplinks);
        let slowest = rates.fold(links.bandwidth as f64, f64::min).max(1.0);
        // Each way at most two hops for each worker; a chunk of a parameter has headers of its own.
        let hops = 4.0 * f64::from(self.workers);
        let exchange = |bits: u64| {
            let costs = [Content::Gradient, Content::PartialSum, Content::Parameters]
                .map(|content| [self.wire.cost(bits, content), self.wire.cost(1, content)]);
            let time = |cost: &Cost| cost.bits as f64 / slowest + seconds(cost.encode) + seconds(cost.decode);
            costs.as_flattened().iter().map(time).sum::<f64>() + seconds(links.latency)
        };
        let exchanges: f64 =
            self.model.parameters.iter().map(|parameter| hops * exchange(parameter.bits)).sum();
        let rows = self.profile.forward.iter().chain(&self.profile.backward);
        let compute: f64 = rows.map(|&row| seconds(row) * (1.0 + self.jitter.amount)).sum();
        let late: f64 = self.late.iter().map(|&(_, late)| seconds(late)).sum();
        f64::from(self.iterations()) * (exchanges + compute) + late
    }

    /// Simulates.
    ///
    /// # Errors
    /// [`check`](Self::check) refuses the scenario.
    pub fn run(&self) -> Result<Outcome, SimError> {
        self.check()?;
        Ok(match self.mechanism {
            Mechanism::Ps { .. } => self.simulate(ps::Ps::new(self)),
            Mechanism::Ring { .. } => self.simulate(ring::Ring::new(self)),
            Mechanism::Butterfly => self.simulate(butterfly::Butterfly::new(self)),
            Mechanism::HierarchicalAggregators { group } => {
                self.simulate(hierarchical_aggregators::Aggregators::new(self, group))
            }
            Mechanism::HierarchicalRings { group } => {
                self.simulate(hierarchical_rings::Rings::new(self, group))
            }
        })
    }

    fn simulate<E: Exchange>(&self, mut exchange: E) -> Outcome {
        let symmetric = self.symmetric();
        let workers = if symmetric { 1 } else { self.workers };
        let copies = symmetric.then(|| self.workers - 1);
        let network = Network::new(&self.links, workers, exchange.others(), copies, self.cut_through);
        let mut cluster = Cluster::new(self, network, workers);
        exchange.start(&mut cluster);
        while let Some(event) = cluster.network.next_event() {
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
