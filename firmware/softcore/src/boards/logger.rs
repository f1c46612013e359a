//! `defmt`'s logger: frames go to [`softcore::logs`] and on to the serial line when it has time.
#![expect(
    unsafe_code,
    reason = "defmt's logger is an unsafe trait, and its critical section outlives a call"
)]

use core::cell::RefCell;

use critical_section::{Mutex, RestoreState};
use defmt::Encoder;
use softcore::logs;

struct State {
    encoder: Encoder,
    /// Of the critical section that a frame is written in; `None` between frames.
    restore: Option<RestoreState>,
}

static STATE: Mutex<RefCell<State>> =
    Mutex::new(RefCell::new(State { encoder: Encoder::new(), restore: None }));

#[defmt::global_logger]
struct Logger;

// SAFETY: `acquire` enters a critical section that lasts until `release`: no other context writes
// into a frame.
unsafe impl defmt::Logger for Logger {
    fn acquire() {
        // SAFETY: `release` ends it with the same state, once: defmt calls the two in turn.
        let restore = unsafe { critical_section::acquire() };
        logs::write(&logs::START);
        with(|state| {
            state.restore = Some(restore);
            // What the encoder writes before its first frame is `START`'s zero here.
            state.encoder.start_frame(|_| {});
        });
    }

    unsafe fn flush() {
        // Frames wait for the main loop, which may be the caller.
    }

    unsafe fn release() {
        let mut restore = None;
        with(|state| {
            state.encoder.end_frame(logs::write);
            restore = state.restore.take();
        });
        logs::commit();
        if let Some(restore) = restore {
            // SAFETY: the state that `acquire` got, taken once.
            unsafe { critical_section::release(restore) }
        }
    }

    unsafe fn write(bytes: &[u8]) {
        with(|state| state.encoder.write(bytes, logs::write));
    }
}

fn with(f: impl FnOnce(&mut State)) {
    critical_section::with(|cs| {
        // No logging happens within: it is never borrowed twice.
        if let Ok(mut state) = STATE.borrow(cs).try_borrow_mut() {
            f(&mut state);
        }
    });
}
