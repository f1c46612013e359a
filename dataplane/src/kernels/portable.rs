//! No intrinsics, no `unsafe`, no branch on data: for processors without a kernel of their own.
//!
//! The encoder works in two phases, 64 values at a time. Work on one lane alone is written so that
//! compilers vectorise it, also for SSE2, which has neither shifts by different counts nor
//! saturating conversions. Work that depends on the lane before is scalar: one multiplication turns
//! eight lengths into eight offsets. The decoder is scalar, with tables by tag.

use super::loops::{Burst, WINDOW_LEN, Window, decode_with, encode_with, padded};
use crate::checksum::Sum;
use crate::codec::{BURST_LEN, DecodeError, EncodeError, LANES, MAX_GROUP_LEN, Params, TAGS_LEN, VALUE_LEN};

/// As [`Sum::of`].
// Its own function there, since `Kernel::sum` would save registers for it.
#[cfg_attr(target_arch = "x86_64", inline(never))]
pub(super) fn sum(bytes: &[u8]) -> Sum {
    Sum::of(bytes)
}

/// Bursts that are encoded at a time: enough lanes for compilers to vectorise what is done to each.
const BURSTS: usize = 8;
const STEP: usize = BURSTS * BURST_LEN;
/// Groups of at most 34 bytes, and a window.
const ROOM: usize = (BURSTS - 1) * MAX_GROUP_LEN + WINDOW_LEN;

/// Lanes whose vectors are known, but not yet where they go.
struct Placed {
    /// A lane's vector in its low bytes; those behind will be overwritten by the next vector.
    vectors: [[u32; LANES]; BURSTS],
    tags: [[u8; LANES]; BURSTS],
}

/// As [`crate::codec::encode_payload`].
pub(super) fn encode(values: &[u8], groups: &mut [u8], params: Params) -> Result<usize, EncodeError> {
    let place = placer(params);
    encode_with(
        values,
        groups,
        params,
        &place,
        |part| place(&padded(part)),
        |placed: &Placed, room: &mut [u8; ROOM]| {
            let mut at = 0;
            for (vectors, tags) in placed.vectors.iter().zip(&placed.tags) {
                let room = room.get_mut(at..).and_then(|room| room.first_chunk_mut());
                at += room.map_or(0, |room| pack(vectors, u64::from_le_bytes(*tags), room));
            }
            at
        },
    )
}

/// From values to vectors.
#[inline(always)]
fn placer(params: Params) -> impl Fn(&[u8; STEP]) -> Placed {
    let [byte_from, half_from, raw_from] =
        [params.byte_from(), params.half_from(), params.raw_from()].map(|exponent| (exponent << 23) as i32);
    // What exponents grow by, so that a fraction becomes a whole number: 2^(7+k-x) and 2^(15-x).
    let (k, x) = (i32::from(params.k()), i32::from(params.x()));
    let (byte_up, half_more) = ((7 + k - x) << 23, (8 - k) << 23);
    // Between 2^23 and 2^24 floats are the whole numbers. A conversion would have to saturate,
    // which not every vector unit does.
    let whole = f32::from_bits((127 + 23) << 23);

    move |values| {
        let mut placed = Placed { vectors: [[0; LANES]; BURSTS], tags: [[0; LANES]; BURSTS] };
        let mut classes = [0; BURSTS * LANES];
        let to = placed.vectors.as_flattened_mut().iter_mut().zip(&mut classes);
        for (value, (vector, class)) in values.as_chunks().0.iter().zip(to) {
            let f = i32::from_le_bytes(*value);
            let magnitude = f & i32::MAX;
            let [byte, half, raw] = [byte_from, half_from, raw_from].map(|from| magnitude >= from);
            let up = byte_up.wrapping_add(if half { half_more } else { 0 });
            // Less than 2^15 if it is coded; whatever other lanes become is not kept.
            let scaled = f32::from_bits(magnitude.wrapping_add(up) as u32);
            let rounded = scaled + whole;
            let too_much = u32::from(rounded - whole > scaled);
            let fraction = rounded.to_bits().wrapping_sub(whole.to_bits() + too_much);
            let sign = (f >> 31) as u32 & (0x80 ^ if half { 0x8080 } else { 0 });
            *vector = if raw { f as u32 } else { fraction | sign };
            *class = u32::from(byte) + u32::from(half) + u32::from(raw);
        }
        for (tag, class) in placed.tags.as_flattened_mut().iter_mut().zip(classes) {
            *tag = class as u8;
        }
        placed
    }
}

