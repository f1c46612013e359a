//! Logs on their way to the serial line, which they share with the console's text.
//!
//! A log frame (`defmt`, rzCOBS: no byte of it is zero) is sent between [`START`] and a zero byte.
//! Text has neither, so whoever reads the line can tell the two, and `defmt-print`, which knows
//! frames only, skips the text.

use core::cell::RefCell;

use critical_section::Mutex;
use heapless::Deque;

/// The bytes before a log frame.
pub const START: [u8; 2] = [1, 0];
/// The byte behind it.
pub const END: u8 = 0;

/// Bytes of logs that wait for the line.
const ROOM: usize = 1024;

/// Frames from any context to the one that has the serial line.
struct Waiting {
    bytes: Deque<u8, ROOM>,
    /// The number of them that belong to whole frames.
    whole: usize,
    /// The frame being written does not fit; it is lost as a whole.
    too_long: bool,
    lost: u32,
}

static WAITING: Mutex<RefCell<Waiting>> =
    Mutex::new(RefCell::new(Waiting { bytes: Deque::new(), whole: 0, too_long: false, lost: 0 }));

fn with<T>(f: impl FnOnce(&mut Waiting) -> T) -> Option<T> {
    // Nothing here calls back, so it is never borrowed twice.
    critical_section::with(|cs| WAITING.borrow(cs).try_borrow_mut().ok().map(|mut waiting| f(&mut waiting)))
}

/// Appends bytes to the frame being written.
pub fn write(bytes: &[u8]) {
    let _ = with(|waiting| {
        for byte in bytes {
            waiting.too_long |= waiting.bytes.push_back(*byte).is_err();
        }
    });
}

/// The frame being written is whole.
pub fn commit() {
    let _ = with(|waiting| {
        if waiting.too_long {
            while waiting.bytes.len() > waiting.whole && waiting.bytes.pop_back().is_some() {}
            waiting.too_long = false;
            waiting.lost = waiting.lost.wrapping_add(1);
        }
        waiting.whole = waiting.bytes.len();
    });
}

/// The next byte of whole frames.
#[must_use]
pub fn next() -> Option<u8> {
    with(|waiting| {
        waiting.whole = waiting.whole.checked_sub(1)?;
        waiting.bytes.pop_front()
    })
    .flatten()
}

/// Whether a whole frame waits.
#[must_use]
pub fn is_waiting() -> bool {
    with(|waiting| waiting.whole > 0).unwrap_or(false)
}

/// Frames that were lost because the line was too slow; wraps.
#[must_use]
pub fn lost() -> u32 {
    with(|waiting| waiting.lost).unwrap_or(0)
}
