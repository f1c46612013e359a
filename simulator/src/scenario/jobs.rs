//! The exchange between the workers of a graph.

use std::fmt::Display;

use gradwire_collectives::{Coding, Job, Layout, Strategy};

use super::{Mechanism, Scenario};
use crate::error::SimError;

impl Scenario {
    /// The jobs of a graph's workers: those of the plan, or each parameter by itself.
    ///
    /// # Errors
    /// The mechanism is no graph, or the plan is not for these workers or this model.
    pub fn jobs(&self) -> Result<Vec<Job>, SimError> {
        let bad = |why: &dyn Display| SimError::BadPlan { why: why.to_string() };
        let (rows, workers) = (&self.model.parameters, self.workers as usize);
        let Mechanism::Graph(strategy) = self.mechanism else { return Err(bad(&"only graphs have one")) };
        if let Some(plan) = &self.plan {
            let Some(plan) = plan.graph() else {
                return Err(bad(&"an aggregator in the network is the mechanism ina"));
            };
            let values = |values| usize::try_from(values).unwrap_or(usize::MAX);
            let layout = Layout::new(rows.iter().map(|row| (row.name.as_str(), values(row.values))));
            return plan.jobs(&layout.map_err(|why| bad(&why))?, workers).map_err(|why| bad(&why));
        }
        // Without owners, all would do the same.
        let partitions = match strategy {
            Strategy::Butterfly | Strategy::AllGather | Strategy::Servers(Some(1)) => 1,
            _ => workers,
        };
        let job = |at: usize| {
            let (tensors, coding, values) = (vec![at], Coding::exact(), rows[at].values as usize);
            Job { tensors, coding, strategy, partitions, values, first: 0, batch: None }
        };
        Ok((0..rows.len()).map(job).collect())
    }
}
