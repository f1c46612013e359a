//! The order of messages, decided in one place: CaSync's coordinator (HiPress, SOSP 2021, section
//! 3.2), as a state machine.
//!
//! Ranks say what they have to send. The coordinator gathers it by link, from one rank to another,
//! until a link has enough bytes or its oldest message has waited long enough. Then it gives out
//! *slots*: sets of links of which no two have one sender or one receiver. It gives out the next
//! slot while the last one runs, so that nobody waits for a plan.
//!
//! It does no I/O and reads no clock. Whoever drives it carries wishes to it and slots to all
//! ranks, and says what time it is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::graph::Rank;

/// From one rank to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the two ends")]
pub struct LinkId {
    pub from: Rank,
    pub to: Rank,
}

/// By link, how many of its oldest messages may leave now. No two links have one sender or one
/// receiver.
pub type Slot = BTreeMap<LinkId, u32>;

/// When messages need not wait any longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of a link.
    pub enough: u64,
    /// The time that a message has waited.
    pub patience: Duration,
}

impl Limits {
    /// The longest time that a message may be told to wait.
    pub const MAX_PATIENCE: Duration = Duration::from_secs(1);
}

impl Default for Limits {
    fn default() -> Self {
        Self { enough: 1 << 18, patience: Duration::from_micros(500) }
    }
}

/// Messages that wait for a link, and those under way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Coordinator {
    limits: Limits,
    queues: BTreeMap<LinkId, Queue>,
    /// Messages in all queues.
    waiting: usize,
    /// The slot that runs, and the one that was given out ahead: links that are not yet done.
    under_way: VecDeque<Vec<LinkId>>,
}

/// Messages of one link: the bytes of each, and since when it waits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Queue {
    messages: VecDeque<(u64, Duration)>,
    /// Of all of them.
    bytes: u64,
}

/// Slots that are given out: one that runs, and the next.
const AHEAD: usize = 2;

impl Coordinator {
    /// Waits as long from now on, also with what waits already.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// A rank wants to send a message of so many bytes. Messages of a link leave in this order.
    pub fn wish(&mut self, link: LinkId, bytes: u64, now: Duration) {
        let queue = self.queues.entry(link).or_default();
        queue.messages.push_back((bytes, now));
        queue.bytes = queue.bytes.saturating_add(bytes);
        self.waiting += 1;
    }

    /// Messages that wait.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// The link's batch in the oldest slot that has one has left; `false` if there is none.
    pub fn done(&mut self, link: LinkId) -> bool {
        let found = self.under_way.iter_mut().find_map(|slot| {
            let at = slot.iter().position(|under_way| *under_way == link)?;
            Some(slot.swap_remove(at))
        });
        self.under_way.retain(|slot| !slot.is_empty());
        found.is_some()
    }

    /// A rank sends no more through the coordinator, and will not say what is done.
    pub fn forget(&mut self, from: Rank) {
        self.queues.retain(|link, queue| {
            if link.from == from {
                self.waiting -= queue.messages.len();
            }
            link.from != from
        });
        self.under_way.iter_mut().for_each(|slot| slot.retain(|link| link.from != from));
        self.under_way.retain(|slot| !slot.is_empty());
    }

    /// The next slot, if there is one to give out now: ask again after each wish, after each
    /// `done`, and at [`timer`](Self::timer).
    ///
    /// Links that have waited longest come first, so none waits for ever.
    pub fn slot(&mut self, now: Duration) -> Option<Slot> {
        if self.under_way.len() >= AHEAD {
            return None;
        }
        let ripe = self.queues.iter().filter_map(|(link, queue)| {
            let (_, since) = *queue.messages.front()?;
            (now >= since + self.limits.patience || queue.bytes >= self.limits.enough)
                .then_some((since, *link))
        });
        let mut ripe: Vec<(Duration, LinkId)> = ripe.collect();
        ripe.sort_unstable();
        let (mut senders, mut receivers) = (BTreeSet::new(), BTreeSet::new());
        let mut slot = Slot::new();
        for (_, link) in ripe {
            if senders.contains(&link.from) || receivers.contains(&link.to) {
                continue;
            }
            senders.insert(link.from);
            receivers.insert(link.to);
            slot.insert(link, self.take(link));
        }
        if slot.is_empty() {
            return None;
        }
        self.under_way.push_back(slot.keys().copied().collect());
        Some(slot)
    }

