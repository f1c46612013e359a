//! Memory that the kernel reads and writes, too: all `unsafe` of this crate, behind types that cannot be misused.
//!
//! Nothing mapped here is ever unmapped: rings, frames and maps live as long as the process, so what refers to them is
//! `'static`. All of it is allocated at start.

#![expect(unsafe_code, reason = "memory shared with the kernel has no safe face in the standard library")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

/// Pages of a file descriptor that the kernel changes while they are read; seen only as atomics.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes of `fd` from `offset` on, for reading and writing.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(fd: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a null hint lets the kernel choose addresses that nothing else uses.
        let base =
            unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, fd, offset) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { base, len })
    }

    /// The word at byte `at`; `None` where it lies outside or is not aligned.
    #[must_use]
    pub fn word(&self, at: usize) -> Option<&'static AtomicU32> {
        let word = self.elements::<AtomicU32>(at, 1)?;
        // SAFETY: `elements` vouches for one element of a mapping that is never unmapped, mapped readable and
        // writable; any bits are a value, and an atomic may be changed by others.
        Some(unsafe { word.as_ref() })
    }

    /// `count` double words from byte `at` on; `None` where they lie outside or are not aligned.
    #[must_use]
    pub fn double_words(&self, at: usize, count: usize) -> Option<&'static [AtomicU64]> {
        let first = self.elements::<AtomicU64>(at, count)?;
        // SAFETY: as in `word`, for `count` elements.
        Some(unsafe { NonNull::slice_from_raw_parts(first, count).as_ref() })
    }

    /// Where `count` elements are, if they lie inside and are aligned.
    fn elements<T>(&self, at: usize, count: usize) -> Option<NonNull<T>> {
        let end = count.checked_mul(size_of::<T>())?.checked_add(at)?;
        // SAFETY: the offset lies in the mapping, or just behind it.
        let first = (end <= self.len).then(|| unsafe { self.base.add(at) })?.cast::<T>();
        first.is_aligned().then_some(first)
    }
}

/// A piece of the memory of frames. Whoever has the value has the memory: it is not to be had twice.
#[derive(Debug)]
pub struct Chunk {
    /// Its place in the memory.
    index: u32,
    bytes: &'static mut [u8],
}

impl Chunk {
    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Its bytes.
    pub const fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

/// The memory of frames: chunks of one size, each of which either is a [`Chunk`] or is the kernel's.
#[derive(Debug)]
pub struct Frames {
    base: NonNull<u8>,
    chunk_size: u32,
    /// By place: whether the kernel has it.
    lent: Vec<bool>,
}

// SAFETY: `base` is not tied to a thread, and who has the value is the only one who makes chunks of it.
unsafe impl Send for Frames {}

impl Frames {
    /// `chunks` chunks of `chunk_size` bytes, and all of them.
    ///
    /// # Errors
    /// The kernel's, or memory of 4 GiB and more.
    pub fn new(chunk_size: u32, chunks: u32) -> io::Result<(Self, Vec<Chunk>)> {
        let len = chunk_size.checked_mul(chunks).ok_or(io::ErrorKind::InvalidInput)? as usize;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: a null hint lets the kernel choose addresses that nothing else uses.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, access, flags) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut frames = Self { base, chunk_size, lent: vec![true; chunks as usize] };
        let all = (0..chunks).filter_map(|index| frames.reclaim(u64::from(index) * u64::from(chunk_size)));
        let all = all.collect();
        Ok((frames, all))
    }

    /// The chunk becomes the kernel's; its address for a ring's descriptor.
    pub fn lend(&mut self, chunk: Chunk) -> u64 {
        if let Some(lent) = self.lent.get_mut(chunk.index as usize) {
            *lent = true;
        }
        u64::from(chunk.index) * u64::from(self.chunk_size)
    }

    /// The chunk in which an address lies that came back from the kernel. `None` where the kernel did not have it.
    pub fn reclaim(&mut self, address: u64) -> Option<Chunk> {
        let index = u32::try_from(address / u64::from(self.chunk_size)).ok()?;
        let lent = self.lent.get_mut(index as usize)?;
        if !core::mem::take(lent) {
            return None;
        }
        // SAFETY: `lent` has an element for each chunk, so the offset lies in the mapping.
        let first = unsafe { self.base.add(index as usize * self.chunk_size as usize) };
        let bytes = NonNull::slice_from_raw_parts(first, self.chunk_size as usize);
        // SAFETY: the mapping is never unmapped and was zeroed by the kernel; no other reference exists: a
        // `Chunk` is made only where `lent` was set, that is before the first and after the last was given up.
        let bytes = unsafe { &mut *bytes.as_ptr() };
        Some(Chunk { index, bytes })
    }

    /// Address of the memory, for its registration.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// Bytes of a chunk.
    #[must_use]
    pub const fn chunk_size(&self) -> u32 {
        self.chunk_size
    }

    /// Bytes of the memory.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.lent.len() as u64 * u64::from(self.chunk_size)
    }

    /// Whether there is no memory at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lent.is_empty()
    }
}

/// Lets a socket's owner drive the card's receive loop, in place of interrupts: `SO_PREFER_BUSY_POLL`.
///
/// # Errors
/// The kernel's: before 5.11 it does not know the option.
pub fn prefer_busy_poll(socket: impl AsFd, microseconds: u32, budget: u32) -> io::Result<()> {
    let options = [
        (libc::SO_PREFER_BUSY_POLL, 1),
        (libc::SO_BUSY_POLL, microseconds),
        (libc::SO_BUSY_POLL_BUDGET, budget),
    ];
    for (option, value) in options {
        let fd = socket.as_fd().as_raw_fd();
        let (value, len) = (ptr::from_ref(&value).cast(), size_of::<u32>() as libc::socklen_t);
        // SAFETY: `value` points to `len` readable bytes for the time of the call.
        if unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, value, len) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_to_be_had_once() {
        let (mut frames, mut chunks) = Frames::new(2048, 4).unwrap();
        assert_eq!(chunks.len(), 4);
        assert_eq!(frames.len(), 8192);
        assert!((0..4).all(|index| frames.reclaim(index * 2048).is_none()), "none is lent");
        let mut chunk = chunks.remove(1);
        chunk.bytes_mut()[5] = 7;
        let address = frames.lend(chunk);
        assert_eq!(address, 2048);
        // The kernel gives back where in the chunk the frame was.
        let back = frames.reclaim(address + 256).unwrap();
        assert_eq!(back.bytes()[5], 7);
        assert!(frames.reclaim(address).is_none());
        assert!(frames.reclaim(8192).is_none());
        assert!(frames.reclaim(u64::MAX).is_none());
    }

    #[test]
    fn a_mapping_gives_nothing_outside_itself() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        // Writable pages of a read-only file are refused.
        assert!(Mapping::new(&file, 0, 4096).is_err());
        let page = rustix::param::page_size();
        let pipe = std::fs::OpenOptions::new().read(true).write(true).open("/dev/zero").unwrap();
        let mapping = Mapping::new(&pipe, 0, page).unwrap();
        assert!(mapping.word(page - 4).is_some());
        assert!(mapping.word(page - 3).is_none());
        assert!(mapping.word(2).is_none());
        assert!(mapping.double_words(0, page / 8).is_some());
        assert!(mapping.double_words(8, page / 8).is_none());
        assert!(mapping.double_words(0, usize::MAX).is_none());
    }
}
