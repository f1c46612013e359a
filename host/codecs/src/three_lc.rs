//! `3lc:S[:BLOCK]`: 3LC, with one scale or one a block.

use core::mem::replace;

use crate::codec::{Codec, Malformed};
use crate::named::{Args, Named};
use crate::ops::{Blocks, concat, extract, lost, peak};
use crate::quartic::{self, CODES, PLANE, ZEROS, bytes};

/// Of each value -1, 0 or 1 times a scale, which is `multiplier` times a block's largest magnitude;
/// five values to a byte; runs of bytes of zeros are one byte.
///
/// With feedback, residuals reach half the scale, and the scale grows with them: about 2 gradients
/// at a multiplier of 1, 14 at 1.75.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ThreeLc {
    multiplier: f32,
    blocks: Blocks,
}

/// The first byte for a run of zeros: two bytes of them.
const RUN: u8 = CODES;
/// Bytes of zeros in the longest run.
const LONGEST: u8 = 14;
/// Groups in the ring that `merge` expands codes into: a plane's worth of codes for the longest
/// runs fills 14, and 2 may be waiting.
const RING: usize = 16;

impl ThreeLc {
    /// With this multiplier; `None` unless it is at least 1 and below 2.
    #[must_use]
    pub fn new(multiplier: f32, blocks: Blocks) -> Option<Self> {
        (1.0..2.0).contains(&multiplier).then_some(Self { multiplier, blocks })
    }
}

/// The digit of a value; leaves in the value what that lost.
#[inline(always)]
fn digit(value: &mut f32, scale: f32) -> i32 {
    // Where all is zero, and the scale too, nothing reaches infinity. Nothing ever reaches NaN.
    let half = if scale == 0.0 { f32::INFINITY } else { scale / 2.0 };
    // NaN with a scale of NaN: then all of the block is sent as NaN, and nothing of it is kept as
    // residual.
    let zero = scale * 0.0;
    let (above, below) = (*value >= half, *value <= -half);
    let sent = if above { scale } else { zero } - if below { scale } else { 0.0 };
    *value = lost(*value, sent);
    i32::from(above) - i32::from(below)
}

/// The number of bytes that a code stands for.
const fn run(code: u8) -> u8 {
    if code < RUN { 1 } else { code - RUN + 2 }
}

/// `run` of every code: a look-up is faster if codes come one by one.
const RUNS: [u8; 256] = {
    let (mut runs, mut code) = ([0; 256], 0);
    while code < 256 {
        runs[code] = run(code as u8);
        code += 1;
    }
    runs
};

impl Codec for ThreeLc {
    fn bound(&self, n: usize) -> usize {
        4 * self.blocks.count(n) + 4 + bytes(n)
    }

    #[inline(always)]
    fn encode(&self, acc: &mut [f32], _state: &mut [f32], _seed: u64, out: &mut [u8]) -> usize {
        let n = acc.len();
        let mut message = concat(out);
        for block in acc.chunks(self.blocks.len(n)) {
            let scale = self.multiplier * peak(block);
            message.f32(if scale > f32::MAX { f32::MAX } else { scale });
        }
        let header = message.len();
        let (scales, out) = out.split_at_mut(header);
        let (length, out) = out.split_at_mut(4);
        let scale = |block: usize| f32::from_le_bytes(scales.as_chunks().0[block]);
        let (mut len, mut zeros) = (0, 0);
        quartic::encode(
            acc,
            self.blocks,
            scale,
            |_, value, scale| digit(value, scale),
            |codes| {
                for code in codes {
                    // A byte of zeros behind others makes their run longer, up to the longest.
                    // Chance decides; so no branch.
                    let longer = if zeros == LONGEST { 1 } else { zeros + 1 };
                    zeros = if *code == ZEROS { longer } else { 0 };
                    len += usize::from(zeros <= 1);
                    out[len - 1] = if zeros <= 1 { *code } else { RUN - 2 + zeros };
                }
            },
        );
        length.copy_from_slice(&(len as u32).to_le_bytes());
        header + 4 + len
    }

    #[inline(always)]
    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        let n = sum.len();
        let mut src = extract(src);
        src.need(4 * self.blocks.count(n) + 4)?;
        let scales = src.bytes(4 * self.blocks.count(n)).as_chunks().0;
        let len = src.u32() as usize;
        let at = src.len();
        src.need(len)?;
        let coded = src.bytes(len);
        // A short sum has more lanes, and fits.
        let runs = |codes: &[u8]| codes.iter().map(|code| u16::from(run(*code))).sum::<u16>();
        if coded.chunks(4096).map(|codes| usize::from(runs(codes))).sum::<usize>() != bytes(n) {
            return Err(Malformed::Field { what: "number of values", at });
        }
        // Codes are expanded a plane's worth at a time, since a loop of known length is faster, and
        // a group ahead, since a vector of bytes that were just written one by one has to wait for
        // them.
        let (mut ring, mut filled) = ([[ZEROS; PLANE]; RING], 0);
        let mut coded = coded.chunks(PLANE);
        quartic::merge(sum, self.blocks, scales, |at| {
            while filled < bytes(n).min((at + 2) * PLANE) {
                let Some(codes) = coded.next() else { break };
                for code in codes {
                    ring.as_flattened_mut()[filled % (RING * PLANE)] = *code;
                    filled += usize::from(RUNS[usize::from(*code)]);
                }
            }
            let codes = replace(&mut ring[at % RING], [ZEROS; PLANE]);
            codes.map(|code| if code < RUN { code } else { ZEROS })
        });
        Ok(src.len())
    }
}

impl Named for ThreeLc {
    const NAME: &str = "3lc";
    const USAGE: &str = "3lc:S[:BLOCK], S at least 1 and below 2, BLOCK values share a scale, all without it";

    fn from_args(args: &Args) -> Option<Self> {
        Self::new(*args.numbers().first()? as f32, args.blocks(1)?)
    }
}
