//! Why a design could not be built or driven.

use std::io;
use std::path::PathBuf;

/// A failure of the simulation itself; what a design does with frames is never one.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no Verilator on this machine.
    #[error(
        "verilator is needed to simulate the gateware and is not installed (Debian: apt-get install verilator g++ make)"
    )]
    NoVerilator,
    /// Verilator, or the compiler behind it, refused the design.
    #[error("verilator refused {top}:\n{why}")]
    Refused {
        /// The design's name.
        top: String,
        /// The printed reason.
        why: String,
    },
    /// The operating system refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file that was read, written or started.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// The simulation ended, or answered what is no answer.
    #[error("the simulation of {top} broke off: {source}")]
    Broken {
        /// The design's name.
        top: String,
        /// The error of the pipe.
        source: io::Error,
    },
    /// A register did not answer.
    #[error("{top} did not answer an access to register {address:#06x}")]
    Register {
        /// The design's name.
        top: String,
        /// The register's address.
        address: u16,
    },
}
