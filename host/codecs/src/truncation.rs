//! `trunc:DROP`: the low bits of each value are dropped.

use core::iter::zip;

use crate::codec::{Codec, Malformed};
use crate::named::{Args, Named};
use crate::ops::{INFINITE, MAGNITUDE, concat, extract, lost, map, numbers_len};

/// The upper 16, 10 or 8 bits of each value: 16, 22 or 24 low bits are dropped, so values move
/// towards zero.
///
/// Values that are not finite stay so. The upper 8 bits hold not all of an exponent; there the
/// largest magnitude stands for NaN, and finite values of that size become the next smaller one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Truncation {
    drop: u32,
}

impl Truncation {
    /// Drops 16, 22 or 24 bits; `None` for any other number.
    #[must_use]
    pub const fn new(drop: u32) -> Option<Self> {
        if matches!(drop, 16 | 22 | 24) { Some(Self { drop }) } else { None }
    }

    /// The code of a value: the bits that are kept.
    #[inline(always)]
    fn code(self, value: f32) -> u32 {
        let (magnitude, kept) = (value.to_bits() & MAGNITUDE, u32::MAX << self.drop);
        let finite = (magnitude & kept).min((INFINITE & kept) - (1 << self.drop));
        let coded = if magnitude < INFINITE { finite } else { INFINITE & kept };
        let coded = if magnitude > INFINITE { MAGNITUDE & kept } else { coded };
        (value.to_bits() & !MAGNITUDE | coded) >> self.drop
    }

    /// The value of a code.
    #[inline(always)]
    fn value(self, code: u32) -> f32 {
        let bits = code << self.drop;
        let nan = bits | !(u32::MAX << self.drop) | !MAGNITUDE == u32::MAX;
        if nan { f32::NAN } else { f32::from_bits(bits) }
    }
}

impl Codec for Truncation {
    fn bound(&self, n: usize) -> usize {
        numbers_len(32 - self.drop, n)
    }

    fn feeds_back(&self) -> bool {
        false
    }

    #[inline(always)]
    fn encode(&self, acc: &mut [f32], _state: &mut [f32], _seed: u64, out: &mut [u8]) -> usize {
        let mut message = concat(out);
        match self.drop {
            16 => {
                let out = message.bytes(2 * acc.len()).as_chunks_mut().0;
                zip(out, &*acc).for_each(|(out, value)| *out = (self.code(*value) as u16).to_le_bytes());
            }
            24 => message.pack::<8>(map(acc, |_, value| self.code(*value) as u8)),
            _ => message.numbers(10, acc.len(), acc.iter().map(|value| self.code(*value) as usize)),
        }
        acc.iter_mut().for_each(|value| *value = lost(*value, self.value(self.code(*value))));
        message.len()
    }

    #[inline(always)]
    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        let mut src = extract(src);
        src.need(self.bound(sum.len()))?;
        match self.drop {
            16 => {
                let codes = src.bytes(2 * sum.len()).as_chunks().0;
                zip(sum, codes).for_each(|(sum, code)| *sum += self.value(u16::from_le_bytes(*code).into()));
            }
            24 => src.unpack::<8>(sum, |code, sum| *sum += self.value(code.into())),
            _ => {
                let codes = src.numbers(10, sum.len());
                zip(sum, codes).for_each(|(sum, code)| *sum += self.value(code as u32));
            }
        }
        Ok(src.len())
    }
}

impl Named for Truncation {
    const NAME: &str = "trunc";
    const USAGE: &str = "trunc:DROP, DROP low bits are dropped: 16, 22 or 24";

    fn from_args(args: &Args) -> Option<Self> {
        match args.whole()? {
            ([drop, ..], 1) => Self::new(drop),
            _ => None,
        }
    }
}
