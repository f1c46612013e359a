//! What is still missing of each parameter or message, in all iterations under way.

use crate::scenario::Scenario;

/// A countdown for each slot, a mechanism's own number, and each iteration under way.
pub(crate) struct Countdown {
    /// Iterations under way at once.
    under_way: usize,
    /// The number that a slot begins with.
    from: Vec<u32>,
    /// By slot and iteration.
    left: Vec<u32>,
}

impl Countdown {
    /// Countdowns of as many slots as there are numbers, each from its own.
    pub(crate) fn new(scenario: &Scenario, from: Vec<u32>) -> Self {
        let under_way = scenario.under_way();
        let left = from.iter().flat_map(|&from| vec![from; under_way]).collect();
        Self { under_way, from, left }
    }

    /// The place of a slot in an iteration, in a list that has all slots in the order of their
    /// numbers, each with all iterations under way.
    pub(crate) fn place(&self, slot: usize, iteration: u32) -> usize {
        slot * self.under_way + iteration as usize % self.under_way
    }

    /// Counts one down. After the last, the slot begins anew, for a later iteration.
    ///
    /// Returns whether it was the last.
    pub(crate) fn tick(&mut self, slot: usize, iteration: u32) -> bool {
        let place = self.place(slot, iteration);
        let left = &mut self.left[place];
        *left -= 1;
        let last = *left == 0;
        if last {
            *left = self.from[slot];
        }
        last
    }
}
