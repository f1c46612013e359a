//! A count that outlives a restart, in memory that neither the linker script nor a start-up
//! touches.

use super::mmio::Mmio;

/// Restarts by a panic. After the power came on, its two words are what they are, and no count.
#[allow(dead_code, reason = "for the image that may panic")]
pub(crate) struct Kept(Mmio);

#[allow(dead_code, reason = "for the image that may panic")]
impl Kept {
    /// Bytes that it takes.
    pub(super) const LEN: usize = 8;

    pub(super) const fn new(memory: Mmio) -> Self {
        Self(memory)
    }

    /// So many panics.
    pub(crate) fn panics(&self) -> u32 {
        let (count, inverted) = (self.0.read32(0), self.0.read32(4));
        if inverted == !count { count } else { 0 }
    }

    /// One more.
    pub(crate) fn count_panic(&mut self) {
        let count = self.panics().wrapping_add(1);
        self.0.write32(0, count);
        self.0.write32(4, !count);
    }
}
