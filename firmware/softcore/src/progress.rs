//! The progress of the main loop, for interrupt handlers and logs: a few counters, shared through
//! `critical-section`.

use core::cell::Cell;

use critical_section::Mutex;
use gradwire::engine::Millis;

/// The progress of the main loop; counts wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Turns of the loop: it hangs if this stands still.
    pub turns: u32,
    /// Frames received by both ports.
    pub frames: u32,
    /// When the last turn began, in milliseconds since the start.
    pub now_ms: u32,
}

static PROGRESS: Mutex<Cell<Progress>> = Mutex::new(Cell::new(Progress { turns: 0, frames: 0, now_ms: 0 }));

/// The progress of the main loop so far.
#[must_use]
pub fn read() -> Progress {
    critical_section::with(|cs| PROGRESS.borrow(cs).get())
}

/// Counts one turn of the main loop, which began at `now`, and the frames it received.
pub fn count(frames: usize, now: Millis) {
    critical_section::with(|cs| {
        let progress = PROGRESS.borrow(cs);
        let Progress { turns, frames: before, .. } = progress.get();
        progress.set(Progress {
            turns: turns.wrapping_add(1),
            frames: before.wrapping_add(frames as u32),
            now_ms: now.0 as u32,
        });
    });
}
