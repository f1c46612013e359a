//! The commands of `gradwire-xdp`. Each has its arguments and its work in one place.

use std::io;

use crate::config::ConfigError;
use crate::telemetry::control::ControlError;

pub mod aggregate;
pub mod arguments;
pub mod completions;
pub mod doctor;
pub mod man;
pub mod run;
pub mod service;
pub mod status;
mod threads;
pub mod traffic;
pub mod unload;

/// The result of a command that did its work.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exit code 0.
    Good,
    /// A fault, or a shim that does not answer: exit code 1.
    Bad,
}

impl Outcome {
    /// `Good` if `good`.
    pub(crate) const fn from_good(good: bool) -> Self {
        if good { Self::Good } else { Self::Bad }
    }
}

/// Why a command could not do its work.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The shim did not start, or a part of it failed.
    #[error(transparent)]
    Run(#[from] service::RunError),
    /// The configuration file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The control sockets.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The kernel does not tell of its devices.
    #[error(transparent)]
    Gather(#[from] doctor::GatherError),
    /// A shim could not be ended.
    #[error(transparent)]
    Unload(#[from] unload::UnloadError),
    /// A test had no connection, or it broke.
    #[error(transparent)]
    Traffic(#[from] traffic::TrafficError),
    /// The manual pages could not be written.
    #[error(transparent)]
    Man(#[from] man::ManError),
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// The exit code: 3 if a test had no connection to the other host, else 2.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Traffic(error) => error.exit_code(),
            _ => 2,
        }
    }

    /// Whether this is the reader of the output having gone, which deserves no message.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }
}
