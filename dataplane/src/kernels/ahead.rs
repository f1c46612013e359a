//! Decoding with look-ahead: where groups end is found for every byte at once, before any is
//! decoded.
//!
//! A group's length is in its first two bytes, so finding group after group is a chain: load,
//! count, add, some 11 cycles a burst, more than the rest of the work. Here SIMD computes for 64
//! offsets at a time how long a group that starts there would be, whether one does or not. The
//! chain is then a load of one byte and an add.

use super::loops::{Burst, WINDOW_LEN, Window, copy_start};
use crate::codec::{BURST_LEN, Class, LANES, VALUE_LEN};

/// Offsets that one look-ahead step covers; it reads one byte more.
pub(super) const AHEAD: usize = 64;
/// Steps whose results are kept at a time.
const STEPS: usize = 4;
/// The end of a payload, less than this, is copied and padded: windows and steps would reach beyond
/// it.
const END: usize = AHEAD + WINDOW_LEN;

/// Bytes of the vectors of two lanes, by their tags.
pub(super) const NIBBLE_LENS: [u8; 16] = {
    let mut table = [0; 16];
    let mut tags = 0;
    while tags < 16 {
        let (low, high) = (Class::from_tag(tags as u16), Class::from_tag(tags as u16 >> 2));
        table[tags] = (low.vector_len() + high.vector_len()) as u8;
        tags += 1;
    }
    table
};

/// Decodes groups until `values` is full; the length of the groups. `ahead` writes for each of 64
/// offsets the length of a group that starts there; `burst` decodes the group at the start of its
/// window, to values or whatever of their size. None if the groups are to be refused, or if nothing
/// but values that are done says that they are not: the definition tells which.
#[inline(always)]
pub(super) fn decode_ahead(
    groups: &[u8],
    values: &mut [u8],
    ahead: impl Fn(&[u8; AHEAD + 1], &mut [u8; AHEAD]),
    mut burst: impl FnMut(&Window, &mut Burst),
) -> Option<usize> {
    let last_lanes = values.len() / VALUE_LEN % LANES;
    let (whole, last) = values.as_chunks_mut();
    let mut last_burst = [0; BURST_LEN];
    let mut bursts = whole.iter_mut().chain((last_lanes > 0).then_some(&mut last_burst));

    // Up to `end` there are whole windows and whole steps. The rest is read from a block, padded
    // with zeros, which look like groups of 2 bytes.
    let end = groups.len().saturating_sub(WINDOW_LEN) / AHEAD * AHEAD;
    let mut block = [0; 2 * AHEAD + WINDOW_LEN];
    let rest = groups.get(end..).unwrap_or(&[]);
    copy_start(&mut block, rest.get(..rest.len().min(END)).unwrap_or(rest));

    let mut first = 0; // a multiple of AHEAD
    let mut at = 0; // of the next group
    let mut last_at = 0; // of the last group decoded
    let mut done = false;
    while !done && first <= end {
        // One call of `ahead` and one of `burst`, so that they are inlined here and their constants
        // stay in registers.
        let (base, steps) = if first < end {
            (groups.get(first..).unwrap_or(&[]), ((end - first) / AHEAD).min(STEPS))
        } else {
            (&block[..], 2)
        };
        let mut lens = [[0; AHEAD]; STEPS];
        for (step, lens) in lens.iter_mut().take(steps).enumerate() {
            ahead(chunk(base, step * AHEAD), lens);
        }
        let lens = lens.as_flattened();
        let lens = lens.get(..steps * AHEAD).unwrap_or(lens);
        let mut from = at - first;
        while let Some(&len) = lens.get(from)
            && let Some(window) = base.get(from..).and_then(|base| base.first_chunk())
        {
            let Some(to) = bursts.next() else {
                done = true;
                break;
            };
            burst(window, to);
            last_at = first + from;
            from += usize::from(len);
        }
        at = first + from;
        first += steps * AHEAD;
    }

    let tags = u16::from_le_bytes(*chunk(groups, last_at));
    if !done || at > groups.len() || (last_lanes > 0 && tags >> (2 * last_lanes) != 0) {
        return None;
    }
    copy_start(last, last_burst.get(..last_lanes * VALUE_LEN).unwrap_or(&[]));
    Some(at)
}

/// The bytes at `at`; zeros if there are not enough.
#[inline(always)]
fn chunk<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).unwrap_or(&[0; N])
}
