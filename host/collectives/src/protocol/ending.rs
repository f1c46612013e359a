//! The end: all agree why a job failed, or a rank says goodbye.

use std::time::Instant;

use super::liveness::{FAREWELL, explanation};
use super::{Event, Phase, Protocol};
use crate::failure::{Failure, Weight};
use crate::graph::Rank;
use crate::header::Control;

impl Protocol {
    /// Goes to the phase that follows from what just happened.
    pub(super) fn settle(&mut self, result: Result<(), Failure>, now: Instant) {
        if let (Err(failure), Phase::Open) = (result, &self.phase) {
            self.fail(failure, now);
        }
        let others = self.connections.iter().filter(|connection| !connection.left);
        match &mut self.phase {
            Phase::Failing { failure, until, had_root } => {
                if others.filter(|connection| connection.is_control()).count() > 0 && now < *until {
                    return;
                }
                let mut failure = failure.clone();
                // Rank 0 would have answered. If it was killed, it is the cause: another rank may
                // have heard of that first, and gone.
                if self.rank != 0 && failure.weight == Weight::Closed && *had_root && !self.has_root() {
                    failure.cause = closed(0);
                }
                self.close(failure);
            }
            Phase::Leaving { until, sent } => {
                let waits = self.connections.iter().any(|connection| !connection.is_flushed());
                if !*sent && (!waits || now >= *until) {
                    // What is unread when a socket closes makes it reset the connection, and then
                    // the goodbye may be lost.
                    (*until, *sent) = (now + FAREWELL.min(self.timeout), true);
                }
                if *sent && (others.count() == 0 || now >= *until) {
                    self.phase = Phase::Closed;
                }
            }
            Phase::Open | Phase::Closed => {}
        }
    }

    /// Begins to tell everybody about a failure.
    fn fail(&mut self, failure: Failure, now: Instant) {
        let had_root = self.has_root();
        self.turns.clear();
        // Messages stay unsent, and their connections close last. If they closed now, ranks that
        // have not yet heard of the failure would blame this rank.
        self.connections
            .iter_mut()
            .filter(|connection| !connection.is_control())
            .for_each(|data| data.out.clear());
        let failure = if self.rank == 0 { self.liveness.explain(failure, now) } else { failure };
        if self.rank != 0 && failure.reporter != self.rank {
            // Rank 0 said so; there is nobody left to tell.
            self.close(failure);
            return;
        }
        let told = Control::Failed(failure.clone());
        let whom = if self.rank == 0 { 1..self.ranks } else { 0..1 };
        whom.for_each(|rank| self.control(rank, &told));
        self.phase = Phase::Failing { failure, until: now + explanation(self.timeout), had_root };
    }

    /// A frame that came after this rank had failed. What rank 0 says is what everybody is told.
    pub(super) fn explained(&mut self, frame: Control) {
        let Phase::Failing { failure, .. } = &self.phase else { return };
        match frame {
            Control::Failed(first) if self.rank != 0 => self.close(first),
            Control::Bye if self.rank != 0 => self.close(failure.clone()),
            _ => {}
        }
    }

    fn close(&mut self, failure: Failure) {
        self.phase = Phase::Closed;
        self.events.push_back(Event::Failed(failure));
    }

    /// Begins to say goodbye.
    pub(super) fn leave(&mut self, now: Instant) {
        self.turns.release();
        let sequence = self.sequence();
        self.connections.iter_mut().for_each(|connection| connection.say_bye(sequence));
        self.phase = Phase::Leaving { until: now + self.timeout, sent: false };
    }
}

pub(super) fn closed(peer: Rank) -> String {
    format!("rank {peer} disconnected without goodbye (was it killed?)")
}
