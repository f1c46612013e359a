//! What the SIMD kernels without compression instructions share: shuffles of words.

/// A shuffle that writes zero if the index has its top bit set.
const NOTHING: u8 = 0x80;

/// By which of eight words are there: from their places to words without gaps.
pub(super) static CLOSE_UP: [[u8; 16]; 256] = shuffles(true);
/// By which of eight words are there: from words without gaps to their places.
pub(super) static SPREAD_OUT: [[u8; 16]; 256] = shuffles(false);

const fn shuffles(close_up: bool) -> [[u8; 16]; 256] {
    let mut table = [[NOTHING; 16]; 256];
    let mut octet = 0;
    while octet < 256 {
        let (mut place, mut item) = (0, 0);
        while place < 8 {
            if octet >> place & 1 != 0 {
                let (to, from) = if close_up { (item, place) } else { (place, item) };
                table[octet][2 * to] = 2 * from as u8;
                table[octet][2 * to + 1] = 2 * from as u8 + 1;
                item += 1;
            }
            place += 1;
        }
        octet += 1;
    }
    table
}
