//! Traps. One interrupt is served, the timer's, by the board; exceptions start the board anew.
#![expect(unsafe_code, reason = "riscv-rt finds these functions by their names")]

use riscv_rt::TrapFrame;

/// Number of the machine timer interrupt (RISC-V Privileged Architecture, `mcause`).
const MACHINE_TIMER: usize = 7;

// SAFETY: riscv-rt declares a function of this name and signature and defines none
// (`custom-interrupts`).
#[unsafe(no_mangle)]
extern "C" fn _dispatch_core_interrupt(code: usize) {
    // Others are not enabled while interrupts are taken.
    if code == MACHINE_TIMER {
        super::tick();
    }
}

// SAFETY: riscv-rt declares a function of this name and signature and defines none
// (`custom-exceptions`).
#[unsafe(no_mangle)]
extern "C" fn _dispatch_exception(_frame: &TrapFrame, _cause: usize) {
    super::restart()
}
