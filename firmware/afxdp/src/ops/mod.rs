//! Operations: what the shim asks the kernel about its ports, what it tells about itself, and to
//! whom. Nothing here touches a frame.
//!
//! | question | modules |
//! |---|---|
//! | What are the ports, and have they changed? | [`interface`], [`netlink`], [`port_settings`], [`filters`], [`holders`] |
//! | What does the shim do? | [`telemetry`], told through [`control`] and [`metrics`] |
//! | Is it alive, and what went wrong? | [`notify`], [`watch`], [`logging`] |
//! | What may it do? | [`privileges`] |

pub mod control;
pub mod filters;
pub mod holders;
pub mod interface;
pub mod logging;
pub mod metrics;
pub mod netlink;
pub mod notify;
pub mod port_settings;
pub mod privileges;
mod server;
pub mod telemetry;
pub mod watch;
