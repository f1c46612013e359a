//! gradwire on a Linux host: tagged frames between a container's veth and the network card go through the
//! engines, by AF_XDP; everything else stays in the kernel's bridge.

pub mod config;
pub mod control;
pub mod logging;
pub mod metrics;
pub mod notify;
pub mod privileges;
pub mod telemetry;

#[cfg(test)]
mod scratch;
