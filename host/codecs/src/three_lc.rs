//! `3lc:S[:BLOCK]`: 3LC, with one scale or one a block.

use core::iter::zip;
use core::mem::replace;
use core::ops::Range;

use crate::codec::{Codec, Malformed};
use crate::named::{Args, Named};
use crate::ops::{Blocks, concat, extract, lost, peak};

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

/// Values that are coded together: five planes.
const GROUP: usize = 320;
/// Values of a plane, bytes of a group.
const PLANE: usize = 64;
/// The value of a plane's digit in a byte.
const WEIGHTS: [i32; 5] = [81, 27, 9, 3, 1];
/// Five zeros.
const ZEROS: u8 = 121;
/// The first byte for a run of zeros: two bytes of them.
const RUN: u8 = 243;
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

    /// Calls `part` for the planes of a group of `len` values that begins at value `at` of `n`; a
    /// plane is cut where a block ends. A part's values are given as counted from `at`, and so are
    /// its plane, block and first byte.
    #[inline(always)]
    fn parts(self, n: usize, at: usize, len: usize, mut part: impl FnMut(Range<usize>, usize, usize, usize)) {
        let (width, block) = (len.div_ceil(5), self.blocks.len(n));
        let mut of = at / block;
        let mut next = (of + 1) * block - at;
        if len == GROUP && next >= len {
            // Nothing to cut, so nothing to ask for each plane; most groups are such.
            for plane in 0..5 {
                part(plane * PLANE..(plane + 1) * PLANE, plane, of, 0);
            }
            return;
        }
        for plane in 0..5 {
            let (mut from, end) = ((plane * width).min(len), ((plane + 1) * width).min(len));
            while from < end {
                let until = next.min(end);
                part(from..until, plane, of, from - plane * width);
                if until == next {
                    (of, next) = (of + 1, next + block);
                }
                from = until;
            }
        }
    }
}

/// Bytes of `n` values before runs are made.
#[inline(always)]
fn bytes(n: usize) -> usize {
    n / GROUP * PLANE + (n % GROUP).div_ceil(5)
}

/// Adds to each code the digit of its value, -1, 0 or 1, `weight` times; leaves in the value what
/// that lost.
#[inline(always)]
fn quantise(values: &mut [f32], scale: f32, weight: i32, codes: &mut [i32]) {
    // Where all is zero, and the scale too, nothing reaches infinity. Nothing ever reaches NaN.
    let half = if scale == 0.0 { f32::INFINITY } else { scale / 2.0 };
    // NaN with a scale of NaN: then all of the block is sent as NaN, and nothing of it is kept as
    // residual.
    let zero = scale * 0.0;
    each(values, codes, |value, code| {
        let (above, below) = (*value >= half, *value <= -half);
        let sent = if above { scale } else { zero } - if below { scale } else { 0.0 };
        *code += if above { weight } else { 0 } - if below { weight } else { 0 };
        *value = lost(*value, sent);
    });
}

/// Calls `with` for each value and its code. Most parts are whole planes, and a loop of known
/// length is the faster one.
#[inline(always)]
fn each<T>(values: &mut [f32], codes: &mut [T], with: impl Fn(&mut f32, &mut T)) {
    match (values.as_chunks_mut::<PLANE>(), codes.first_chunk_mut::<PLANE>()) {
        (([values], []), Some(codes)) => zip(values, codes).for_each(|(value, code)| with(value, code)),
        _ => zip(values, codes).for_each(|(value, code)| with(value, code)),
    }
}

/// The digits of codes, -1, 0 or 1, plane by plane.
#[inline(always)]
fn digits(mut codes: [u8; PLANE]) -> [[i8; PLANE]; 5] {
    let mut digits = [[0; PLANE]; 5];
    for (plane, weight) in zip(&mut digits, WEIGHTS) {
        let weight = weight as u8;
        for (digit, code) in zip(plane, &mut codes) {
            // A code that is smaller than the weight wraps around to a larger one.
            let once = (*code).min(code.wrapping_sub(weight));
            let twice = once.min(once.wrapping_sub(weight));
            *digit = 1 - i8::from(once == *code) - i8::from(twice == once);
            *code = twice;
        }
    }
    digits
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
        for (at, group) in acc.chunks_mut(GROUP).enumerate() {
            // As wide as values are, so that vectors need not be cut and joined.
            let (count, mut codes) = (group.len(), [i32::from(ZEROS); PLANE]);
            self.parts(n, at * GROUP, count, |values, plane, block, first| {
                quantise(&mut group[values], scale(block), WEIGHTS[plane], &mut codes[first..]);
            });
            for code in &codes.map(|code| code as u8)[..count.div_ceil(5)] {
                // A byte of zeros behind others makes their run longer, up to the longest. Chance
                // decides; so no branch.
                let longer = if zeros == LONGEST { 1 } else { zeros + 1 };
                zeros = if *code == ZEROS { longer } else { 0 };
                len += usize::from(zeros <= 1);
                out[len - 1] = if zeros <= 1 { *code } else { RUN - 2 + zeros };
            }
        }
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
        let scale = |block: usize| f32::from_le_bytes(scales[block]);
        let all_finite = (0..scales.len()).all(|block| scale(block).is_finite());
        // Codes are expanded a plane's worth at a time, since a loop of known length is faster, and
        // a group ahead, since a vector of bytes that were just written one by one has to wait for
        // them.
        let (mut ring, mut filled) = ([[ZEROS; PLANE]; RING], 0);
        let mut coded = coded.chunks(PLANE);
        for (at, group) in sum.chunks_mut(GROUP).enumerate() {
            while filled < bytes(n).min((at + 2) * PLANE) {
                let Some(codes) = coded.next() else { break };
                for code in codes {
                    ring.as_flattened_mut()[filled % (RING * PLANE)] = *code;
                    filled += usize::from(RUNS[usize::from(*code)]);
                }
            }
            let codes = replace(&mut ring[at % RING], [ZEROS; PLANE]);
            let codes = codes.map(|code| if code < RUN { code } else { ZEROS });
            if codes == [ZEROS; PLANE] && all_finite {
                continue;
            }
            let mut digits = digits(codes);
            self.parts(n, at * GROUP, group.len(), |values, plane, block, first| {
                let scale = scale(block);
                let add = |sum: &mut f32, digit: &mut i8| *sum += f32::from(*digit) * scale;
                each(&mut group[values], &mut digits[plane][first..], add);
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
