//! The `gradwire` command.
fn main() {}
