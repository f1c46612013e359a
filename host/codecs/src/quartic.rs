//! Digits -1, 0 and 1, five to a byte: the base-3^5 code of 3LC (Lim, Andersen, Kaminsky,
//! section 3.2), in planes, so that vectors need not be cut and joined.

use core::iter::zip;
use core::ops::Range;

use crate::ops::Blocks;

/// Values that are coded together: five planes.
const GROUP: usize = 320;
/// Values of a plane, bytes of a group.
pub(crate) const PLANE: usize = 64;
/// The value of a plane's digit in a byte.
const WEIGHTS: [i32; 5] = [81, 27, 9, 3, 1];
/// Five zeros.
pub(crate) const ZEROS: u8 = 121;
/// Codes of five digits are below.
pub(crate) const CODES: u8 = 243;

/// Bytes of `n` values.
#[inline(always)]
pub(crate) fn bytes(n: usize) -> usize {
    n / GROUP * PLANE + (n % GROUP).div_ceil(5)
}

/// Calls `part` for the planes of a group of `len` values that begins at value `at` of `n`; a plane
/// is cut where a block ends. A part's values are given as counted from `at`, and so are its plane,
/// block and first byte.
#[inline(always)]
fn parts(
    blocks: Blocks,
    n: usize,
    at: usize,
    len: usize,
    mut part: impl FnMut(Range<usize>, usize, usize, usize),
) {
    let (width, block) = (len.div_ceil(5), blocks.len(n));
    let mut of = at / block;
    let mut next = (of + 1) * block - at;
    if len == GROUP && next >= len {
        // Nothing to cut, so nothing to ask for each plane; most groups are such.
        for plane in 0..5 {
            part(plane * PLANE..(plane + 1) * PLANE, plane, of, 0);
        }
        return;
    }
    for plane in 0..5 {
        let (mut from, end) = ((plane * width).min(len), ((plane + 1) * width).min(len));
        while from < end {
            let until = next.min(end);
            part(from..until, plane, of, from - plane * width);
            if until == next {
                (of, next) = (of + 1, next + block);
            }
            from = until;
        }
    }
}

/// Calls `with` for each value and its code. Most parts are whole planes, and a loop of known
/// length is the faster one.
#[inline(always)]
fn each<T>(values: &mut [f32], codes: &mut [T], mut with: impl FnMut(usize, &mut f32, &mut T)) {
    match (values.as_chunks_mut::<PLANE>(), codes.first_chunk_mut::<PLANE>()) {
        (([values], []), Some(codes)) => {
            zip(values, codes).enumerate().for_each(|(i, (value, code))| with(i, value, code));
        }
        _ => zip(values, codes).enumerate().for_each(|(i, (value, code))| with(i, value, code)),
    }
}

/// Calls `group` with the bytes of each group of values. `digit` makes a value, with its index, of
/// a block with this scale into a digit, -1, 0 or 1, and leaves in it what that lost.
#[inline(always)]
pub(crate) fn encode(
    acc: &mut [f32],
    blocks: Blocks,
    scale: impl Fn(usize) -> f32,
    digit: impl Fn(usize, &mut f32, f32) -> i32,
    mut group: impl FnMut(&[u8]),
) {
    let n = acc.len();
    for (at, values) in acc.chunks_mut(GROUP).enumerate() {
        // As wide as values are, so that vectors need not be cut and joined.
        let (count, mut codes) = (values.len(), [i32::from(ZEROS); PLANE]);
        parts(blocks, n, at * GROUP, count, |part, plane, block, first| {
            let (from, scale, weight) = (at * GROUP + part.start, scale(block), WEIGHTS[plane]);
            each(&mut values[part], &mut codes[first..], |i, value, code| {
                *code += digit(from + i, value, scale) * weight;
            });
        });
        group(&codes.map(|code| code as u8)[..count.div_ceil(5)]);
    }
}

/// Adds to each value its digit times its block's scale. `codes` returns a group's bytes, with
/// zeros behind the last.
#[inline(always)]
pub(crate) fn merge(
    sum: &mut [f32],
    blocks: Blocks,
    scales: &[[u8; 4]],
    mut codes: impl FnMut(usize) -> [u8; PLANE],
) {
    let n = sum.len();
    let scale = |block: usize| f32::from_le_bytes(scales[block]);
    let all_finite = (0..scales.len()).all(|block| scale(block).is_finite());
    for (at, group) in sum.chunks_mut(GROUP).enumerate() {
        let codes = codes(at);
        if codes == [ZEROS; PLANE] && all_finite {
            continue;
        }
        let mut digits = digits(codes);
        parts(blocks, n, at * GROUP, group.len(), |values, plane, block, first| {
            let scale = scale(block);
            let add = |_, sum: &mut f32, digit: &mut i8| *sum += f32::from(*digit) * scale;
            each(&mut group[values], &mut digits[plane][first..], add);
        });
    }
}

/// The digits of codes, plane by plane.
#[inline(always)]
fn digits(mut codes: [u8; PLANE]) -> [[i8; PLANE]; 5] {
    let mut digits = [[0; PLANE]; 5];
    for (plane, weight) in zip(&mut digits, WEIGHTS) {
        let weight = weight as u8;
        for (digit, code) in zip(plane, &mut codes) {
            // A code that is smaller than the weight wraps around to a larger one.
            let once = (*code).min(code.wrapping_sub(weight));
            let twice = once.min(once.wrapping_sub(weight));
            *digit = 1 - i8::from(once == *code) - i8::from(twice == once);
            *code = twice;
        }
    }
    digits
}
