//! `dgc:P[:MOMENTUM]`: deep gradient compression.

use core::iter::zip;

use crate::codec::{Codec, Malformed};
use crate::named::{Args, Named};
use crate::ops::{concat, extract, share, sort, sparse_len, worth};

/// Deep gradient compression: the `percent` largest of the values as they are; all others are kept
/// as residual.
///
/// With a momentum it sends velocities in place of gradients (momentum correction), and where a
/// value was sent, its velocity starts again from zero (factor masking). The optimizer then has no
/// momentum of its own.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Dgc {
    percent: f64,
    momentum: f32,
}

impl Dgc {
    /// Sends `percent` of the values, above 0 and at most 100. The momentum is at least 0 and below
    /// 1; 0 is none, and needs no state.
    #[must_use]
    pub fn new(percent: f64, momentum: f32) -> Option<Self> {
        let good = percent > 0.0 && percent <= 100.0 && (0.0..1.0).contains(&momentum);
        good.then_some(Self { percent, momentum })
    }
}

impl Codec for Dgc {
    fn bound(&self, n: usize) -> usize {
        sparse_len(n, share(n, self.percent))
    }

    fn state_len(&self, n: usize) -> usize {
        if self.momentum == 0.0 { 0 } else { n }
    }

    fn momentum(&self) -> f32 {
        self.momentum
    }

    #[inline(always)]
    fn give(&self, gradient: &[f32], acc: &mut [f32], state: &mut [f32]) {
        assert_eq!(gradient.len(), acc.len(), "a gradient has as many values as the residual");
        if state.is_empty() {
            return zip(acc, gradient).for_each(|(residual, new)| *residual += new);
        }
        for (residual, (velocity, new)) in zip(acc, zip(state, gradient)) {
            *velocity = self.momentum * *velocity + new;
            *residual += *velocity;
        }
    }

    #[inline(always)]
    fn encode(&self, acc: &mut [f32], state: &mut [f32], _seed: u64, out: &mut [u8]) -> usize {
        let (most, mut message) = (share(acc.len(), self.percent), concat(out));
        let place = worth(acc, sort(acc, most.saturating_sub(1)));
        message.sparse(acc, place, most, |index| {
            if let Some(velocity) = state.get_mut(index) {
                *velocity = 0.0;
            }
        });
        message.len()
    }

    #[inline(always)]
    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        let (most, mut src) = (share(sum.len(), self.percent), extract(src));
        src.sparse(sum, most)?;
        Ok(src.len())
    }
}

impl Named for Dgc {
    const NAME: &str = "dgc";
    const USAGE: &str =
        "dgc:P[:MOMENTUM], P percent of the values are sent; MOMENTUM is below 1, 0 without it";

    fn from_args(args: &Args) -> Option<Self> {
        match *args.numbers() {
            [percent] => Self::new(percent, 0.0),
            [percent, momentum] => Self::new(percent, momentum as f32),
            _ => None,
        }
    }
}
