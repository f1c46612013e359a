//! gradwire's dataplane: gradient frames get smaller on the wire, under a guaranteed error bound.
//!
//! ```text
//!  host ──► Egress ──► wire ──► Ingress ──► host
//!             │ rules: which frames         │ mark or length: which frames
//!             │ flows: which bytes          │ checksum, segment header
//!             │ kernels: values to groups   │ kernels: groups to values
//! ```
//!
//! Sans-IO, `no_std`, no allocation, no clock, no panic: [`engine`] takes a frame and gives a verdict and a
//! frame. Start reading there; ARCHITECTURE.md follows a frame through the files, FORMAT.md has the bytes.
//!
//! ```
//! use gradwire::engine::{Egress, Millis};
//! use gradwire::kernels::Kernel;
//! use gradwire::rules::{DEFAULT_MARK, Rule, Rules};
//! use gradwire::verdict::{PassReason, Verdict};
//!
//! let rules = Rules::new(&[Rule::DEFAULT], DEFAULT_MARK)?;
//! let mut egress = Egress::<64>::new(rules, Kernel::detect(), 0x5eed);
//! let frame = [0; 60]; // from the host
//! let mut out = [0; 60];
//! let verdict = egress.process(&frame, &mut out, Millis(0));
//! assert_eq!(verdict, Verdict::Untouched(PassReason::NotIp));
//! # Ok::<(), gradwire::rules::RulesError>(())
//! ```
#![no_std]

#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod burst;
pub mod checksum;
pub mod codec;
pub mod engine;
pub mod flow;
pub mod forward;
pub mod kernels;
pub mod profile;
pub mod rules;
pub mod verdict;
pub mod wire;