    /// The number of a link's messages that make a batch: as much as is enough, and one message
    /// however large.
    fn take(&mut self, link: LinkId) -> u32 {
        let (mut messages, mut size) = (0, 0u64);
        if let Some(queue) = self.queues.get_mut(&link) {
            while let Some((bytes, _)) = queue.messages.pop_front_if(|_| size < self.limits.enough.max(1)) {
                size = size.saturating_add(bytes);
                messages += 1;
            }
            queue.bytes = queue.bytes.saturating_sub(size);
            if queue.messages.is_empty() {
                self.queues.remove(&link);
            }
        }
        self.waiting -= messages as usize;
        messages
    }

    /// When some message will have waited long enough, if nothing else happens before.
    #[must_use]
    pub fn timer(&self) -> Option<Duration> {
        let oldest = self.queues.values().filter_map(|queue| queue.messages.front());
        oldest.map(|(_, since)| *since + self.limits.patience).min().filter(|_| self.under_way.len() < AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn coordinator(enough: u64, patience: Duration) -> Coordinator {
        Coordinator { limits: Limits { enough, patience }, ..Coordinator::default() }
    }

    fn link(from: Rank, to: Rank) -> LinkId {
        LinkId { from, to }
    }

    fn links(slot: Option<Slot>) -> Vec<LinkId> {
        slot.unwrap_or_default().into_keys().collect()
    }

    #[test]
    fn a_link_leaves_when_it_has_enough_or_has_waited_enough() {
        let mut coordinator = coordinator(100, 10 * MS);
        coordinator.wish(link(0, 1), 60, MS);
        coordinator.wish(link(1, 2), 100, 2 * MS);
        assert_eq!(links(coordinator.slot(3 * MS)), [link(1, 2)], "it has enough");
        assert_eq!((coordinator.slot(10 * MS), coordinator.timer()), (None, Some(11 * MS)));
        assert_eq!(links(coordinator.slot(11 * MS)), [link(0, 1)], "it has waited enough");
        assert_eq!(coordinator.timer(), None);
    }

    #[test]
    fn a_batch_is_what_is_enough_and_the_rest_waits() {
        let mut coordinator = coordinator(100, MS);
        for bytes in [60, 60, 60, 1000] {
            coordinator.wish(link(0, 1), bytes, Duration::ZERO);
        }
        assert_eq!(coordinator.slot(Duration::ZERO), Some([(link(0, 1), 2)].into()));
        assert_eq!(
            coordinator.slot(Duration::ZERO),
            Some([(link(0, 1), 2)].into()),
            "one is never too large"
        );
        assert_eq!(coordinator.waiting(), 0);
    }

    #[test]
    fn ranks_send_to_one_and_receive_from_one_at_a_time() {
        let mut coordinator = coordinator(1, MS);
        for (from, to) in [(0, 2), (1, 2), (0, 1), (2, 0)] {
            coordinator.wish(link(from, to), 1, Duration::ZERO);
        }
        // 0 sends to 1 because that is the first of its links; 1 to 2, 2 to 0.
        assert_eq!(links(coordinator.slot(MS)), [link(0, 1), link(1, 2), link(2, 0)]);
        assert_eq!(links(coordinator.slot(MS)), [link(0, 2)], "given out ahead");
        assert!(!coordinator.done(link(1, 0)), "nothing of this is under way");
        coordinator.wish(link(1, 0), 1, Duration::ZERO);
        assert_eq!(coordinator.slot(MS), None, "two are enough");
        for done in [link(0, 1), link(1, 2), link(2, 0)] {
            assert!(coordinator.done(done));
        }
        assert_eq!(links(coordinator.slot(MS)), [link(1, 0)]);
    }

    #[test]
    fn the_link_that_has_waited_longest_goes_first() {
        // 0 has always more for 1. What 2 has for 1 waits for one slot, though its link comes
        // later.
        let mut coordinator = coordinator(1, MS);
        coordinator.wish(link(0, 1), 1, Duration::ZERO);
        coordinator.wish(link(2, 1), 1, MS);
        for slot in 0..4 {
            coordinator.wish(link(0, 1), 1, (2 + slot) * MS);
            let expected = if slot == 1 { link(2, 1) } else { link(0, 1) };
            assert_eq!(links(coordinator.slot(9 * MS)), [expected], "slot {slot}");
            assert!(coordinator.done(expected));
        }
    }

    #[test]
    fn a_rank_that_leaves_is_waited_for_no_more() {
        let mut coordinator = coordinator(1, MS);
        for (from, to) in [(0, 1), (0, 1), (0, 2), (1, 0)] {
            coordinator.wish(link(from, to), 1, Duration::ZERO);
        }
        assert_eq!(links(coordinator.slot(MS)), [link(0, 1), link(1, 0)]);
        assert_eq!(links(coordinator.slot(MS)), [link(0, 1)]);
        coordinator.forget(0);
        assert_eq!((coordinator.waiting(), coordinator.slot(MS)), (0, None));
        coordinator.wish(link(1, 2), 1, MS);
        assert_eq!(links(coordinator.slot(MS)), [link(1, 2)]);
        assert!(coordinator.done(link(1, 0)) && coordinator.done(link(1, 2)));
        assert!(!coordinator.done(link(0, 1)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn everything_leaves_once_and_without_conflicts(
            enough in 0u64..300,
            wishes in prop::collection::vec((0usize..6, 0usize..6, 0u64..200), 0..80),
            turns in prop::collection::vec(0usize..4, 0..200),
        ) {
            let mut coordinator = coordinator(enough, 5 * MS);
            let mut wishes = wishes.into_iter().filter(|(from, to, _)| from != to);
            let mut waiting = BTreeMap::<LinkId, VecDeque<u64>>::new();
            let mut under_way: VecDeque<Vec<LinkId>> = VecDeque::new();
            let mut now = Duration::ZERO;
            // First what chance says; then all wishes, and slots until nothing is left.
            for turn in turns.into_iter().chain([0; 80]).chain([1, 2, 3].repeat(400)) {
                match turn {
                    0 => if let Some((from, to, bytes)) = wishes.next() {
                        waiting.entry(link(from, to)).or_default().push_back(bytes);
                        coordinator.wish(link(from, to), bytes, now);
                    },
                    1 => if let Some(slot) = coordinator.slot(now) {
                        let links: Vec<LinkId> = slot.keys().copied().collect();
                        for (i, a) in links.iter().enumerate() {
                            prop_assert!(links[..i].iter().all(|b| a.from != b.from && a.to != b.to));
                        }
                        for (link, messages) in slot {
                            let queue = waiting.get_mut(&link).unwrap();
                            prop_assert!(messages > 0 && messages as usize <= queue.len());
                            let batch: Vec<u64> = queue.drain(..messages as usize).collect();
                            let all_but_last = &batch[..batch.len() - 1];
                            prop_assert!(all_but_last.iter().sum::<u64>() < enough.max(1));
                        }
                        under_way.push_back(links);
                        prop_assert!(under_way.len() <= AHEAD);
                    },
                    2 => if let Some(slot) = under_way.pop_front() {
                        for link in slot {
                            prop_assert!(coordinator.done(link));
                        }
                    },
                    _ => now += 2 * MS,
                }
                prop_assert_eq!(coordinator.waiting(), waiting.values().map(VecDeque::len).sum::<usize>());
            }
            prop_assert_eq!(coordinator.waiting(), 0);
            prop_assert_eq!(coordinator.timer(), None);
        }
    }
}
