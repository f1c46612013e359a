//! Tables that the SIMD kernels without compression instructions share: shuffles of words.

use super::super::tables::Shuffle;

/// By which of eight words are there: from their places to words without gaps.
pub(super) static CLOSE_UP: [Shuffle; 256] = shuffles(true);
/// By which of eight words are there: from words without gaps to their places.
pub(super) static SPREAD_OUT: [Shuffle; 256] = shuffles(false);

const fn shuffles(close_up: bool) -> [Shuffle; 256] {
    let mut table = [Shuffle::NOTHING; 256];
    let mut octet = 0;
    while octet < 256 {
        let (mut place, mut item) = (0, 0);
        while place < 8 {
            if octet >> place & 1 != 0 {
                let (to, from) = if close_up { (item, place) } else { (place, item) };
                table[octet].0[2 * to] = 2 * from as u8;
                table[octet].0[2 * to + 1] = 2 * from as u8 + 1;
                item += 1;
            }
            place += 1;
        }
        octet += 1;
    }
    table
}
