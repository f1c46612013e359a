//! A firmware as small as it gets: both directions, C calling convention.
//!
//! It links only if the dataplane needs neither std (which brings a panic handler of its own) nor an
//! allocator (there is none), nor can panic: the handler calls a function that nobody defines, and
//! is gone only if no path to it is left.
#![no_std]

use gradwire::engine::{Egress, Ingress, Millis, Offers};
use gradwire::flow::offers::Slot;
use gradwire::verdict::Verdict;

#[cfg(feature = "plant-alloc")]
extern crate alloc;
#[cfg(feature = "plant-std")]
extern crate std;

unsafe extern "C" {
    safe fn a_panic_path_is_left() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    a_panic_path_is_left()
}

fn len(verdict: Verdict) -> usize {
    match verdict {
        Verdict::Changed { len, .. } => len,
        Verdict::Untouched(_) | Verdict::Dropped(_) => 0,
    }
}

/// Host to wire.
#[unsafe(no_mangle)]
pub extern "C" fn egress(
    engine: &mut Egress<8>,
    frame: &[u8; 1514],
    out: &mut [u8; 2048],
    used: usize,
    now: u64,
    offers: &Offers<[Slot; 256]>,
) -> usize {
    #[cfg(feature = "plant-panic")]
    assert!(used < 1514);
    #[cfg(feature = "plant-alloc")]
    core::mem::forget(alloc::boxed::Box::new(used));
    len(engine.process(frame.get(..used).unwrap_or(frame), out, Millis(now), offers))
}

/// Wire to host.
#[unsafe(no_mangle)]
pub extern "C" fn ingress(
    engine: &mut Ingress,
    frame: &[u8; 1514],
    out: &mut [u8; 2048],
    used: usize,
    offers: &Offers<[Slot; 256]>,
) -> usize {
    len(engine.process(frame.get(..used).unwrap_or(frame), out, offers))
}
