//! gradwire on a Linux host: tagged frames between a container's veth and the network card go
//! through the engines, by `AF_XDP`; everything else stays in the kernel's bridge.
//!
//! ```text
//!  container ── veth ──► XDP program ── tagged ──► socket ─► Egress ─► socket ──► card ── wire
//!                             └──────── the rest ───────► bridge ──────────────────┘
//! ```
//!
//! [`path`] is the way of the frames, [`telemetry`] what the shim tells about itself, [`system`]
//! what it asks of the system, [`commands`] what an operator types, and [`cli`] lists the commands.

pub mod config;

#[cfg(feature = "shim")]
pub mod cli;
#[cfg(feature = "shim")]
pub mod commands;
#[cfg(feature = "shim")]
pub mod path;
#[cfg(feature = "shim")]
pub mod system;
#[cfg(feature = "shim")]
pub mod telemetry;

#[cfg(test)]
mod scratch;
