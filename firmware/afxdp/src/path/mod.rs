//! The frames' path: from the XDP program through a socket and the engines to the other port's
//! socket.
//!
//! [`program`] chooses frames and hands them to the sockets ([`xsk`]). They lie in memory that the
//! kernel shares ([`mapped`]); [`device`] makes of both what the dataplane's loop needs, and a
//! [`worker`] runs it in a thread, and a [`sampler`] looks at a few frames. [`shim`] sets all of it
//! up. [`aggregator`] is another use of the same: an aggregator.

pub mod aggregator;
pub mod device;
pub mod limits;
pub mod mapped;
pub mod program;
pub mod progress;
pub mod sampler;
pub mod shim;
pub mod worker;
pub mod xsk;
