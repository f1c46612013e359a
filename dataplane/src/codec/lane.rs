//! One value: the definition that the clocked model, the kernels and any RTL must agree with.

use super::Params;

const SIGN: u32 = 0x8000_0000;
const MANTISSA_BITS: u32 = 23;
const MANTISSA: u32 = (1 << MANTISSA_BITS) - 1;
const HIDDEN: u32 = 1 << MANTISSA_BITS;

/// The size class of a value; the discriminant is the lane's 2-bit tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
#[repr(u8)]
pub enum Class {
    /// Below the bound: nothing is kept, +0.0 is restored.
    Zero = 0,
    /// Sign and 7 magnitude bits.
    Byte = 1,
    /// Sign and 15 magnitude bits.
    Half = 2,
    /// All 32 bits.
    Raw = 3,
}

impl Class {
    /// The class of the two low bits of `tag`; higher bits are ignored.
    #[must_use]
    pub const fn from_tag(tag: u16) -> Self {
        match tag & 3 {
            0 => Self::Zero,
            1 => Self::Byte,
            2 => Self::Half,
            _ => Self::Raw,
        }
    }

    /// Length of the vector: 0, 1, 2 or 4 bytes.
    #[must_use]
    pub const fn vector_len(self) -> usize {
        match self {
            Self::Zero => 0,
            Self::Byte => 1,
            Self::Half => 2,
            Self::Raw => 4,
        }
    }

    /// Magnitude bits of the byte and half vectors; the sign stands above them.
    const fn magnitude_bits(self) -> u32 {
        8 * self.vector_len() as u32 - 1
    }
}

/// An encoded value: its class and its vector, right-aligned; bits above the vector are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Lane {
    /// Class, and so the tag and the vector's length.
    pub class: Class,
    /// The vector: 0, 8, 16 or 32 bits.
    pub vector: u32,
}

/// Encodes one value, given as the bit pattern of an `f32`, as the narrowest lane that keeps the
/// bound.
///
/// - Input: any bit pattern. Magnitudes of `2^x` and up, infinities and NaN are kept whole.
/// - Output: the class by the biased exponent alone; a byte or half vector is the sign, then the
///   magnitude as a fixed-point fraction of `2^x`, truncated toward zero.
/// - Guarantee: `|f - f'| < 2^(x-b)` for the decoded `f'`, bit-exact for raw lanes; the bits of
///   `f'` are a subset of the bits of `f` (the mixing law, FORMAT.md §3.5).
///
/// Source: FORMAT.md §3.2 and §3.3; after Li et al., MICRO 2018 (doi:10.1109/MICRO.2018.00023),
/// with the departures that docs/papers.md lists.
#[must_use]
pub const fn encode_lane(value: u32, params: Params) -> Lane {
    let exponent = (value & !SIGN) >> MANTISSA_BITS;
    if exponent >= params.raw_from() {
        return Lane { class: Class::Raw, vector: value };
    }
    if exponent < params.byte_from() {
        return Lane { class: Class::Zero, vector: 0 };
    }
    let class = if exponent < params.half_from() { Class::Byte } else { Class::Half };
    // The significand, as an integer, weighs 2^(exponent-127-23); the vector's last bit
    // 2^(raw_from-127-top).
    let significand = HIDDEN | (value & MANTISSA);
    let shift = params.raw_from() + MANTISSA_BITS - lowest_weight(class, params) - exponent;
    let sign = (value >> 31) << class.magnitude_bits();
    Lane { class, vector: sign | (significand >> shift) }
}

/// Decodes one lane to the bit pattern of an `f32`.
///
/// Total: every vector has a value, also those that [`encode_lane`] never makes. A byte or half
/// vector is `(-1)^s * q * 2^(x-n)`, exactly, where `q` is its magnitude and `n` the weight of its
/// last bit; magnitude zero is a zero with the vector's sign. Bits of `lane.vector` above the
/// class's width are ignored.
///
/// Source: FORMAT.md §3.4.
#[must_use]
pub const fn decode_lane(lane: Lane, params: Params) -> u32 {
    let (class, vector) = (lane.class, lane.vector);
    match class {
        Class::Zero => 0,
        Class::Raw => vector,
        Class::Byte | Class::Half => {
            let bits = class.magnitude_bits();
            let sign = ((vector >> bits) & 1) << 31;
            let magnitude = vector & ((1 << bits) - 1);
            if magnitude == 0 {
                return sign;
            }
            // The leading one becomes the hidden bit; at most 14, so neither shift is out of range.
            let leading = 31 - magnitude.leading_zeros();
            let exponent = params.raw_from() - lowest_weight(class, params) + leading;
            let mantissa = (magnitude << (MANTISSA_BITS - leading)) & MANTISSA;
            sign | (exponent << MANTISSA_BITS) | mantissa
        }
    }
}

/// `n`: the last bit of a byte or half vector weighs `2^(x-n)`.
const fn lowest_weight(class: Class, params: Params) -> u32 {
    match class {
        Class::Byte => params.k() as u32 + 7,
        _ => 15,
    }
}
