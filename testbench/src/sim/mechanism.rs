//! What all mechanisms share: their names, and the cluster that they drive.

use std::fmt;
use std::str::FromStr;

use super::network::{Dest, Message, Network};
use super::{Content, Cost, Done, Outcome, Picos, Scenario, SimError, Worker};

/// In which order a server that has no multicast serves its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Parameter by parameter, 2.5 MB to each worker in turn: fair sharing among connections.
    Messages,
    /// Parameter by parameter, a whole one to each worker in turn.
    RoundRobin,
    /// Everything to one worker, then to the next.
    Block,
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
        /// Who holds what.
        assignment: Assignment,
        /// Order of the distribution; without effect under multicast.
        order: Order,
        /// Servers distribute by IP multicast.
        multicast: bool,
        /// The switch sums gradients.
        aggregation: bool,
    },
    /// Ring all-reduce.
    Ring {
        /// Parameters travel in W equal chunks; otherwise whole, parameter i owned by worker i mod W.
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
    /// Rings in groups, then a ring of the groups' first workers.
    HierarchicalRings {
        /// Workers in a group.
        group: u32,
    },
}

const fn ps(order: Order, multicast: bool, aggregation: bool) -> Mechanism {
    Mechanism::Ps { servers: 1, assignment: Assignment::Even, order, multicast, aggregation }
}

impl Mechanism {
    /// One server that serves its workers in turn: what the paper compares with.
    pub const BASELINE: Self = ps(Order::Messages, false, false);
    /// In-network aggregation.
    pub const AGGREGATION: Self = ps(Order::Messages, false, true);
    /// IP multicast.
    pub const MULTICAST: Self = ps(Order::Messages, true, false);
    /// Both.
    pub const BOTH: Self = ps(Order::Messages, true, true);
    /// Block distribution.
    pub const BLOCK: Self = ps(Order::Block, false, false);
    /// Ring all-reduce of chunks.
    pub const RING: Self = Self::Ring { messages: true, multicast: false };

