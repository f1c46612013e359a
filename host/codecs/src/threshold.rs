//! `tbq:T`: threshold binary quantisation (Strom).

use crate::codec::{Codec, Malformed};
use crate::named::{Args, Named};
use crate::ops::{concat, extract, lost, map};

/// A value of at least the threshold becomes the threshold, one of at most minus the threshold
/// becomes that, and all others are kept as residual.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Threshold {
    threshold: f32,
}

impl Threshold {
    /// With this threshold; `None` unless it is a normal number above 0.
    #[must_use]
    pub fn new(threshold: f32) -> Option<Self> {
        (threshold.is_normal() && threshold > 0.0).then_some(Self { threshold })
    }
}

impl Codec for Threshold {
    fn bound(&self, n: usize) -> usize {
        n.div_ceil(4)
    }

    #[inline(always)]
    fn encode(&self, acc: &mut [f32], _state: &mut [f32], _seed: u64, out: &mut [u8]) -> usize {
        let mut message = concat(out);
        message.pack::<2>(map(acc, |_, value| {
            let (above, below) = (*value >= self.threshold, *value <= -self.threshold);
            let sent = if above { self.threshold } else { 0.0 } - if below { self.threshold } else { 0.0 };
            let code = if value.is_finite() { u8::from(above) + 2 * u8::from(below) } else { 3 };
            *value = lost(*value, sent);
            code
        }));
        message.len()
    }

    #[inline(always)]
    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        let mut src = extract(src);
        src.need(self.bound(sum.len()))?;
        // Not a table of four, which has no vector instruction.
        src.unpack::<2>(sum, |code, sum| {
            let whole =
                if code == 1 { self.threshold } else { 0.0 } - if code == 2 { self.threshold } else { 0.0 };
            *sum += if code == 3 { f32::NAN } else { whole };
        });
        Ok(src.len())
    }
}

impl Named for Threshold {
    const NAME: &str = "tbq";
    const USAGE: &str = "tbq:T, values of at least T become T; T is above 0";

    fn from_args(args: &Args) -> Option<Self> {
        match args.numbers() {
            [threshold] => Self::new(*threshold as f32),
            _ => None,
        }
    }
}
