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

/// The state of parameters on a ring; [`Message::step`] counts a chunk's hops from 1.
pub(crate) struct Lap {
    size: u32,
    /// Iterations in which the own contribution to a slot, a (rank, parameter), was there.
    contributed: Vec<u32>,
    /// Summed chunks that a slot misses.
    missing: Countdown,
    /// Messages that wait for the own contribution.
    waiting: Vec<Vec<Message>>,
}

/// The consequence of a decoded message on a ring.
pub(crate) struct Turn {
    /// The number of the hop on which the sum, with the rank's contribution, goes on.
    pub(crate) forward: Option<u32>,
    /// The rank now holds the whole sum.
    pub(crate) complete: bool,
}

impl Lap {
    /// A ring of `size` ranks, on which a parameter travels in `chunks`.
    pub(crate) fn new(scenario: &Scenario, size: u32, chunks: u32, slots: usize) -> Self {
        let missing = Countdown::new(scenario, vec![chunks; slots]);
        Self { size, contributed: vec![0; slots], missing, waiting: vec![Vec::new(); slots] }
    }

    /// The rank's own contribution is there; returns the messages that waited for it.
    pub(crate) fn contribute(&mut self, slot: usize) -> Vec<Message> {
        self.contributed[slot] += 1;
        core::mem::take(&mut self.waiting[slot])
    }

    /// The number of the hop on which a chunk that is not yet decoded goes on as it is.
    pub(crate) fn relay(&self, step: u32) -> Option<u32> {
        (step >= self.size && step < 2 * (self.size - 1)).then_some(step + 1)
    }

    /// A chunk is decoded.
    pub(crate) fn receive(&mut self, slot: usize, message: Message) -> Turn {
        let distributed = message.step >= self.size;
        if !distributed && self.contributed[slot] <= message.iteration {
            self.waiting[slot].push(message);
            return Turn { forward: None, complete: false };
        }
        let complete = message.step + 1 >= self.size && self.missing.tick(slot, message.iteration);
        Turn { forward: (!distributed).then_some(message.step + 1), complete }
    }
}

pub(crate) struct Ring {
    /// Workers on the ring; more than are simulated in the symmetric form.
    size: u32,
    messages: bool,
    multicast: bool,
    /// Bits of a chunk of each parameter.
    bits: Vec<u64>,
    lap: Lap,
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
        Self {
            size,
            messages,
            multicast,
            // Chunks are padded to equal size, as an equal partition needs.
            bits: scenario.model.parameters.iter().map(|row| row.bits.div_ceil(chunks.into())).collect(),
            lap: Lap::new(scenario, size, chunks, workers as usize * rows),
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
        let turn = self.lap.receive(self.slot(worker, message.item), message);
        if turn.complete {
            self.complete(cluster, worker, message.item, message.iteration);
        }
        if let Some(step) = turn.forward {
            self.forward(cluster, worker, message, step);
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
        let waited = self.lap.contribute(self.slot(worker, parameter));
        if self.messages || parameter % self.size == worker {
            let own = Message { src: worker, dest: Dest::Workers, item: parameter, step: 0, iteration };
            self.forward(cluster, worker, own, 1);
        }
        for message in waited {
            self.receive(cluster, worker, message);
        }
    }

    fn arrived(&mut self, cluster: &mut Cluster<'_>, host: u32, message: Message) {
        if self.multicast {
            return;
        }
        if let Some(step) = self.lap.relay(message.step) {
            let bits = self.bits[message.item as usize];
            let next = (host + 1) % cluster.workers();
            cluster.relay(host, next, Message { step, ..message }, bits, Content::PartialSum);
        }
    }

    fn delivered(&mut self, cluster: &mut Cluster<'_>, host: u32, message: Message) {
        self.receive(cluster, host, message);
    }
}
