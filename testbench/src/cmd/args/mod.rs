//! Arguments that several subcommands take.

pub mod codec;
pub mod kernel;
pub mod model;
pub mod quantity;
