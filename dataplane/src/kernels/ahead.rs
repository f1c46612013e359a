//! Decoding with look-ahead: where groups end is found for every byte at once, before any is decoded.
//!
//! A group's length is in its first two bytes, so finding group after group is a chain: load, count, add,
//! some 11 cycles a burst, more than the rest of the work. Here SIMD computes for 64 offsets at a time how long a
//! group that starts there would be, whether one does or not. The chain is then a load of one byte and
//! an add.

use core::slice::IterMut;

use super::drive::{Burst, WINDOW_LEN, Window, copy_start};
use crate::codec::{BURST_LEN, Class, LANES, Params, VALUE_LEN, decode_payload, group_len};
use crate::error::DecodeError;

/// Offsets that one look-ahead step covers; it reads one byte more.
pub(super) const AHEAD: usize = 64;
/// Steps whose results are kept at a time.
const STEPS: usize = 8;
/// The end of a payload, less than this, is copied and padded: windows and steps would reach beyond it.
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

/// Decodes groups until `values` is full. `ahead` writes for each of 64 offsets the length of a group that
/// starts there; `burst` decodes the group at the start of its window.
#[inline(always)]
pub(super) fn decode_ahead(
    groups: &[u8],
    values: &mut [u8],
    params: Params,
    ahead: impl Fn(&[u8; AHEAD + 1], &mut [u8; AHEAD]),
    burst: impl Fn(&Window, &mut Burst),
) -> Result<usize, DecodeError> {
    if !values.len().is_multiple_of(VALUE_LEN) {
        return Err(DecodeError::Unaligned { len: values.len() });
    }
    let last_lanes = values.len() / VALUE_LEN % LANES;
    let (whole, last) = values.as_chunks_mut();
    let mut whole = whole.iter_mut();
    // Decodes the group at `from` and those behind it, up to the end of `lens` or of the values; where it got to.
    let run = |base: &[u8], lens: &[u8], mut from: usize, whole: &mut IterMut<'_, Burst>| {
        while let Some(&len) = lens.get(from)
            && let Some(window) = base.get(from..).and_then(|base| base.first_chunk())
            && let Some(to) = whole.next()
        {
            burst(window, to);
            from += usize::from(len);
        }
        from
    };

    // Offsets below `end` have a whole window, and whole steps.
    let end = groups.len().saturating_sub(WINDOW_LEN) / AHEAD * AHEAD;
    let (mut at, mut first) = (0, 0); // `first` is a multiple of AHEAD
    while first < end && whole.len() > 0 {
        let base = groups.get(first..).unwrap_or(&[]);
        let steps = ((end - first) / AHEAD).min(STEPS);
        let mut lens = [[0; AHEAD]; STEPS];
        for (step, lens) in lens.iter_mut().take(steps).enumerate() {
            ahead(chunk(base, step * AHEAD), lens);
        }
        let lens = lens.as_flattened();
        at = first + run(base, lens.get(..steps * AHEAD).unwrap_or(lens), at - first, &mut whole);
        first += steps * AHEAD;
    }

    // The rest, padded with zeros, which look like groups of 2 bytes.
    let rest = groups.get(end..).unwrap_or(&[]);
    let mut block = [0; 2 * AHEAD + WINDOW_LEN];
    copy_start(&mut block, rest.get(..rest.len().min(END)).unwrap_or(rest));
    if whole.len() > 0 {
        let mut lens = [[0; AHEAD]; 2];
        ahead(chunk(&block, 0), &mut lens[0]);
        ahead(chunk(&block, AHEAD), &mut lens[1]);
        at = end + run(&block, lens.as_flattened(), at - end, &mut whole);
    }
    let mut absent = 0;
    if last_lanes > 0 {
        let window: &Window = if at < end { chunk(groups, at) } else { chunk(&block, at - end) };
        let tags = u16::from_le_bytes([window[0], window[1]]);
        let mut to = [0; BURST_LEN];
        burst(window, &mut to);
        copy_start(last, to.get(..last_lanes * VALUE_LEN).unwrap_or(&[]));
        absent = tags >> (2 * last_lanes);
        at += group_len(tags);
    }
    if whole.len() > 0 || at > groups.len() || absent != 0 {
        // Refused; the definition says why.
        return decode_payload(groups, values, params);
    }
    Ok(at)
}

/// The bytes at `at`; zeros where there are not enough.
#[inline(always)]
fn chunk<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).unwrap_or(&[0; N])
}
