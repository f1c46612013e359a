//! Bytes on the wire: where a frame's payload is, which flow it belongs to, the segment header, the
//! handshake's option, how headers are rewritten, and the packets of aggregation.

pub mod capability;
pub mod chunk;
pub mod flow_key;
pub mod frame;
pub mod rewrite;
pub mod segment_header;
mod tcp_options;
