//! Ring all-reduce: W-1 hops sum, W-1 hops distribute, store-and-forward at every worker.
//!
//! Compressed sums are distributed as they are: only the worker that completed a sum encodes it,
//! and decoding holds nobody up.
//!
//! Chunk c of a parameter starts at worker c when its own gradient is there; each summing hop waits
//! for the local gradient. Forward starts at time 0 on every worker, which all hold the parameters.
//! If workers are alike, one worker whose link leads back to itself sees what each of them would.

use super::countdown::Countdown;
use crate::cluster::{Cluster, Dest, Exchange, Message};
use crate::scenario::{Content, Mechanism, Scenario};

/// [`Message::step`] counts a chunk's hops from 1.
pub(crate) struct Ring {
    /// Workers on the ring; more than are simulated in the symmetric form.
    size: u32,
    messages: bool,
    multicast: bool,
    /// Bits of a chunk of each parameter.
    bits: Vec<u64>,
    /// Iterations in which a worker's own gradient was there, by worker and parameter.
    contributed: Vec<u32>,
    /// Messages that wait for it, likewise.
    waiting: Vec<Vec<Message>>,
    /// Summed chunks that are missing, likewise.
    missing: Countdown,
    /// Workers that miss a parameter.
    behind: Countdown,
}

impl Ring {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let Mechanism::Ring { messages, multicast } = scenario.mechanism else {
            unreachable!("Scenario::run matched the mechanism")
        };
        let size = scenario.workers;
        let workers = if scenario.symmetric() { 1 } else { size };
        let chunks = if messages { size } else { 1 };
        let rows = scenario.model.parameters.len();
        let slots = workers as usize * rows;
        Self {
            size,
            messages,
            multicast,
            // Chunks are padded to equal size, as an equal partition needs.
            bits: scenario.model.parameters.iter().map(|row| row.bits.div_ceil(chunks.into())).collect(),
            contributed: vec![0; slots],
            waiting: vec![Vec::new(); slots],
            missing: Countdown::new(scenario, vec![chunks; slots]),
            behind: Countdown::new(scenario, vec![workers; rows]),
        }
    }

    fn slot(&self, worker: u32, parameter: u32) -> usize {
        worker as usize * self.bits.len() + parameter as usize
    }

    /// Sends a chunk to which `worker` has added its own on its hop number `step`.
    fn forward(&self, cluster: &mut Cluster<'_>, worker: u32, message: Message, step: u32) {
        let bits = self.bits[message.item as usize];
        let content = if step == 1 { Content::Gradient } else { Content::PartialSum };
        let message = Message { src: worker, step, ..message };
        if self.multicast && step == self.size {
            cluster.send(Message { dest: Dest::Workers, ..message }, bits, content);
        } else {
            cluster.pass(worker, (worker + 1) % cluster.workers(), message, bits, content);
        }
    }

    fn receive(&mut self, cluster: &mut Cluster<'_>, worker: u32, message: Message) {
        let slot = self.slot(worker, message.item);
        let is_sum = message.step >= self.size;
        if !is_sum && self.contributed[slot] <= message.iteration {
            return self.waiting[slot].push(message);
        }
        if message.step + 1 >= self.size && self.missing.tick(slot, message.iteration) {
            self.complete(cluster, worker, message.item, message.iteration);
        }
        if !is_sum {
            self.forward(cluster, worker, message, message.step + 1);
        }
    }

    /// `worker` holds the sum of `parameter`'s gradients.
    fn complete(&mut self, cluster: &mut Cluster<'_>, worker: u32, parameter: u32, iteration: u32) {
        if self.behind.tick(parameter as usize, iteration) {
            cluster.reduced(iteration, parameter);
        }
        cluster.parameter_arrived(worker, parameter);
    }
}

impl Exchange for Ring {
    fn start(&mut self, cluster: &mut Cluster<'_>) {
        cluster.all_parameters_arrived();
    }

    fn gradient(&mut self, cluster: &mut Cluster<'_>, worker: u32, parameter: u32, iteration: u32) {
        if self.size == 1 {
            return self.complete(cluster, worker, parameter, iteration);
        }
        let slot = self.slot(worker, parameter);
        self.contributed[slot] += 1;
        let waited = core::mem::take(&mut self.waiting[slot]);
        if self.messages || parameter % self.size == worker {
            let own = Message { src: worker, dest: Dest::Workers, item: parameter, step: 0, iteration };
            self.forward(cluster, worker, own, 1);
        }
        for message in waited {
            self.receive(cluster, worker, message);
        }
    }

    fn arrived(&mut self, cluster: &mut Cluster<'_>, host: u32, message: Message) {
        if !self.multicast && (self.size..2 * (self.size - 1)).contains(&message.step) {
            let bits = self.bits[message.item as usize];
            let next = (host + 1) % cluster.workers();
            let message = Message { step: message.step + 1, ..message };
            cluster.relay(host, next, message, bits, Content::PartialSum);
        }
    }

    fn delivered(&mut self, cluster: &mut Cluster<'_>, host: u32, message: Message) {
        self.receive(cluster, host, message);
    }
}
