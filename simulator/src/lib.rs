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
pub use limits::{Excess, LIMIT, Work};
pub use scenario::{
    Assignment, Compression, Content, Cost, Headers, Links, Mechanism, Order, Outcome, Place, RECORDED,
    Racks, Ratios, Scenario, Wire,
};
pub use time::{Picos, SECOND, picos, seconds, transmission};
pub use workload::{Jitter, MOST, Model, Parameter, Profile, VALUE_BITS, Variable, trace};
