//! Bytes on the wire: where a frame's payload is, which flow it belongs to, the segment header, and how headers are
//! rewritten.

pub mod flow_key;
pub mod frame;
pub mod rewrite;
pub mod segment_header;
