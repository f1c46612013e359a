//! Names of codecs and their arguments.

use core::num::NonZeroU32;

use crate::codec::Codec;
use crate::ops::Blocks;

/// A codec that has a name, so that people can choose it.
pub trait Named: Codec + Sized {
    /// The name: what stands before the first colon.
    const NAME: &str;
    /// Its text, with the meaning and the limits of its arguments.
    const USAGE: &str;

    /// The codec with these arguments; `None` if they are none of its own.
    fn from_args(args: &Args) -> Option<Self>;
}

/// The most arguments of a name.
const MOST: usize = 3;

/// The numbers of a name.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Args {
    numbers: [f64; MOST],
    count: usize,
}

impl Args {
    /// The numbers of what follows the first colon, if anything does; `None` if they are no numbers
    /// or too many.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Option<Self> {
        let mut args = Self { numbers: [0.0; MOST], count: 0 };
        for number in text.into_iter().flat_map(|text| text.split(':')) {
            *args.numbers.get_mut(args.count)? =
                number.parse().ok().filter(|number: &f64| number.is_finite())?;
            args.count += 1;
        }
        Some(args)
    }

    /// All of them.
    #[must_use]
    pub fn numbers(&self) -> &[f64] {
        &self.numbers[..self.count]
    }

    /// All of them, if they are whole numbers of 32 bits.
    #[must_use]
    pub fn whole(&self) -> Option<([u32; MOST], usize)> {
        let mut whole = [0; MOST];
        for (to, number) in whole.iter_mut().zip(self.numbers()) {
            *to = *number as u32;
            if f64::from(*to) != *number {
                return None;
            }
        }
        Some((whole, self.count))
    }
    /// The blocks that the arguments from `at` on give: none is the whole, one above 0 is a length.
    #[must_use]
    pub fn blocks(&self, at: usize) -> Option<Blocks> {
        match self.numbers().get(at..)? {
            [] => Some(Blocks::WHOLE),
            [values] if f64::from(*values as u32) == *values => {
                NonZeroU32::new(*values as u32).map(Blocks::of)
            }
            _ => None,
        }
    }
}
