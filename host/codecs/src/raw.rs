//! `f32`: the values themselves.

use crate::codec::{Codec, Malformed};
use crate::named::{Args, Named};

/// The values as they are, little-endian, nothing lost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Raw;

impl Codec for Raw {
    fn bound(&self, n: usize) -> usize {
        4 * n
    }

    #[inline(always)]
    fn encode(&self, acc: &mut [f32], _state: &mut [f32], _seed: u64, out: &mut [u8]) -> usize {
        let out = &mut out[..4 * acc.len()];
        for (bytes, value) in out.as_chunks_mut().0.iter_mut().zip(&mut *acc) {
            *bytes = value.to_le_bytes();
            *value = 0.0;
        }
        out.len()
    }

    #[inline(always)]
    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        let (need, have) = (4 * sum.len(), src.len());
        let src = src.get(..need).ok_or(Malformed::Short { need, have })?;
        for (sum, bytes) in sum.iter_mut().zip(src.as_chunks().0) {
            *sum += f32::from_le_bytes(*bytes);
        }
        Ok(need)
    }
}

impl Named for Raw {
    const NAME: &str = "f32";
    const USAGE: &str = "f32";

    fn from_args(args: &Args) -> Option<Self> {
        args.numbers().is_empty().then_some(Self)
    }
}
