//! Parameter servers: they hold the parameters, send them to every worker and sum the gradients.
//!
//! An iteration is from the distribution's begin until the servers hold all gradients of all
//! workers. Asynchronous workers get a parameter back as soon as their own gradient is added; their
//! iteration ends with as many gradients of each parameter as there are workers, whoever's they
//! are.

use super::aggregation::Aggregation;
use super::countdown::Countdown;
use crate::cluster::{Cluster, Dest, Exchange, Message};
use crate::scenario::{Assignment, Content, Mechanism, Scenario, SendOrder};
use crate::time::Picos;

/// Message size of [`SendOrder::Messages`]: 2.5 MB, in bits.
pub(crate) const FAIR_SHARE: u64 = 2_500_000 * 8;

/// A piece of the gradient in one message: a parameter, or a piece of it.
struct Piece {
    parameter: u32,
    bits: u64,
    /// Server that holds it, from 0.
    server: u32,
}

pub(crate) struct ParameterServers {
    servers: u32,
    order: SendOrder,
    multicast: bool,
    aggregation: Option<Aggregation>,
    pieces: Vec<Piece>,
    parameters: usize,
    /// Messages that a parameter misses at a worker, by worker and parameter.
    missing: Countdown,
    /// Gradient messages that a server waits for, by piece.
    awaited: Countdown,
    /// Those that have come of asynchronous workers, by piece.
    updates: Vec<u32>,
    /// Pieces of a parameter that are not yet summed.
    unsummed: Countdown,
}

impl ParameterServers {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let Mechanism::Ps { servers, assignment, order, multicast, aggregation } = scenario.mechanism else {
            unreachable!("Scenario::run matched the mechanism")
        };
        let model = &scenario.model;
        let owners = model.round_robin(servers);
        let mut pieces = Vec::new();
        for (parameter, (row, &owner)) in model.parameters.iter().zip(&owners).enumerate() {
            let homes = match assignment {
                Assignment::RoundRobin => owner..owner + 1,
                Assignment::Even => 0..servers,
            };
            for (part, server) in split(row.bits, homes.len() as u64).zip(homes) {
                let messages = scenario.message.map_or(1, |limit| part.div_ceil(limit).max(1));
                pieces.extend(split(part, messages).map(|bits| Piece {
                    parameter: parameter as u32,
                    bits,
                    server,
                }));
            }
        }
        let rows = model.parameters.len();
        let mut messages = vec![0; rows];
        let mut whole = vec![0; rows];
        for piece in &pieces {
            let parameter = piece.parameter as usize;
            messages[parameter] += parts(order, multicast, piece.bits).len() as u32;
            whole[parameter] += 1;
        }
        let copies = if aggregation { 1 } else { scenario.workers };
        let missing = (0..scenario.workers).flat_map(|_| messages.iter().copied()).collect();
        Self {
            servers,
            order,
            multicast,
            aggregation: aggregation.then(|| Aggregation::new(scenario, scenario.workers, pieces.len())),
            parameters: rows,
            missing: Countdown::new(scenario, missing),
            awaited: Countdown::new(scenario, vec![copies; pieces.len()]),
            updates: vec![0; pieces.len()],
            unsummed: Countdown::new(scenario, whole),
            pieces,
        }
    }

    /// A server sends a piece, by multicast or to each worker in turn.
    fn distribute(&self, cluster: &mut Cluster<'_>, item: u32, iteration: u32) {
        let piece = &self.pieces[item as usize];
        let src = cluster.workers() + piece.server;
        let message = Message { src, dest: Dest::Workers, item, step: 0, iteration };
        for part in parts(self.order, self.multicast, piece.bits) {
            if self.multicast {
                cluster.send(message, part, Content::Parameters);
            } else {
                for worker in 0..cluster.workers() {
                    cluster.pass(src, worker, message, part, Content::Parameters);
                }
            }
        }
    }

    /// All of a piece's gradients are at its server.
    fn summed(&mut self, cluster: &mut Cluster<'_>, message: Message) {
        let parameter = self.pieces[message.item as usize].parameter;
        if self.unsummed.tick(parameter as usize, message.iteration) {
            cluster.reduced(message.iteration, parameter);
        }
        let next = message.iteration + 1;
        if self.order != SendOrder::Asynchronous && next < cluster.scenario.iterations() {
            self.distribute(cluster, message.item, next);
        }
    }

    /// Adds an asynchronous worker's gradient, and sends that worker the parameter.
    fn update(&mut self, cluster: &mut Cluster<'_>, host: u32, message: Message) {
        let item = message.item as usize;
        let iteration = self.updates[item] / cluster.workers();
        self.updates[item] += 1;
        if self.awaited.tick(item, iteration) {
            self.summed(cluster, Message { iteration, ..message });
        }
        let next = Message { iteration: message.iteration + 1, ..message };
        cluster.pass(host, message.src, next, self.pieces[item].bits, Content::Parameters);
    }
}

