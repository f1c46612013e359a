//! Decisions by the size of a tensor, as a plan that the collectives run.

use gradwire_collectives::{self as collectives, Choice, Coding, GraphPlan, RowFilter};
use serde::Serialize;

use super::Planner;
use super::casync::Strategy;
use crate::error::SimError;
use crate::workload::{Model, VALUE_BITS};

/// Sizes of tensors that are exchanged alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeClass {
    /// The fewest values.
    pub from: u64,
    /// The first number of values that is too many; without one, there is no limit.
    pub below: Option<u64>,
    /// The codec; without one, `f32`.
    pub codec: Option<String>,
    /// Partitions to send a tensor in.
    pub partitions: u32,
    /// The model's tensors of such a size.
    pub tensors: usize,
}

/// A codec, if one pays, and the partitions.
type Exchange = (Option<String>, u32);

impl Planner<'_> {
    fn exchange(&self, values: u64) -> Exchange {
        let decision = self.decide("", values * VALUE_BITS / 8);
        (decision.codec.filter(|_| decision.compress), decision.partitions)
    }

    /// The numbers of values after `low` and up to `high` at which the exchange changes. Between
    /// two sizes that are exchanged alike, nothing is looked for.
    fn changes(&self, low: (u64, &Exchange), high: (u64, &Exchange), found: &mut Vec<(u64, Exchange)>) {
        if low.1 == high.1 {
            return;
        }
        let middle = low.0 + (high.0 - low.0) / 2;
        if middle == low.0 {
            found.push((high.0, high.1.clone()));
            return;
        }
        let exchange = self.exchange(middle);
        self.changes(low, (middle, &exchange), found);
        self.changes((middle, &exchange), high, found);
    }

    /// The size classes of tensors of at least `small` values, from the smallest: with the sizes
    /// between those of `model` at which a decision changes. Smaller tensors go together, and the
    /// planner does not decide on them.
    #[must_use]
    pub fn classes(&self, model: &Model, small: u64) -> Vec<SizeClass> {
        let mut sizes: Vec<u64> =
            model.parameters.iter().map(|row| row.values).filter(|&values| values >= small).collect();
        sizes.sort_unstable();
        let mut before = (small, self.exchange(sizes.first().map_or(small, |&least| least)));
        let mut starts = vec![before.clone()];
        for &size in &sizes {
            let exchange = self.exchange(size);
            self.changes((before.0, &before.1), (size, &exchange), &mut starts);
            before = (size, exchange);
        }
        let class = |at: usize| {
            let (from, (codec, partitions)) = starts[at].clone();
            let below = starts.get(at + 1).map(|next| next.0);
            let inside = |&&size: &&u64| size >= from && below.is_none_or(|below| size < below);
            let tensors = sizes.iter().filter(inside).count();
            SizeClass { from, below, codec, partitions, tensors }
        };
        (0..starts.len()).map(class).collect()
    }

    /// The plan of these classes, as ranks of a job run it.
    ///
    /// # Errors
    /// Ranks do not run such a strategy, the codec does not go with it, or it would have a
    /// momentum for some tensors only.
    pub fn graph_plan(&self, classes: &[SizeClass], small: u64) -> Result<GraphPlan, SimError> {
        let bad = |why: &dyn std::fmt::Display| SimError::BadPlan { why: why.to_string() };
        let strategy = match self.strategy {
            Strategy::Ring => collectives::Strategy::Ring,
            Strategy::PsColocated => collectives::Strategy::Servers(None),
            Strategy::Ps => {
                return Err(bad(
                    &"ranks run no servers on hosts of their own: expected the strategy ring, or ps-colocated",
                ));
            }
        };
        let choices = classes.iter().map(|class| {
            let codec = class.codec.as_deref().map(str::parse).transpose().map_err(|error| bad(&error))?;
            let coding: Coding = codec.unwrap_or_else(Coding::exact);
            coding.check(strategy).map_err(|error| bad(&error))?;
            Ok(Choice { coding, strategy, partitions: Some(class.partitions as usize) })
        });
        let choices = choices.collect::<Result<Vec<Choice>, SimError>>()?;
        let momentum = |choice: &&Choice| choice.coding.codec().momentum() != 0.0;
        if let Some(with) = choices.iter().find(momentum)
            && !choices.iter().all(|choice| choice.coding == with.coding)
        {
            return Err(bad(&format_args!(
                "{} has a momentum, which tensors of other sizes, sent as they are, would not have: choose a codec without",
                with.coding
            )));
        }
        let number = |values| usize::try_from(values).unwrap_or(usize::MAX);
        let mut rows = classes.iter().zip(&choices).map(|(class, choice)| {
            let below = class.below.map_or(RowFilter::ANY.end, number);
            (RowFilter::sized(number(class.from)..below), choice.clone())
        });
        // The largest tensors are those that need no row.
        let (_, others) = rows.next_back().ok_or_else(|| bad(&"there are no size classes"))?;
        let rows = rows.collect();
        Ok(GraphPlan { others, rows, small: number(small), ..GraphPlan::of(Coding::exact(), strategy) })
    }
}
