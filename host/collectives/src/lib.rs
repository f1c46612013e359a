//! Exchanges gradients between the processes of a training job.
//!
//! A [`CollectivePlan`] says which tensor is exchanged how: by which [`Strategy`], a graph of
//! encode, send, recv, merge and decode, and with which codec. A [`Link`] is a rank's connections
//! to all others, and [`Link::exchange`] runs the plan over them.
//!
//! ```
//! use gradwire_collectives::{CollectivePlan, Layout, Listening, Options, Residuals, Token};
//!
//! let token = Token::random()?;
//! let plan: CollectivePlan = "strategy = \"servers\"\ncodec = \"q8:256\"".parse()?;
//! let layout = Layout::new([("weights", 5000), ("bias", 10)])?;
//! let root = Listening::bind("127.0.0.1:0".parse()?, Options::new(token.clone()))?;
//! let at = root.address()?;
//! let rank = |listening: Listening, rank| {
//!     let mut link = listening.join(rank, 2, at)?;
//!     let (mut gradient, mut residuals) = (vec![rank as f32; 5010], Residuals::new());
//!     link.exchange(&mut gradient, &layout, &plan, &mut residuals)?;
//!     Ok::<_, gradwire_collectives::LinkError>(gradient)
//! };
//! let results = std::thread::scope(|scope| {
//!     let other = scope.spawn(|| rank(Listening::bind("127.0.0.1:0".parse().unwrap(), Options::new(token))?, 1));
//!     (rank(root, 0), other.join().unwrap())
//! });
//! assert_eq!(results.0?, results.1?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/collectives.md` says what each strategy is for. Inside, `graph` and `strategies` know no
//! network, `part` runs a graph wherever its messages come from, and `link` runs all parts of a
//! plan over TCP.

#![forbid(unsafe_code)]

mod aggregator;
mod aggregator_client;
mod agreement;
mod batch;
mod bundle;
mod coding;
pub mod coordinator;
mod failure;
pub mod graph;
mod handshake;
mod header;
mod job;
pub mod layout;
mod link;
mod low_rank;
mod magnitude;
mod method;
mod optimizer;
mod part;
mod plan;
mod plan_file;
mod poll;
pub mod protocol;
mod relay;
mod rendezvous;
mod request;
mod residuals;
mod round;
mod scaled;
mod served;
mod server;
mod socket;
mod spread;
mod strategies;
mod stream;
mod sums;
mod tls;
mod token;

pub use aggregator::Aggregator;
pub use batch::Batch;
pub use bundle::MAX_STREAMS;
pub use coding::{Coding, CodingError, Wire};
pub use failure::{Failure, LinkError};
pub use job::Job;
pub use layout::{Layout, LayoutError};
pub use link::{COMPARE_EVERY, Decoded, InNetwork, Link, Record, Report};
pub use method::Method;
pub use optimizer::{Optimizer, Rule};
pub use part::{Bytes, Codecs, Part, Step, Values};
pub use plan::{Choice, CollectivePlan, GraphPlan, MAX_PARTITIONS, Order, PlanError, RowFilter};
pub use poll::Traffic;
pub use rendezvous::{Listening, Options};
pub use residuals::{ResidualError, Residuals};
pub use round::Round;
pub use served::Returns;
pub use server::{Served, Server, Updates};
pub use strategies::{
    Between, MAX_RANKS, Strategy, StrategyError, all_gather, butterfly, halving_doubling, hierarchy, pull,
    push, ring, servers,
};
pub use stream::TAG;
pub use token::Token;
