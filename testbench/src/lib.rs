//! gradwire's testbench: recorded gradients and captures go through the dataplane, and everything that
//! comes out is judged.
//!
//! - In: [`npy`] and [`capture`] read recordings; [`recordings`] has those that are built in.
//! - Through: [`check`] sends a vector through the codec, [`replay`] a capture through both engines.
//! - Judged: [`oracle`] judges values, [`judge`] frames and streams, with [`mod@frame`] (another crate's parser)
//!   and [`stream`] (TCP reassembly). None of them uses the code that it judges.
//! - Larger than the desk: `gradwire_simulator` simulates clusters and says where compression pays.
//! - In firmware: [`softcore`] sends a capture through soft cores in QEMU.
//! - Timed: [`mod@bench`] on the inputs of [`shapes`], and [`measure`] for the planner.
//! - Out: [`report`] for people, `serde` for programs. [`cmd`] has the subcommands of `gradwire`.

pub mod bench;
pub mod capture;
pub mod check;
pub mod cmd;
mod connections;
pub mod eligible;
pub mod error;
pub mod frame;
mod handshake;
pub mod judge;
pub mod measure;
pub mod npy;
pub mod once;
pub mod oracle;
mod pcapng;
pub mod plot;
pub mod progress;
pub mod recordings;
pub mod replay;
pub mod report;
pub mod shapes;
pub mod softcore;
pub mod stream;
