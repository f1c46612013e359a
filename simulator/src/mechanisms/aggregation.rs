//! In-network aggregation: the switch takes gradients off the wire and sends on one sum.

use super::countdown::Countdown;
use crate::cluster::Message;
use crate::scenario::Scenario;
use crate::time::Picos;

/// Copies of each item at the switch.
pub(crate) struct Aggregation {
    missing: Countdown,
    /// The last bits of the copies so far, by item and iteration under way.
    tails: Vec<Picos>,
}

impl Aggregation {
    /// A switch that gets `copies` of each item.
    pub(crate) fn new(scenario: &Scenario, copies: u32, items: usize) -> Self {
        let missing = Countdown::new(scenario, vec![copies; items]);
        Self { missing, tails: vec![0; items * scenario.under_way()] }
    }

    /// One more copy; with the last of them, when the last bit of the sum can leave the switch.
    pub(crate) fn add(&mut self, message: Message, tail: Picos) -> Option<Picos> {
        let item = message.item as usize;
        let latest = &mut self.tails[self.missing.place(item, message.iteration)];
        *latest = tail.max(*latest);
        self.missing.tick(item, message.iteration).then(|| core::mem::take(latest))
    }
}
