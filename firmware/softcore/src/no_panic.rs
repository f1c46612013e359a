//! A panic would mean a path to one, and such an image does not link.
#![expect(unsafe_code, reason = "a function that is declared and never defined")]

unsafe extern "C" {
    safe fn a_panic_path_is_left() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    a_panic_path_is_left()
}
