//! Simulates distributed training before any hardware is bought: how long an iteration takes with
//! each way to exchange gradients, and what compression changes, in the NIC or on the host. It also
//! plans: for which tensors compression pays.
//!
//! ```
//! use gradwire_simulator::{Mechanism, Model, Scenario, seconds};
//!
//! // ResNet-200 on 16 workers at 10 Gbit/s, with a ring all-reduce.
//! let mut scenario = Scenario { workers: 16, ..Scenario::new(Model::published("resnet200")?, Mechanism::RING) };
//! scenario.links.bandwidth = 10_000_000_000;
//! let plain = scenario.run()?;
//! // The same with a codec in every NIC, at the ratios that were recorded at a bound of 2^-10.
//! scenario.wire.compression = Some("in-nic:b10".parse()?);
//! let compressed = scenario.run()?;
//! println!("{:.3} s, compressed {:.3} s", seconds(plain.iteration), seconds(compressed.iteration));
//! assert!(compressed.iteration < plain.iteration && compressed.sent[0] < plain.sent[0] / 5);
//! # Ok::<(), gradwire_simulator::SimError>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | describe a run | [`Scenario`]: [`Model`], [`ComputeTimes`], [`Links`], [`Mechanism`], [`Wire`] |
//! | know what it takes before it runs | [`Scenario::check`] |
//! | run it, and watch it run | [`Scenario::run`], [`Scenario::run_watched`] |
//! | read a trace of real training | [`trace::load`] |
//! | decide tensor by tensor | [`planner::Planner`] |
//! | stack HiPress' optimizations | [`stack::Stack`] |
//! | average what ranks moved in several iterations | [`local_steps::LocalSteps`] |
//!
//! A run is deterministic and exact to the picosecond. The library does no I/O and reads no clock,
//! and of the rest of gradwire it knows the graphs and plans of the collectives; the `gradwire`
//! command is its face. `docs/simulator.md` says what is simulated and what not.
//!
//! Inside, imports point down: `workload` (what is trained) and `scenario` (what is run) are below
//! `cluster` (workers and the network at work), which is below `mechanisms` (one file each) and
//! `run`. `planner`, `stack` and `local_steps` are users.
//!
//! Source: Chang et al., 'How to Train your DNN: The Network Operator Edition'.

mod check;
mod cluster;
mod error;
mod limits;
pub mod local_steps;
mod mechanisms;
pub mod planner;
mod run;
mod scenario;
pub mod stack;
mod time;
mod workload;

pub use error::SimError;
pub use limits::{Excess, MAX_WIDTH, RUN_LIMIT, Work};
pub use scenario::{
    AggregatorRate, Assignment, CHUNK_VALUES, CodecPlace, Compression, Content, Links, Mechanism, Packets,
    RECORDED_RATIOS, Racks, Ratios, Results, SUM_RATIOS, Scenario, SendOrder, Wire, WireCost,
};
pub use time::{Picos, SECOND, picos, seconds, transmission};
pub use workload::{ComputeTimes, Jitter, MOST_VALUES, Model, Parameter, VALUE_BITS, Variable, trace};
