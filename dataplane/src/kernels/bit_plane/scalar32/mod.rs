//! For small 32-bit processors: no multiplication, no floating point, no 64-bit numbers, a kilobyte
//! of tables.
//!
//! Most items of gradients and of their sums fit a byte with their sign. A section of nothing else
//! takes short ways, on four items a word, which turn a group's eight bytes into planes, or back,
//! with 30 instructions. A section with another item takes the long ones from its start.
//!
//! The encoder closes up the bytes of what is not zero, by a branch a value; takes sign and
//! magnitude of four bytes at once; and turns a group, with the signs as the eighth plane. Sums are
//! dense in more than half of the blocks, so they are taken as dense until there are too many
//! zeros. Room is compared once a section, and neither items nor map are cleared.
//!
//! The decoder moves four values at a time: a jump by four bits of the map leads to stores without
//! branches. Its only buffer is the map, and 2 KB more if the values do not lie on words. The
//! encoder keeps 600 bytes, and likewise 2 KB more.

mod decode;
mod encode;

pub(in super::super) use decode::{decode, decode_sums, decode_units};
pub(super) use encode::encode_section;
pub(in super::super) use encode::{encode, encode_sums};

use crate::sums::{BLOCK_VALUES, OVER};

/// The lowest bit of each byte.
const ONES: u32 = 0x0101_0101;

/// Bit j of byte i becomes bit i of byte j; the bytes are those of the first word and of the
/// second, from the lowest on.
#[inline(always)]
const fn turned(low: u32, high: u32) -> (u32, u32) {
    const fn within(half: u32) -> u32 {
        let swap = (half ^ half >> 7) & 0x00aa_00aa;
        let half = half ^ swap ^ swap << 7;
        let swap = (half ^ half >> 14) & 0x0000_cccc;
        half ^ swap ^ swap << 14
    }
    let (low, high) = (within(low), within(high));
    let swap = (low >> 4 ^ high) & 0x0f0f_0f0f;
    (low ^ swap << 4, high ^ swap)
}

/// Adds all units, also those that stand for something else. If there are such, one of them; else a
/// larger number.
pub(in super::super) fn add(units: &[i32; BLOCK_VALUES], sums: &mut [i32; BLOCK_VALUES]) -> i32 {
    let mut least = i32::MAX;
    for (units, sums) in units.as_chunks::<8>().0.iter().zip(sums.as_chunks_mut::<8>().0) {
        for (units, sum) in units.iter().zip(sums) {
            // Most are zero, and then a branch is all.
            if *units != 0 {
                *sum = sum.wrapping_add(*units);
                if *units <= OVER {
                    keep(&mut least, *units);
                }
            }
        }
    }
    least
}

/// Called, or compilers would move numbers between registers for each unit.
#[cold]
#[inline(never)]
const fn keep(least: &mut i32, units: i32) {
    *least = units;
}
