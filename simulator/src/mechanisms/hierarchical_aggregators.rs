//! Hierarchical aggregators: a tree of groups, each with an aggregator, and one aggregator at the
//! root.
//!
//! Gradients are summed in the group and then at the root; the root sends parameters down the same
//! way.
//!
//! Source: INCEPTIONN (Li et al., MICRO 2018), Fig. 1(a).

use crate::cluster::{Cluster, Dest, Exchange, Message};
use crate::scenario::{Content, Scenario};

pub(crate) struct HierarchicalAggregators {
    group: u32,
    groups: u32,
    /// Copies that [aggregator][parameter] waits for, for this iteration and the next; the root
    /// comes last.
    awaited: Vec<[u32; 2]>,
}

impl HierarchicalAggregators {
    pub(crate) fn new(scenario: &Scenario, group: u32) -> Self {
        let groups = scenario.workers / group;
        let rows = scenario.model.parameters.len();
        let awaited = |copies: u32, aggregators: usize| vec![[copies; 2]; aggregators * rows];
        Self { group, groups, awaited: [awaited(group, groups as usize), awaited(groups, 1)].concat() }
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
        let awaited = &mut self.awaited[slot][message.iteration as usize % 2];
        *awaited -= 1;
        if *awaited > 0 {
            return;
        }
        if host < root {
            *awaited = self.group;
            return cluster.pass(host, root, message, bits, Content::PartialSum);
        }
        *awaited = self.groups;
        cluster.reduced(message.iteration, message.item);
        if message.iteration + 1 < cluster.scenario.iterations() {
            self.distribute(cluster, Message { iteration: message.iteration + 1, ..message });
        }
    }
}
