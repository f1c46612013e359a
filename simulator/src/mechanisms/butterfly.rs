//! Butterfly mixing: in round k, worker w exchanges its whole partial sum with worker w xor 2^k.
//!
//! Round k+1 begins when the own exchange of round k is received.

use super::countdown::Countdown;
use crate::cluster::{Cluster, Dest, Exchange, Message};
use crate::scenario::{Content, Scenario};

pub(crate) struct Butterfly {
    rounds: u32,
    symmetric: bool,
    parameters: usize,
    /// By worker, parameter and iteration under way.
    state: Vec<State>,
    /// Workers that are not done with a parameter.
    behind: Countdown,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// The round that waits for its exchange.
    begun: Option<u32>,
    /// A bit for each round whose exchange has come.
    received: u32,
}

impl Butterfly {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let symmetric = scenario.symmetric();
        let workers = if symmetric { 1 } else { scenario.workers };
        let rows = scenario.model.parameters.len();
        Self {
            rounds: scenario.workers.ilog2(),
            symmetric,
            parameters: rows,
            state: vec![State::default(); workers as usize * rows * scenario.under_way()],
            behind: Countdown::new(scenario, vec![workers; rows]),
        }
    }

    fn state(&mut self, worker: u32, message: Message) -> &mut State {
        let slot = worker as usize * self.parameters + message.item as usize;
        &mut self.state[self.behind.place(slot, message.iteration)]
    }

    /// Begins `round`, and every following one whose exchange has already come.
    fn begin(&mut self, cluster: &mut Cluster<'_>, worker: u32, message: Message, mut round: u32) {
        let bits = cluster.scenario.model.parameters[message.item as usize].bits;
        loop {
            if round == self.rounds {
                return self.done(cluster, worker, message);
            }
            self.state(worker, message).begun = Some(round);
            let partner = if self.symmetric { worker } else { worker ^ (1 << round) };
            let content = if round == 0 { Content::Gradient } else { Content::PartialSum };
            cluster.pass(worker, partner, Message { step: round, ..message }, bits, content);
            if self.state(worker, message).received & (1 << round) == 0 {
                return;
            }
            round += 1;
        }
    }

    fn done(&mut self, cluster: &mut Cluster<'_>, worker: u32, message: Message) {
        *self.state(worker, message) = State::default();
        if self.behind.tick(message.item as usize, message.iteration) {
            cluster.reduced(message.iteration, message.item);
        }
        cluster.parameter_arrived(worker, message.item);
    }
}

impl Exchange for Butterfly {
    fn start(&mut self, cluster: &mut Cluster<'_>) {
        cluster.all_parameters_arrived();
    }

    fn gradient(&mut self, cluster: &mut Cluster<'_>, worker: u32, parameter: u32, iteration: u32) {
        let message = Message { src: worker, dest: Dest::Host(worker), item: parameter, step: 0, iteration };
        self.begin(cluster, worker, message, 0);
    }

    fn delivered(&mut self, cluster: &mut Cluster<'_>, host: u32, message: Message) {
        let state = self.state(host, message);
        state.received |= 1 << message.step;
        if state.begun == Some(message.step) {
            self.begin(cluster, host, message, message.step + 1);
        }
    }
}
