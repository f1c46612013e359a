//! gradwire on a Linux host: tagged frames between a container's veth and the network card go
//! through the engines, by `AF_XDP`; everything else stays in the kernel's bridge.
//!
//! ```text
//!  container ── veth ──► XDP program ── tagged ──► socket ─► Egress ─► socket ──► card ── wire
//!                             └──────── the rest ───────► bridge ──────────────────┘
//! ```
//!
//! [`path`] is the way of the frames, [`ops`] what operating the shim takes, [`commands`] what an
//! operator types, and [`cli`] lists the commands.

pub mod cli;
pub mod commands;
pub mod config;
pub mod ops;
pub mod path;

#[cfg(test)]
mod scratch;
