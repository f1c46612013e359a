//! gradwire on a Linux host: tagged frames between a container's veth and the network card go through the
//! engines, by `AF_XDP`; everything else stays in the kernel's bridge.
//!
//! ```text
//!  container ── veth ──► XDP program ── tagged ──► socket ─► Egress ─► socket ──► card ── wire
//!                             └──────── the rest ───────► bridge ──────────────────┘
//! ```

pub mod cli;
pub mod config;
pub mod control;
pub mod device;
pub mod doctor;
pub mod holders;
pub mod interface;
pub mod logging;
pub mod mapped;
pub mod metrics;
pub mod netlink;
pub mod notify;
pub mod privileges;
pub mod program;
pub mod run;
mod server;
pub mod settings;
pub mod shim;
pub mod status;
mod table;
pub mod telemetry;
pub mod unload;
pub mod worker;
pub mod xsk;

#[cfg(test)]
mod scratch;
