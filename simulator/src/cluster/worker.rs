//! A worker: when it needs each parameter, and when it has each gradient.
//!
//! Forward, row by row: row i starts when row i-1 is done and parameter i is there. Then backward,
//! from the last row to the first; gradient i is handed to the mechanism at the end of its row.

use crate::time::Picos;
use crate::workload::{ComputeTimes, Jitter};

/// The next computation of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Forward(u32),
    Backward(u32),
}

/// The meaning of a row's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// A row of the forward pass.
    Forward,
    /// Gradient of `parameter` in `iteration`.
    Gradient { parameter: u32, iteration: u32 },
}

/// A worker's place in its iterations.
pub(crate) struct Worker {
    next: Next,
    iteration: u32,
    busy: bool,
    /// This iteration's compute time over the model's, in 2^-32.
    pace: u64,
    /// Added to the next row.
    delay: Picos,
    /// The number of versions of each parameter that have arrived.
    versions: Vec<u32>,
}

impl Worker {
    pub(crate) fn new(number: u32, rows: usize, jitter: Jitter) -> Self {
        let pace = pace(jitter, number, 0);
        Self { next: Next::Forward(0), iteration: 0, busy: false, pace, delay: 0, versions: vec![0; rows] }
    }

    /// Makes the next row take `delay` longer.
    pub(crate) fn delay(&mut self, delay: Picos) {
        self.delay = delay;
    }

    /// One more version of `parameter` is there.
    pub(crate) fn arrived(&mut self, parameter: u32) {
        self.versions[parameter as usize] += 1;
    }

    /// The iteration that the next row begins, if it is the first of one.
    pub(crate) fn begins(&self) -> Option<u32> {
        (self.next == Next::Forward(0)).then_some(self.iteration)
    }

    /// If the worker is idle and can compute its next row, marks it busy and returns the row's
    /// time.
    ///
    /// An iteration's forward pass may use parameters that miss the last `staleness` updates.
    pub(crate) fn start(&mut self, compute_times: &ComputeTimes, staleness: u32) -> Option<Picos> {
        if self.busy {
            return None;
        }
        let time = match self.next {
            Next::Forward(row) => {
                if self.versions[row as usize] + staleness <= self.iteration
                    || self.versions[row as usize] == 0
                {
                    return None;
                }
                compute_times.forward[row as usize]
            }
            Next::Backward(row) => compute_times.backward[row as usize],
        };
        self.busy = true;
        let time = ((u128::from(time) * u128::from(self.pace)) >> 32) as Picos;
        Some(time + core::mem::take(&mut self.delay))
    }

    /// The row that was started is done.
    pub(crate) fn finish(&mut self, number: u32, jitter: Jitter) -> Done {
        self.busy = false;
        match self.next {
            Next::Forward(row) => {
                let last = row as usize + 1 == self.versions.len();
                self.next = if last { Next::Backward(row) } else { Next::Forward(row + 1) };
                Done::Forward
            }
            Next::Backward(row) => {
                let done = Done::Gradient { parameter: row, iteration: self.iteration };
                if row > 0 {
                    self.next = Next::Backward(row - 1);
                } else {
                    self.next = Next::Forward(0);
                    self.iteration += 1;
                    self.pace = pace(jitter, number, self.iteration);
                }
                done
            }
        }
    }
}

fn pace(jitter: Jitter, worker: u32, iteration: u32) -> u64 {
    let draw = splitmix64(jitter.seed ^ (u64::from(worker) << 32 | u64::from(iteration))) >> 32;
    (1 << 32) + (jitter.amount * draw as f64) as u64
}

/// One step of SplitMix64 (Steele et al., OOPSLA 2014): a well-mixed function of its input.
fn splitmix64(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
