//! Why ranks cannot exchange anything.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::graph::Rank;
use crate::layout::LayoutError;
use crate::plan::PlanError;
use crate::residuals::ResidualError;

/// The first thing that went wrong in a job, in the words of the rank that saw it. All ranks are
/// told the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The rank that saw it.
    pub reporter: Rank,
    /// The cause as it saw it, with the rank that is to blame.
    pub cause: String,
    pub(crate) weight: Weight,
}

/// The weight of a failure. A connection that closes is often the consequence of something else, so
/// rank 0 waits a moment for a better cause.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Weight {
    /// A connection closed.
    Closed,
    /// Something did not come in time; others may know who is behind.
    Late {
        /// The exchange in which it did not come.
        sequence: u64,
    },
    /// The cause is known.
    Certain,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (seen by rank {})", self.cause, self.reporter)
    }
}

/// Why ranks cannot exchange anything.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what is wrong")]
pub enum LinkError {
    /// The plan does not suit.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The layout does not suit.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Residuals do not fit.
    #[error(transparent)]
    Residuals(#[from] ResidualError),
    /// The buffer is not the layout's.
    #[error("the buffer has {buffer} values and the layout {layout}: give a buffer of the layout's length")]
    Buffer { buffer: usize, layout: usize },
    /// The plan has a `wire:` codec, but the link not the tagged connections for it.
    #[error(
        "the plan has a wire: codec, but the link has no tagged connections between groups of {group}: connect with \
         Options::tagged = Some({group})"
    )]
    NotTagged { group: usize },
    /// More ranks than an aggregator in the network sums.
    #[error(
        "{ranks} ranks: an aggregator in the network sums {} at most",
        crate::aggregator_client::MAX_RANKS
    )]
    AggregatorClient { ranks: usize },
    /// The operating system refused.
    #[error("cannot {what}: {source}")]
    Io { what: String, source: io::Error },
    /// The far end knows another token.
    #[error("{address} knows another token: start all ranks of a job with the same one")]
    Token { address: String },
    /// One end speaks TLS, and the other does not.
    #[error("{address} speaks {}, and this rank {}: give all ranks of a job TLS, or none", if *theirs { "TLS" } else { "no TLS" }, if *theirs { "does not" } else { "does" })]
    Tls { address: String, theirs: bool },
    /// Streams of a connection that are too few or too many.
    #[error("{0} streams: expected 1 to {max}", max = crate::MAX_STREAMS)]
    Streams(usize),
    /// Tagged connections have no TLS.
    #[error(
        "TLS, and tagged connections for a wire: codec: a NIC or a shim compresses no encrypted values; take another codec, or no TLS"
    )]
    TlsTagged,
    /// Tagged connections are not relayed.
    #[error(
        "a relay, and tagged connections for a wire: codec: these go from rank to rank; take another codec, or no relay"
    )]
    RelayTagged,
    /// What an aggregator in the network sums has no TLS.
    #[error(
        "TLS, and a plan in-network: an aggregator sums values that are not encrypted; take another plan, or no TLS"
    )]
    ClearPlan,
    /// The far end refused this rank.
    #[error("{address} refused rank {rank}: {why}")]
    Refused { address: String, rank: Rank, why: String },
    /// Rank or number of ranks make no sense.
    #[error("rank {rank} of {ranks}: expected 1 to {} ranks, and ranks from 0 to one less", crate::MAX_RANKS)]
    Ranks { rank: Rank, ranks: usize },
    /// Ranks did not come in time.
    #[error(
        "ranks {} did not connect within {within:?} to {at}, the address that they were told{}",
        list(missing),
        refusals(refused)
    )]
    Missing { missing: Vec<Rank>, at: SocketAddr, within: Duration, refused: Vec<String> },
    /// Something went wrong in the job. The link is closed, and the buffer holds partial sums:
    /// start again from a checkpoint.
    #[error("{0}")]
    Failed(Failure),
    /// The link failed or was closed before.
    #[error("the link is closed: connect again{}", .0.as_ref().map(|first| format!("; it failed because {first}")).unwrap_or_default())]
    Closed(Option<Failure>),
}

pub(crate) fn list(ranks: &[Rank]) -> String {
    ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn refusals(refused: &[String]) -> String {
    if refused.is_empty() { String::new() } else { format!("; refused: {}", refused.join("; ")) }
}
