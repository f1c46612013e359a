//! Compute time: of each row, and how it varies.

use super::model::Model;
use crate::time::{Picos, picos};

/// Seed and amount of the variation of compute time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Jitter {
    /// A pass takes 1 to 1 + `amount` times its time, uniformly, drawn for each worker and
    /// iteration.
    pub amount: f64,
    /// The same seed gives the same run.
    pub seed: u64,
}

/// Compute time of each row, in picoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputeTimes {
    /// Forward time of each row.
    pub forward: Vec<Picos>,
    /// Backward time of each row.
    pub backward: Vec<Picos>,
}

impl ComputeTimes {
    /// Divides a model's compute times among its rows in proportion to their FLOPs, or evenly if no
    /// row has any. No time is lost: the rows' times add up to the model's.
    ///
    /// Backward, the last row with FLOPs and the rows after it cost nothing, as the published
    /// traces begin at the first gradient (Chang et al., Table 3: 'does not include the first
    /// layer'). A row that alone has FLOPs keeps all of the time.
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

    /// Number of rows; a pass has as many times as the other.
    pub(crate) fn rows(&self) -> usize {
        debug_assert_eq!(self.forward.len(), self.backward.len());
        self.forward.len()
    }

    /// Time of a whole forward and backward pass.
    #[must_use]
    pub fn total(&self) -> Picos {
        self.forward.iter().chain(&self.backward).sum()
    }
}

/// Splits `total` in proportion to `weights`, exactly: the parts sum to `total`. Some weight is
/// positive.
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
