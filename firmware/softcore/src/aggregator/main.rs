//! The firmware of an aggregator: start-up. All else is in the library and in the board.
#![no_std]
#![no_main]

#[path = "../bare.rs"]
mod bare;
#[path = "../boards/mod.rs"]
#[allow(dead_code, reason = "nothing restarts it but the watchdog")]
mod boards;
#[path = "../no_panic.rs"]
mod no_panic;

use bare::stop;
use softcore::aggregation::{AggregatorFirmware, IP, MAC, SoftAggregator, settings};
use softcore::board::Chip;
use static_cell::StaticCell;

static AGGREGATOR: StaticCell<SoftAggregator> = StaticCell::new();

#[riscv_rt::entry]
fn main() -> ! {
    let mut board = match boards::start() {
        Ok(board) => board,
        Err((what, why)) => stop(format_args!("{what}: {why}")),
    };
    // Made in its place: it is longer than the stack.
    let seed = board.chip.seed();
    let Some(aggregator) = AGGREGATOR.try_init_with(|| SoftAggregator::new(MAC, IP, settings(seed))) else {
        stop(format_args!("started twice"))
    };
    let mut firmware = AggregatorFirmware::new(board, aggregator, ());
    loop {
        firmware.step();
    }
}
