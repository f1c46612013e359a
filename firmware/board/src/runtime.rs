//! The runtime that every image has to bring beside its board: traps, a logger, a panic handler.
#![expect(unsafe_code, reason = "functions that others find by their names")]

use riscv_rt::TrapFrame;

// SAFETY: riscv-rt declares a function of this name and signature and defines none. No interrupt is
// enabled.
#[unsafe(no_mangle)]
extern "C" fn _dispatch_core_interrupt(_code: usize) {}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn _dispatch_exception(_frame: &TrapFrame, _cause: usize) {
    crate::board::restart()
}

/// The library formats log messages; here they go nowhere.
#[defmt::global_logger]
struct NoLog;

// SAFETY: it keeps nothing, so nothing can be entered twice.
unsafe impl defmt::Logger for NoLog {
    fn acquire() {}
    unsafe fn flush() {}
    unsafe fn release() {}
    unsafe fn write(_bytes: &[u8]) {}
}

// A panic would mean a path to one, and such an image does not link.
unsafe extern "C" {
    safe fn a_panic_path_is_left() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    a_panic_path_is_left()
}
