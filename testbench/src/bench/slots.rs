//! Buffers as a driver has them: one for each frame, a frame at the start of each.

use memmap2::MmapMut;

/// Bytes of a buffer: a frame of 1514, a payload that grew, and what a kernel may write behind it.
pub(crate) const SLOT_LEN: usize = 1728;
/// The start of the payload: behind the headers of Ethernet, IPv4 and TCP with timestamps. No
/// kernel then loads from aligned addresses, as none will in a card.
pub(crate) const PAYLOAD_AT: usize = 14 + 20 + 32;
/// Buffers of one kind. Two kinds at a time are in use, 442 KB: beyond every L1 cache, within most
/// L2 caches.
pub(crate) const SLOTS: usize = 128;

/// Bytes of a huge page of x86-64 and 64-bit Arm.
const HUGE_PAGE: usize = 2 << 20;

/// [`SLOTS`] buffers on one huge page, where the system has huge pages: on pages of their own,
/// identical code took up to 1.25 times as long in one run as in another. The first starts at a
/// cache line, and so does each after it.
#[derive(Debug)]
pub(crate) struct Slots {
    bytes: MmapMut,
    start: usize,
}

impl Slots {
    pub(crate) fn new() -> Self {
        const { assert!(SLOT_LEN.is_multiple_of(LINE) && SLOTS * SLOT_LEN <= HUGE_PAGE) };
        const LINE: usize = 64;
        let bytes = MmapMut::map_anon(2 * HUGE_PAGE).expect("4 MiB of memory");
        // Without huge pages, the kernel refuses, and small ones serve.
        #[cfg(target_os = "linux")]
        let _ = bytes.advise(memmap2::Advice::HugePage);
        let start = bytes.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        Self { bytes, start }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8; SLOT_LEN]> {
        self.bytes[self.start..].as_chunks().0.iter().take(SLOTS)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut [u8; SLOT_LEN]> {
        self.bytes[self.start..].as_chunks_mut().0.iter_mut().take(SLOTS)
    }
}
