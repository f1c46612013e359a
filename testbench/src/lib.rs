//! gradwire's testbench.

pub mod sim;
