//! The project's chores, as programs: what CI compares, counts and proves beside running tests.

pub mod at_least;
pub mod counts;
pub mod coverage;
pub mod exhaustive;
pub mod fresh_seeds;
mod netlist;
#[cfg(feature = "seeds")]
pub mod seeds;
pub mod setup;
pub mod sizes;
pub mod skipped;
pub mod stack;
pub mod synthesis;
pub mod table;
pub mod tools;
mod width;
pub mod words;

/// An error is shown to who runs the chore, and ends it.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;
