//! Sums in the network: workers contribute chunks of values, an aggregator adds them and sends the
//! sums to all (docs/aggregation-protocol.md).
//!
//! ```text
//! worker      input -> blocks of 128 values -> the code of each -> contribution
//! aggregator        -> whole numbers -> added to the chunk's slot -> the last one: the code of sums -> result, to all
//! worker            -> values -> output
//! ```
//!
//! An aggregator's *children* are workers and lower aggregators; it may have a *parent* itself.
//!
//! Restored values are whole numbers of one unit ([`crate::sums`]), so a sum is exact: the same
//! bits on every worker, whatever arrives first, is lost, or is sent twice. [`Aggregator`] and
//! [`Worker`] know neither sockets nor clocks: callers hand them datagrams and the time, and send
//! what they are given.
//!
//! Nothing here hangs: a worker asks after what it waits for, and any answer shows that the
//! aggregator lives. If none comes for [`SILENT_MS`], or the aggregator refuses, the worker says
//! so, and its caller sums in another way.

mod aggregator;
mod ethernet;
mod job;
mod pace;
mod serve;
mod slot;
mod worker;

pub use aggregator::{Aggregator, Emitted, Outcome, Parent, Settings, To};
pub use ethernet::{Arrival, EthernetAggregator, MAX_FRAME_LEN, Peer};
pub use job::IDLE_MS;
pub use pace::SILENT_MS;
pub use serve::Served;
pub use worker::{Event, Failure, Ignored, Poll, Worker, WorkerSettings};
