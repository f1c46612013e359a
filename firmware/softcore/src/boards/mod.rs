//! The board that the firmware is built for, chosen by a feature. `start` hands over its parts once.

mod logger;
mod mmio;
mod trap;

#[cfg(feature = "board-qemu-virt")]
mod qemu_virt;
#[cfg(feature = "board-qemu-virt")]
use qemu_virt::{restart, tick};
#[cfg(feature = "board-qemu-virt")]
pub(crate) use qemu_virt::{exit, serial, start};

#[cfg(feature = "board-litex")]
mod litex;
#[cfg(feature = "board-litex")]
use litex::{restart, tick};
#[cfg(feature = "board-litex")]
pub(crate) use litex::{serial, start};
