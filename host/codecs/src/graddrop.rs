//! `graddrop:P`: GradDrop.

use crate::codec::{Codec, Malformed};
use crate::named::{Args, Named};
use crate::ops::{Place, Random, concat, extract, share, sort, sparse_len, worth};

/// GradDrop: drops `percent` of the values, those below a threshold that a sample of 1,024 values
/// gives; at most twice as many as that leaves are sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GradDrop {
    percent: f64,
}

/// Values of a sample.
const SAMPLE: usize = 1024;

impl GradDrop {
    /// Drops `percent` of the values: at least 50 and below 100.
    #[must_use]
    pub fn new(percent: f64) -> Option<Self> {
        (50.0..100.0).contains(&percent).then_some(Self { percent })
    }

    /// The most of `n` values that are sent.
    fn most(self, n: usize) -> usize {
        (2 * share(n, 100.0 - self.percent)).min(n)
    }
}

impl Codec for GradDrop {
    fn bound(&self, n: usize) -> usize {
        sparse_len(n, self.most(n))
    }

    #[inline(always)]
    fn encode(&self, acc: &mut [f32], _state: &mut [f32], seed: u64, out: &mut [u8]) -> usize {
        let (n, random) = (acc.len(), Random::new(seed));
        let mut sample = [0.0; SAMPLE];
        let sample = &mut sample[..n.min(SAMPLE)];
        for (i, value) in sample.iter_mut().enumerate() {
            *value = acc[if n <= SAMPLE { i } else { random.below(n, i) }];
        }
        let place = sort(sample, share(sample.len(), 100.0 - self.percent).saturating_sub(1));
        let place = worth(acc, Place { larger: 0, ..place });
        let mut message = concat(out);
        message.sparse(acc, place, self.most(n), |_| ());
        message.len()
    }

    #[inline(always)]
    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        let (most, mut src) = (self.most(sum.len()), extract(src));
        src.sparse(sum, most)?;
        Ok(src.len())
    }
}

impl Named for GradDrop {
    const NAME: &str = "graddrop";
    const USAGE: &str = "graddrop:P, P percent of the values are dropped: at least 50 and below 100";

    fn from_args(args: &Args) -> Option<Self> {
        match *args.numbers() {
            [percent] => Self::new(percent),
            _ => None,
        }
    }
}
