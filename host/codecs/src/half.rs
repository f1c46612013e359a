//! `f16`: IEEE 754's half precision.

use crate::codec::{Codec, Malformed};
use crate::named::{Args, Named};
use crate::ops::lost;

/// Half precision, rounded to the nearest, ties to even, little-endian. A finite value beyond
/// 65,504 becomes 65,504 with its sign, and what that lost is kept as residual like any other loss.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Half;

impl Codec for Half {
    fn bound(&self, n: usize) -> usize {
        2 * n
    }

    #[inline(always)]
    fn encode(&self, acc: &mut [f32], _state: &mut [f32], _seed: u64, out: &mut [u8]) -> usize {
        let out = &mut out[..2 * acc.len()];
        for (bytes, value) in out.as_chunks_mut().0.iter_mut().zip(&mut *acc) {
            let half = to_half(*value);
            *bytes = half.to_le_bytes();
            *value = lost(*value, from_half(half));
        }
        out.len()
    }

    #[inline(always)]
    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        let (need, have) = (2 * sum.len(), src.len());
        let src = src.get(..need).ok_or(Malformed::Short { need, have })?;
        for (sum, bytes) in sum.iter_mut().zip(src.as_chunks().0) {
            *sum += from_half(u16::from_le_bytes(*bytes));
        }
        Ok(need)
    }
}

/// The finite half with the largest magnitude is 65,504: as bits of an `f32`, and of a half.
const MOST: (u32, u32) = (0x477f_e000, 0x7bff);

#[inline(always)]
fn to_half(value: f32) -> u16 {
    let sign = value.to_bits() >> 16 & 0x8000;
    let magnitude = value.to_bits() & 0x7fff_ffff;
    // Beside 0.5, an f32 counts in the steps of the smallest halves: the addition rounds as it
    // should.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let even = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + even) >> 13;
    let finite = if magnitude < 113 << 23 { subnormal } else { normal };
    let finite = if magnitude > MOST.0 { MOST.1 } else { finite };
    let half = if magnitude >= 0x7f80_0000 { 0x7c00 } else { finite };
    let half = if magnitude > 0x7f80_0000 { 0x7e00 } else { half };
    (sign | half) as u16
}

#[inline(always)]
fn from_half(half: u16) -> f32 {
    let sign = u32::from(half & 0x8000) << 16;
    let bits = u32::from(half & 0x7fff) << 13;
    // The exponent's bias is 15 in a half and 127 in an f32. Beside 2^-14, an f32 that ends in
    // these bits counts in the steps of the smallest halves.
    let normal = bits + (112 << 23);
    let subnormal = (f32::from_bits(bits + (113 << 23)) - f32::from_bits(113 << 23)).to_bits();
    let magnitude = if half & 0x7c00 == 0 { subnormal } else { normal };
    let special = if half & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(sign | magnitude | special)
}

impl Named for Half {
    const NAME: &str = "f16";
    const USAGE: &str = "f16";

    fn from_args(args: &Args) -> Option<Self> {
        args.numbers().is_empty().then_some(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_comes_back() {
        for half in 0..=u16::MAX {
            let value = from_half(half);
            let exponent = i32::from(half >> 10 & 31);
            let mantissa = f64::from(half & 1023);
            let sign = if half >> 15 == 0 { 1.0 } else { -1.0 };
            match exponent {
                31 if mantissa == 0.0 => assert_eq!(f64::from(value), sign * f64::INFINITY),
                31 => assert!(value.is_nan()),
                0 => assert_eq!(f64::from(value), sign * mantissa * 2f64.powi(-24)),
                _ => assert_eq!(f64::from(value), sign * (1024.0 + mantissa) * 2f64.powi(exponent - 25)),
            }
            if !value.is_nan() {
                assert_eq!(to_half(value), half);
            }
        }
    }

    #[test]
    fn between_two_halves_the_nearer_is_taken_and_the_even_one_of_two() {
        for half in 0..MOST.1 as u16 {
            let (low, high) = (from_half(half), from_half(half + 1));
            let middle = (low + high) / 2.0;
            assert_eq!(to_half(middle), half + (half & 1));
            assert_eq!(to_half(middle.next_down()), half);
            assert_eq!(to_half(middle.next_up()), half + 1);
        }
        assert_eq!((to_half(f32::MAX), to_half(-65_520.0)), (0x7bff, 0xfbff));
        assert_eq!((to_half(f32::NEG_INFINITY), to_half(f32::NAN) & 0x7fff), (0xfc00, 0x7e00));
    }
}
