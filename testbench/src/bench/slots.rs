//! Buffers as a driver has them: one for each frame, a frame at the start of each.

/// Bytes of a buffer: a frame of 1514, a payload that grew, and what a kernel may write behind it.
pub(crate) const SLOT_LEN: usize = 1728;
/// The start of the payload: behind the headers of Ethernet, IPv4 and TCP with timestamps. No
/// kernel then loads from aligned addresses, as none will in a card.
pub(crate) const PAYLOAD_AT: usize = 14 + 20 + 32;
/// Buffers of one kind. Two kinds at a time are in use, 442 KB: beyond every L1 cache, within most
/// L2 caches.
pub(crate) const SLOTS: usize = 128;

/// [`SLOTS`] buffers. The first starts at a cache line, and so does each after it: all runs have
/// them alike.
#[derive(Debug)]
pub(crate) struct Slots {
    bytes: Vec<u8>,
    start: usize,
}

impl Slots {
    pub(crate) fn new() -> Self {
        const { assert!(SLOT_LEN.is_multiple_of(LINE)) };
        const LINE: usize = 64;
        let bytes = vec![0; SLOTS * SLOT_LEN + LINE];
        let start = bytes.as_ptr().align_offset(LINE).min(LINE);
        Self { bytes, start }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8; SLOT_LEN]> {
        self.bytes[self.start..].as_chunks().0.iter().take(SLOTS)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut [u8; SLOT_LEN]> {
        self.bytes[self.start..].as_chunks_mut().0.iter_mut().take(SLOTS)
    }
}
