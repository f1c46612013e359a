//! `q4[:BLOCK]`: quantisation to 4 bits, whole or by blocks.

use core::iter::zip;

use crate::codec::{Codec, Malformed};
use crate::named::{Args, Named};
use crate::ops::{Blocks, concat, extract, peak};
use crate::scale::Scale;

/// A block's largest magnitude is 7; each value becomes the nearest of the 15 whole numbers around
/// 0. A byte has one value of the block's first half and one of its second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FourBits {
    /// Which values share a scale.
    pub blocks: Blocks,
}

impl Codec for FourBits {
    fn bound(&self, n: usize) -> usize {
        self.blocks.bytes(n, |len| 4 + len.div_ceil(2))
    }

    #[inline(always)]
    fn encode(&self, acc: &mut [f32], _state: &mut [f32], _seed: u64, out: &mut [u8]) -> usize {
        let mut message = concat(out);
        for block in acc.chunks_mut(self.blocks.len(acc.len())) {
            let scale = Scale::new(peak(block), 7.0);
            message.f32(scale.value);
            let bytes = message.bytes(block.len().div_ceil(2));
            let (low, high) = block.split_at_mut(bytes.len());
            for (byte, value) in zip(&mut *bytes, low) {
                *byte = scale.code(value) & 15;
            }
            // One value fewer if their number is odd.
            for (byte, value) in zip(bytes, high) {
                *byte |= scale.code(value) << 4;
            }
        }
        message.len()
    }

    #[inline(always)]
    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        let mut src = extract(src);
        src.need(self.bound(sum.len()))?;
        for block in sum.chunks_mut(self.blocks.len(sum.len())) {
            let scale = src.f32();
            let bytes = src.bytes(block.len().div_ceil(2));
            let (low, high) = block.split_at_mut(bytes.len());
            for (byte, sum) in zip(bytes, low) {
                *sum += high_half(byte << 4) * scale;
            }
            for (byte, sum) in zip(bytes, high) {
                *sum += high_half(*byte) * scale;
            }
        }
        Ok(src.len())
    }
}

/// The number in two's complement that a byte's upper half has.
#[inline(always)]
fn high_half(byte: u8) -> f32 {
    f32::from(byte as i8 >> 4)
}

impl Named for FourBits {
    const NAME: &str = "q4";
    const USAGE: &str = "q4[:BLOCK], BLOCK values share a scale, all without it";

    fn from_args(args: &Args) -> Option<Self> {
        Some(Self { blocks: args.blocks(0)? })
    }
}
