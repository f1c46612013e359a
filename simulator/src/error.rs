//! Why a scenario cannot be read or run.

use crate::limits::{Excess, RUN_LIMIT, Work};

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// A model that gradwire does not bring along.
    #[error(
        "no model is called {name}: there are {known}, and CSV files of name,values and perhaps forward_flops"
    )]
    UnknownModel {
        /// The name asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// A model without parameters.
    #[error("model {name} has no parameters")]
    EmptyModel {
        /// The model.
        name: String,
    },
    /// A model file that is not the CSV it should be.
    #[error("not a model CSV: {0}")]
    Csv(csv::Error),
    /// A compression that the grammar does not know.
    #[error("{text} is not 16bit, in-nic:RATIOS or on-host:RATIOS@ENCODE,DECODE")]
    BadCompression {
        /// The text given.
        text: String,
    },
    /// A mechanism that the grammar does not know.
    #[error(
        "no mechanism is called {text}: there are ps, ps-rr, ps-block, ps-async, agg, mc, mc+agg, ring, ring-whole, ring+mc, butterfly, \
         hier-agg[:GROUP], ina[:rack] and graph:STRATEGY"
    )]
    BadMechanism {
        /// The text given.
        text: String,
    },
    /// A plan that does not go with the model or the workers.
    #[error("the plan: {why}")]
    BadPlan {
        /// The fault.
        why: String,
    },
    /// Butterfly mixing pairs workers in log2 W rounds.
    #[error("butterfly mixing needs a power of two of workers, not {workers}")]
    NotAPowerOfTwo {
        /// Workers of the scenario.
        workers: u32,
    },
    /// Hierarchies need groups of equal size.
    #[error("{workers} workers do not divide into groups of {group}")]
    UnevenGroups {
        /// Workers of the scenario.
        workers: u32,
        /// Workers in a group.
        group: u32,
    },
    /// A number that has to be positive, or within what the scenario holds, is not.
    #[error("{what} is out of range")]
    OutOfRange {
        /// The number's name.
        what: &'static str,
    },
    /// A run that would take too long or too much memory.
    #[error(
        "up to {} million events and {} MB, more than the {} million and {} MB that a run may take; {excess}",
        work.events / 1_000_000, work.memory / 1_000_000, RUN_LIMIT.events / 1_000_000, RUN_LIMIT.memory / 1_000_000
    )]
    TooLarge {
        /// The most work that it would take.
        work: Work,
        /// The cause of its size; printed as the remedy.
        excess: Excess,
    },
    /// A trace that is not what [`trace`](crate::workload::trace) reads.
    #[error("{file}, line {line}: {reason}")]
    BadTrace {
        /// File, as [`trace::load`](crate::workload::trace::load) was told.
        file: String,
        /// Line, from 1.
        line: usize,
        /// The fault.
        reason: String,
    },
}
