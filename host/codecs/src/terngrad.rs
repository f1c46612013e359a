//! `terngrad[:BITS]`: TernGrad, to 2, 4 or 8 bits.

use crate::codec::{Codec, Malformed};
use crate::named::{Args, Named};
use crate::ops::{Random, concat, extract, floor, lost, map, peak, reduce};

/// Steps of equal size from the smallest to the largest value. A value becomes the step below or
/// above it by chance, so that its mean is right; there is no need for feedback.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TernGrad {
    bits: u32,
}

impl TernGrad {
    /// With 2, 4 or 8 bits a value; `None` for any other number.
    #[must_use]
    pub const fn new(bits: u32) -> Option<Self> {
        if matches!(bits, 2 | 4 | 8) { Some(Self { bits }) } else { None }
    }
}

impl Codec for TernGrad {
    fn bound(&self, n: usize) -> usize {
        8 + (n * self.bits as usize).div_ceil(8)
    }

    fn feeds_back(&self) -> bool {
        false
    }

    #[inline(always)]
    fn encode(&self, acc: &mut [f32], _state: &mut [f32], seed: u64, out: &mut [u8]) -> usize {
        let (mut message, random) = (concat(out), Random::new(seed));
        let steps = ((1u32 << self.bits) - 1) as f32;
        let first = acc.first().copied().unwrap_or(0.0);
        let min = reduce(acc, first, |low, value| if value < low { value } else { low }, f32::min);
        let max = reduce(acc, first, |high, value| if value > high { value } else { high }, f32::max);
        let bad = peak(acc).is_nan();
        let (min, gap) = if bad { (f32::NAN, 0.0) } else { (min, max / steps - min / steps) };
        let inverse = if gap < f32::MIN_POSITIVE { 0.0 } else { 1.0 / gap };
        message.f32(min);
        message.f32(gap);
        message.pack_bits(
            self.bits,
            map(acc, |i, value: &mut f32| {
                let (step, code) = floor((*value - min) * inverse + random.unit(i));
                let (step, code) = if step > steps { (steps, steps as i32) } else { (step, code) };
                *value = lost(*value, min + step * gap);
                if bad { 0 } else { code as u8 }
            }),
        );
        message.len()
    }

    #[inline(always)]
    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        let mut src = extract(src);
        src.need(self.bound(sum.len()))?;
        let (min, gap) = (src.f32(), src.f32());
        src.unpack_bits(self.bits, sum, |code, sum| *sum += min + f32::from(code) * gap);
        Ok(src.len())
    }
}

impl Named for TernGrad {
    const NAME: &str = "terngrad";
    const USAGE: &str = "terngrad[:BITS], BITS is 2, 4 or 8";

    fn from_args(args: &Args) -> Option<Self> {
        match args.whole()? {
            (_, 0) => Self::new(2),
            ([bits, ..], 1) => Self::new(bits),
            _ => None,
        }
    }
}
