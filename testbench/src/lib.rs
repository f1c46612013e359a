//! gradwire's testbench: recorded gradients and captures go through the dataplane, and everything
//! that comes out is verified.
//!
//! - In: [`input`] reads recordings and has those that are built in.
//! - Through: [`check`] sends a gradient through the codec, [`replay`] a capture through both
//!   engines, [`from_wire`] a capture of compressed frames through a receiver's, [`softcore`] a
//!   capture through soft cores in QEMU, [`rtl`] its payloads through the gateware in simulation.
//! - Verified: [`verify`] verifies values, frames and streams. It reads frames with another crate's
//!   parser, and uses nothing of the code that it verifies. [`oracle`] verifies what a fuzzer makes
//!   up.
//! - Larger than the desk: `gradwire_simulator` simulates clusters and says where compression pays;
//!   [`cmd::simulate::published`] compares it with what is published.
//! - Timed: [`mod@bench`] is the yardstick, for people and for the planner.
//! - Out: [`report`] for people, `serde` for programs. [`cmd`] has the subcommands of `gradwire`.

pub mod check;
pub mod error;
pub mod from_wire;
pub mod input;
pub mod oracle;
pub mod replay;
pub mod softcore;
pub mod verify;

#[cfg(feature = "cli")]
pub mod bench;
#[cfg(feature = "cli")]
pub mod cmd;
#[cfg(feature = "cli")]
pub mod report;
#[cfg(feature = "cli")]
pub mod rtl;
