//! The loops that all kernels share: whole steps straight from and to the payload, the ends of payloads
//! through a padded block.
//!
//! `#[inline(always)]`: each is compiled into the kernel that calls it, with that kernel's instructions.

use crate::codec::{BURST_LEN, LANES, MAX_GROUP_LEN, Params, TAGS_LEN, VALUE_LEN, decode_burst};
use crate::error::{DecodeError, EncodeError};
use crate::wire::checksum::Sum;

/// Two more than the longest group, so that the offset of a lane, at most 30, can be masked with 31 instead of
/// being checked.
pub(super) const WINDOW_LEN: usize = MAX_GROUP_LEN + 2;
/// What a decoder may read from the start of a group, whatever its length.
pub(super) type Window = [u8; WINDOW_LEN];
/// A burst of decoded values.
pub(super) type Burst = [u8; BURST_LEN];

/// Encodes all whole steps of `values` for which `groups` has room with `step`, which turns `STEP` bytes of values (a multiple
/// of a burst) into groups at the start of `ROOM` bytes and returns their length; it may write anything behind them.
/// Returns how many bytes of groups were written, and the values that are left for [`encode_rest`].
///
/// No call stands in this loop, and nothing that the rest needs: the kernel's constants stay in registers.
#[inline(always)]
pub(super) fn encode_whole<'a, const STEP: usize, const ROOM: usize>(
    values: &'a [u8],
    groups: &mut [u8],
    step: impl Fn(&[u8; STEP], &mut [u8; ROOM]) -> usize,
) -> (usize, &'a [u8]) {
    let (mut at, mut left) = (0, values);
    while let Some((whole, rest)) = left.split_first_chunk()
        && let Some(room) = groups.get_mut(at..).and_then(|groups| groups.first_chunk_mut())
    {
        at += step(whole, room);
        left = rest;
    }
    (at, left)
}

/// Encodes what [`encode_whole`] left to byte `at` of `groups` and behind: less than a step, or with little room.
#[inline(always)]
pub(super) fn encode_rest<const STEP: usize, const ROOM: usize>(
    values: &[u8],
    groups: &mut [u8],
    mut at: usize,
    step: impl Fn(&[u8; STEP], &mut [u8; ROOM]) -> usize,
) -> Result<usize, EncodeError> {
    let have = groups.len();
    for values in values.chunks(STEP) {
        // Zeros behind the values leave nothing but the tags of absent bursts.
        let (mut block, mut room) = ([0; STEP], [0; ROOM]);
        copy_start(&mut block, values);
        let absent_bursts = STEP / BURST_LEN - values.len().div_ceil(BURST_LEN);
        let len = step(&block, &mut room) - TAGS_LEN * absent_bursts;
        let to = groups.get_mut(at..at + len).ok_or(EncodeError::NoRoom { have })?;
        copy_start(to, room.get(..len).unwrap_or(&[]));
        at += len;
    }
    Ok(at)
}

/// Decodes groups until `values` is full with `burst`, which decodes the group at the start of its window and returns
/// the group's length; it never reads further than the window.
#[inline(always)]
pub(super) fn decode_with(
    groups: &[u8],
    values: &mut [u8],
    params: Params,
    burst: impl Fn(&Window, &mut Burst) -> usize,
) -> Result<usize, DecodeError> {
    let mut at = 0;
    let (bursts, last) = values.as_chunks_mut();
    let mut bursts = bursts.iter_mut();
    while let Some(window) = groups.get(at..).and_then(|groups| groups.first_chunk())
        && let Some(to) = bursts.next()
    {
        at += burst(window, to);
    }
    decode_end(groups, at, bursts.into_slice(), last, params, burst)
}

/// The end of a payload: fewer bytes than a window, or fewer values than a burst. `at` is the offset of the next group;
/// returns that of the first byte behind the last group.
#[inline(always)]
pub(super) fn decode_end(
    groups: &[u8],
    at: usize,
    bursts: &mut [Burst],
    last: &mut [u8],
    params: Params,
    burst: impl Fn(&Window, &mut Burst) -> usize,
) -> Result<usize, DecodeError> {
    // Zeros behind the end: what a window shows there is a group of 2 bytes, and then too long.
    let mut block = [0; 2 * WINDOW_LEN];
    let rest = groups.get(at..).unwrap_or(&[]);
    let have = rest.len().min(WINDOW_LEN);
    copy_start(&mut block, rest.get(..have).unwrap_or(&[]));
    let mut used = 0; // at most `have`
    let mut next = |to: &mut Burst, lanes: usize| {
        let window = block.get(used..).and_then(|block| block.first_chunk());
        let window: &Window = window.unwrap_or(&[0; WINDOW_LEN]);
        let len = burst(window, to);
        let tags = u32::from(u16::from_le_bytes([window[0], window[1]]));
        if used + len > have || tags >> (2 * lanes) != 0 {
            // Refused; the definition says why.
            decode_burst(groups, at + used, to.get_mut(..lanes * VALUE_LEN).unwrap_or(&mut []), params)?;
        }
        used += len;
        Ok(())
    };
    for to in bursts {
        next(to, LANES)?;
    }
    if !last.is_empty() {
        let mut to = [0; BURST_LEN];
        next(&mut to, last.len() / VALUE_LEN)?;
        let len = last.len();
        copy_start(last, to.get(..len).unwrap_or(&[]));
    }
    Ok(at + used)
}

/// As [`Sum::of`], eight sums side by side, which is what SIMD adds at once.
#[inline(always)]
pub(super) fn sum_wide(bytes: &[u8]) -> Sum {
    let (chunks, rest) = bytes.as_chunks::<64>();
    let mut sums = [0u64; 8]; // of 32-bit words: a frame has 2^14, so they stay below 2^46
    for chunk in chunks {
        for (sum, word) in sums.iter_mut().zip(chunk.as_chunks::<8>().0) {
            let word = u64::from_le_bytes(*word);
            *sum += (word & 0xffff_ffff) + (word >> 32);
        }
    }
    Sum::from_le_words(sums.iter().sum()) + Sum::of(rest)
}

/// Copies `from` to the start of `to`, or nothing where it does not fit.
#[inline(always)]
pub(super) fn copy_start(to: &mut [u8], from: &[u8]) {
    if let Some(to) = to.get_mut(..from.len()) {
        to.copy_from_slice(from);
    }
}
