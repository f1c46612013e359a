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

pub mod cli;
pub mod commands;
pub mod config;
pub mod path;
pub mod system;
pub mod telemetry;

#[cfg(test)]
mod scratch;
