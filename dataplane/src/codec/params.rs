//! The parameters of the codec, as a type that cannot hold an invalid combination.

use core::fmt;

/// The place of the border between the *byte* and the *half* class (FORMAT.md §3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Split {
    /// M = min(127, E+7): the smallest class that keeps the bound.
    #[default]
    Dense,
    /// M = E + ceil((127-E)/2): the class rule of INCEPTIONN (MICRO 2018); sizes as published,
    /// finer than the bound asks.
    Paper,
}

impl Split {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Dense, Self::Paper];

    /// Its name in options, configuration files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Paper => "paper",
        }
    }

    /// The split of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|split| split.name() == name)
    }
}

/// Bound, split and scale of the codec; only valid combinations exist.
///
/// The codec keeps `|f - f'| < 2^(x-b)` for every `f32` (FORMAT.md §3).
///
/// - `b`, the *bound exponent*: 1..=14.
/// - `k`, the *byte offset*: a byte vector's magnitude bits weigh `2^(x-k-1)` to `2^(x-k-7)`.
///   0..=b and at least b-7; the border M of FORMAT.md §3.2 is `127 - k`.
/// - `x`, the *scale exponent*: -80..=127. Every border exponent, multiplier and decoded magnitude
///   is then a normal `f32`, so no kernel meets a subnormal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Params {
    b: u8,
    k: u8,
    x: i8,
}

impl Params {
    /// The smallest bound exponent.
    pub const MIN_B: u8 = 1;
    /// The largest bound exponent: a half vector has 15 magnitude bits.
    pub const MAX_B: u8 = 14;
    /// The smallest scale exponent.
    pub const MIN_SCALE: i8 = -80;

    /// The default: bound 2^-10, dense split, scale 0.
    pub const DEFAULT: Self = Self { b: 10, k: 3, x: 0 };

    /// Parameters for the bound `2^(x-b)` with one of the two named splits.
    ///
    /// # Errors
    /// `b` outside 1..=14, or `x` below [`Self::MIN_SCALE`].
    pub const fn new(b: u8, split: Split, x: i8) -> Result<Self, ParamsError> {
        let k = match split {
            // 127 - min(127, E+7), with E = 127-b.
            Split::Dense => b.saturating_sub(7),
            // 127 - (E + ceil(b/2)).
            Split::Paper => b / 2,
        };
        Self::from_exponents(b, k, x)
    }

    /// Parameters from the three exponents that stand in a segment header (FORMAT.md §5.2).
    ///
    /// # Errors
    /// `b` outside 1..=14, `k` above `b` or with `k+7 < b`, or `x` below [`Self::MIN_SCALE`].
    pub const fn from_exponents(b: u8, k: u8, x: i8) -> Result<Self, ParamsError> {
        if b < Self::MIN_B || b > Self::MAX_B {
            return Err(ParamsError::Bound { got: b });
        }
        // k > b would put M below E; k+7 < b would let the byte class miss the bound.
        if k > b || k + 7 < b {
            return Err(ParamsError::ByteOffset { got: k, b });
        }
        if x < Self::MIN_SCALE {
            return Err(ParamsError::Scale { got: x });
        }
        Ok(Self { b, k, x })
    }

    /// The bound exponent `b`.
    #[must_use]
    pub const fn b(self) -> u8 {
        self.b
    }

    /// The byte offset `k = 127 - M`.
    #[must_use]
    pub const fn k(self) -> u8 {
        self.k
    }

    /// The split that has this byte offset: dense if both have it, none if neither has.
    #[must_use]
    pub fn split(self) -> Option<Split> {
        Split::ALL.into_iter().find(|split| Self::new(self.b, *split, self.x) == Ok(self))
    }

    /// The scale exponent `x`.
    #[must_use]
    pub const fn x(self) -> i8 {
        self.x
    }

    /// The guaranteed bound `2^(x-b)` on the absolute error, exactly.
    #[must_use]
    pub const fn bound(self) -> f32 {
        f32::from_bits((self.raw_from() - self.b as u32) << 23)
    }

