#![doc = include_str!("../README.md")]
//!
//! ## One TCP segment, there and back
//!
//! `examples/segment.rs`; `cargo run --example segment` prints what it saved.
//!
//! ```
#![doc = include_str!("../examples/segment.rs")]
//! ```
//!
//! ## Where to read on
//!
//! [`engine`] has the path of a frame, [`forward`] the loop around it that every driver runs, [`rules`] what one may
//! ask for, [`verdict`] what became of a frame and why, and [`codec`] the definition of what is on the wire.
#![no_std]

// `arbitrary` derives with std.
#[cfg(any(test, feature = "arbitrary"))]
extern crate std;

pub mod aggregate;
pub mod checksum;
pub mod codec;
pub mod engine;
pub mod flow;
pub mod forward;
pub mod kernels;
pub mod profile;
pub mod rules;
pub mod sums;
mod values;
pub mod verdict;
pub mod wire;

pub use codec::{Params, Split};
pub use engine::{CapabilityTable, Egress, Ingress, Millis, NO_CAPABILITIES};
pub use flow::capabilities::Slot;
pub use kernels::Kernel;
pub use profile::Profile;
pub use rules::{Alignment, DEFAULT_MARK, DEFAULT_TOS, Framing, Handshake, Heuristic, Rule, Rules};
pub use verdict::{Change, DropReason, PassReason, Verdict};
