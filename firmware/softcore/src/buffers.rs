//! Memory for frames: a fixed number of buffers, handed from owner to owner.

use gradwire::forward::Buffer;
use gradwire::wire::frame::MAX_LINK_LEN;
use heapless::Vec;

use crate::MTU;

/// The longest frame.
pub const MAX_FRAME_LEN: usize = MTU as usize + MAX_LINK_LEN;
/// Bytes for a frame, and some to see that one was too long.
pub const ROOM: usize = MAX_FRAME_LEN.next_multiple_of(4) + 4;
/// Bytes before the frame for what a NIC wants there; virtio-net's header is 12 bytes long.
pub const HEADER_LEN: usize = 12;

/// One buffer's memory.
///
/// The frame starts two bytes behind a word: an IP header then starts on a word, and so do the
/// values in most TCP segments, which processors without unaligned loads read several times faster.
#[repr(C, align(4))]
#[derive(Debug)]
pub struct Memory {
    padding: [u8; 2],
    /// The header that the NIC wants before the frame.
    pub header: [u8; HEADER_LEN],
    /// The frame.
    pub room: [u8; ROOM],
}

impl Memory {
    /// All zero.
    pub const NEW: Self = Self { padding: [0; 2], header: [0; HEADER_LEN], room: [0; ROOM] };
}

/// A buffer: whoever has the value has the memory.
#[derive(Debug)]
pub struct FrameBuffer {
    memory: &'static mut Memory,
    len: usize, // at most ROOM
}

impl FrameBuffer {
    /// A buffer with an empty frame.
    #[must_use]
    pub const fn new(memory: &'static mut Memory) -> Self {
        Self { memory, len: 0 }
    }

    /// The header for the device.
    pub const fn header_mut(&mut self) -> &mut [u8; HEADER_LEN] {
        &mut self.memory.header
    }

    /// The memory, for a device to read or write.
    #[must_use]
    pub const fn into_memory(self) -> &'static mut Memory {
        self.memory
    }
}

impl Buffer for FrameBuffer {
    fn frame(&self) -> &[u8] {
        self.memory.room.get(..self.len).unwrap_or(&self.memory.room)
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.memory.room
    }

    fn set_len(&mut self, len: usize) {
        self.len = len.min(ROOM);
    }
}

/// Buffers that nobody uses, at most `N`.
#[derive(Debug)]
pub struct Pool<const N: usize> {
    free: Vec<FrameBuffer, N>,
}

impl<const N: usize> Pool<N> {
    /// All of `memory` is free.
    #[must_use]
    pub fn new(memory: &'static mut [Memory; N]) -> Self {
        let mut pool = Self { free: Vec::new() };
        for memory in memory {
            pool.put(FrameBuffer::new(memory));
        }
        pool
    }

    /// A free buffer.
    pub fn take(&mut self) -> Option<FrameBuffer> {
        self.free.pop()
    }

    /// Takes a buffer back. There is always a place: there are no more than `N`.
    pub fn put(&mut self, buffer: FrameBuffer) {
        let _ = self.free.push(buffer);
    }

    /// The number that are free.
    #[must_use]
    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.free.is_empty()
    }
}