impl Exchange for ParameterServers {
    fn others(&self) -> u32 {
        self.servers
    }

    fn start(&mut self, cluster: &mut Cluster<'_>) {
        if self.order == SendOrder::Block && !self.multicast {
            for worker in 0..cluster.workers() {
                for (item, piece) in self.pieces.iter().enumerate() {
                    let src = cluster.workers() + piece.server;
                    let dest = Dest::Host(worker);
                    let message = Message { src, dest, item: item as u32, step: 0, iteration: 0 };
                    cluster.send(message, piece.bits, Content::Parameters);
                }
            }
        } else {
            for item in 0..self.pieces.len() as u32 {
                self.distribute(cluster, item, 0);
            }
        }
    }

    fn gradient(&mut self, cluster: &mut Cluster<'_>, worker: u32, parameter: u32, iteration: u32) {
        let first = self.pieces.partition_point(|piece| piece.parameter < parameter);
        let pieces = self.pieces[first..].iter().take_while(|piece| piece.parameter == parameter);
        for (item, piece) in (first as u32..).zip(pieces) {
            let dest = match self.aggregation {
                Some(_) => Dest::Switch,
                None => Dest::Host(cluster.workers() + piece.server),
            };
            let message = Message { src: worker, dest, item, step: 0, iteration };
            cluster.send(message, piece.bits, Content::Gradient);
        }
    }

    fn delivered(&mut self, cluster: &mut Cluster<'_>, host: u32, message: Message) {
        let item = message.item as usize;
        if host >= cluster.workers() {
            if self.order == SendOrder::Asynchronous {
                self.update(cluster, host, message);
            } else if self.awaited.tick(item, message.iteration) {
                self.summed(cluster, message);
            }
            return;
        }
        let parameter = self.pieces[item].parameter;
        let slot = host as usize * self.parameters + parameter as usize;
        if self.missing.tick(slot, message.iteration) {
            cluster.parameter_arrived(host, parameter);
        }
    }

    fn at_switch(&mut self, cluster: &mut Cluster<'_>, message: Message, tail: Picos) {
        let Some(tail) = self.aggregation.as_mut().and_then(|switch| switch.add(message, tail)) else {
            return;
        };
        let piece = &self.pieces[message.item as usize];
        let cost = cluster.cost(piece.bits, Content::PartialSum);
        let dest = Dest::Host(cluster.workers() + piece.server);
        cluster.fabric.send_from_switch(Message { dest, ..message }, cost, tail);
    }
}

/// Messages in which a piece is distributed.
fn parts(order: SendOrder, multicast: bool, bits: u64) -> impl ExactSizeIterator<Item = u64> {
    let fair = order == SendOrder::Messages && !multicast;
    split(bits, if fair { bits.div_ceil(FAIR_SHARE).max(1) } else { 1 })
}

/// Splits `bits` into `parts` that differ by at most one bit.
fn split(bits: u64, parts: u64) -> impl ExactSizeIterator<Item = u64> {
    let parts = parts as usize;
    (0..parts).map(move |part| (bits as usize + part) as u64 / parts as u64)
}
