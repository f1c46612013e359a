//! The shim's requests to the system that it runs on. Nothing here touches a frame.
//!
//! | question | modules |
//! |---|---|
//! | What are the ports, and have they changed? | [`interface`], [`netlink`], [`port_settings`], [`filters`], [`holders`] |
//! | What may the process do, and who manages it? | [`privileges`], [`notify`] |

pub mod filters;
pub mod holders;
pub mod interface;
pub mod netlink;
pub mod notify;
pub mod port_settings;
pub mod privileges;
