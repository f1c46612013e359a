//! Hierarchical rings: a ring all-reduce in every group, then one among the groups' first workers,
//! who pass the result round their groups in chunks.
//!
//! Source: INCEPTIONN (Li et al., MICRO 2018), Fig. 1(c); that the leader passes the result on
//! round its group is our reading.

use super::countdown::Countdown;
use super::ring::Lap;
use crate::cluster::{Cluster, Dest, Exchange, Message};
use crate::scenario::{Content, Scenario};

/// [`Message::step`] counts the hops of all three phases, each from its base.
pub(crate) struct HierarchicalRings {
    group: u32,
    groups: u32,
    in_group: Lap,
    among_leaders: Lap,
    parameters: usize,
    /// Result chunks that a worker misses, by worker and parameter.
    missing: Countdown,
    /// Workers that miss a parameter.
    behind: Countdown,
}

impl HierarchicalRings {
    pub(crate) fn new(scenario: &Scenario, group: u32) -> Self {
        let groups = scenario.workers / group;
        let rows = scenario.model.parameters.len();
        let slots = scenario.workers as usize * rows;
        Self {
            group,
            groups,
            in_group: Lap::new(scenario, group, group, slots),
            among_leaders: Lap::new(scenario, groups, groups, slots),
            parameters: rows,
            missing: Countdown::new(scenario, vec![group; slots]),
            behind: Countdown::new(scenario, vec![scenario.workers; rows]),
        }
    }

    /// Steps up to here are on the group's ring, those above on the leaders'.
    fn leaders_base(&self) -> u32 {
        2 * (self.group - 1)
    }

    /// Steps above this pass the result round the group.
    fn result_base(&self) -> u32 {
        self.leaders_base() + 2 * (self.groups - 1)
    }

    fn slot(&self, worker: u32, parameter: u32) -> usize {
        worker as usize * self.parameters + parameter as usize
    }

    /// The next worker on the ring of hop number `step`, and in how many chunks a parameter travels
    /// there.
    fn next(&self, worker: u32, step: u32) -> (u32, u32) {
        if step > self.leaders_base() && step <= self.result_base() {
            ((worker + self.group) % (self.group * self.groups), self.groups)
        } else {
            let leader = worker - worker % self.group;
            (leader + (worker + 1 - leader) % self.group, self.group)
        }
    }

    fn pass(&self, cluster: &mut Cluster<'_>, worker: u32, message: Message, step: u32) {
        let (next, chunks) = self.next(worker, step);
        let bits = cluster.scenario.model.parameters[message.item as usize].bits.div_ceil(chunks.into());
        let content = if step == 1 { Content::Gradient } else { Content::PartialSum };
        cluster.pass(worker, next, Message { step, ..message }, bits, content);
    }

    /// The number of the hop on which a chunk that is not yet decoded goes on as it is.
    fn relay(&self, step: u32) -> Option<u32> {
        if step <= self.leaders_base() {
            self.in_group.relay(step)
        } else if step <= self.result_base() {
            let base = self.leaders_base();
            self.among_leaders.relay(step - base).map(|step| base + step)
        } else {
            (step + 1 < self.result_base() + self.group).then_some(step + 1)
        }
    }

    fn receive_in_group(&mut self, cluster: &mut Cluster<'_>, worker: u32, message: Message) {
        let turn = self.in_group.receive(self.slot(worker, message.item), message);
        if let Some(step) = turn.forward {
            self.pass(cluster, worker, message, step);
        }
        if turn.complete {
            self.group_summed(cluster, worker, message);
        }
    }

    /// `worker` holds its group's sum; if it leads the group, it contributes that to the leaders'
    /// ring.
    fn group_summed(&mut self, cluster: &mut Cluster<'_>, worker: u32, message: Message) {
        if !worker.is_multiple_of(self.group) {
            return;
        }
        if self.groups == 1 {
            return self.all_summed(cluster, worker, message);
        }
        let waited = self.among_leaders.contribute(self.slot(worker, message.item));
        self.pass(cluster, worker, message, self.leaders_base() + 1);
        for message in waited {
            self.receive_among_leaders(cluster, worker, message);
        }
    }

    /// `message.step` counts from the base of the leaders' ring.
    fn receive_among_leaders(&mut self, cluster: &mut Cluster<'_>, worker: u32, message: Message) {
        let turn = self.among_leaders.receive(self.slot(worker, message.item), message);
        if let Some(step) = turn.forward {
            self.pass(cluster, worker, message, self.leaders_base() + step);
        }
        if turn.complete {
            self.all_summed(cluster, worker, message);
        }
    }

    /// A leader holds the sum of all workers.
    fn all_summed(&mut self, cluster: &mut Cluster<'_>, leader: u32, message: Message) {
        if self.group > 1 {
            for _ in 0..self.group {
                self.pass(cluster, leader, message, self.result_base() + 1);
            }
        }
        self.complete(cluster, leader, message);
    }

    fn complete(&mut self, cluster: &mut Cluster<'_>, worker: u32, message: Message) {
        if self.behind.tick(message.item as usize, message.iteration) {
            cluster.reduced(message.iteration, message.item);
        }
        cluster.parameter_arrived(worker, message.item);
    }
}

impl Exchange for HierarchicalRings {
    fn start(&mut self, cluster: &mut Cluster<'_>) {
        cluster.all_parameters_arrived();
    }

    fn gradient(&mut self, cluster: &mut Cluster<'_>, worker: u32, parameter: u32, iteration: u32) {
        let own = Message { src: worker, dest: Dest::Workers, item: parameter, step: 0, iteration };
        if self.group == 1 {
            return self.group_summed(cluster, worker, own);
        }
        let waited = self.in_group.contribute(self.slot(worker, parameter));
        self.pass(cluster, worker, own, 1);
        for message in waited {
            self.receive_in_group(cluster, worker, message);
        }
    }

    fn arrived(&mut self, cluster: &mut Cluster<'_>, host: u32, message: Message) {
        if let Some(step) = self.relay(message.step) {
            let (next, chunks) = self.next(host, step);
            let bits = cluster.scenario.model.parameters[message.item as usize].bits.div_ceil(chunks.into());
            cluster.relay(host, next, Message { step, ..message }, bits, Content::PartialSum);
        }
    }

    fn delivered(&mut self, cluster: &mut Cluster<'_>, host: u32, message: Message) {
        if message.step <= self.leaders_base() {
            return self.receive_in_group(cluster, host, message);
        }
        if message.step <= self.result_base() {
            let message = Message { step: message.step - self.leaders_base(), ..message };
            return self.receive_among_leaders(cluster, host, message);
        }
        let slot = self.slot(host, message.item);
        if self.missing.tick(slot, message.iteration) {
            self.complete(cluster, host, message);
        }
    }
}
