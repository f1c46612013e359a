//! `q8[:BLOCK]`: quantisation to 8 bits (Pipe-SGD), whole or by blocks.

use crate::codec::{Codec, Malformed};
use crate::named::{Args, Named};
use crate::ops::{Blocks, concat, extract, map, peak};
use crate::scale::Scale;

/// A block's largest magnitude is 127; each value becomes the nearest of the 255 whole numbers
/// around 0.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EightBits {
    /// Which values share a scale.
    pub blocks: Blocks,
}

impl Codec for EightBits {
    fn bound(&self, n: usize) -> usize {
        self.blocks.bytes(n, |len| 4 + len)
    }

    #[inline(always)]
    fn encode(&self, acc: &mut [f32], _state: &mut [f32], _seed: u64, out: &mut [u8]) -> usize {
        let mut message = concat(out);
        for block in acc.chunks_mut(self.blocks.len(acc.len())) {
            let scale = Scale::new(peak(block), 127.0);
            message.f32(scale.value);
            message.pack::<8>(map(block, |_, value| scale.code(value)));
        }
        message.len()
    }

    #[inline(always)]
    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        let mut src = extract(src);
        src.need(self.bound(sum.len()))?;
        for block in sum.chunks_mut(self.blocks.len(sum.len())) {
            let scale = src.f32();
            src.unpack::<8>(block, |code, sum| *sum += f32::from(code as i8) * scale);
        }
        Ok(src.len())
    }
}

impl Named for EightBits {
    const NAME: &str = "q8";
    const USAGE: &str = "q8[:BLOCK], BLOCK values share a scale, all without it";

    fn from_args(args: &Args) -> Option<Self> {
        Some(Self { blocks: args.blocks(0)? })
    }
}
