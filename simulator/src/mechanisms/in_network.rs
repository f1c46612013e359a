//! Sums in the network, by aggregators of finite speed: workers send coded chunks, an aggregator in
//! the switch's place adds them and multicasts the sum.
//!
//! Chunks are short, so a parameter passes like water: a sum's first bit leaves the aggregator when
//! the first of the last copy is there, its last bit when the last one is and the aggregator has
//! added all of it. An aggregator serves what comes first, first.

use super::aggregation::Aggregation;
use super::countdown::Countdown;
use crate::cluster::{Cluster, Dest, Exchange, Message, SWITCH};
use crate::scenario::{Content, Mechanism, Scenario};
use crate::time::{Picos, picos};
use crate::workload::VALUE_BITS;

/// An aggregator and what it holds of every parameter.
struct Summing {
    copies: Aggregation,
    /// Workers, or racks, that send to it.
    children: u32,
    /// When it has added all that has come.
    free: Picos,
}

pub(crate) struct InNetwork {
    /// The first aggregator is in the core switch; those of the racks follow if they have any.
    aggregators: Vec<Summing>,
    /// Workers of a rack with an aggregator; none if only the core has one.
    rack: Option<u32>,
    /// Values that an aggregator adds in a second.
    rate: f64,
    /// Workers that miss a parameter.
    behind: Countdown,
}

impl InNetwork {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let Mechanism::InNetwork { racks } = scenario.mechanism else {
            unreachable!("Scenario::run matched the mechanism")
        };
        let (workers, rows) = (scenario.workers, scenario.model.parameters.len());
        let aggregator =
            |children| Summing { copies: Aggregation::new(scenario, children, rows), children, free: 0 };
        let rack = scenario.links.racks.map(|racks| racks.size).filter(|_| racks);
        let in_racks: Vec<u32> = rack.map_or_else(Vec::new, |size| {
            (0..workers).step_by(size as usize).map(|first| size.min(workers - first)).collect()
        });
        let core = if in_racks.is_empty() { workers } else { in_racks.len() as u32 };
        Self {
            aggregators: core::iter::once(core).chain(in_racks).map(aggregator).collect(),
            rack,
            rate: scenario.aggregator.values_a_second(),
            behind: Countdown::new(scenario, vec![workers; rows]),
        }
    }
}

impl Exchange for InNetwork {
    fn start(&mut self, cluster: &mut Cluster<'_>) {
        cluster.all_parameters_arrived();
    }

    fn gradient(&mut self, cluster: &mut Cluster<'_>, worker: u32, parameter: u32, iteration: u32) {
        let dest = if self.rack.is_some() { Dest::RackSwitch } else { Dest::Switch };
        let message = Message { src: worker, dest, item: parameter, step: 0, iteration };
        let cost = cluster.chunk_cost(parameter, Content::Gradient);
        cluster.fabric.send(message, cost);
    }

    fn at_switch(&mut self, cluster: &mut Cluster<'_>, message: Message, tail: Picos) {
        let in_rack = (message.dest == Dest::RackSwitch).then_some(self.rack).flatten();
        let aggregator = &mut self.aggregators[in_rack.map_or(0, |size| 1 + (message.src / size) as usize)];
        let values = cluster.scenario.model.parameters[message.item as usize].bits / VALUE_BITS;
        aggregator.free = aggregator.free.max(cluster.fabric.now()) + picos(values as f64 / self.rate);
        let Some(tail) = aggregator.copies.add(message, tail.max(aggregator.free)) else { return };
        let (message, summed) = match in_rack {
            Some(_) => (Message { dest: Dest::Switch, ..message }, aggregator.children),
            None => (Message { src: SWITCH, dest: Dest::Workers, ..message }, cluster.workers()),
        };
        let cost = cluster.chunk_cost(message.item, Content::Sum(summed));
        cluster.fabric.send_from_switch(message, cost, tail);
    }

    fn delivered(&mut self, cluster: &mut Cluster<'_>, host: u32, message: Message) {
        if self.behind.tick(message.item as usize, message.iteration) {
            cluster.reduced(message.iteration, message.item);
        }
        cluster.parameter_arrived(host, message.item);
    }
}
