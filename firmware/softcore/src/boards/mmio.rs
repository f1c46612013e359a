//! Registers at fixed addresses.
#![expect(unsafe_code, reason = "registers are memory that no Rust object owns")]

use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// A block of registers.
#[derive(Debug)]
pub(crate) struct Mmio {
    base: usize,
    len: usize,
}

impl Mmio {
    /// The block of `len` bytes at `base`.
    ///
    /// # Safety
    /// `base` is a multiple of 4, and all of the block is registers of a device, no memory that
    /// Rust knows. Accesses of 1 and 4 bytes, aligned, have no effect on memory but on buffers that
    /// a driver gave to the device.
    pub(crate) const unsafe fn new(base: usize, len: usize) -> Self {
        Self { base, len }
    }

    /// Reads the word at `offset`, a multiple of 4; 0 outside the block.
    pub(crate) fn read32(&self, offset: usize) -> u32 {
        if offset % 4 != 0 || offset >= self.len {
            return 0;
        }
        // SAFETY: an aligned word in the block, which `new` promises to be registers.
        unsafe { with_exposed_provenance::<u32>(self.base + offset).read_volatile() }
    }

    /// Writes the word at `offset`, a multiple of 4; nothing outside the block.
    pub(crate) fn write32(&mut self, offset: usize, value: u32) {
        if offset % 4 != 0 || offset >= self.len {
            return;
        }
        // SAFETY: an aligned word in the block, which `new` promises to be registers.
        unsafe { with_exposed_provenance_mut::<u32>(self.base + offset).write_volatile(value) }
    }

    /// Reads the byte at `offset`; 0 outside the block.
    #[allow(dead_code, reason = "not every board has registers of a byte")]
    pub(crate) fn read8(&self, offset: usize) -> u8 {
        if offset >= self.len {
            return 0;
        }
        // SAFETY: a byte in the block, which `new` promises to be registers.
        unsafe { with_exposed_provenance::<u8>(self.base + offset).read_volatile() }
    }

    /// Writes the byte at `offset`; nothing outside the block.
    #[allow(dead_code, reason = "not every board has registers of a byte")]
    pub(crate) fn write8(&mut self, offset: usize, value: u8) {
        if offset >= self.len {
            return;
        }
        // SAFETY: a byte in the block, which `new` promises to be registers.
        unsafe { with_exposed_provenance_mut::<u8>(self.base + offset).write_volatile(value) }
    }
}
