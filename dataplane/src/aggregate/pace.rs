//! When a worker asks, and how many chunks it has under way.

use crate::engine::Millis;

/// An aggregator that has not answered for so long is given up.
pub const SILENT_MS: u64 = 200;
/// Before the first measurement.
const FIRST_MS: u64 = 50;
/// No result is asked after earlier: a tight timer asks in vain.
const LEAST_MS: u64 = 10;
/// Nor later: several questions fit into the time after which the aggregator counts as silent.
const MOST_MS: u64 = 50;

/// The timer of RFC 6298, in milliseconds, and the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Smoothed time from the last packet of a contribution to the result, times 8; its variation,
    /// times 4.
    smooth: Option<(u64, u64)>,
    /// Chunks that may be under way, and the most that may ever be.
    window: u32,
    most: u32,
    /// Results since the window last grew.
    results: u32,
    shrunk: Option<Millis>,
}

impl Pace {
    pub(super) const fn new(most: u32) -> Self {
        Self { smooth: None, window: most, most, results: 0, shrunk: None }
    }

    /// Chunks that may be under way.
    pub(super) const fn window(&self) -> u32 {
        self.window
    }

    /// The time to wait for a result before asking the first time.
    pub(super) fn timeout(&self) -> u64 {
        let Some((smooth, variation)) = self.smooth else { return FIRST_MS };
        (smooth / 8 + variation.max(1)).clamp(LEAST_MS, MOST_MS)
    }

    /// The time to wait before asking once more, after `waited`.
    pub(super) fn backed_off(waited: u64) -> u64 {
        (2 * waited).clamp(LEAST_MS, MOST_MS)
    }

    /// A result came. `sample` is how long it took, unless the worker asked after it, since it may
    /// then answer either (Karn's algorithm).
    pub(super) fn result(&mut self, sample: Option<u64>) {
        if let Some(sample) = sample {
            // RFC 6298 §2, with its factors 1/8 and 1/4. What a straggler makes of it, the clamp
            // bounds.
            let sample = sample.min(60_000);
            self.smooth = Some(match self.smooth {
                None => (8 * sample, 2 * sample),
                Some((smooth, variation)) => {
                    let off = (smooth / 8).abs_diff(sample);
                    (smooth - smooth / 8 + sample, variation - variation / 4 + off)
                }
            });
        }
        self.results += 1;
        if self.results >= self.window {
            (self.results, self.window) = (0, (self.window + 1).min(self.most));
        }
    }

    /// A packet was lost: queues on the way are full. The window shrinks once for all losses of a
    /// window.
    pub(super) fn lost(&mut self, now: Millis) {
        if self.shrunk.is_none_or(|shrunk| now.since(shrunk) >= self.timeout()) {
            self.shrunk = Some(now);
            (self.results, self.window) = (0, (self.window / 2).max(1));
        }
    }
}
