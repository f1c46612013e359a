//! `ternary[:BLOCK]`: three values by chance, the rival of 3LC that its authors made of TernGrad.

use crate::codec::{Codec, Malformed};
use crate::named::{Args, Named};
use crate::ops::{Blocks, Random, concat, extract, lost, peak};
use crate::quartic::{self, CODES, PLANE, ZEROS, bytes};

/// Of each value -1, 0 or 1 times a block's largest magnitude, by chance, so that its mean is
/// right; five values to a byte.
///
/// There is no feedback: residuals of values that chance rounded make training diverge (Lim,
/// Andersen, Kaminsky, section 3.1; docs/papers.md has it measured).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ternary {
    /// What share a scale.
    pub blocks: Blocks,
}

impl Codec for Ternary {
    fn bound(&self, n: usize) -> usize {
        4 * self.blocks.count(n) + bytes(n)
    }

    fn feeds_back(&self) -> bool {
        false
    }

    #[inline(always)]
    fn encode(&self, acc: &mut [f32], _state: &mut [f32], seed: u64, out: &mut [u8]) -> usize {
        let (n, random) = (acc.len(), Random::new(seed));
        let mut message = concat(out);
        for block in acc.chunks(self.blocks.len(n)) {
            message.f32(peak(block));
        }
        let header = message.len();
        let (scales, mut out) = out.split_at_mut(header);
        let scale = |block: usize| f32::from_le_bytes(scales.as_chunks().0[block]);
        let digit = |i, value: &mut f32, scale: f32| {
            let digit =
                if value.abs() > scale * random.unit(i) { i32::from(*value > 0.0) * 2 - 1 } else { 0 };
            *value = lost(*value, digit as f32 * scale);
            digit
        };
        quartic::encode(acc, self.blocks, scale, digit, |codes| {
            let (group, rest) = core::mem::take(&mut out).split_at_mut(codes.len());
            group.copy_from_slice(codes);
            out = rest;
        });
        header + bytes(n)
    }

    #[inline(always)]
    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        let n = sum.len();
        let mut src = extract(src);
        src.need(self.bound(n))?;
        let scales = src.bytes(4 * self.blocks.count(n)).as_chunks().0;
        let at = src.len();
        let codes = src.bytes(bytes(n));
        if codes.iter().any(|code| *code >= CODES) {
            return Err(Malformed::Field { what: "code of five digits", at });
        }
        let mut groups = codes.chunks(PLANE);
        quartic::merge(sum, self.blocks, scales, |_| {
            let mut group = [ZEROS; PLANE];
            let codes = groups.next().unwrap_or_default();
            group[..codes.len()].copy_from_slice(codes);
            group
        });
        Ok(src.len())
    }
}

impl Named for Ternary {
    const NAME: &str = "ternary";
    const USAGE: &str = "ternary[:BLOCK], BLOCK values share a scale, all without it";

    fn from_args(args: &Args) -> Option<Self> {
        Some(Self { blocks: args.blocks(0)? })
    }
}
