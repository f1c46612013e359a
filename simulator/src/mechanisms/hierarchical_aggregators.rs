//! Hierarchical aggregators: a tree of groups, each with an aggregator, and one aggregator at the
//! root.
//!
//! Gradients are summed in the group and then at the root; the root sends parameters down the same
//! way.
//!
//! Source: INCEPTIONN (Li et al., MICRO 2018), Fig. 1(a).

use super::countdown::Countdown;
use crate::cluster::{Cluster, Dest, Exchange, Message};
use crate::scenario::{Content, Scenario};

pub(crate) struct HierarchicalAggregators {
    group: u32,
    groups: u32,
    /// Copies that an aggregator waits for, by aggregator and parameter; the root comes last.
    awaited: Countdown,
}

impl HierarchicalAggregators {
    pub(crate) fn new(scenario: &Scenario, group: u32) -> Self {
        let groups = scenario.workers / group;
        let rows = scenario.model.parameters.len();
        let awaited = [vec![group; groups as usize * rows], vec![groups; rows]].concat();
        Self { group, groups, awaited: Countdown::new(scenario, awaited) }
    }

    fn distribute(&self, cluster: &mut Cluster<'_>, message: Message) {
        let root = cluster.workers() + self.groups;
        let bits = cluster.scenario.model.parameters[message.item as usize].bits;
        for aggregator in cluster.workers()..root {
            cluster.pass(root, aggregator, message, bits, Content::Parameters);
        }
    }
}

impl Exchange for HierarchicalAggregators {
    fn others(&self) -> u32 {
        self.groups + 1
    }

    fn start(&mut self, cluster: &mut Cluster<'_>) {
        for item in 0..cluster.scenario.model.parameters.len() as u32 {
            self.distribute(cluster, Message { src: 0, dest: Dest::Workers, item, step: 0, iteration: 0 });
        }
    }

    fn gradient(&mut self, cluster: &mut Cluster<'_>, worker: u32, parameter: u32, iteration: u32) {
        let bits = cluster.scenario.model.parameters[parameter as usize].bits;
        let aggregator = cluster.workers() + worker / self.group;
        let message = Message { src: worker, dest: Dest::Workers, item: parameter, step: 0, iteration };
        cluster.pass(worker, aggregator, message, bits, Content::Gradient);
    }

    fn delivered(&mut self, cluster: &mut Cluster<'_>, host: u32, message: Message) {
        let workers = cluster.workers();
        let root = workers + self.groups;
        let rows = cluster.scenario.model.parameters.len();
        let bits = cluster.scenario.model.parameters[message.item as usize].bits;
        if host < workers {
            return cluster.parameter_arrived(host, message.item);
        }
        if message.src == root {
            let first = (host - workers) * self.group;
            for worker in first..first + self.group {
                cluster.pass(host, worker, message, bits, Content::Parameters);
            }
            return;
        }
        let slot = (host - workers) as usize * rows + message.item as usize;
        if !self.awaited.tick(slot, message.iteration) {
            return;
        }
        if host < root {
            return cluster.pass(host, root, message, bits, Content::PartialSum);
        }
        cluster.reduced(message.iteration, message.item);
        if message.iteration + 1 < cluster.scenario.iterations() {
            self.distribute(cluster, Message { iteration: message.iteration + 1, ..message });
        }
    }
}
