//! The models that are trained: parameters, their sizes and the time that computing takes.

mod compute_times;
mod derived;
mod hipress;
mod model;
mod rows;
pub mod trace;
mod ugatit;

pub use compute_times::{ComputeTimes, Jitter};
pub use model::{MOST_VALUES, Model, Parameter, VALUE_BITS, Variable};
