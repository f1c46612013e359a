//! Times on machines that do other things too.

use std::time::{Duration, Instant};

use crate::report::ProgressBar;

/// The time that goes into a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Each piece of work is timed over about this long in a row. Shorter than what a scheduler
    /// gives a neighbour, so that most slices have the core for themselves.
    pub slice: Duration,
    /// All work in turn, again and again, until this is over: what slows the machine down for a
    /// while slows all of it. One round at least. Peers have as much again.
    pub budget: Duration,
}

impl Effort {
    /// Some hundred rounds on an idle machine. With peers everything still takes less than a
    /// minute.
    pub const DEFAULT: Self = Self { slice: Duration::from_micros(500), budget: Duration::from_secs(20) };
    /// For tests: numbers of no use.
    pub const NONE: Self = Self { slice: Duration::from_micros(1), budget: Duration::ZERO };

    /// Rounds of `what` until the budget is over.
    pub(crate) fn rounds(self, what: &str, mut round: impl FnMut()) {
        let progress = ProgressBar::new(what, self.budget.as_secs());
        let start = Instant::now();
        loop {
            round();
            let elapsed = start.elapsed();
            progress.at(elapsed.as_secs());
            if elapsed >= self.budget {
                return;
            }
        }
    }
}

/// The time of one pass of a piece of work: the best of all slices. Whatever disturbs makes it
/// longer, so the shortest is the closest to what the work itself needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timing {
    best: Option<f64>,
}

impl Timing {
    /// Times one slice.
    pub(crate) fn slice(&mut self, effort: Effort, mut pass: impl FnMut()) {
        let passes = self.passes(effort);
        // What ran in between left other data in the cache.
        if passes > 1 {
            pass();
        }
        let start = Instant::now();
        for _ in 0..passes {
            pass();
        }
        let seconds = start.elapsed().max(Duration::from_nanos(1)).as_secs_f64() / f64::from(passes);
        self.best = Some(self.best.map_or(seconds, |best| best.min(seconds)));
    }

    /// Passes that fill a slice, by the best time so far. A number fixed once would be that of the
    /// first pass, which meets new pages and may meet a neighbour: too few passes then, too short
    /// and too cold, to the end of the run.
    fn passes(&self, effort: Effort) -> u32 {
        self.best.map_or(1, |best| ((effort.slice.as_secs_f64() / best) as u32).max(1))
    }

    /// Seconds of one pass; infinite if there was none.
    pub(crate) fn seconds(&self) -> f64 {
        self.best.unwrap_or(f64::INFINITY)
    }

    /// Billions a second, if a pass handles `count`.
    pub(crate) fn giga(&self, count: usize) -> f64 {
        count as f64 / self.seconds() / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_first_pass_is_forgotten() {
        let effort = Effort { slice: Duration::from_millis(1), budget: Duration::ZERO };
        let mut timing = Timing::default();
        timing.slice(effort, || std::thread::sleep(4 * effort.slice));
        assert_eq!(timing.passes(effort), 1);
        let mut passes = 0;
        (0..20).for_each(|_| timing.slice(effort, || passes += 1));
        assert!(passes > 20 * 100, "{passes} passes of nothing in 20 slices");
    }
}
