//! The place where readers and queue threads meet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time that a snapshot waits for queue threads. They look at the board at least at every sign
/// of life that they give the XDP program, which is far more often.
pub const PATIENCE: Duration = Duration::from_millis(250);

/// The place where readers ask for reports and queue threads leave them. A queue thread never waits
/// for a reader.
#[derive(Debug)]
pub struct Board<R> {
    queues: Vec<Slot<R>>,
}

#[derive(Debug)]
struct Slot<R> {
    asked: AtomicBool,
    /// The number of reports that were left, and the last of them.
    report: Mutex<(u64, R)>,
    left: Condvar,
}

impl<R: Clone + Default> Board<R> {
    /// A board for so many queues.
    #[must_use]
    pub fn new(queues: usize) -> Self {
        let slot = || Slot {
            asked: AtomicBool::new(false),
            report: Mutex::new((0, R::default())),
            left: Condvar::new(),
        };
        Self { queues: (0..queues).map(|_| slot()).collect() }
    }

    /// The queue thread's part, at every turn of its loop: if somebody asked for the report of
    /// `queue`, and nobody reads it right now, `fill` is called. Otherwise it costs one load.
    pub fn answer(&self, queue: usize, fill: impl FnOnce(&mut R)) {
        let Some(slot) = self.queues.get(queue) else { return };
        if !slot.asked.load(Ordering::Relaxed) {
            return;
        }
        let Ok(mut report) = slot.report.try_lock() else { return };
        slot.asked.store(false, Ordering::Relaxed);
        fill(&mut report.1);
        report.0 = report.0.wrapping_add(1);
        slot.left.notify_all();
    }

    /// A new report of every queue; of one that does not answer within `patience` the last one, and
    /// `false`.
    #[must_use]
    pub fn collect(&self, patience: Duration) -> Vec<(bool, R)> {
        let end = Instant::now() + patience;
        let asked: Vec<u64> = self.queues.iter().map(Slot::ask).collect();
        let wait = |(slot, before): (&Slot<R>, u64)| {
            let report = slot.report.lock().unwrap_or_else(PoisonError::into_inner);
            let left = end.saturating_duration_since(Instant::now());
            let (report, _) = slot
                .left
                .wait_timeout_while(report, left, |(count, _)| *count == before)
                .unwrap_or_else(PoisonError::into_inner);
            (report.0 != before, report.1.clone())
        };
        self.queues.iter().zip(asked).map(wait).collect()
    }

    /// Whether every queue thread answers within `patience`: what a watchdog wants to know.
    #[must_use]
    pub fn all_answer(&self, patience: Duration) -> bool {
        self.collect(patience).iter().all(|(answered, _)| *answered)
    }
}

impl<R> Slot<R> {
    /// The number of reports that were left before.
    fn ask(&self) -> u64 {
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        self.asked.store(true, Ordering::Relaxed);
        report.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_asked_means_nothing_is_written() {
        Board::<()>::new(1).answer(0, |_| panic!("nobody asked"));
        Board::<()>::new(1).answer(1, |_| panic!("there is no such queue"));
    }
}
