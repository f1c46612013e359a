//! Bytes on the wire: where a frame's payload is, which flow it belongs to, the segment header, the handshake's option,
//! and how headers are rewritten.

pub mod flow_key;
pub mod frame;
pub mod offer;
pub mod rewrite;
pub mod segment_header;
mod tcp_options;
