//! The loops that kernels share: whole steps straight from and to the payload, and the ends of
//! payloads, where a whole step or window is not there.
//!
//! `#[inline(always)]`: each is compiled into the kernel that calls it, with that kernel's
//! instructions.

use crate::codec::{
    BURST_LEN, DecodeError, EncodeError, LANES, MAX_GROUP_LEN, Params, TAGS_LEN, VALUE_LEN, decode_burst,
    encode_payload,
};

/// Two more than the longest group, so that the offset of a lane, at most 30, can be masked with 31
/// instead of being checked.
pub(super) const WINDOW_LEN: usize = MAX_GROUP_LEN + 2;
/// The bytes that a decoder may read from the start of a group, whatever its length.
pub(super) type Window = [u8; WINDOW_LEN];
/// A burst of decoded values.
pub(super) type Burst = [u8; BURST_LEN];

/// Encodes `values` with `step`, which turns `STEP` bytes of values (a multiple of a burst) into
/// groups at the start of `ROOM` bytes and returns their length; it may write anything behind them.
/// `load` reads values, `load_part` fewer than `STEP` bytes of them and zeros behind.
///
/// Nothing is called here but what is inlined, and the definition at the very end: the kernel's
/// constants stay in registers.
#[inline(always)]
pub(super) fn encode_with<const STEP: usize, const ROOM: usize, V>(
    values: &[u8],
    groups: &mut [u8],
    params: Params,
    load: impl Fn(&[u8; STEP]) -> V,
    load_part: impl Fn(&[u8]) -> V,
    step: impl Fn(&V, &mut [u8; ROOM]) -> usize,
) -> Result<usize, EncodeError> {
    encode_steps(values, groups, load, load_part, step).or_else(|Crowded { at, left }| {
        let have = groups.len();
        let left = values.get(values.len() - left..).unwrap_or(&[]);
        let rest = groups.get_mut(at..).unwrap_or(&mut []);
        encode_payload(left, rest, params).map(|len| at + len).map_err(|_| EncodeError::NoRoom { have })
    })
}

/// Less room is left than one step may need.
pub(super) struct Crowded {
    /// Bytes of the groups so far.
    at: usize,
    /// Bytes of values that are left.
    left: usize,
}

/// As [`encode_with`], of anything that `load` and `load_part` make values of, and only as far as
/// there certainly is room.
#[inline(always)]
pub(super) fn encode_steps<const STEP: usize, const ROOM: usize, V>(
    values: &[u8],
    groups: &mut [u8],
    load: impl Fn(&[u8; STEP]) -> V,
    load_part: impl Fn(&[u8]) -> V,
    step: impl Fn(&V, &mut [u8; ROOM]) -> usize,
) -> Result<usize, Crowded> {
    let (whole, part) = values.as_chunks();
    let mut whole = whole.iter();
    let mut at = 0;
    // A limit costs one comparison a step, a slice that shrinks two.
    if let Some(limit) = groups.len().checked_sub(ROOM) {
        while at <= limit
            && let Some(room) = groups.get_mut(at..at + ROOM).and_then(|groups| groups.first_chunk_mut())
            && let Some(values) = whole.next()
        {
            at += step(&load(values), room);
        }
    }
    let left = STEP * whole.len() + part.len();
    if left == 0 {
        return Ok(at);
    }
    if left < STEP
        && let Some(room) = groups.get_mut(at..).and_then(|groups| groups.first_chunk_mut())
    {
        // Zeros leave nothing behind but the tags of absent bursts.
        let absent_bursts = STEP / BURST_LEN - left.div_ceil(BURST_LEN);
        return Ok(at + step(&load_part(part), room) - TAGS_LEN * absent_bursts);
    }
    Err(Crowded { at, left })
}

/// Decodes groups until `values` is full with `burst`, which decodes the group at the start of its
/// window and returns the group's length; it never reads further than the window.
#[inline(always)]
pub(super) fn decode_with(
    groups: &[u8],
    values: &mut [u8],
    params: Params,
    burst: impl Fn(&Window, &mut Burst) -> usize,
) -> Result<usize, DecodeError> {
    decode_from(groups, 0, values, params, burst)
}

/// As [`decode_with`], from the group at byte `at`; returns the offset of the first byte behind the
/// last group.
#[inline(always)]
pub(super) fn decode_from(
    groups: &[u8],
    mut at: usize,
    values: &mut [u8],
    params: Params,
    burst: impl Fn(&Window, &mut Burst) -> usize,
) -> Result<usize, DecodeError> {
    let (bursts, last) = values.as_chunks_mut();
    let mut bursts = bursts.iter_mut();
    while let Some(window) = groups.get(at..).and_then(|groups| groups.first_chunk())
        && let Some(to) = bursts.next()
    {
        at += burst(window, to);
    }
    decode_end(groups, at, bursts.into_slice(), last, params, burst)
}

/// The end of a payload: fewer bytes than a window, or fewer values than a burst. `at` is the
/// offset of the next group; returns that of the first byte behind the last group.
#[inline(always)]
fn decode_end(
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

/// Fewer bytes than `N`, and zeros behind.
#[inline(always)]
pub(super) fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut block = [0; N];
    copy_start(&mut block, bytes);
    block
}

/// Copies `from` to the start of `to`, or nothing if it does not fit.
#[inline(always)]
pub(super) fn copy_start(to: &mut [u8], from: &[u8]) {
    if let Some(to) = to.get_mut(..from.len()) {
        to.copy_from_slice(from);
    }
}
