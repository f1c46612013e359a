//! NICs of QEMU's `virt` machine: virtio-net over MMIO (Virtual I/O Device 1.2, sections 2.7, 4.2
//! and 5.1).
//!
//! [`queue`] is one ring of buffers, [`net`] one NIC with two of them, [`pair`] the two NICs as a
//! `Device`. A device that breaks the rules costs frames and is counted: nothing that it writes
//! makes the driver panic, loop or touch a buffer that it does not own.

pub mod net;
pub mod pair;
pub mod queue;

/// Access to a device's registers (section 4.2.2), by offset in bytes. Offsets are multiples of 4.
pub trait Registers {
    /// Reads a register.
    fn read(&self, offset: usize) -> u32;

    /// Writes a register.
    fn write(&mut self, offset: usize, value: u32);
}
