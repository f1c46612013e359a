//! One value of codec 2: zero, a bin, or itself.

use core::fmt;

const SIGN: u32 = 0x8000_0000;
const MANTISSA_BITS: u32 = 23;
const HIDDEN: u32 = 1 << MANTISSA_BITS;
const MANTISSA: u32 = HIDDEN - 1;
/// Exponents above the bound's that are coded; values beyond them are raw.
const CODED_EXPONENTS: u32 = 14;

/// The parameter of codec 2: the bound `2^y` on the absolute error of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Bound {
    y: i8,
}

impl Bound {
    /// The smallest exponent of a bound.
    pub const MIN: i8 = -94;
    /// The largest exponent of a bound.
    pub const MAX: i8 = 111;

    /// Values are whole numbers.
    pub(crate) const ONE: Self = Self { y: 0 };

    /// The bound `2^y`.
    ///
    /// # Errors
    /// `y` outside [`Self::MIN`]..=[`Self::MAX`]: a decoded value might not be a normal number.
    pub const fn new(y: i8) -> Result<Self, BoundError> {
        Self::from_exponents(y as i16, 0)
    }

    /// The bound `2^(y+x)`: `2^y` of values that are scaled by `2^-x`, as [`super::super::Params`]
    /// takes it.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub const fn from_exponents(y: i16, x: i8) -> Result<Self, BoundError> {
        let got = y.saturating_add(x as i16);
        if got < Self::MIN as i16 || got > Self::MAX as i16 {
            Err(BoundError { got })
        } else {
            Ok(Self { y: got as i8 })
        }
    }

    /// The exponent `y`.
    #[must_use]
    pub const fn y(self) -> i8 {
        self.y
    }

    /// `2^y`, exactly.
    #[must_use]
    pub const fn bound(self) -> f32 {
        f32::from_bits(self.coded_from() << MANTISSA_BITS)
    }

    /// The smallest biased exponent of a value that is not zero: `127+y`, in 33..=238.
    pub(crate) const fn coded_from(self) -> u32 {
        (127 + self.y as i32) as u32
    }

    /// The smallest biased exponent of a raw value: `141+y`, in 47..=252.
    pub(crate) const fn raw_from(self) -> u32 {
        self.coded_from() + CODED_EXPONENTS
    }
}

#[cfg(feature = "arbitrary")]
impl<'a> arbitrary::Arbitrary<'a> for Bound {
    fn arbitrary(u: &mut arbitrary::Unstructured<'a>) -> arbitrary::Result<Self> {
        let y = u.int_in_range(Self::MIN..=Self::MAX)?;
        Self::new(y).map_err(|_| arbitrary::Error::IncorrectFormat)
    }
}

/// Why a bound was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct BoundError {
    /// The exponent given.
    pub got: i16,
}

impl fmt::Display for BoundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { got } = self;
        write!(f, "bound 2^{got}, expected 2^{} to 2^{}", Bound::MIN, Bound::MAX)
    }
}

impl core::error::Error for BoundError {}

/// The kept part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Coded {
    /// Smaller than the bound: nothing is kept, +0.0 is restored.
    Zero,
    /// The bin `[2v, 2v + 2)` in bounds, restored in its middle, `2v + 1`.
    Bin {
        /// The sign.
        negative: bool,
        /// `v`: below 2^13 from an encoder, below 2^14 for a decoder.
        index: u16,
    },
    /// All 32 bits: `2^14` bounds or more, infinities, NaN.
    Raw(u32),
}

/// The part of the `f32` with these bits that codec 2 keeps (FORMAT.md §3.7).
#[must_use]
pub const fn encode_value(bits: u32, bound: Bound) -> Coded {
    let exponent = (bits & !SIGN) >> MANTISSA_BITS;
    let from = bound.coded_from();
    if exponent < from {
        Coded::Zero
    } else if exponent >= bound.raw_from() {
        Coded::Raw(bits)
    } else {
        // The magnitude in whole bounds, 1 to 2^14 - 1; a bin has two of them.
        let magnitude = (HIDDEN | bits & MANTISSA) >> (from + MANTISSA_BITS - exponent);
        Coded::Bin { negative: bits & SIGN != 0, index: (magnitude >> 1) as u16 }
    }
}

/// The bits of the `f32` that stands for `coded`. An index of 2^14 or more is none that a section
/// can hold.
#[must_use]
pub const fn decode_value(coded: Coded, bound: Bound) -> u32 {
    match coded {
        Coded::Zero => 0,
        Coded::Raw(bits) => bits,
        Coded::Bin { negative, index } => {
            let magnitude = 2 * index as u32 + 1;
            let top = magnitude.ilog2();
            let mantissa = magnitude << (MANTISSA_BITS - top) & MANTISSA;
            let sign = if negative { SIGN } else { 0 };
            sign | (bound.coded_from() + top) << MANTISSA_BITS | mantissa
        }
    }
}
