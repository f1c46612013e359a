//! Repeatable random numbers.

/// xorshift64*: repeatable, and random enough to hit every branch of a parser.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.next() % limit
    }
}
