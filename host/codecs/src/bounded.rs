//! `bounded:B`: the dataplane's codec 2, with the bound `2^-B` of a tensor's largest value.

use gradwire::codec::bit_plane::{Bound, SECTION_VALUES, max_encoded_len};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;

use crate::codec::{Codec, Malformed};
use crate::named::{Args, Named};
use crate::ops::{INFINITE, MAGNITUDE, concat, extract, largest, lost};

/// Bins of two bounds in bit planes, without the zeros.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounded {
    bits: i8,
}

impl Bounded {
    /// The bound is `2^-bits` of the power of two that is not above the largest finite magnitude; 1
    /// to 13.
    #[must_use]
    pub const fn new(bits: u32) -> Option<Self> {
        if matches!(bits, 1..=13) { Some(Self { bits: bits as i8 }) } else { None }
    }
}

impl Codec for Bounded {
    fn bound(&self, n: usize) -> usize {
        1 + max_encoded_len(4 * n)
    }

    #[inline(always)]
    fn encode(&self, acc: &mut [f32], _state: &mut [f32], _seed: u64, out: &mut [u8]) -> usize {
        let exponent = largest(acc, |value| {
            let exponent = (value.to_bits() & MAGNITUDE) >> 23;
            if exponent < INFINITE >> 23 { exponent as i32 } else { 0 }
        });
        let y = (exponent - 127 - i32::from(self.bits)).clamp(Bound::MIN.into(), Bound::MAX.into()) as i8;
        let (bound, kernel) = (Bound::new(y).expect("clamped"), Kernel::detect());
        let mut message = concat(out);
        message.bytes(1)[0] = y as u8;
        for section in acc.chunks_mut(SECTION_VALUES) {
            let mut values = [[0; 4]; SECTION_VALUES];
            let values = &mut values[..section.len()];
            values.iter_mut().zip(&*section).for_each(|(bytes, value)| *bytes = value.to_le_bytes());
            let len = kernel.encode(values.as_flattened(), message.rest(), bound).expect("bound() is enough");
            kernel.decode(message.rest(), values.as_flattened_mut(), bound).expect("just encoded");
            section
                .iter_mut()
                .zip(values)
                .for_each(|(value, sent)| *value = lost(*value, f32::from_le_bytes(*sent)));
            message.advance(len);
        }
        message.len()
    }

    #[inline(always)]
    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        let mut src = extract(src);
        src.need(1)?;
        let bound =
            Bound::new(src.bytes(1)[0] as i8).map_err(|_| Malformed::Field { what: "bound", at: 0 })?;
        // Before anything is added.
        if Profile::BitPlane(bound).encoded_len(src.rest(), sum.len()).is_none() {
            return Err(Malformed::Field { what: "section", at: src.len() });
        }
        let (kernel, mut values) = (Kernel::detect(), [[0; 4]; SECTION_VALUES]);
        for section in sum.chunks_mut(SECTION_VALUES) {
            let values = &mut values[..section.len()];
            let len = kernel.decode(src.rest(), values.as_flattened_mut(), bound);
            src.advance(len.unwrap_or(0));
            section.iter_mut().zip(values).for_each(|(sum, value)| *sum += f32::from_le_bytes(*value));
        }
        Ok(src.len())
    }
}

impl Named for Bounded {
    const NAME: &str = "bounded";
    const USAGE: &str = "bounded:B, errors are below 2^-B of the largest value; B is 1 to 13";

    fn from_args(args: &Args) -> Option<Self> {
        match args.whole()? {
            ([bits, ..], 1) => Self::new(bits),
            _ => None,
        }
    }
}
