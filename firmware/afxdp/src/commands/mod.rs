//! The commands of `gradwire-xdp`. Each has its arguments and its work in one place.

use std::io;

use crate::config::ConfigError;
use crate::ops::control::ControlError;

pub mod arguments;
pub mod completions;
pub mod doctor;
pub mod man;
pub mod run;
pub mod status;
pub mod unload;

/// What a command that did its work found out.
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

/// Why a command could not do its work: exit code 2.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The shim did not start, or a part of it failed.
    #[error(transparent)]
    Run(#[from] run::RunError),
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
    /// The manual pages could not be written.
    #[error(transparent)]
    Man(#[from] man::ManError),
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// Whether this is the reader of the output having gone, which deserves no message.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }
}
