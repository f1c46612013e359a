//! The mechanisms, one file each: who sends what to whom, and when.

mod aggregation;
mod butterfly;
mod countdown;
mod graph;
mod hierarchical_aggregators;
mod in_network;
mod parameter_server;
mod ring;

pub(crate) use butterfly::Butterfly;
pub(crate) use graph::Graphs;
pub(crate) use hierarchical_aggregators::HierarchicalAggregators;
pub(crate) use in_network::InNetwork;
pub(crate) use parameter_server::{FAIR_SHARE, ParameterServers};
pub(crate) use ring::Ring;
