//! A split virtqueue (Virtual I/O Device 1.2, section 2.7): every buffer is one descriptor.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use heapless::Vec;

use crate::buffers::{FrameBuffer, HEADER_LEN, Memory};

/// Buffers that a ring holds; a power of two.
pub const RING: usize = 32;

/// Descriptor flag: the device writes the buffer.
const WRITE: u32 = 2;
/// Flag of the available ring: no interrupt, please.
const NO_INTERRUPT: u16 = 1;

/// The memory that driver and device share. The device reads and writes it at any time: every field
/// is atomic.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct QueueMemory {
    /// Address (two words), length, flags: section 2.7.5.
    descriptors: [[AtomicU32; 4]; RING],
    /// Flags, index, ring: section 2.7.6.
    available: Available,
    used: Used,
}

#[repr(C)]
#[derive(Debug)]
struct Available {
    flags: AtomicU16,
    index: AtomicU16,
    ring: [AtomicU16; RING],
}

/// Section 2.7.8.
#[repr(C, align(4))]
#[derive(Debug)]
struct Used {
    _flags: AtomicU16,
    index: AtomicU16,
    /// Descriptor and bytes written.
    ring: [[AtomicU32; 2]; RING],
}

impl QueueMemory {
    /// All zero.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            descriptors: [const { [const { AtomicU32::new(0) }; 4] }; RING],
            available: Available {
                flags: AtomicU16::new(0),
                index: AtomicU16::new(0),
                ring: [const { AtomicU16::new(0) }; RING],
            },
            used: Used {
                _flags: AtomicU16::new(0),
                index: AtomicU16::new(0),
                ring: [const { [const { AtomicU32::new(0) }; 2] }; RING],
            },
        }
    }

    /// Addresses of descriptors, available ring and used ring, for the device.
    #[must_use]
    pub fn addresses(&self) -> [u64; 3] {
        [
            ptr::from_ref(&self.descriptors).expose_provenance() as u64,
            ptr::from_ref(&self.available).expose_provenance() as u64,
            ptr::from_ref(&self.used).expose_provenance() as u64,
        ]
    }
}

/// The device's side.
#[cfg(test)]
impl QueueMemory {
    pub(super) fn write_used(&self, place: u16, id: u32, written: u32) {
        let [to_id, to_written] = &self.used.ring[usize::from(place)];
        to_id.store(id, Ordering::Relaxed);
        to_written.store(written, Ordering::Relaxed);
    }

    pub(super) fn set_used_index(&self, index: u16) {
        self.used.index.store(index, Ordering::Release);
    }

    /// The lengths that it reads: the length of each descriptor.
    pub(super) fn lens(&self) -> [u32; RING] {
        self.descriptors.each_ref().map(|[_, _, len, _]| len.load(Ordering::Relaxed))
    }

    pub(super) fn used_index(&self) -> u16 {
        self.used.index.load(Ordering::Relaxed)
    }
}

impl Default for QueueMemory {
    fn default() -> Self {
        Self::new()
    }
}

/// The writer of a queue's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// The device: a receive queue.
    Device,
    /// The driver: a transmit queue.
    Driver,
}

/// The driver's side of one queue.
#[derive(Debug)]
pub struct Queue {
    memory: &'static QueueMemory,
    writer: Writer,
    /// By descriptor: the buffer that the device has.
    lent: [Option<NonNull<Memory>>; RING],
    /// Descriptors without a buffer.
    vacant: Vec<u16, RING>,
    made_available: u16,
    seen_used: u16,
}

/// A buffer that the device gave back, and how many bytes it says it wrote.
#[derive(Debug)]
pub struct Returned {
    /// The buffer.
    pub buffer: FrameBuffer,
    /// Bytes, header included; any number.
    pub written: u32,
}

/// The device returned a buffer that it does not have.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation;

