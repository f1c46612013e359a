//! The firmware: start-up, and the log. All else is in the library and in the board.
#![no_std]
#![no_main]

mod bare;
mod boards;
mod no_panic;

use bare::stop;
use gradwire::engine::CapabilityTable;
use gradwire::flow::capabilities::Slot;
use gradwire::forward::Forwarder;
use gradwire::kernels::Kernel;
use gradwire::rules::Rules;
use softcore::board::Chip;
use softcore::console::Request;
use softcore::firmware::{Event, Firmware};
use softcore::{MARK, MTU, RULES, SETS};
use static_cell::StaticCell;

static FORWARDER: StaticCell<Forwarder<SETS>> = StaticCell::new();
static CAPABILITIES: CapabilityTable<[Slot; softcore::CAPABILITY_SLOTS]> = CapabilityTable::new(0);

#[riscv_rt::entry]
fn main() -> ! {
    let mut board = match boards::start() {
        Ok(board) => board,
        Err((what, why)) => stop(format_args!("{what}: {why}")),
    };
    let rules = match Rules::new(RULES, MARK) {
        Ok(rules) => rules,
        Err(refused) => stop(format_args!("the table of rules: {refused}")),
    };
    let seed = board.chip.seed();
    // Made in its place: it is longer than the stack.
    let forwarder = FORWARDER.try_init_with(|| Forwarder::new(rules, Kernel::detect(), MTU, seed));
    let Some(forwarder) = forwarder else { stop(format_args!("started twice")) };
    let capabilities: &CapabilityTable = &CAPABILITIES;
    capabilities.clear(seed);
    #[cfg(feature = "plant-panic")]
    assert!(seed != 0);
    #[cfg(feature = "plant-stack")]
    core::hint::black_box(&[seed as u8; 1 << 16]);
    let mut firmware = Firmware::new(board, forwarder, capabilities);
    defmt::info!("nics up");
    defmt::info!("{} rules, MTU {}, {} flows", RULES.len(), MTU, 8 * SETS);
    loop {
        for event in &firmware.step() {
            match event {
                Event::Console(request) => {
                    defmt::info!("console: {}", request);
                    #[cfg(feature = "plant-stall")]
                    while *request == Request::Reset {}
                    if *request == Request::Reboot {
                        firmware.restart();
                    }
                }
                Event::Traffic(traffic) => defmt::info!("{}", traffic),
                Event::Link { .. } | Event::Faults { .. } => defmt::warn!("{}", event),
            }
        }
    }
}
