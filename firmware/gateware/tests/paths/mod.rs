//! Helpers that the tests of a NIC's paths share: frames, the engines in Rust as the reference, and
//! the comparison.

#![allow(dead_code, unreachable_pub, reason = "no test file uses all of it")]

pub mod checks;
pub mod compare;
pub mod frames;
pub mod nic;
pub mod rare;
pub mod settings;
pub mod traffic;
