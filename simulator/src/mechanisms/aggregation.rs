//! In-network aggregation: the switch takes gradients off the wire and sends on one sum.

use crate::cluster::Message;
use crate::time::Picos;

/// Copies of each item at the switch, for this iteration and the next.
pub(crate) struct Aggregation {
    workers: u32,
    copies: Vec<[u32; 2]>,
    tails: Vec<[Picos; 2]>,
}

impl Aggregation {
    pub(crate) fn new(workers: u32, items: usize) -> Self {
        Self { workers, copies: vec![[0; 2]; items], tails: vec![[0; 2]; items] }
    }

    /// One more copy; with the last of them, when the last bit of the sum can leave the switch.
    pub(crate) fn add(&mut self, message: Message, tail: Picos) -> Option<Picos> {
        let (item, parity) = (message.item as usize, message.iteration as usize % 2);
        let (copies, latest) = (&mut self.copies[item][parity], &mut self.tails[item][parity]);
        *copies += 1;
        *latest = tail.max(*latest);
        (*copies == self.workers).then(|| {
            *copies = 0;
            core::mem::take(latest)
        })
    }
}
