//! What images need around the library: last words, and the proof that there is no path to a panic.

use core::fmt::{self, Write as _};

use embedded_io::Write;

use crate::boards;

/// Says why nothing works, and does nothing: there is nobody who could repair it.
pub(crate) fn stop(why: fmt::Arguments<'_>) -> ! {
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
