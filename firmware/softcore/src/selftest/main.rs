//! The dataplane on the target itself, without NICs: golden files, and instructions counted. Lines
//! on the serial line say what was found; the emulator's exit status says whether all of it is
//! right.
#![no_std]
#![no_main]

#[path = "../boards/mod.rs"]
#[allow(dead_code, reason = "NICs are not used here")]
mod boards;
mod counts;
mod golden;

use core::fmt::{self, Write};

use embedded_io::Write as _;

/// The serial line, for `write!`.
struct Line;

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        boards::serial().write_all(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

/// Writes a line.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(Line, "{line}");
}

#[riscv_rt::entry]
fn main() -> ! {
    golden::bursts();
    golden::frames();
    counts::payloads();
    counts::frames();
    counts::sums();
    say(format_args!("done"));
    boards::exit(true)
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say(format_args!("FAILED: {info}"));
    boards::exit(false)
}
