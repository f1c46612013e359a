//! Turns: the order in which a rank's big messages leave. In a coordinated exchange rank 0's
//! coordinator decides when each joins it.

use std::collections::VecDeque;
use std::time::Instant;

use super::ConnectionId;
use super::connection::Leaves;
use crate::coordinator::{Coordinator, LinkId};
use crate::graph::Rank;
use crate::header::Control;
use crate::plan::Order;

/// Messages that may wait for the coordinator, so that no rank fills rank 0's memory.
const MAX_WISHES: usize = 1 << 20;

pub(super) struct Turns {
    rank: Rank,
    /// Connections of big messages, in the order in which these leave.
    order: VecDeque<ConnectionId>,
    /// By receiver: what the coordinator was asked for.
    asked: Vec<Asked>,
    /// At rank 0. Its time starts with the link.
    coordinator: Coordinator,
    start: Instant,
    /// Since when the coordinator may have something to give out. It is asked when all that came
    /// with it is here, so that a slot has many links.
    asked_since: Option<Instant>,
}

/// Big messages to one rank that the coordinator decides about.
#[derive(Clone, Default)]
struct Asked {
    /// Connections of those that wait for its word, in their order.
    waiting: VecDeque<ConnectionId>,
    /// By batch: how many may leave and have not left.
    granted: VecDeque<u32>,
}

impl Turns {
    pub(super) fn new(rank: Rank, ranks: usize, now: Instant) -> Self {
        Self {
            rank,
            order: VecDeque::new(),
            asked: vec![Asked::default(); ranks],
            coordinator: Coordinator::default(),
            start: now,
            asked_since: None,
        }
    }

    /// An exchange begins.
    pub(super) fn begin(&mut self, order: Order) {
        if let Order::Coordinated(limits) = order {
            self.coordinator.set_limits(limits);
        }
    }

    /// When a message to this rank leaves.
    pub(super) fn leaves(&self, to: Rank, big: bool, order: Order, coordinated: bool) -> Leaves {
        // Whatever the order is now, no message passes one of an earlier exchange that still waits
        // for the coordinator.
        let behind = !self.asked[to].waiting.is_empty();
        match order {
            _ if !big => Leaves::AtOnce,
            Order::Free => Leaves::AtOnce,
            Order::Coordinated(_) if coordinated => Leaves::Granted,
            Order::Turns if behind && coordinated => Leaves::Granted,
            Order::Turns | Order::Coordinated(_) => Leaves::InTurn,
        }
    }

    /// A message joins those that wait. Returns what rank 0 has to be told.
    pub(super) fn join(
        &mut self,
        at: ConnectionId,
        to: Rank,
        leaves: Leaves,
        bytes: u64,
        now: Instant,
    ) -> Result<Option<Control>, String> {
        match leaves {
            Leaves::AtOnce => {}
            Leaves::InTurn => self.order.push_back(at),
            Leaves::Granted => {
                self.asked[to].waiting.push_back(at);
                if self.rank != 0 {
                    return Ok(Some(Control::Wish { to, bytes }));
                }
                self.wish(0, to, bytes, now)?;
            }
        }
        Ok(None)
    }

    /// At rank 0: a rank asks.
    pub(super) fn wish(&mut self, from: Rank, to: Rank, bytes: u64, now: Instant) -> Result<(), String> {
        if self.coordinator.waiting() >= MAX_WISHES {
            return Err(format!(
                "more than {MAX_WISHES} messages wait for the coordinator, the last of rank {from}: use fewer partitions, or the order turns"
            ));
        }
        let time = now.saturating_duration_since(self.start);
        self.coordinator.wish(LinkId { from, to }, bytes, time);
        self.asked_since.get_or_insert(now);
        Ok(())
    }

    /// At rank 0: what other ranks have to be told about the next messages that may leave. Its own
    /// join the order.
    pub(super) fn slot(&mut self, now: Instant) -> Option<Result<Vec<(Rank, Control)>, String>> {
        let Some(slot) = self.coordinator.slot(now.saturating_duration_since(self.start)) else {
            self.asked_since = None;
            return None;
        };
        let mut frames = Vec::new();
        for (LinkId { from, to }, messages) in slot {
            if from != 0 {
                frames.push((from, Control::Go { to, messages }));
            } else if let Err(wrong) = self.go(to, messages) {
                return Some(Err(wrong));
            }
        }
        Some(Ok(frames))
    }

    /// The coordinator lets some messages leave.
    pub(super) fn go(&mut self, to: Rank, messages: u32) -> Result<(), String> {
        let asked = self.asked.get_mut(to).filter(|asked| asked.waiting.len() >= messages as usize);
        let Some(asked) = asked.filter(|_| messages > 0) else {
            return Err(format!("rank 0 lets {messages} messages to rank {to} leave that nobody asked for"));
        };
        self.order.extend(asked.waiting.drain(..messages as usize));
        asked.granted.push_back(messages);
        Ok(())
    }

    /// A message to this rank that the coordinator let leave has left. Returns what has to be told,
    /// and to whom.
    pub(super) fn left(&mut self, to: Rank, now: Instant) -> Option<(Rank, Control)> {
        let granted = &mut self.asked[to].granted;
        let left = granted.front_mut()?;
        *left -= 1;
        if *left > 0 {
            return None;
        }
        granted.pop_front();
        if self.rank == 0 {
            self.done(0, to, now);
            return None;
        }
        Some((0, Control::Done { to }))
    }

    /// At rank 0: a rank's messages have left; `false` if it was not let send any.
    pub(super) fn done(&mut self, from: Rank, to: Rank, now: Instant) -> bool {
        self.asked_since.get_or_insert(now);
        self.coordinator.done(LinkId { from, to })
    }

    /// At rank 0: a rank sends no more through the coordinator.
    pub(super) fn forget(&mut self, from: Rank, now: Instant) {
        self.asked_since.get_or_insert(now);
        self.coordinator.forget(from);
    }

    /// Messages that wait for the coordinator leave in turns.
    pub(super) fn release(&mut self) {
        for asked in &mut self.asked {
            self.order.extend(asked.waiting.drain(..));
        }
    }

    /// A connection has ended.
    pub(super) fn remove(&mut self, at: ConnectionId) {
        self.order.retain(|turn| *turn != at);
        self.asked.iter_mut().for_each(|asked| asked.waiting.retain(|waits| *waits != at));
    }

    /// Nothing leaves any more.
    pub(super) fn clear(&mut self) {
        self.order.clear();
        self.asked.iter_mut().for_each(|asked| *asked = Asked::default());
    }

    /// Does the next big message leave on this connection?
    pub(super) fn is_next(&self, at: ConnectionId) -> bool {
        self.order.front() == Some(&at)
    }

    /// Connections of big messages, in the order in which these leave.
    pub(super) fn order(&self) -> impl Iterator<Item = ConnectionId> {
        self.order.iter().copied()
    }

    /// A big message has left.
    pub(super) fn pop(&mut self) {
        self.order.pop_front();
    }

    /// At rank 0: when the coordinator may have something to give out.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let timer = self.coordinator.timer().map(|at| self.start + at);
        self.asked_since.into_iter().chain(timer).min()
    }
}