    /// The smallest biased exponent of the byte class: `E+x`.
    pub(crate) const fn byte_from(self) -> u32 {
        self.raw_from() - self.b as u32
    }

    /// The smallest biased exponent of the half class: `M+x`.
    pub(crate) const fn half_from(self) -> u32 {
        self.raw_from() - self.k as u32
    }

    /// The smallest biased exponent of the raw class: `127+x`, in 47..=254.
    pub(crate) const fn raw_from(self) -> u32 {
        (127 + self.x as i32) as u32
    }
}

impl Default for Params {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(feature = "arbitrary")]
impl<'a> arbitrary::Arbitrary<'a> for Params {
    fn arbitrary(u: &mut arbitrary::Unstructured<'a>) -> arbitrary::Result<Self> {
        let b = u.int_in_range(Self::MIN_B..=Self::MAX_B)?;
        let k = u.int_in_range(b.saturating_sub(7)..=b)?;
        let x = u.int_in_range(Self::MIN_SCALE..=i8::MAX)?;
        Self::from_exponents(b, k, x).map_err(|_| arbitrary::Error::IncorrectFormat)
    }
}

/// Why codec parameters were refused.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ParamsError {
    /// The bound exponent is not in 1..=14.
    Bound {
        /// The bound exponent given.
        got: u8,
    },
    /// The byte offset k is above b, or k+7 is below b.
    ByteOffset {
        /// The byte offset given.
        got: u8,
        /// The bound exponent it was given with.
        b: u8,
    },
    /// The scale exponent is below -80.
    Scale {
        /// The scale exponent given.
        got: i8,
    },
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bound { got } => write!(f, "bound exponent {got}, expected 1 to 14"),
            Self::ByteOffset { got, b } => {
                let least = b.saturating_sub(7);
                write!(f, "byte offset {got} with bound exponent {b}, expected {least} to {b}")
            }
            Self::Scale { got } => write!(f, "scale exponent {got}, expected -80 to 127"),
        }
    }
}

impl core::error::Error for ParamsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_splits_are_the_equations_of_the_format() {
        for b in 1..=14u8 {
            let e = 127 - i32::from(b);
            let dense = Params::new(b, Split::Dense, 0).unwrap();
            assert_eq!(127 - i32::from(dense.k()), 127.min(e + 7));
            let paper = Params::new(b, Split::Paper, 0).unwrap();
            let half_way = (f64::from(127 - e) / 2.0).ceil() as i32;
            assert_eq!(127 - i32::from(paper.k()), e + half_way);
        }
        assert_eq!(Params::new(10, Split::Dense, 0), Ok(Params::DEFAULT));
    }

    #[test]
    fn a_byte_offset_tells_its_split() {
        for b in 1..=14u8 {
            for k in b.saturating_sub(7)..=b {
                let split = Params::from_exponents(b, k, -3).unwrap().split();
                let expected = match k {
                    _ if k == b.saturating_sub(7) => Some(Split::Dense),
                    _ if k == b / 2 => Some(Split::Paper),
                    _ => None,
                };
                assert_eq!(split, expected, "{b} {k}");
            }
        }
    }

    #[test]
    fn only_valid_combinations_exist() {
        for b in 0..=u8::MAX {
            for k in 0..=u8::MAX {
                for x in i8::MIN..=i8::MAX {
                    let valid =
                        (1..=14).contains(&b) && k <= b && u32::from(k) + 7 >= u32::from(b) && x >= -80;
                    assert_eq!(Params::from_exponents(b, k, x).is_ok(), valid, "{b} {k} {x}");
                }
            }
        }
    }

    #[test]
    fn bound_is_the_power_of_two() {
        for x in Params::MIN_SCALE..=i8::MAX {
            for b in 1..=14 {
                let p = Params::new(b, Split::Dense, x).unwrap();
                assert_eq!(f64::from(p.bound()), 2f64.powi(i32::from(x) - i32::from(b)));
            }
        }
    }
}
