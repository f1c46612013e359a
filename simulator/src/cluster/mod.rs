//! The cluster at work: workers that compute, the network between them, and what a mechanism sees
//! of both.

mod fabric;
mod worker;

pub(crate) use fabric::{Dest, Fabric, FabricEvent, MESSAGE_BYTES, Message, STATION_BYTES, STATIONS, SWITCH};
pub(crate) use worker::Done;

use crate::scenario::{Content, Results, Scenario, WireCost};
use crate::time::Picos;
use worker::Worker;

/// A mechanism at work.
pub(crate) trait Exchange {
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

/// The work of a host that sends on the message before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing: it has to encode it.
    First,
    /// It sent a first copy, which may wait for the encoder still.
    Another,
    /// It received it.
    Relayed,
}

/// The workers and their network, as a mechanism sees them.
pub(crate) struct Cluster<'a> {
    pub(crate) fabric: Fabric,
    pub(crate) scenario: &'a Scenario,
    workers: Vec<Worker>,
    /// Iterations that all workers together have not begun.
    left_to_begin: u32,
    /// For each iteration: parameters not yet reduced, the time of the last, the time of the first
    /// row's.
    left: Vec<usize>,
    finished: Vec<Picos>,
    first_row: Vec<Picos>,
}

impl<'a> Cluster<'a> {
    pub(crate) fn new(scenario: &'a Scenario, fabric: Fabric, workers: u32) -> Self {
        let rows = scenario.model.parameters.len();
        let iterations = scenario.iterations() as usize;
        let mut workers: Vec<_> =
            (0..workers).map(|number| Worker::new(number, rows, scenario.jitter)).collect();
        for &(worker, late) in &scenario.late {
            workers[worker as usize].delay(late);
        }
        Self {
            fabric,
            scenario,
            left_to_begin: (workers.len() * iterations) as u32,
            workers,
            left: vec![rows; iterations],
            finished: vec![0; iterations],
            first_row: vec![0; iterations],
        }
    }

    /// Workers that are simulated: all of them, or one that stands for all.
    pub(crate) fn workers(&self) -> u32 {
        self.workers.len() as u32
    }

    pub(crate) fn cost(&self, bits: u64, content: Content) -> WireCost {
        self.handled(self.scenario.wire.cost(bits, content))
    }

    /// The cost of sending `bits` as they are.
    pub(crate) fn plain_cost(&self, bits: u64) -> WireCost {
        self.handled(self.scenario.wire.plain_cost(bits))
    }

    /// The cost of sending `bits` of which a codec on the host makes `coded`.
    pub(crate) fn coded_cost(&self, bits: u64, coded: u64) -> WireCost {
        self.handled(self.scenario.wire.coded_cost(bits, coded))
    }

    /// With what each message takes its hosts.
    fn handled(&self, cost: WireCost) -> WireCost {
        let each = self.scenario.per_message;
        WireCost { encode: cost.encode + each, decode: cost.decode + each, ..cost }
    }

    /// The cost of a parameter as chunks for an aggregator in the network.
    pub(crate) fn chunk_cost(&self, parameter: u32, content: Content) -> WireCost {
        let bits = self.scenario.model.parameters[parameter as usize].bits;
        self.scenario.wire.chunk_cost(bits, content)
    }

    pub(crate) fn send(&mut self, message: Message, bits: u64, content: Content) {
        let cost = self.cost(bits, content);
        self.fabric.send(message, cost);
    }

    /// Sends to one host; `item`, `step` and `iteration` are the mechanism's own.
    pub(crate) fn pass(&mut self, src: u32, to: u32, message: Message, bits: u64, content: Content) {
        self.send(Message { src, dest: Dest::Host(to), ..message }, bits, content);
    }

    /// Passes on, as it came, what another host encoded.
    pub(crate) fn relay(&mut self, src: u32, to: u32, message: Message, bits: u64, content: Content) {
        let cost = self.cost(bits, content);
        self.send_copy(Message { src, dest: Dest::Host(to), ..message }, cost, Sent::Relayed);
    }

    /// Sends a copy of what costs `cost` to send first.
    pub(crate) fn send_copy(&mut self, message: Message, cost: WireCost, sent: Sent) {
        let encoded = WireCost { encode: self.scenario.per_message, ..cost };
        match sent {
            Sent::First => self.fabric.send(message, cost),
            Sent::Another if cost.encode > 0 => self.fabric.send_encoded(message, encoded),
            Sent::Another | Sent::Relayed => self.fabric.send(message, encoded),
        }
    }

    /// A new version of `parameter` is whole at `worker`.
    pub(crate) fn parameter_arrived(&mut self, worker: u32, parameter: u32) {
        self.workers[worker as usize].arrived(parameter);
        self.compute(worker);
    }

    /// Every worker has all parameters, as if no server distributes them.
    pub(crate) fn all_parameters_arrived(&mut self) {
        for worker in 0..self.workers() {
            for parameter in 0..self.scenario.model.parameters.len() as u32 {
                self.workers[worker as usize].arrived(parameter);
            }
            self.compute(worker);
        }
    }

    /// The sum of `parameter`'s gradients is wherever the mechanism needs it.
    pub(crate) fn reduced(&mut self, iteration: u32, parameter: u32) {
        let iteration = iteration as usize;
        let now = self.fabric.now();
        self.left[iteration] -= 1;
        if self.left[iteration] == 0 {
            self.finished[iteration] = now;
        }
        if parameter == 0 {
            self.first_row[iteration] = now;
        }
    }

    pub(crate) fn row_done(&mut self, worker: u32) -> Done {
        self.workers[worker as usize].finish(worker, self.scenario.jitter)
    }

    /// Starts `worker`'s next row if it is idle and has what the row needs.
    pub(crate) fn compute(&mut self, worker: u32) {
        let begins = self.workers[worker as usize].begins();
        if begins.is_some_and(|iteration| !self.is_left(iteration)) {
            return;
        }
        let compute_times = self.scenario.compute_times_of(worker);
        if let Some(span) = self.workers[worker as usize].start(compute_times, self.scenario.staleness) {
            self.left_to_begin -= u32::from(begins.is_some());
            self.fabric.compute(worker, span);
        }
    }

    /// May a worker begin this iteration of its own? Asynchronous workers share their iterations,
    /// so that the slowest is not alone in the end.
    fn is_left(&self, iteration: u32) -> bool {
        if self.scenario.mechanism.is_asynchronous() {
            self.left_to_begin > 0
        } else {
            iteration < self.scenario.iterations()
        }
    }

    pub(crate) fn results(self) -> Results {
        assert!(
            self.left.iter().all(|&left| left == 0),
            "the exchange came to a halt before it was complete"
        );
        let iteration = self.scenario.measured().map_or(self.finished[0], |[from, to]| {
            (self.first_row[to] - self.first_row[from]) / (to - from) as Picos
        });
        let hosts = 0..self.fabric.hosts();
        Results {
            iteration,
            events: self.fabric.events(),
            sent: hosts.clone().map(|host| self.fabric.sent(host)).collect(),
            received: hosts.map(|host| self.fabric.received(host)).collect(),
        }
    }
}
