//! The rings of an `AF_XDP` socket: one side writes, the other reads, a power of two of entries
//! between them.
//!
//! Memory order as in the kernel's `net/xdp/xsk_queue.h`: entries are written before the index that
//! shows them, and read before the index that gives them back.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};

use crate::path::mapped::Mapping;

/// The place of a ring. `WORDS` double words an entry.
#[derive(Clone, Copy, Debug)]
struct Layout<const WORDS: usize> {
    producer: &'static AtomicU32,
    consumer: &'static AtomicU32,
    flags: &'static AtomicU32,
    entries: &'static [AtomicU64],
    mask: u32,
}

impl<const WORDS: usize> Layout<WORDS> {
    /// Maps a ring of `len` entries, a power of two, of a socket.
    fn map(socket: impl AsFd, page_offset: u64, at: &XdpRingOffset, len: u32) -> io::Result<Self> {
        let too_old = || io::Error::new(io::ErrorKind::Unsupported, "AF_XDP rings need Linux 5.4 or newer");
        let flags_at = at.flags.ok_or_else(too_old)?;
        let bytes = at.desc as usize + len as usize * WORDS * size_of::<u64>();
        let mapping = Mapping::new(socket, page_offset, bytes)?;
        let word = |at: u64| mapping.word(at as usize).ok_or(io::ErrorKind::InvalidData);
        Ok(Self {
            producer: word(at.producer)?,
            consumer: word(at.consumer)?,
            flags: word(flags_at)?,
            entries: mapping
                .double_words(at.desc as usize, len as usize * WORDS)
                .ok_or(io::ErrorKind::InvalidData)?,
            mask: len - 1,
        })
    }

    fn entry(&self, index: u32) -> &[AtomicU64] {
        let first = (index & self.mask) as usize * WORDS;
        self.entries.get(first..first + WORDS).unwrap_or(&[])
    }
}

/// The writing side: fill ring (an address) and transmit ring (an address; length and options).
#[derive(Debug)]
pub(super) struct Producer<const WORDS: usize> {
    ring: Layout<WORDS>,
    /// Behind the last entry written; shown to the kernel by [`Producer::submit`].
    head: u32,
    /// The kernel's progress at the last look.
    tail: u32,
}

impl<const WORDS: usize> Producer<WORDS> {
    pub(super) fn map(socket: impl AsFd, page_offset: u64, at: &XdpRingOffset, len: u32) -> io::Result<Self> {
        Layout::map(socket, page_offset, at, len).map(Self::new)
    }

    fn new(ring: Layout<WORDS>) -> Self {
        let (head, tail) = (ring.producer.load(Ordering::Relaxed), ring.consumer.load(Ordering::Acquire));
        Self { ring, head, tail }
    }

    /// Entries that can be written.
    pub(super) fn room(&mut self) -> u32 {
        let len = self.ring.mask + 1;
        if self.head.wrapping_sub(self.tail) == len {
            self.tail = self.ring.consumer.load(Ordering::Acquire);
        }
        len - self.head.wrapping_sub(self.tail)
    }

    /// Writes an entry; the caller has seen that there is room.
    pub(super) fn push(&mut self, entry: [u64; WORDS]) {
        for (to, from) in self.ring.entry(self.head).iter().zip(entry) {
            to.store(from, Ordering::Relaxed);
        }
        self.head = self.head.wrapping_add(1);
    }

    /// Shows the kernel what was written since the last time; whether anything was.
    pub(super) fn submit(&self) -> bool {
        let new = self.ring.producer.load(Ordering::Relaxed) != self.head;
        if new {
            self.ring.producer.store(self.head, Ordering::Release);
        }
        new
    }

    /// Whether the kernel has not yet read all that it was shown.
    pub(super) fn is_pending(&self) -> bool {
        self.ring.consumer.load(Ordering::Acquire) != self.ring.producer.load(Ordering::Relaxed)
    }

    /// The number of entries that were written so far; wraps.
    pub(super) const fn written(&self) -> u32 {
        self.head
    }

    /// The number of them that the kernel took; wraps.
    pub(super) fn taken(&self) -> u32 {
        self.ring.consumer.load(Ordering::Acquire)
    }

