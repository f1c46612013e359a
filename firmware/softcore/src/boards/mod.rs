//! The board that the firmware is built for, chosen by a feature: `start` hands over its parts
//! once, `serial` says why it could not, `tick` and `restart` serve traps, and `kept` is memory
//! that outlives a restart.

mod kept;
mod logger;
mod mmio;
mod trap;

#[cfg(feature = "board-qemu-virt")]
#[path = "qemu_virt.rs"]
mod chosen;
#[cfg(feature = "board-litex")]
#[path = "litex.rs"]
mod chosen;

pub(crate) use chosen::*;
