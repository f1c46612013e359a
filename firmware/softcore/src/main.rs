//! The firmware: start-up, and the log. All else is in the library and in the board.
#![no_std]
#![no_main]

mod boards;

use core::fmt::{self, Write as _};

use embedded_io::Write;
use gradwire::engine::Offers;
use gradwire::flow::offers::Slot;
use gradwire::forward::Forwarder;
use gradwire::kernels::Kernel;
use gradwire::rules::Rules;
use softcore::board::Chip;
use softcore::console::Request;
use softcore::firmware::{Event, Firmware};
use softcore::{MARK, MTU, RULES, SETS};
use static_cell::StaticCell;

static FORWARDER: StaticCell<Forwarder<SETS>> = StaticCell::new();
static OFFERS: Offers<[Slot; softcore::OFFERS]> = Offers::new(0);

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
    let offers: &Offers = &OFFERS;
    offers.clear(seed);
    #[cfg(feature = "plant-panic")]
    assert!(seed != 0);
    #[cfg(feature = "plant-stack")]
    core::hint::black_box(&[seed as u8; 1 << 16]);
    let mut firmware = Firmware::new(board, forwarder, offers);
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

/// Says why nothing works, and does nothing: there is nobody who could repair it.
fn stop(why: fmt::Arguments<'_>) -> ! {
    let mut text = heapless::String::<96>::new();
    let _ = write!(text, "gradwire: cannot start: {why}\r\n");
    let mut serial = boards::serial();
    for byte in text.as_bytes() {
        let _ = serial.write(&[*byte]);
    }
    loop {
        riscv::asm::wfi();
    }
}

defmt::timestamp!("{=u32:ms}", softcore::progress::read().now_ms);

mod no_panic {
    //! A panic would mean a path to one, and such an image does not link.
    #![expect(unsafe_code, reason = "a function that is declared and never defined")]

    unsafe extern "C" {
        safe fn a_panic_path_is_left() -> !;
    }

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        a_panic_path_is_left()
    }
}
