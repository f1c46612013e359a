//! Oracles for fuzzing. Each takes any bytes, gives them to a part of gradwire that reads bytes
//! from elsewhere, and panics if something is wrong. [`FUZZED`] lists them. `fuzz/` runs each under
//! libFuzzer, `tests/corpus.rs` on what the fuzzer kept.
//!
//! Oracles for firmware's own input, which this crate does not know, are in `fuzz/oracles`.

pub mod codec;
pub mod conversation;
pub mod corpus;
pub mod flows;
pub mod frames;
mod printed;
pub mod readers;
pub mod settings;
pub mod sums;

/// Verifies any bytes; it panics if something is wrong.
pub type Oracle = fn(&[u8]);

/// Every fuzz target but firmware's: its name under `fuzz/`, and the oracle of its inputs.
pub const FUZZED: &[(&str, Oracle)] = &[
    ("aggregate", sums::aggregate),
    ("capture", readers::capture),
    ("clocked", codec::clocked),
    ("egress", frames::egress),
    ("flows", flows::run),
    ("frame", frames::parse),
    ("groups", codec::groups),
    ("ingress", frames::ingress),
    ("worker", sums::worker),
    ("npy", readers::npy),
    ("round_trip", conversation::run),
    ("values", codec::values),
];
