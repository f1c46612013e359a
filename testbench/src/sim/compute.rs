//! Compute: when a worker needs each parameter, and when it has each gradient.
//!
//! Forward, row by row: row i starts when row i-1 is done and parameter i is there. Then backward, from the
//! last row to the first; gradient i is handed to the mechanism at the end of its row.

use super::model::Model;
use super::time::{Picos, picos};

/// Seed and amount of the variation of compute time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Jitter {
    /// A pass takes 1 to 1 + `amount` times its time, uniformly, drawn for each worker and iteration.
    pub amount: f64,
    /// The same seed gives the same run.
    pub seed: u64,
}

/// Compute time of each row, in picoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Forward time of each row.
    pub forward: Vec<Picos>,
    /// Backward time of each row.
    pub backward: Vec<Picos>,
}

impl Profile {
    /// Divides a model's compute times among its rows in proportion to their FLOPs, or evenly if no row has
    /// any. No time is lost: the rows' times add up to the model's.
    ///
    /// Backward, the last row with FLOPs and the rows after it cost nothing, as the published traces begin at
    /// the first gradient (Chang et al., Table 3: 'does not include the first layer'). A row that alone has
    /// FLOPs keeps all of the time.
    #[must_use]
    pub fn of(model: &Model) -> Self {
        let mut weights: Vec<u64> =
            model.parameters.iter().map(|parameter| parameter.forward_flops).collect();
        let with_flops = weights.iter().filter(|&&flops| flops > 0).count();
        if with_flops == 0 {
            weights.fill(1);
        }
        let forward = shares(&weights, picos(model.forward));
        if with_flops > 1
            && let Some(last) = weights.iter_mut().rfind(|flops| **flops > 0)
        {
            *last = 0;
        }
        Self { forward, backward: shares(&weights, picos(model.backward)) }
    }

    /// The same on a processor `speed` times as fast.
    #[must_use]
    pub fn faster(&self, speed: f64) -> Self {
        let faster =
            |times: &[Picos]| times.iter().map(|&time| (time as f64 / speed).round() as Picos).collect();
        Self { forward: faster(&self.forward), backward: faster(&self.backward) }
    }

    /// Time of a whole forward and backward pass.
    #[must_use]
    pub fn total(&self) -> Picos {
        self.forward.iter().chain(&self.backward).sum()
    }
}

/// Splits `total` in proportion to `weights`, exactly: the parts sum to `total`. Some weight is positive.
fn shares(weights: &[u64], total: Picos) -> Vec<Picos> {
    let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    let mut done = 0_u128;
    let mut before = 0;
    let share = |&weight: &u64| {
        done += u128::from(weight);
        // At most `total`, which is a `u64`.
        let until = (u128::from(total) * done).checked_div(sum).unwrap_or(0) as Picos;
        until - core::mem::replace(&mut before, until)
    };
    weights.iter().map(share).collect()
}

/// What a worker computes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Forward(u32),
    Backward(u32),
}

/// What the end of a row means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// A row of the forward pass.
    Forward,
    /// Gradient of `parameter` in `iteration`.
    Gradient { parameter: u32, iteration: u32 },
}

/// A worker's place in its iterations.
pub(super) struct Worker {
    next: Next,
    iteration: u32,
    busy: bool,
    /// This iteration's compute time over the profile's, in 2^-32.
    pace: u64,
    /// Added to the next row.
    delay: Picos,
    /// How many versions of each parameter have arrived.
    versions: Vec<u32>,
}

impl Worker {
    pub(super) fn new(number: u32, rows: usize, jitter: Jitter) -> Self {
        let pace = pace(jitter, number, 0);
        Self { next: Next::Forward(0), iteration: 0, busy: false, pace, delay: 0, versions: vec![0; rows] }
    }

    /// Makes the next row take `delay` longer.
    pub(super) fn delay(&mut self, delay: Picos) {
        self.delay = delay;
    }

    /// One more version of `parameter` is there.
    pub(super) fn arrived(&mut self, parameter: u32) {
        self.versions[parameter as usize] += 1;
    }

    /// If the worker is idle and can compute its next row, marks it busy and returns the row's time.
    ///
    /// An iteration's forward pass may use parameters that miss the last `staleness` updates.
    pub(super) fn start(&mut self, profile: &Profile, staleness: u32, iterations: u32) -> Option<Picos> {
        if self.busy || self.iteration == iterations {
            return None;
        }
        let time = match self.next {
            Next::Forward(row) => {
                if self.versions[row as usize] + staleness <= self.iteration
                    || self.versions[row as usize] == 0
                {
                    return None;
                }
                profile.forward[row as usize]
            }
            Next::Backward(row) => profile.backward[row as usize],
        };
        self.busy = true;
        let time = ((u128::from(time) * u128::from(self.pace)) >> 32) as Picos;
        Some(time + core::mem::take(&mut self.delay))
    }

    /// The row that was started is done.
    pub(super) fn finish(&mut self, number: u32, jitter: Jitter) -> Done {
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
