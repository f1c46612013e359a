//! The commands of `gradwire-xdp`. Each has its arguments, its work and its error in one place.

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
