//! Exchanges gradients between the processes of a training job.

#![forbid(unsafe_code)]

pub mod graph;
pub mod layout;
mod part;
mod plan;
mod strategies;

pub use layout::{Layout, LayoutError};
pub use part::{Bytes, Codecs, Part, Step, Values};
pub use plan::{Choice, Coding, Job, MOST_PARTITIONS, Order, Plan, PlanError, Wire};
pub use strategies::{
    Between, MOST_MEMBERS, Strategy, StrategyError, all_gather, butterfly, halving, hierarchy, ring, servers,
};
