//! The firmware of an aggregator and serves metrics and a console over TCP: start-up, and what a
//! panic leads to. All else is in the library and in the board.
#![no_std]
#![no_main]

#[path = "../bare.rs"]
mod bare;
#[path = "../boards/mod.rs"]
#[allow(dead_code, reason = "another image ends the machine")]
mod boards;

use core::fmt::Write as _;

use bare::{last_words, stop};
use softcore::aggregation::{AggregatorFirmware, IP, MAC, SoftAggregator, settings};
use softcore::board::Chip;
use softcore::buffers::FrameBuffer;
use softcore::tcp::{Management, Memory, NO_PLACES, Places};
use static_cell::{ConstStaticCell, StaticCell};

static AGGREGATOR: StaticCell<SoftAggregator> = StaticCell::new();
static MEMORY: ConstStaticCell<Memory> = ConstStaticCell::new(Memory::NEW);
static PLACES: StaticCell<Places> = StaticCell::new();
static MANAGEMENT: StaticCell<Management<FrameBuffer>> = StaticCell::new();

#[riscv_rt::entry]
fn main() -> ! {
    let mut board = match boards::start() {
        Ok(board) => board,
        Err((what, why)) => stop(format_args!("{what}: {why}")),
    };
    // Made in their places: they are longer than the stack.
    let (seed, panics) = (board.chip.seed(), boards::kept().panics());
    let aggregator = AGGREGATOR.try_init_with(|| SoftAggregator::new(MAC, IP, settings(seed)));
    let places = PLACES.try_init_with(|| NO_PLACES);
    let (Some(aggregator), Some(memory), Some(places)) = (aggregator, MEMORY.try_take(), places) else {
        stop(format_args!("started twice"))
    };
    let Some(management) = MANAGEMENT.try_init_with(|| Management::new(memory, places, seed, panics)) else {
        stop(format_args!("started twice"))
    };
    let mut firmware = AggregatorFirmware::new(board, aggregator, management);
    loop {
        firmware.step();
    }
}

/// Workers get over an aggregator that comes back without memory (docs/aggregation-protocol.md), so
/// a restart costs them one fallback.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    boards::kept().count_panic();
    let (file, line) = info.location().map_or(("", 0), |place| (place.file(), place.line()));
    // The end of a path says more than its beginning.
    let from = file.len().saturating_sub(60);
    let mut text = heapless::String::<96>::new();
    let _ = write!(text, "gradwire: panic at {}:{line}\r\n", file.get(from..).unwrap_or_default());
    last_words(&text);
    boards::restart()
}