impl Queue {
    /// A queue with no buffers. With a `writer` other than the device it asks for no interrupts.
    #[must_use]
    pub fn new(memory: &'static QueueMemory, writer: Writer) -> Self {
        if writer == Writer::Driver {
            memory.available.flags.store(NO_INTERRUPT, Ordering::Relaxed);
        }
        let mut vacant = Vec::new();
        for descriptor in 0..RING as u16 {
            let _ = vacant.push(descriptor); // there are RING places
        }
        Self { memory, writer, lent: [None; RING], vacant, made_available: 0, seen_used: 0 }
    }

    /// Whether no further buffer has a place.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.vacant.is_empty()
    }

    /// Whether the device has no buffer: all came back, or none was lent.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.vacant.len() == RING
    }

    /// The number of buffers the device has.
    #[cfg(test)]
    pub(super) fn lent(&self) -> usize {
        self.lent.iter().flatten().count()
    }

    /// Lends a buffer to the device, with `len` bytes behind the header.
    ///
    /// # Errors
    /// The buffer, if the ring is full.
    pub fn lend(&mut self, buffer: FrameBuffer, len: usize) -> Result<(), FrameBuffer> {
        let Some(descriptor) = self.vacant.pop() else { return Err(buffer) };
        let (Some(words), Some(lent), Some(slot)) = (
            self.memory.descriptors.get(usize::from(descriptor)),
            self.lent.get_mut(usize::from(descriptor)),
            self.memory.available.ring.get(usize::from(self.made_available) % RING),
        ) else {
            return Err(buffer); // no descriptor is above RING
        };
        let memory = NonNull::from_mut(buffer.into_memory());
        // From here until it comes back the memory is the device's: only the pointer is kept.
        let header = memory.as_ptr().map_addr(|addr| addr + core::mem::offset_of!(Memory, header));
        let address = header.expose_provenance() as u64;
        *lent = Some(memory);
        let flags = if self.writer == Writer::Device { WRITE } else { 0 };
        for (word, value) in
            words.iter().zip([address as u32, (address >> 32) as u32, (HEADER_LEN + len) as u32, flags])
        {
            word.store(value, Ordering::Relaxed);
        }
        slot.store(descriptor, Ordering::Relaxed);
        self.made_available = self.made_available.wrapping_add(1);
        // What was written before, the frame too, is seen by who sees the index.
        self.memory.available.index.store(self.made_available, Ordering::Release);
        Ok(())
    }

    /// The next buffer that the device gave back.
    ///
    /// # Errors
    /// It names a descriptor that it does not have; the entry is skipped.
    pub fn take_back(&mut self) -> Option<Result<Returned, Violation>> {
        let index = self.memory.used.index.load(Ordering::Acquire);
        if index == self.seen_used {
            return None;
        }
        if usize::from(index.wrapping_sub(self.seen_used)) > RING {
            // More than it ever had. Its newest entries are as good as any.
            self.seen_used = index.wrapping_sub(RING as u16);
            return Some(Err(Violation));
        }
        let [id, written] = self.memory.used.ring.get(usize::from(self.seen_used) % RING)?;
        let (id, written) = (id.load(Ordering::Relaxed), written.load(Ordering::Relaxed));
        self.seen_used = self.seen_used.wrapping_add(1);
        let Some(memory) = self.lent.get_mut(id as usize).and_then(Option::take) else {
            return Some(Err(Violation));
        };
        let _ = self.vacant.push(id as u16); // its place was taken until now
        Some(Ok(Returned { buffer: reclaim(memory), written }))
    }
}

/// A buffer again, of memory that was lent.
#[expect(unsafe_code, reason = "memory comes back from a device, which has no type")]
fn reclaim(mut memory: NonNull<Memory>) -> FrameBuffer {
    // SAFETY: the pointer was made from the `&'static mut` of a buffer in `lend`, and is taken out
    // of `lent` exactly once, so nobody else has it; a device writes no buffer any more that it
    // returned (section 2.7.8.2), and the acquiring load of the index orders what it wrote before
    // what is read now. All bit patterns are valid.
    FrameBuffer::new(unsafe { memory.as_mut() })
}
