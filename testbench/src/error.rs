//! Why the tool could not do its work: exit code 2.

use std::io;

/// Every failure of the tool itself. That a bound or a check failed is not one: it is a result.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("{file}: cannot {action}: {source}")]
    Io {
        /// File, folder or `standard input`.
        file: String,
        /// The action that failed: `read`, `write`, ...
        action: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// An input is not what it should be.
    #[error("{file}: byte {offset}: {found}, expected {expected}")]
    Input {
        /// File, or `standard input`.
        file: String,
        /// The place in it, in bytes from its start.
        offset: u64,
        /// The text or value found.
        found: String,
        /// The right one.
        expected: String,
    },
    /// Options that do not go together, or that the dataplane refuses.
    #[error("{0}")]
    Usage(String),
    /// The simulator or the planner refused what it was given.
    #[cfg(feature = "cli")]
    #[error("{0}")]
    Sim(#[from] gradwire_simulator::SimError),
    /// Ranks of a job cannot exchange anything.
    #[cfg(feature = "cli")]
    #[error("{0}")]
    Link(#[from] gradwire_collectives::LinkError),
    /// The output could not be written. If its kind is `BrokenPipe`, the reader has gone.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    /// An [`Error::Io`].
    pub fn io(file: impl Into<String>, action: &'static str, source: io::Error) -> Self {
        Self::Io { file: file.into(), action, source }
    }

    /// An [`Error::Input`].
    pub fn input(
        file: impl Into<String>,
        offset: impl TryInto<u64>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        let offset = offset.try_into().unwrap_or(u64::MAX);
        Self::Input { file: file.into(), offset, found: found.into(), expected: expected.into() }
    }

    /// Whether this is the reader of the output having gone, which deserves no message.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// The result of a command that did its work.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every bound and check held: exit code 0.
    Held,
    /// A bound or a check failed: exit code 1.
    Failed,
}

impl Outcome {
    /// `Held` if `ok`.
    pub const fn from_ok(ok: bool) -> Self {
        if ok { Self::Held } else { Self::Failed }
    }
}