    /// Names on the command line, and what they stand for. `hier-agg` and `hier-ring` take groups of 8 or,
    /// as `hier-agg:4`, of any size.
    pub const NAMES: [(&'static str, Self); 12] = [
        ("ps", Self::BASELINE),
        ("ps-rr", ps(Order::RoundRobin, false, false)),
        ("ps-block", Self::BLOCK),
        ("agg", Self::AGGREGATION),
        ("mc", Self::MULTICAST),
        ("mc+agg", Self::BOTH),
        ("ring", Self::RING),
        ("ring-whole", Self::Ring { messages: false, multicast: false }),
        ("ring+mc", Self::Ring { messages: true, multicast: true }),
        ("butterfly", Self::Butterfly),
        ("hier-agg", Self::HierarchicalAggregators { group: 8 }),
        ("hier-ring", Self::HierarchicalRings { group: 8 }),
    ];

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
        let (name, group) = match text.split_once(':') {
            Some((name, group)) => (name, Some(group.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        let known = Self::NAMES.iter().find(|known| known.0 == name).ok_or_else(bad)?;
        match (known.1, group) {
            (mechanism, None) => Ok(mechanism),
            (Self::HierarchicalAggregators { .. }, Some(group)) => {
                Ok(Self::HierarchicalAggregators { group })
            }
            (Self::HierarchicalRings { .. }, Some(group)) => Ok(Self::HierarchicalRings { group }),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HierarchicalAggregators { group } => write!(f, "hier-agg:{group}"),
            Self::HierarchicalRings { group } => write!(f, "hier-ring:{group}"),
            Self::Ps { servers, assignment, .. } => {
                f.write_str(self.name())?;
                match assignment {
                    _ if servers == 1 => Ok(()),
                    Assignment::Even => write!(f, " on {servers}"),
                    Assignment::RoundRobin => write!(f, " on {servers} (round robin)"),
                }
            }
            Self::Ring { .. } | Self::Butterfly => f.write_str(self.name()),
        }
    }
}

impl Mechanism {
    fn name(self) -> &'static str {
        let plain = self.with_servers(1, Assignment::Even);
        // Every combination of flags has a name but the orders of a multicast, which are one mechanism.
        Self::NAMES.iter().find(|known| known.1 == plain).map_or("ps", |known| known.0)
    }
}

/// A mechanism at work.
pub(super) trait Exchange {
    /// Hosts that it needs beside the workers.
    fn others(&self) -> u32 {
        0
    }
    /// Time 0: parameters are where the last iteration left them.
    fn start(&mut self, cluster: &mut Cluster<'_>);
    /// `worker` has computed a gradient.
    fn gradient(&mut self, cluster: &mut Cluster<'_>, worker: u32, parameter: u32, iteration: u32);
    /// A message is whole at `host`, not yet decoded: the time to pass it on as it is.
    fn arrived(&mut self, _: &mut Cluster<'_>, _host: u32, _: Message) {}
    /// A message is decoded at `host`.
    fn delivered(&mut self, cluster: &mut Cluster<'_>, host: u32, message: Message);
    /// A message is at the switch; its last bit at `tail`.
    fn at_switch(&mut self, _: &mut Cluster<'_>, _: Message, _tail: Picos) {
        unreachable!("only in-network aggregation addresses the switch")
    }
}

/// The workers and their network, as a mechanism sees them.
pub(super) struct Cluster<'a> {
    pub(super) network: Network,
    pub(super) scenario: &'a Scenario,
    workers: Vec<Worker>,
    /// For each iteration: parameters not yet reduced, the time of the last, the time of the first row's.
    left: Vec<usize>,
    finished: Vec<Picos>,
    first_row: Vec<Picos>,
}

impl<'a> Cluster<'a> {
    pub(super) fn new(scenario: &'a Scenario, network: Network, workers: u32) -> Self {
        let rows = scenario.model.parameters.len();
        let iterations = scenario.iterations() as usize;
        let mut workers: Vec<_> =
            (0..workers).map(|number| Worker::new(number, rows, scenario.jitter)).collect();
        for &(worker, late) in &scenario.late {
            workers[worker as usize].delay(late);
        }
        Self {
            network,
            scenario,
            workers,
            left: vec![rows; iterations],
            finished: vec![0; iterations],
            first_row: vec![0; iterations],
        }
    }

    /// Workers that are simulated: all of them, or one that stands for all.
    pub(super) fn workers(&self) -> u32 {
        self.workers.len() as u32
    }

    pub(super) fn cost(&self, bits: u64, content: Content) -> Cost {
        self.scenario.wire.cost(bits, content)
    }

    pub(super) fn send(&mut self, message: Message, bits: u64, content: Content) {
        let cost = self.cost(bits, content);
        self.network.send(message, cost);
    }

    /// Sends to one host; `item`, `step` and `iteration` are the mechanism's own.
    pub(super) fn pass(&mut self, src: u32, to: u32, message: Message, bits: u64, content: Content) {
        self.send(Message { src, dest: Dest::Host(to), ..message }, bits, content);
    }

    /// Passes on, as it came, what another host encoded.
    pub(super) fn relay(&mut self, src: u32, to: u32, message: Message, bits: u64, content: Content) {
        let cost = Cost { encode: 0, ..self.cost(bits, content) };
        self.network.send(Message { src, dest: Dest::Host(to), ..message }, cost);
    }

    /// A new version of `parameter` is whole at `worker`.
    pub(super) fn parameter_arrived(&mut self, worker: u32, parameter: u32) {
        self.workers[worker as usize].arrived(parameter);
        self.compute(worker);
    }

    /// Every worker has all parameters, as where no server distributes them.
    pub(super) fn all_parameters_arrived(&mut self) {
        for worker in 0..self.workers() {
            for parameter in 0..self.scenario.model.parameters.len() as u32 {
                self.workers[worker as usize].arrived(parameter);
            }
            self.compute(worker);
        }
    }

    /// The sum of `parameter`'s gradients is wherever the mechanism needs it.
    pub(super) fn reduced(&mut self, iteration: u32, parameter: u32) {
        let iteration = iteration as usize;
        let now = self.network.now();
        self.left[iteration] -= 1;
        if self.left[iteration] == 0 {
            self.finished[iteration] = now;
        }
        if parameter == 0 {
            self.first_row[iteration] = now;
        }
    }

    pub(super) fn row_done(&mut self, worker: u32) -> Done {
        self.workers[worker as usize].finish(worker, self.scenario.jitter)
    }

    /// Starts `worker`'s next row if it is idle and has what the row needs.
    pub(super) fn compute(&mut self, worker: u32) {
        let Scenario { profile, staleness, .. } = self.scenario;
        let start = self.workers[worker as usize].start(profile, *staleness, self.left.len() as u32);
        if let Some(span) = start {
            self.network.compute(worker, span);
        }
    }

    pub(super) fn outcome(self) -> Outcome {
        assert!(
            self.left.iter().all(|&left| left == 0),
            "the exchange came to a halt before it was complete"
        );
        let iteration = match *self.first_row {
            [_] => self.finished[0],
            [first, _, third] => (third - first) / 2,
            // A pipeline has to fill, and its last iterations have the network to themselves.
            [.., fourth, _, _, _, eighth, _, _] => (eighth - fourth) / 4,
            _ => unreachable!("see Scenario::iterations"),
        };
        let hosts = 0..self.network.hosts();
        Outcome {
            iteration,
            events: self.network.events(),
            sent: hosts.clone().map(|host| self.network.sent(host)).collect(),
            received: hosts.map(|host| self.network.received(host)).collect(),
        }
    }
}
