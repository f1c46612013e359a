//! Runs a scenario: its mechanism on its cluster, event by event.

use crate::cluster::{Cluster, Done, Event, Exchange, Network};
use crate::error::SimError;
use crate::mechanisms::{Aggregators, Butterfly, Ps, Ring, Rings};
use crate::scenario::{Mechanism, Outcome, Scenario};

/// Events between two calls of the function that watches a run.
const WATCHED: u64 = 1 << 18;

impl Scenario {
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
            Mechanism::Ps { .. } => self.simulate(Ps::new(self), watch),
            Mechanism::Ring { .. } => self.simulate(Ring::new(self), watch),
            Mechanism::Butterfly => self.simulate(Butterfly::new(self), watch),
            Mechanism::HierarchicalAggregators { group } => {
                self.simulate(Aggregators::new(self, group), watch)
            }
            Mechanism::HierarchicalRings { group } => self.simulate(Rings::new(self, group), watch),
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
