//! Limits on the size of a run.

use std::fmt;

/// An upper bound of what a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Events.
    pub events: u64,
    /// Bytes held at once.
    pub memory: u64,
}

/// The most that a run may take: half an hour or so of one core, and what any desk has.
pub const RUN_LIMIT: Work = Work { events: 10_000_000_000, memory: 4_000_000_000 };

/// The widest pipeline of [`Scenario::staleness`](crate::Scenario::staleness): 1000 iterations.
pub const MAX_WIDTH: u32 = 1000;

impl Work {
    /// As a part of [`RUN_LIMIT`].
    pub(crate) fn load(self) -> f64 {
        let part = |need: u64, most: u64| need as f64 / most as f64;
        part(self.events, RUN_LIMIT.events).max(part(self.memory, RUN_LIMIT.memory))
    }
}

/// The cause of too large a run. It prints as the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// [`Scenario::message`](crate::Scenario::message) cuts parameters into too many messages.
    Message,
    /// Too many parameter servers.
    Servers,
    /// [`Scenario::full`](crate::Scenario::full) simulates workers for which one could stand.
    Full,
    /// Too many workers.
    Workers,
    /// Too many, or too large, parameters.
    Parameters,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Message => "cut parameters into larger messages",
            Self::Servers => "use fewer servers",
            Self::Full => "let one worker stand for all",
            Self::Workers => "simulate fewer workers",
            Self::Parameters => "use a model of fewer or smaller parameters",
        })
    }
}
