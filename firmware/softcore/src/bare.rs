//! The parts that images need around the library: last words, and the time of logs.

use core::fmt::{self, Write as _};

use embedded_io::Write;

use crate::boards;

/// Says why nothing works, and does nothing: there is nobody who could repair it.
pub(crate) fn stop(why: fmt::Arguments<'_>) -> ! {
    let mut text = heapless::String::<96>::new();
    let _ = write!(text, "gradwire: cannot start: {why}\r\n");
    last_words(&text);
    loop {
        riscv::asm::wfi();
    }
}

/// Writes to the serial line, and waits for it.
pub(crate) fn last_words(text: &str) {
    let mut serial = boards::serial();
    for byte in text.as_bytes() {
        let _ = serial.write(&[*byte]);
    }
}

defmt::timestamp!("{=u32:ms}", softcore::progress::read().now_ms);
