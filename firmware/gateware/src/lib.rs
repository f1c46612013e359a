//! gradwire's engines as RTL, and what drives them in simulation.
//!
//! The modules are SystemVerilog, in `rtl/`; `README.md` beside this crate says what they do and
//! how to use them. This library builds a [`Design`] with Verilator and sends frames through it as
//! a [`Simulation`]:
//!
//! ```no_run
//! use gradwire_gateware::{Batch, Design, Frame};
//!
//! let mut simulation = Design::new("pass_through").start()?;
//! let outcome = simulation.run(&Batch::of(vec![Frame::new(0, vec![1, 2, 3])]))?;
//! assert_eq!(outcome.frames[0].bytes, [1, 2, 3]);
//! # Ok::<(), gradwire_gateware::Error>(())
//! ```
//!
//! The simulation is a process of its own, and the two talk over pipes. So there is no foreign code
//! in this process, and a design that crashes ends no test but its own.

mod batch;
mod design;
mod error;
mod protocol;
mod simulation;
mod user;

pub use batch::{Batch, Frame, Outcome, Pauses, Received, Sent};
pub use design::Design;
pub use error::Error;
pub use simulation::Simulation;
pub use user::{Coding, REFUSED};
