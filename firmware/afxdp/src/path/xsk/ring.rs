//! The rings of an `AF_XDP` socket: one side writes, the other reads, a power of two of entries between them.
//!
//! Memory order as in the kernel's `net/xdp/xsk_queue.h`: entries are written before the index that shows them, and
//! read before the index that gives them back.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};

use crate::path::mapped::Mapping;

/// Where a ring lies. `WORDS` double words an entry.
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
    /// How far the kernel was when it was looked at last.
    tail: u32,
}

impl<const WORDS: usize> Producer<WORDS> {
    pub(super) fn map(socket: impl AsFd, page_offset: u64, at: &XdpRingOffset, len: u32) -> io::Result<Self> {
        let ring = Layout::map(socket, page_offset, at, len)?;
        Ok(Self {
            ring,
            head: ring.producer.load(Ordering::Relaxed),
            tail: ring.consumer.load(Ordering::Acquire),
        })
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

    /// Whether the kernel wants a call before it goes on.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.flags.load(Ordering::Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
    }
}

/// The reading side: receive ring (an address; length and options) and completion ring (an address).
#[derive(Debug)]
pub(super) struct Consumer<const WORDS: usize> {
    ring: Layout<WORDS>,
    /// How far the kernel was when it was looked at last.
    head: u32,
    /// Behind the last entry read; shown to the kernel by [`Consumer::release`].
    tail: u32,
}

impl<const WORDS: usize> Consumer<WORDS> {
    pub(super) fn map(socket: impl AsFd, page_offset: u64, at: &XdpRingOffset, len: u32) -> io::Result<Self> {
        let ring = Layout::map(socket, page_offset, at, len)?;
        Ok(Self {
            ring,
            head: ring.producer.load(Ordering::Acquire),
            tail: ring.consumer.load(Ordering::Relaxed),
        })
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

    /// Gives back the entries that were read.
    pub(super) fn release(&self) {
        self.ring.consumer.store(self.tail, Ordering::Release);
    }
}
