//! Tables that the SIMD kernels of all architectures share: where lanes are placed, and byte
//! shuffles.
//!
//! A *placed* lane has its vector at the top of 32 bits: sign at bit 31, magnitude from bit 30
//! down. The bytes to keep are then always the topmost ones, and all classes are converted alike.

use crate::codec::{Class, Params};

/// The numbers that place vectors at the top of 32 bits and take them down again; all normal `f32`s
/// for valid parameters (FORMAT.md §3.1).
pub(super) struct Placing {
    /// `2^(31+k-x)` and `2^(31-x)`: from a value to its placed magnitude.
    pub(super) byte_up: f32,
    pub(super) half_up: f32,
    /// Their inverses.
    pub(super) byte_down: f32,
    pub(super) half_down: f32,
}

impl Placing {
    pub(super) fn new(params: Params) -> Self {
        let power = |exponent: i32| f32::from_bits(((127 + exponent) as u32) << 23);
        let (k, x) = (i32::from(params.k()), i32::from(params.x()));
        Self {
            byte_up: power(31 + k - x),
            half_up: power(31 - x),
            byte_down: power(x - 31 - k),
            half_down: power(x - 31),
        }
    }
}

/// The bytes that four lanes with these tags keep: a nibble a lane, the top bytes first.
pub(super) const BYTE_MASKS: [u16; 256] = {
    let mut table = [0; 256];
    let mut tags = 0;
    while tags < 256 {
        let mut lane = 0;
        while lane < 4 {
            let nibble = match Class::from_tag(tags as u16 >> (2 * lane)) {
                Class::Zero => 0b0000,
                Class::Byte => 0b1000,
                Class::Half => 0b1100,
                Class::Raw => 0b1111,
            };
            table[tags] |= nibble << (4 * lane);
            lane += 1;
        }
        tags += 1;
    }
    table
};

/// The indices of a byte shuffle. Aligned: a load that crosses from one cache line to the next
/// takes twice as long.
#[derive(Clone, Copy)]
#[repr(align(16))]
pub(super) struct Shuffle(pub(super) [u8; 16]);

impl Shuffle {
    /// Writes zeros: indices with the top bit set name no byte.
    pub(super) const NOTHING: Self = Self([0x80; 16]);
}

/// By the tags of four lanes: from placed lanes to vectors without gaps.
pub(super) static CLOSE_UP: [Shuffle; 256] = shuffles(true);
/// By the tags of four lanes: from vectors without gaps to placed lanes.
pub(super) static SPREAD_OUT: [Shuffle; 256] = shuffles(false);

const fn shuffles(close_up: bool) -> [Shuffle; 256] {
    let mut table = [Shuffle::NOTHING; 256];
    let mut tags = 0;
    while tags < 256 {
        let (mut placed, mut packed) = (0, 0);
        while placed < 16 {
            if BYTE_MASKS[tags] >> placed & 1 != 0 {
                if close_up {
                    table[tags].0[packed] = placed as u8;
                } else {
                    table[tags].0[placed] = packed as u8;
                }
                packed += 1;
            }
            placed += 1;
        }
        tags += 1;
    }
    table
}
