//! Memory that the kernel reads and writes, too: all `unsafe` of this crate, behind types that
//! cannot be misused.
//!
//! Nothing mapped here is ever unmapped: rings, frames and maps live as long as the process, so
//! what refers to them is `'static`. All of it is allocated at start.

#![expect(unsafe_code, reason = "memory shared with the kernel has no safe face in the standard library")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{FileType, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

/// Pages of a file descriptor that the kernel changes while they are read; seen only as atomics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes of `fd`, a socket or a BPF map, from `offset` on, for reading and writing.
    ///
    /// # Errors
    /// The kernel's. A file is refused: who shortens it would have every later look at its pages
    /// end the process.
    pub(crate) fn new(fd: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(fstat(&fd)?.st_mode);
        if kind == FileType::RegularFile {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a null hint lets the kernel choose addresses that nothing else uses.
        let base =
            unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags, fd, offset) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { base, len })
    }

    /// The word at byte `at`; `None` if it lies outside or is not aligned.
    #[must_use]
    pub(crate) fn word(&self, at: usize) -> Option<&'static AtomicU32> {
        let word = self.elements::<AtomicU32>(at, 1)?;
        // SAFETY: `elements` vouches for one element of a mapping that is never unmapped, mapped
        // readable and writable; any bits are a value, and an atomic may be changed by others.
        Some(unsafe { word.as_ref() })
    }

    /// `count` double words from byte `at` on; `None` if they lie outside or are not aligned.
    #[must_use]
    pub(crate) fn double_words(&self, at: usize, count: usize) -> Option<&'static [AtomicU64]> {
        let first = self.elements::<AtomicU64>(at, count)?;
        // SAFETY: as in `word`, for `count` elements.
        Some(unsafe { NonNull::slice_from_raw_parts(first, count).as_ref() })
    }

    /// The place of `count` elements, if they lie inside and are aligned.
    fn elements<T>(&self, at: usize, count: usize) -> Option<NonNull<T>> {
        let end = count.checked_mul(size_of::<T>())?.checked_add(at)?;
        // SAFETY: the offset lies in the mapping, or just behind it.
        let first = (end <= self.len).then(|| unsafe { self.base.add(at) })?.cast::<T>();
        first.is_aligned().then_some(first)
    }
}

/// A piece of the memory of frames. Whoever has the value has the memory: it is not to be had
/// twice.
///
/// A chunk is always in one of three places, and the values say in which: here ([`Chunk`]), on its
/// way to the kernel ([`Lent`]), or the kernel's. It leaves the kernel as [`Returned`], which only
/// a socket makes.
#[derive(Debug)]
#[must_use = "a chunk that is dropped is lost: give it back to where chunks circulate"]
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

/// A chunk that no [`Chunk`] stands for any more, to be given to the kernel. Only [`Frames::lend`]
/// makes one:
///
/// ```compile_fail,E0308
/// fn two_owners(socket: &mut gradwire_xdp::path::xsk::Socket) {
///     let _ = socket.fill(4096);
/// }
/// ```
#[derive(Debug)]
#[must_use = "a chunk that is dropped is lost: give it to a socket, or back to `Frames::keep`"]
pub struct Lent {
    memory: Memory,
    address: u64,
    size: u32,
}

/// A chunk that the kernel gave back, and the `len` bytes of a frame in it, if it was received.
#[derive(Debug)]
#[must_use = "a chunk that is dropped is lost: `Frames::reclaim` makes a chunk of it"]
pub struct Returned {
    memory: Memory,
    address: u64,
    len: usize,
}

/// Which memory an address belongs to: where it starts. It is never unmapped, so no two have the
/// same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory(usize);

