//! A firmware for a board that gradwire's repository does not know: copy this crate, and put your
//! board into `board.rs`.
//!
//! It is the smallest one that works: it polls, so it needs no interrupts, and it keeps no log.
//! `firmware/softcore/src/main.rs` has both. The board here is QEMU's `virt` machine, so that a
//! test can run it.
#![no_std]
#![no_main]

mod board;
mod runtime;

use core::fmt::Write as _;

use gradwire::engine::CapabilityTable;
use gradwire::flow::capabilities::Slot;
use gradwire::forward::Forwarder;
use gradwire::kernels::Kernel;
use gradwire::rules::Rules;
use softcore::board::Chip;
use softcore::console::Request;
use softcore::firmware::{Event, Firmware};
use softcore::{CAPABILITY_SLOTS, MARK, MTU, RULES, SETS};
use static_cell::StaticCell;

static FORWARDER: StaticCell<Forwarder<SETS>> = StaticCell::new();
static CAPABILITIES: CapabilityTable<[Slot; CAPABILITY_SLOTS]> = CapabilityTable::new(0);

#[riscv_rt::entry]
fn main() -> ! {
    let mut board = match board::start() {
        Ok(board) => board,
        Err((what, why)) => {
            let _ = write!(board::Text, "gradwire: cannot start: {what}: {why}\r\n");
            board::halt()
        }
    };
    let Ok(rules) = Rules::new(RULES, MARK) else { board::halt() };
    let seed = board.chip.seed();
    let made = FORWARDER.try_init_with(|| Forwarder::new(rules, Kernel::detect(), MTU, seed));
    let Some(forwarder) = made else { board::halt() };
    let capabilities: &CapabilityTable = &CAPABILITIES;
    capabilities.clear(seed);
    let mut firmware = Firmware::new(board, forwarder, capabilities);
    loop {
        // Links, faults and traffic are events, too: a board with a log writes them there.
        for event in &firmware.step() {
            if *event == Event::Console(Request::Reboot) {
                firmware.restart();
            }
        }
    }
}
