//! Ways to exchange gradients, and their names.

use std::fmt;
use std::str::FromStr;

use gradwire_collectives::Strategy;

use crate::error::SimError;

/// In which order a server that has no multicast serves its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOrder {
    /// Parameter by parameter, 2.5 MB to each worker in turn: fair sharing among connections.
    Messages,
    /// Parameter by parameter, a whole one to each worker in turn.
    RoundRobin,
    /// Everything to one worker, then to the next.
    Block,
    /// A parameter to whoever's gradient of it has come, without waiting for the others':
    /// asynchronous training.
    Asynchronous,
}

/// Which server holds a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// TensorFlow's: whole variables in turn, in creation order, untrained ones too.
    RoundRobin,
    /// An equal piece of every parameter on every server.
    Even,
}

/// A way to exchange gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Parameter servers.
    Ps {
        /// Servers, from 1, each with a link of its own.
        servers: u32,
        /// The assignment of parameters.
        assignment: Assignment,
        /// Order of the distribution; without effect under multicast.
        order: SendOrder,
        /// Servers distribute by IP multicast.
        multicast: bool,
        /// The switch sums gradients.
        aggregation: bool,
    },
    /// Ring all-reduce.
    Ring {
        /// Parameters travel in W equal chunks; otherwise whole, parameter i owned by worker i mod
        /// W.
        messages: bool,
        /// A summed chunk is multicast, not passed on round the ring.
        multicast: bool,
    },
    /// Butterfly mixing: whole parameters in log2 W pairwise exchanges.
    Butterfly,
    /// A tree: groups of workers, an aggregator for each, one at the root.
    HierarchicalAggregators {
        /// Workers in a group.
        group: u32,
    },
    /// The graphs that `gradwire-collectives` runs over TCP; workers and servers are ranks.
    Graph(Strategy),
    /// An aggregator in the switch's place sums chunks and multicasts the results; nobody else
    /// holds a sum first.
    InNetwork {
        /// An aggregator in each rack's switch, too, which sends on one partial sum.
        racks: bool,
    },
}

const fn ps(order: SendOrder, multicast: bool, aggregation: bool) -> Mechanism {
    Mechanism::Ps { servers: 1, assignment: Assignment::Even, order, multicast, aggregation }
}

impl Mechanism {
    /// One server that serves its workers in turn: what the paper compares with.
    pub const BASELINE: Self = ps(SendOrder::Messages, false, false);
    /// In-network aggregation.
    pub const AGGREGATION: Self = ps(SendOrder::Messages, false, true);
    /// IP multicast.
    pub const MULTICAST: Self = ps(SendOrder::Messages, true, false);
    /// Both.
    pub const BOTH: Self = ps(SendOrder::Messages, true, true);
    /// Block distribution.
    pub const BLOCK: Self = ps(SendOrder::Block, false, false);
    /// Asynchronous training.
    pub const ASYNCHRONOUS: Self = ps(SendOrder::Asynchronous, false, false);
    /// Ring all-reduce of chunks.
    pub const RING: Self = Self::Ring { messages: true, multicast: false };

    /// Names on the command line, and what they stand for. `hier-agg` has groups of 8 or, as
    /// `hier-agg:4`, of any size. `graph:` and a strategy of the collectives is a mechanism too.
    pub const NAMES: [(&'static str, Self); 14] = [
        ("ps", Self::BASELINE),
        ("ps-rr", ps(SendOrder::RoundRobin, false, false)),
        ("ps-block", Self::BLOCK),
        ("ps-async", Self::ASYNCHRONOUS),
        ("agg", Self::AGGREGATION),
        ("mc", Self::MULTICAST),
        ("mc+agg", Self::BOTH),
        ("ring", Self::RING),
        ("ring-whole", Self::Ring { messages: false, multicast: false }),
        ("ring+mc", Self::Ring { messages: true, multicast: true }),
        ("butterfly", Self::Butterfly),
        ("hier-agg", Self::HierarchicalAggregators { group: 8 }),
        ("ina", Self::InNetwork { racks: false }),
        ("ina:rack", Self::InNetwork { racks: true }),
    ];

    /// Does each worker go on without the others?
    #[must_use]
    pub const fn is_asynchronous(self) -> bool {
        matches!(self, Self::Ps { order: SendOrder::Asynchronous, .. })
    }

    /// The same on several servers; other mechanisms have none and stay.
    #[must_use]
    pub fn with_servers(self, count: u32, how: Assignment) -> Self {
        match self {
            Self::Ps { order, multicast, aggregation, .. } => {
                Self::Ps { servers: count, assignment: how, order, multicast, aggregation }
            }
            other => other,
        }
    }
}

impl FromStr for Mechanism {
    type Err = SimError;

    fn from_str(text: &str) -> Result<Self, SimError> {
        let bad = || SimError::BadMechanism { text: text.to_owned() };
        if let Some(strategy) = text.strip_prefix("graph:") {
            return strategy.parse().map(Self::Graph).map_err(|_| bad());
        }
        if let Some(known) = Self::NAMES.iter().find(|known| known.0 == text) {
            return Ok(known.1);
        }
        let group = text.strip_prefix("hier-agg:").and_then(|group| group.parse().ok());
        group.map(|group| Self::HierarchicalAggregators { group }).ok_or_else(bad)
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HierarchicalAggregators { group } => write!(f, "hier-agg:{group}"),
            Self::Graph(strategy) => write!(f, "graph:{strategy}"),
            Self::Ps { servers, assignment, .. } => {
                f.write_str(self.name())?;
                match assignment {
                    _ if servers == 1 => Ok(()),
                    Assignment::Even => write!(f, " on {servers}"),
                    Assignment::RoundRobin => write!(f, " on {servers} (round robin)"),
                }
            }
            Self::Ring { .. } | Self::Butterfly | Self::InNetwork { .. } => f.write_str(self.name()),
        }
    }
}

impl Mechanism {
    fn name(self) -> &'static str {
        let plain = self.with_servers(1, Assignment::Even);
        // Every combination of flags has a name but the orders of a multicast, which are one
        // mechanism.
        Self::NAMES.iter().find(|known| known.1 == plain).map_or("ps", |known| known.0)
    }
}
