//! `onebit[:BLOCK]`: 1-bit SGD, whole or by blocks.

use crate::codec::{Codec, Malformed};
use crate::named::{Args, Named};
use crate::ops::{Blocks, concat, extract, lost, map, total};

/// Of each value its sign. A block's negative values become their mean, and so do the others.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OneBit {
    /// Which values share their means.
    pub blocks: Blocks,
}

impl Codec for OneBit {
    fn bound(&self, n: usize) -> usize {
        self.blocks.bytes(n, |len| 8 + len.div_ceil(8))
    }

    #[inline(always)]
    fn encode(&self, acc: &mut [f32], _state: &mut [f32], _seed: u64, out: &mut [u8]) -> usize {
        let mut message = concat(out);
        for block in acc.chunks_mut(self.blocks.len(acc.len())) {
            let above = total(block, |value| f32::from(u8::from(value >= 0.0)));
            let high = total(block, |value| if value >= 0.0 { value } else { 0.0 }) / above.max(1.0);
            let low = total(block, |value| if value >= 0.0 { 0.0 } else { value });
            let (high, low) = (high as f32, (low / (block.len() as f64 - above).max(1.0)) as f32);
            message.f32(low);
            message.f32(high);
            message.pack::<1>(map(block, |_, value| {
                let positive = *value >= 0.0;
                *value = lost(*value, if positive { high } else { low });
                positive.into()
            }));
        }
        message.len()
    }

    #[inline(always)]
    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        let mut src = extract(src);
        src.need(self.bound(sum.len()))?;
        for block in sum.chunks_mut(self.blocks.len(sum.len())) {
            let (low, high) = (src.f32(), src.f32());
            src.unpack::<1>(block, |code, sum| *sum += if code == 1 { high } else { low });
        }
        Ok(src.len())
    }
}

impl Named for OneBit {
    const NAME: &str = "onebit";
    const USAGE: &str = "onebit[:BLOCK], BLOCK values share two means, all without it";

    fn from_args(args: &Args) -> Option<Self> {
        Some(Self { blocks: args.blocks(0)? })
    }
}
