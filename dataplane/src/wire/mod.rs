//! Bytes on the wire: where a frame's payload is, its checksums, the segment header, and how headers are
//! rewritten.

pub mod checksum;
pub mod frame;
pub mod rewrite;
pub mod segment;
