//! gradwire in a soft core: all that does not depend on the board, so that it runs in host tests
//! and fuzzers too.
//!
//! ```text
//!             ┌──────────────── Firmware::step ────────────────┐
//!  host NIC ──┤ forward::Forwarder (gradwire's own loop)       ├── network NIC
//!             │ console::Console   rules, counters, flows      │
//!             │ progress           counters for interrupts     │
//!             └──────── board::Board: what a port writes ──────┘
//! ```
//!
//! [`aggregation`] is another main loop: that of an aggregator, without engines. With the feature
//! `management`, `tcp` serves metrics and a console beside it. [`board`] says what a board
//! provides, and docs/firmware.md how; [`virtio`] drives the NICs of QEMU's `virt` machine.
#![cfg_attr(not(test), no_std)]

pub mod aggregation;
pub mod board;
pub mod buffers;
pub mod console;
pub mod firmware;
pub mod logs;
pub mod progress;
#[cfg(feature = "management")]
pub mod tcp;
pub mod uart16550;
pub mod virtio;

use gradwire::rules::{DEFAULT_MARK, Heuristic, Rule};

/// The rule in force after a start. The payload heuristic is off: with it, every word of a payload
/// would be read once more.
pub const RULE: Rule = Rule { heuristic: Heuristic::Off, ..Rule::DEFAULT };
/// The rules in force after a start; the console changes them until the next one.
pub const RULES: &[Rule] = &[RULE];
/// The mark of compressed frames after a start.
pub const MARK: u8 = DEFAULT_MARK;
/// The longest IP packet.
pub const MTU: u16 = 1500;
/// The flow table has so many sets, a power of two, of 8 flows.
pub const SETS: usize = 32;
/// Places for what far ends said on their SYNs: as many as flows.
pub const CAPABILITY_SLOTS: usize = SETS * 8;
/// Frames that go one way before the other way has its turn.
pub const BUDGET: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire::rules::Rules;

    /// The firmware does not start with others.
    #[test]
    fn the_rules_of_the_start_are_right() {
        assert!(Rules::new(RULES, MARK).is_ok());
        assert!(SETS.is_power_of_two());
    }
}