impl Memory {
    /// The address of byte `start` of a chunk of this memory, for a ring's descriptor of `len`
    /// bytes.
    ///
    /// # Errors
    /// A chunk of other memory comes back, and one that does not have these bytes.
    pub(crate) fn address(self, lent: Lent, start: usize, len: usize) -> Result<u64, Lent> {
        let inside = start.checked_add(len).is_some_and(|end| end <= lent.size as usize) && len != 0;
        if lent.memory == self && inside { Ok(lent.address + start as u64) } else { Err(lent) }
    }

    /// The chunk that the kernel gave back to a socket that has this memory.
    pub(crate) const fn returned(self, address: u64, len: usize) -> Returned {
        Returned { memory: self, address, len }
    }
}

/// The memory of frames: chunks of one size, each of which either is a [`Chunk`] or is the
/// kernel's.
#[derive(Debug)]
pub struct Frames {
    base: NonNull<u8>,
    chunk_size: u32,
    /// By place: whether the kernel has it.
    lent: Vec<bool>,
}

// SAFETY: `base` is not tied to a thread, and who has the value is the only one who makes chunks of
// it.
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
        let all = (0..chunks).filter_map(|index| frames.make(index)).collect();
        Ok((frames, all))
    }

    /// The chunk becomes the kernel's.
    ///
    /// # Errors
    /// A chunk of other memory comes back.
    pub fn lend(&mut self, chunk: Chunk) -> Result<Lent, Chunk> {
        let start = u64::from(chunk.index) * u64::from(self.chunk_size);
        let place = self.base.as_ptr().wrapping_add(start as usize);
        match self.lent.get_mut(chunk.index as usize) {
            Some(lent) if chunk.bytes.as_ptr().addr() == place.addr() => {
                *lent = true;
                Ok(Lent { memory: self.memory(), address: start, size: self.chunk_size })
            }
            _ => Err(chunk),
        }
    }

    /// The chunk that no socket took.
    ///
    /// # Errors
    /// One of other memory comes back.
    pub fn keep(&mut self, lent: Lent) -> Result<Chunk, Lent> {
        let index = self.index(lent.address).filter(|_| lent.memory == self.memory());
        index.and_then(|index| self.make(index)).ok_or(lent)
    }

    /// The chunk that came back from the kernel, and where the frame in it starts and how long it
    /// is. `None` if the kernel did not have it, or it is of other memory.
    pub fn reclaim(&mut self, returned: Returned) -> Option<(Chunk, usize, usize)> {
        let Returned { memory, address, len } = returned;
        let index = self.index(address).filter(|_| memory == self.memory())?;
        // Less than the size of a chunk, which is a u32.
        let start = (address % u64::from(self.chunk_size)) as usize;
        Some((self.make(index)?, start, len))
    }

    /// The chunk in which an address lies. The kernel gives back where in the chunk the frame was.
    fn index(&self, address: u64) -> Option<u32> {
        u32::try_from(address / u64::from(self.chunk_size)).ok()
    }

    /// The chunk at this place, if it is lent. It is the caller's: the kernel, or a [`Lent`], must
    /// not have it any more.
    fn make(&mut self, index: u32) -> Option<Chunk> {
        let lent = self.lent.get_mut(index as usize)?;
        if !core::mem::take(lent) {
            return None;
        }
        // SAFETY: `lent` has an element for each chunk, so the offset lies in the mapping.
        let first = unsafe { self.base.add(index as usize * self.chunk_size as usize) };
        let bytes = NonNull::slice_from_raw_parts(first, self.chunk_size as usize);
        // SAFETY: the mapping is never unmapped and was zeroed by the kernel; no other reference
        // exists: a `Chunk` is made only if `lent` was set, that is before the first and after the
        // last was given up. Nor does the kernel write to it: it was never given to it, or a socket
        // of this memory gave it back, for `lend`, which set `lent`, made the only `Lent`, and that
        // was used up.
        let bytes = unsafe { &mut *bytes.as_ptr() };
        Some(Chunk { index, bytes })
    }

    /// Which memory this is.
    pub(crate) fn memory(&self) -> Memory {
        Memory(self.base.as_ptr().addr())
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

/// Lets a socket's owner drive the card's receive loop, in place of interrupts:
/// `SO_PREFER_BUSY_POLL`.
///
/// # Errors
/// The kernel's: before 5.11 it does not know the option.
pub fn prefer_busy_poll(socket: impl AsFd, microseconds: u32, budget: u32) -> io::Result<()> {
    let options = [
        (libc::SO_PREFER_BUSY_POLL, 1),
        (libc::SO_BUSY_POLL, microseconds),
        (libc::SO_BUSY_POLL_BUDGET, budget),
    ];
    options.into_iter().try_for_each(|(option, value)| set(&socket, libc::SOL_SOCKET, option, value))
}

/// Lets the kernel say in words why it refuses what a netlink socket asks for: `NETLINK_EXT_ACK`.
///
/// # Errors
/// The kernel's.
pub fn ask_for_reasons(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(&socket, libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, 1)
}

fn set(socket: &impl AsFd, level: libc::c_int, option: libc::c_int, value: u32) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let (value, len) = (ptr::from_ref(&value).cast(), size_of::<u32>() as libc::socklen_t);
    // SAFETY: `value` points to `len` readable bytes for the time of the call.
    if unsafe { libc::setsockopt(fd, level, option, value, len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    /// The chunk that a socket of this memory gives back.
    fn returned(frames: &Frames, address: u64) -> Returned {
        frames.memory().returned(address, 60)
    }

    #[test]
    fn a_chunk_is_to_be_had_once() {
        let (mut frames, mut chunks) = Frames::new(2048, 4).unwrap();
        assert_eq!(chunks.len(), 4);
        assert_eq!(frames.len(), 8192);
        for address in [0, 2048, 4096, 6144] {
            assert!(frames.reclaim(returned(&frames, address)).is_none(), "none is lent");
        }
        let mut chunk = chunks.remove(1);
        chunk.bytes_mut()[5] = 7;
        let lent = frames.lend(chunk).unwrap();
        let lent = frames.memory().address(lent, 2040, 9).expect_err("bytes of the next chunk");
        let lent = frames.memory().address(lent, usize::MAX, 9).expect_err("bytes of any chunk");
        assert_eq!(frames.memory().address(lent, 8, 2040).unwrap(), 2056);
        // The kernel gives back where in the chunk the frame was.
        let (back, start, len) = frames.reclaim(returned(&frames, 2048 + 256)).unwrap();
        assert_eq!((back.bytes()[5], start, len), (7, 256, 60));
        for address in [2048, 8192, u64::MAX] {
            assert!(frames.reclaim(returned(&frames, address)).is_none());
        }
    }

    /// With a chunk of one memory lent to another, both would give the same bytes to two owners.
    #[test]
    fn memory_keeps_to_its_own_chunks() {
        let (mut one, mut chunks) = Frames::new(2048, 2).unwrap();
        let (mut two, mut others) = Frames::new(2048, 2).unwrap();
        let foreign = others.remove(0);
        let foreign = one.lend(foreign).expect_err("of the other memory, at the same place");
        assert!(one.reclaim(returned(&one, 0)).is_none(), "nothing was lent");

        // Nor does a socket take the one for the other: it has the address of its memory, too.
        let lent = two.lend(foreign).unwrap();
        let lent = one.memory().address(lent, 0, 60).expect_err("of the other memory");
        let own = one.lend(chunks.remove(0)).unwrap();
        assert!(one.reclaim(returned(&two, 0)).is_none(), "from a socket of the other memory");
        assert!(one.keep(lent).is_err());
        assert_eq!(one.keep(own).unwrap().index, 0);
        assert!(two.reclaim(returned(&two, 0)).is_some());
    }

    #[test]
    fn a_file_that_could_get_shorter_is_not_mapped() {
        let file = memfd_create("gradwire-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 4096).unwrap();
        assert_eq!(Mapping::new(&file, 0, 4096).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_mapping_gives_nothing_outside_itself() {
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
