//! A discrete-event simulator of training clusters: what a way to exchange gradients, and compression on
//! it, does to the time of an iteration. And a planner: whether compression pays, tensor by tensor.

mod check;
mod cluster;
mod error;
mod limits;
mod mechanisms;
pub mod planner;
pub mod published;
mod run;
mod scenario;
mod time;
mod workload;

pub use error::SimError;
pub use limits::{Excess, RUN_LIMIT, Work};
pub use scenario::{
    Assignment, CodecPlace, Compression, Content, Links, Mechanism, Order, Packets, RECORDED_RATIOS, Racks,
    Ratios, Results, Scenario, Wire, WireCost,
};
pub use time::{Picos, SECOND, picos, seconds, transmission};
pub use workload::{ComputeTimes, Jitter, MOST_VALUES, Model, Parameter, VALUE_BITS, Variable, trace};
