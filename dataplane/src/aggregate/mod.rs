//! Sums in the network: members contribute chunks of values, an aggregator adds them and sends the sums to all (docs/aggregation-protocol.md).
//!
//! ```text
//! member      input -> blocks of 128 values -> the code of each -> contribution
//! aggregator       -> whole numbers -> added to the chunk's slot -> the last one: the code of sums -> result, to all
//! member           -> values -> output
//! ```
//!
//! Restored values are whole numbers of one unit ([`crate::sums`]), so a sum is exact: the same bits on every member, whatever arrives first, is lost,
//! or is sent twice. [`Aggregator`] and [`Member`] know neither sockets nor clocks: callers hand them datagrams and the time,
//! and send what they are given.
//!
//! Nothing here hangs: a member asks after what it waits for, and any answer shows that the aggregator lives. If none comes for
//! [`SILENT_MS`], or the aggregator refuses, the member says so, and its caller sums in another way.

mod aggregator;
mod job;
mod member;
mod node;
mod pace;
mod serve;
mod slot;

pub use aggregator::{Above, Aggregator, Emitted, Outcome, Settings, To};
pub use job::IDLE_MS;
pub use member::{Event, Failure, Ignored, Member, Membership, Poll};
pub use node::{Arrival, MAX_FRAME_LEN, Node, Peer};
pub use pace::SILENT_MS;
pub use serve::Served;
