//! gradwire's testbench.