    /// Whether the kernel wants a call before it goes on.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.flags.load(Ordering::Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
    }
}

/// The reading side: receive ring (an address; length and options) and completion ring (an
/// address).
#[derive(Debug)]
pub(super) struct Consumer<const WORDS: usize> {
    ring: Layout<WORDS>,
    /// The kernel's progress at the last look.
    head: u32,
    /// Behind the last entry read; shown to the kernel by [`Consumer::release`].
    tail: u32,
}

impl<const WORDS: usize> Consumer<WORDS> {
    pub(super) fn map(socket: impl AsFd, page_offset: u64, at: &XdpRingOffset, len: u32) -> io::Result<Self> {
        Layout::map(socket, page_offset, at, len).map(Self::new)
    }

    fn new(ring: Layout<WORDS>) -> Self {
        let (head, tail) = (ring.producer.load(Ordering::Acquire), ring.consumer.load(Ordering::Relaxed));
        Self { ring, head, tail }
    }

    /// The next entry. What was read is the kernel's again only after [`Consumer::release`].
    pub(super) fn pop(&mut self) -> Option<[u64; WORDS]> {
        if self.head == self.tail {
            self.release();
            self.head = self.ring.producer.load(Ordering::Acquire);
            if self.head == self.tail {
                return None;
            }
        }
        let mut entry = [0; WORDS];
        for (to, from) in entry.iter_mut().zip(self.ring.entry(self.tail)) {
            *to = from.load(Ordering::Relaxed);
        }
        self.tail = self.tail.wrapping_add(1);
        Some(entry)
    }

    /// The number of entries that were read so far; wraps.
    pub(super) const fn read(&self) -> u32 {
        self.tail
    }

    /// Gives back the entries that were read.
    pub(super) fn release(&self) {
        self.ring.consumer.store(self.tail, Ordering::Release);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Both ends of a ring of `len` entries; the kernel has neither. Its indices wrap within the
    /// first four entries.
    pub(in crate::path::xsk) fn ring<const WORDS: usize>(len: u32) -> (Producer<WORDS>, Consumer<WORDS>) {
        let word = |value| &*Box::leak(Box::new(AtomicU32::new(value)));
        let ring = Layout {
            producer: word(u32::MAX - 2),
            consumer: word(u32::MAX - 2),
            flags: word(0),
            entries: (0..len as usize * WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak(),
            mask: len - 1,
        };
        (Producer::new(ring), Consumer::new(ring))
    }

    #[test]
    fn entries_arrive_in_order_once_they_are_shown() {
        let (mut producer, mut consumer) = ring::<2>(4);
        assert!(!producer.submit() && !producer.is_pending(), "nothing was written");
        for entry in 0..20 {
            producer.push([entry, entry + 100]);
            assert_eq!(consumer.pop(), None, "not shown yet");
            assert!(producer.submit() && producer.is_pending());
            assert_eq!(consumer.pop(), Some([entry, entry + 100]));
            assert_eq!(consumer.pop(), None);
            assert!(!producer.submit() && !producer.is_pending(), "all was read");
        }
    }

    #[test]
    fn a_full_ring_has_room_again_when_entries_are_given_back() {
        let (mut producer, mut consumer) = ring::<1>(4);
        for entry in 0..4 {
            assert_eq!(producer.room(), 4 - entry as u32);
            producer.push([entry]);
        }
        producer.submit();
        assert_eq!(producer.room(), 0);
        assert_eq!([consumer.pop(), consumer.pop()], [Some([0]), Some([1])]);
        assert_eq!(producer.room(), 0, "read, and not given back");
        consumer.release();
        assert_eq!(producer.room(), 2);
        producer.push([4]);
        producer.submit();
        assert_eq!([(); 4].map(|()| consumer.pop()), [Some([2]), Some([3]), Some([4]), None]);
    }

    #[test]
    fn a_wakeup_is_what_the_other_end_asks_for() {
        let (producer, consumer) = ring::<1>(4);
        assert!(!producer.needs_wakeup());
        consumer.ring.flags.store(XdpRingFlags::XDP_RING_NEED_WAKEUP.bits(), Ordering::Relaxed);
        assert!(producer.needs_wakeup());
    }
}
