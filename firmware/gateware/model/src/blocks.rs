//! The blocks that code one lane. Each is combinational: no state, one clock.
//!
//! Both work on a 32-bit *fraction* whose top bit weighs `2^(x-1)`, the next `2^(x-2)`, and so on.

use gradwire::codec::{Class, Lane, Params};

/// A half vector's magnitude is the top 15 bits of the fraction.
const HALF_PLACE: u32 = 32 - 15;
/// A byte vector's magnitude is 7 bits of the fraction, `k` places below its top.
const BYTE_PLACE: u32 = 32 - 7;

/// Compression block: one value in, its class and vector out.
///
/// - Input: any `f32` bit pattern; `b`, `k` and `127+x` are configuration registers.
/// - Inside: one subtraction of exponents, one right shift by at most 15, one left shift by `k`
///   (constant between frames), two comparisons of 4 bits, one multiplexer.
/// - Output: what [`gradwire::codec::encode_lane`] gives, on every input.
///
/// Source: FORMAT.md §3; the compression block of Li et al., MICRO 2018
/// (doi:10.1109/MICRO.2018.00023).
#[must_use]
pub const fn compression_block(value: u32, params: Params) -> Lane {
    let (b, k) = (params.b() as u32, params.k() as u32);
    let sign = value >> 31;
    let exponent = (value >> 23) & 0xff;
    // How many places 1.m moves down to become a fraction of 2^x. A borrow: the value is above 2^x.
    let (distance, borrow) = raw_from(params).overflowing_sub(exponent);

    // The hidden one takes the top place, over the exponent's last bit. Beyond a distance of 16 the
    // four-bit shift wraps; the multiplexer then takes another input.
    let fraction = (1 << 31 | value << 8) >> (distance.wrapping_sub(1) & 15);
    let half = sign << 15 | fraction >> HALF_PLACE;
    // A byte lane has distance > k, so the left shift pushes out zeros only.
    let byte = sign << 7 | (fraction << k) >> BYTE_PLACE;

    if borrow || distance == 0 {
        Lane { class: Class::Raw, vector: value }
    } else if distance > b {
        Lane { class: Class::Zero, vector: 0 }
    } else if distance > k {
        Lane { class: Class::Byte, vector: byte }
    } else {
        Lane { class: Class::Half, vector: half }
    }
}

/// Decompression block: one lane's tag and vector in, the value out.
///
/// - Input: any vector, also those that no compression block makes; bits above the class's width
///   are ignored.
/// - Inside: one shift to the fraction, a priority encoder with its shifter, one subtraction of
///   exponents, one multiplexer.
/// - Output: what [`gradwire::codec::decode_lane`] gives, on every input.
///
/// Source: FORMAT.md §3.4.
#[must_use]
pub const fn decompression_block(lane: Lane, params: Params) -> u32 {
    let Lane { class, vector } = lane;
    let (sign, fraction) = match class {
        Class::Zero => return 0,
        Class::Raw => return vector,
        Class::Byte => (vector >> 7 & 1, (vector & 0x7f) << BYTE_PLACE >> params.k()),
        Class::Half => (vector >> 15 & 1, (vector & 0x7fff) << HALF_PLACE),
    };
    if fraction == 0 {
        return sign << 31;
    }
    let (significand, leading_zeros) = normalise(fraction);
    // At most 31 zeros, and `127+x` is at least 47: the exponent stays above zero.
    let exponent = raw_from(params) - 1 - leading_zeros;
    sign << 31 | exponent << 23 | (significand << 1) >> 9
}

/// A configuration register: the smallest biased exponent of the raw class, `127+x`.
const fn raw_from(params: Params) -> u32 {
    (127 + params.x() as i32) as u32
}

/// Priority encoder: `fraction` shifted up until its leading one is at the top, and by how many
/// places (0..=31). Each step halves the field in which the leading one can be.
const fn normalise(fraction: u32) -> (u32, u32) {
    let (mut fraction, mut places) = (fraction, 0);
    let mut step = 16;
    while step > 0 {
        if fraction >> (32 - step) == 0 {
            fraction <<= step;
            places += step;
        }
        step /= 2;
    }
    (fraction, places)
}