/// Writes a group; its length.
#[inline(always)]
fn pack(vectors: &[u32; LANES], tags: u64, room: &mut [u8; WINDOW_LEN]) -> usize {
    // Of every byte its lowest bit.
    const ONES: u64 = 0x0101_0101_0101_0101;
    // 0, 1, 2, 4: a byte a lane, as all that follows. At most 32 in all, so no byte overflows.
    let lens = tags + (tags & tags >> 1 & ONES);
    let ends = lens.wrapping_mul(ONES);
    let starts = ends - lens + TAGS_LEN as u64 * ONES;
    for (lane, vector) in vectors.iter().enumerate() {
        // At most 30: the mask changes nothing and spares the check.
        put(room, (starts >> (8 * lane) & 31) as usize, *vector);
    }
    // Two bits a lane, the first lane's lowest.
    let tags = tags | tags >> 6;
    let tags = (tags | tags >> 12) & 0x0000_00ff_0000_00ff;
    (room[0], room[1]) = (tags as u8, (tags >> 32) as u8);
    TAGS_LEN + (ends >> 56) as usize
}

/// As [`crate::codec::decode_payload`].
pub(super) fn decode(groups: &[u8], values: &mut [u8], params: Params) -> Result<usize, DecodeError> {
    // By tag. A placed vector has its sign at bit 31 and its magnitude below, whatever its class.
    let place = [0u32, 1 << 24, 1 << 16, 1];
    let lens = [0usize, 1, 2, 4];
    // The sign of a coded lane, all of a raw one, whose multiplier is zero.
    let kept = [0, 1 << 31, 1 << 31, u32::MAX];
    let power = |exponent: i32| f32::from_bits(((127 + exponent) as u32) << 23);
    let (k, x) = (i32::from(params.k()), i32::from(params.x()));
    let down = [0.0, power(x - 31 - k), power(x - 31), 0.0];

    decode_with(groups, values, params, |window: &Window, to: &mut Burst| {
        let tags = u16::from_le_bytes([window[0], window[1]]);
        let mut at = TAGS_LEN;
        let (values, _) = to.as_chunks_mut::<VALUE_LEN>();
        for (lane, value) in values.iter_mut().enumerate().take(LANES) {
            let tag = usize::from(tags >> (2 * lane) & 3);
            let placed = get(window, at & 31).wrapping_mul(place[tag]);
            // At most 15 significant bits, or raw: the conversion is exact if it counts.
            let magnitude = (placed & 0x7fff_ffff) as i32 as f32 * down[tag];
            *value = (magnitude.to_bits() | placed & kept[tag]).to_le_bytes();
            at += lens[tag];
        }
        at
    })
}

/// Writes four bytes at `at`, which is at most 31.
#[inline(always)]
fn put(room: &mut [u8; WINDOW_LEN], at: usize, vector: u32) {
    if let Some(room) = room.get_mut(at..at + VALUE_LEN) {
        room.copy_from_slice(&vector.to_le_bytes());
    }
}

/// Reads four bytes at `at`, which is at most 31.
#[inline(always)]
fn get(window: &Window, at: usize) -> u32 {
    let bytes = window.get(at..).and_then(|window| window.first_chunk());
    u32::from_le_bytes(*bytes.unwrap_or(&[0; VALUE_LEN]))
}
