//! Whether frames leave a socket. A driver may take none any more while the thread behind the
//! socket lives; then frames must not be taken from the kernel's path to leave there.

use std::time::Duration;

/// The time that nothing may leave though frames were handed over, at least.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// So often it is looked at least before that is a stall: a thread that waited for its processor
/// gives the driver no time.
const LOOKS: u32 = 16;
/// After a stall that left no frame behind, whose leaving would tell: how long until frames are
/// taken again.
pub const AGAIN: Duration = Duration::from_secs(30);

/// The progress of a socket's frames.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Frames that the socket was handed when it was looked at last, and the most that had left it;
    /// both counts wrap.
    handed: u32,
    left: u32,
    /// Since when a frame was handed over and none left, and how often that was seen.
    waits: Option<(u64, u32)>,
    /// When it stalled; none if it did not, or frames leave again.
    stalled: Option<u64>,
    stalls: u64,
}

impl Progress {
    /// Of a socket that was handed so many frames, and of which so many left.
    #[must_use]
    pub const fn new(handed: u32, left: u32) -> Self {
        Self { handed, left, waits: None, stalled: None, stalls: 0 }
    }

    /// Takes note of how many frames the socket was handed, and how many left it, at this time in
    /// nanoseconds. Nothing may leave for `patience` until that is a stall.
    pub fn look(&mut self, now: u64, handed: u32, left: u32, patience: Duration) {
        // The kernel says late that it took a frame that it dropped, so the count may go back
        // before it goes on.
        let more = left.wrapping_sub(self.left).cast_signed() > 0;
        if more {
            (self.waits, self.stalled, self.left) = (None, None, left);
        } else if handed != self.handed && self.waits.is_none() {
            // Only a frame that is new begins a wait: one whose end the driver never tells would
            // begin it again and again.
            self.waits = Some((now, 0));
        }
        self.handed = handed;
        if let Some((since, looks)) = &mut self.waits {
            *looks = looks.saturating_add(1);
            if self.stalled.is_none() && over(*since, now, patience) && *looks > LOOKS {
                self.stalled = Some(now);
                self.stalls = self.stalls.wrapping_add(1);
            }
        }
    }

    /// Takes it that frames may leave again, some time after a stall. For a socket in which no
    /// frame waits: none would tell.
    pub fn try_again(&mut self, now: u64) {
        if self.stalled.is_some_and(|since| over(since, now, AGAIN)) {
            (self.waits, self.stalled) = (None, None);
        }
    }

    /// Whether frames were handed over for half of `patience`, and none left.
    #[must_use]
    pub fn is_late(&self, now: u64, patience: Duration) -> bool {
        self.waits.is_some_and(|(since, _)| over(since, now, patience / 2))
    }

    /// Whether nothing leaves.
    #[must_use]
    pub const fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    /// The number of times that it began.
    #[must_use]
    pub const fn stalls(&self) -> u64 {
        self.stalls
    }
}

const fn over(since: u64, now: u64, time: Duration) -> bool {
    now.saturating_sub(since) as u128 >= time.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A socket, and the time.
    struct Driver {
        progress: Progress,
        now: u64,
        handed: u32,
        left: u32,
    }

    impl Driver {
        fn new() -> Self {
            // Both wrap soon.
            let progress = Progress::new(u32::MAX - 1, u32::MAX - 1);
            Self { progress, now: 5 * SECOND, handed: u32::MAX - 1, left: u32::MAX - 1 }
        }

        /// So many milliseconds pass; the thread looks after each.
        fn pass(&mut self, ms: u64) -> bool {
            for _ in 0..ms {
                self.now += 1_000_000;
                self.progress.look(self.now, self.handed, self.left, PATIENCE);
            }
            self.progress.is_stalled()
        }

        fn hand_over(&mut self, frames: u32) {
            self.handed = self.handed.wrapping_add(frames);
        }

        fn send(&mut self, frames: u32) {
            self.left = self.left.wrapping_add(frames);
        }
    }

    #[test]
    fn nothing_that_leaves_for_a_second_is_a_stall_until_something_does() {
        let mut driver = Driver::new();
        assert!(!driver.pass(5_000), "nothing was handed over");
        driver.hand_over(4);
        assert!(!driver.pass(1_000));
        assert!(driver.pass(1));
        assert_eq!(driver.progress.stalls(), 1);
        assert!(driver.pass(100_000));
        driver.send(1);
        assert!(!driver.pass(1));
        // The next is one of its own, from the next frame on.
        assert!(!driver.pass(5_000));
        driver.hand_over(1);
        assert!(!driver.pass(1_000) && driver.pass(1));
        assert_eq!(driver.progress.stalls(), 2);
    }

    #[test]
    fn one_frame_a_second_is_progress() {
        let mut driver = Driver::new();
        driver.hand_over(100);
        for _ in 0..50 {
            driver.hand_over(1);
            assert!(!driver.pass(990));
            driver.send(1);
            assert!(!driver.pass(1));
        }
        assert_eq!(driver.progress.stalls(), 0);
    }

    /// Some drivers lose the end of a frame if their link goes. What comes later leaves, so nothing
    /// stalls.
    #[test]
    fn a_frame_whose_end_is_never_told_is_no_stall() {
        let mut driver = Driver::new();
        driver.hand_over(3);
        assert!(!driver.pass(500));
        driver.send(2);
        assert!(!driver.pass(10_000));
        driver.hand_over(1);
        driver.pass(10);
        driver.send(1);
        assert!(!driver.pass(10_000));
    }

    /// A frame that is dropped counts as one fewer, until the kernel says that it took it from the
    /// ring.
    #[test]
    fn a_frame_that_is_dropped_is_no_progress() {
        let mut driver = Driver::new();
        for _ in 0..40 {
            driver.hand_over(1);
            driver.left = driver.left.wrapping_sub(1);
            driver.pass(15);
            driver.send(1);
            driver.pass(15);
        }
        assert!(driver.progress.is_stalled());
        assert_eq!(driver.progress.stalls(), 1);
    }

    /// It looks again after three seconds: the driver had no time, either.
    #[test]
    fn a_thread_that_did_not_run_sees_no_stall() {
        let mut driver = Driver::new();
        driver.hand_over(1);
        driver.pass(1);
        for _ in 0..LOOKS - 1 {
            driver.now += 3 * SECOND;
            assert!(!driver.pass(1));
        }
        assert!(driver.pass(1));
    }

    #[test]
    fn without_a_frame_that_could_leave_it_is_tried_again_after_a_while() {
        let mut driver = Driver::new();
        driver.hand_over(2);
        assert!(driver.pass(1_001));
        let end = driver.now + AGAIN.as_nanos() as u64;
        driver.progress.try_again(end - 1);
        assert!(driver.progress.is_stalled(), "too early");
        driver.progress.try_again(end);
        assert!(!driver.progress.is_stalled());
        // It stalls again only if a frame is handed over.
        assert!(!driver.pass(5_000));
        driver.hand_over(1);
        assert!(driver.pass(1_001));
    }

    #[test]
    fn a_port_is_late_before_it_is_stalled() {
        let mut driver = Driver::new();
        driver.hand_over(1);
        driver.pass(400);
        assert!(!driver.progress.is_late(driver.now, PATIENCE));
        driver.pass(200);
        assert!(driver.progress.is_late(driver.now, PATIENCE));
    }
}
