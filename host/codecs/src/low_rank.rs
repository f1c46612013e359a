//! `low-rank:R[:COLS]`: PowerSGD's iteration, with factors of 8 bits.

use core::iter::zip;
use core::num::NonZeroU32;

use crate::codec::{Codec, Malformed};
use crate::eight_bits::EightBits;
use crate::factors::{MAX_RANK, Plain, Shape};
use crate::named::{Args, Named};
use crate::ops::{Blocks, extract, peak};

/// A tensor as a matrix of `cols` columns, and that as a product of two thin factors.
///
/// The state is the right factor, where the next iteration starts, and room for the left one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LowRank {
    rank: u32,
    cols: Option<u32>,
}

impl LowRank {
    /// Of rank 1 to 32. Without `cols`, the matrix is as square as can be; best are the columns
    /// that the tensor has.
    #[must_use]
    pub fn new(rank: u32, cols: Option<u32>) -> Option<Self> {
        let good = matches!(rank, 1..=MAX) && cols != Some(0);
        good.then_some(Self { rank, cols })
    }

    fn matrix(self, n: usize) -> Shape {
        let root = n.isqrt();
        let square = root + usize::from(root * root < n);
        let cols = self.cols.map_or(square, |cols| n.min(cols as usize)).max(1);
        let rows = n.div_ceil(cols);
        Shape { rows, cols, rank: (self.rank as usize).min(rows).min(cols) }
    }
}

const MAX: u32 = MAX_RANK as u32;
/// The coding of factors.
const FACTOR: EightBits = EightBits { blocks: Blocks::of(NonZeroU32::new(256).unwrap()) };

/// Sends a factor, and leaves in it what arrives.
#[inline(always)]
fn send(factor: &mut [f32], out: &mut [u8]) -> usize {
    let len = FACTOR.encode(factor, &mut [], 0, out);
    factor.fill(0.0);
    FACTOR.merge(&out[..len], factor).expect("just encoded")
}

/// The value at `index` of a factor that was sent.
#[inline(always)]
fn value(sent: &[u8], index: usize) -> f32 {
    let block = &sent[index / 256 * (4 + 256)..];
    let scale = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    f32::from(block[4 + index % 256] as i8) * scale
}

impl Codec for LowRank {
    fn bound(&self, n: usize) -> usize {
        let shape = self.matrix(n);
        FACTOR.bound(shape.left_len()) + FACTOR.bound(shape.right_len())
    }

    fn state_len(&self, n: usize) -> usize {
        let shape = self.matrix(n);
        shape.left_len() + shape.right_len()
    }

    fn shape(&self, n: usize) -> Option<Shape> {
        Some(self.matrix(n))
    }

    #[inline(always)]
    fn encode(&self, acc: &mut [f32], state: &mut [f32], _seed: u64, out: &mut [u8]) -> usize {
        let (shape, bad) = (self.matrix(acc.len()), peak(acc).is_nan());
        let plain = Plain(shape);
        let (q, p) = state.split_at_mut(shape.right_len());
        plain.start(q);
        plain.left(acc, q, p);
        plain.orthonormalise(p);
        let len = send(p, out);
        plain.right(acc, p, q);
        if bad {
            q.fill(f32::NAN);
        }
        let len = len + send(q, &mut out[len..]);
        plain.subtract(acc, p, q);
        if bad {
            acc.fill(0.0);
            state.fill(0.0);
        }
        len
    }

    #[inline(always)]
    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        let (shape, mut src) = (self.matrix(sum.len()), extract(src));
        src.need(self.bound(sum.len()))?;
        let p = src.bytes(FACTOR.bound(shape.left_len()));
        let q = src.bytes(FACTOR.bound(shape.right_len()));
        let tile = |k: usize, at: usize, tile: &mut [f32]| {
            zip(tile, k * shape.cols + at..).for_each(|(to, index)| *to = value(q, index));
        };
        Plain(shape).each(sum, |row, k| value(p, k * shape.rows + row), tile, |sum, value| *sum += value);
        Ok(src.len())
    }
}

impl Named for LowRank {
    const NAME: &str = "low-rank";
    const USAGE: &str = "low-rank:R[:COLS], R is 1 to 32; a matrix of COLS columns, square without it";

    fn from_args(args: &Args) -> Option<Self> {
        match args.whole()? {
            ([rank, ..], 1) => Self::new(rank, None),
            ([rank, cols, _], 2) => Self::new(rank, Some(cols)),
            _ => None,
        }
    }
}
