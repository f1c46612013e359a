//! `3lc:S[:BLOCK]`: 3LC, with one scale or one a block.

use core::iter::zip;
use core::ops::Range;

use crate::codec::{Codec, Malformed};
use crate::named::{Args, Named};
use crate::ops::{Blocks, concat, extract, lost, peak};

/// Of each value -1, 0 or 1 times a scale, which is `multiplier` times a block's largest magnitude; five values to a byte; runs of bytes of
/// zeros are one byte.
///
/// With feedback, held-back values reach half the scale, and the scale grows with them: about 2 gradients at a multiplier of 1, 14 at 1.75.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ThreeLc {
    multiplier: f32,
    blocks: Blocks,
}

/// Values that are coded together: five planes.
const GROUP: usize = 320;
/// Values of a plane, bytes of a group.
const PLANE: usize = 64;
/// What a plane's digit counts in a byte.
const WEIGHTS: [u8; 5] = [81, 27, 9, 3, 1];
/// Five zeros.
const ZEROS: u8 = 121;
/// The first byte for a run of zeros: two bytes of them.
const RUN: u8 = 243;
/// Bytes of zeros in the longest run.
const LONGEST: usize = 14;

impl ThreeLc {
    /// With this multiplier; `None` unless it is at least 1 and below 2.
    #[must_use]
    pub fn new(multiplier: f32, blocks: Blocks) -> Option<Self> {
        (1.0..2.0).contains(&multiplier).then_some(Self { multiplier, blocks })
    }

    /// Calls `part` for the planes of a group of `len` values that begins at value `at` of `n`; a plane is cut where a block ends. A
    /// part's values are given as counted from `at`, and so are its plane, block and first byte.
    fn parts(self, n: usize, at: usize, len: usize, mut part: impl FnMut(Range<usize>, usize, usize, usize)) {
        let (width, block) = (len.div_ceil(5), self.blocks.len(n));
        for plane in 0..5 {
            let (mut from, end) = ((plane * width).min(len), ((plane + 1) * width).min(len));
            while from < end {
                let of = (at + from) / block;
                let until = ((of + 1) * block - at).min(end);
                part(from..until, plane, of, from - plane * width);
                from = until;
            }
        }
    }
}

/// Bytes of `n` values before runs are made.
fn bytes(n: usize) -> usize {
    n / GROUP * PLANE + (n % GROUP).div_ceil(5)
}

/// Writes what a run of so many bytes of zeros becomes.
fn run(mut zeros: usize, out: &mut [u8], len: &mut usize) {
    while zeros > 0 {
        let these = zeros.min(LONGEST);
        out[*len] = if these == 1 { ZEROS } else { RUN + (these - 2) as u8 };
        (zeros, *len) = (zeros - these, *len + 1);
    }
}

/// Adds to each code the digit of its value, -1, 0 or 1, `weight` times; leaves in the value what that lost.
fn quantise(values: &mut [f32], scale: f32, weight: u8, codes: &mut [u8]) {
    // Where all is zero, and the scale too, nothing reaches infinity. Nothing ever reaches NaN.
    let half = if scale == 0.0 { f32::INFINITY } else { scale / 2.0 };
    for (code, value) in zip(codes, values) {
        let (above, below) = (*value >= half, *value <= -half);
        let sent = if above { scale } else { 0.0 } - if below { scale } else { 0.0 };
        *code =
            code.wrapping_add(if above { weight } else { 0 }).wrapping_sub(if below { weight } else { 0 });
        *value = lost(*value, sent);
    }
}

/// The digits of codes, plus 1, plane by plane.
fn digits(mut codes: [u8; PLANE]) -> [[u8; PLANE]; 5] {
    let mut digits = [[0; PLANE]; 5];
    for plane in digits.iter_mut().rev() {
        for (digit, code) in zip(plane, &mut codes) {
            let rest = *code / 3;
            (*digit, *code) = (*code - 3 * rest, rest);
        }
    }
    digits
}

impl Codec for ThreeLc {
    fn bound(&self, n: usize) -> usize {
        4 * self.blocks.count(n) + 4 + bytes(n)
    }

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
        for (at, group) in acc.chunks_mut(GROUP).enumerate() {
            let (count, mut codes) = (group.len(), [ZEROS; PLANE]);
            self.parts(n, at * GROUP, count, |values, plane, block, first| {
                quantise(&mut group[values], scale(block), WEIGHTS[plane], &mut codes[first..]);
            });
            let codes = &codes[..count.div_ceil(5)];
            if codes == [ZEROS; PLANE] {
                zeros += PLANE;
                continue;
            }
            for code in codes {
                if *code == ZEROS {
                    zeros += 1;
                } else {
                    run(core::mem::take(&mut zeros), out, &mut len);
                    out[len] = *code;
                    len += 1;
                }
            }
        }
        run(zeros, out, &mut len);
        length.copy_from_slice(&(len as u32).to_le_bytes());
        header + 4 + len
    }

    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        let n = sum.len();
        let mut src = extract(src);
        src.need(4 * self.blocks.count(n) + 4)?;
        let scales = src.bytes(4 * self.blocks.count(n)).as_chunks().0;
        let len = src.u32() as usize;
        let at = src.len();
        src.need(len)?;
        let coded = src.bytes(len);
        let run = |code: u8| if code < RUN { 1 } else { usize::from(code - RUN) + 2 };
        if coded.iter().map(|code| run(*code)).sum::<usize>() != bytes(n) {
            return Err(Malformed::Field { what: "number of values", at });
        }
        let scale = |block: usize| f32::from_le_bytes(scales[block]);
        let all_finite = (0..scales.len()).all(|block| !scale(block).is_nan());
        let (mut coded, mut zeros) = (coded.iter(), 0);
        for (at, group) in sum.chunks_mut(GROUP).enumerate() {
            let count = group.len().div_ceil(5);
            if zeros >= count && all_finite {
                zeros -= count;
                continue;
            }
            let mut codes = [ZEROS; PLANE];
            for code in &mut codes[..count] {
                if zeros == 0 {
                    let next = *coded.next().unwrap_or(&ZEROS);
                    zeros = run(next);
                    *code = if next < RUN { next } else { ZEROS };
                }
                zeros -= 1;
            }
            let digits = digits(codes);
            self.parts(n, at * GROUP, group.len(), |values, plane, block, first| {
                for (sum, digit) in zip(&mut group[values], &digits[plane][first..]) {
                    *sum += (i32::from(*digit) - 1) as f32 * scale(block);
                }
            });
        }
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
