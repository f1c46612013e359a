//! Runs a scenario: its mechanism on its cluster, event by event.

use crate::cluster::{Cluster, Done, Exchange, Fabric, FabricEvent};
use crate::error::SimError;
use crate::mechanisms::{Butterfly, Graphs, HierarchicalAggregators, InNetwork, ParameterServers, Ring};
use crate::scenario::{Mechanism, Results, Scenario};

/// Events between two calls of the function that watches a run.
const WATCHED: u64 = 1 << 18;

impl Scenario {
    /// Simulates.
    ///
    /// # Errors
    /// [`check`](Self::check) refuses the scenario.
    pub fn run(&self) -> Result<Results, SimError> {
        self.run_watched(|_| ())
    }

    /// Simulates, and now and then calls `watch` with the events done so far;
    /// [`check`](Self::check) says how many there are at most.
    ///
    /// # Errors
    /// [`check`](Self::check) refuses the scenario.
    pub fn run_watched(&self, watch: impl FnMut(u64)) -> Result<Results, SimError> {
        self.check()?;
        Ok(match self.mechanism {
            Mechanism::Ps { .. } => self.simulate(ParameterServers::new(self), watch),
            Mechanism::Ring { .. } => self.simulate(Ring::new(self), watch),
            Mechanism::Graph(_) => self.simulate(Graphs::new(self), watch),
            Mechanism::Butterfly => self.simulate(Butterfly::new(self), watch),
            Mechanism::HierarchicalAggregators { group } => {
                self.simulate(HierarchicalAggregators::new(self, group), watch)
            }
            Mechanism::InNetwork { .. } => self.simulate(InNetwork::new(self), watch),
        })
    }

    fn simulate<E: Exchange>(&self, mut exchange: E, mut watch: impl FnMut(u64)) -> Results {
        let symmetric = self.symmetric();
        let workers = if symmetric { 1 } else { self.workers };
        let copies = symmetric.then(|| self.workers - 1);
        // Chunks are short: an aggregator has begun with a parameter long before it is whole.
        let cut_through = self.cut_through || matches!(self.mechanism, Mechanism::InNetwork { .. });
        let fabric = Fabric::new(&self.links, workers, exchange.others(), copies, cut_through);
        let mut cluster = Cluster::new(self, fabric, workers);
        exchange.start(&mut cluster);
        let mut watched = 0;
        while let Some(event) = cluster.fabric.next_event() {
            if cluster.fabric.events() - watched >= WATCHED {
                watched = cluster.fabric.events();
                watch(watched);
            }
            match event {
                FabricEvent::Computed { worker } => {
                    if let Done::Gradient { parameter, iteration } = cluster.row_done(worker) {
                        exchange.gradient(&mut cluster, worker, parameter, iteration);
                    }
                    cluster.compute(worker);
                }
                FabricEvent::Arrived { host, message } => exchange.arrived(&mut cluster, host, message),
                FabricEvent::Delivered { host, message, announced } => {
                    if !announced {
                        exchange.arrived(&mut cluster, host, message);
                    }
                    exchange.delivered(&mut cluster, host, message);
                }
                FabricEvent::AtSwitch { message, tail } => exchange.at_switch(&mut cluster, message, tail),
            }
        }
        cluster.results()
    }
}
