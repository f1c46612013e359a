//! gradwire's dataplane.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod burst;
pub mod codec;
pub mod engine;
pub mod error;
pub mod flow;
pub mod rules;
pub mod verdict;
pub mod wire;
