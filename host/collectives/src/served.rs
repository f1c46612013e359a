//! A worker's side of a server with an optimizer: it gives gradients, and gets weights or deltas.

use std::fmt;
use std::str::FromStr;

use gradwire_codecs::Registry;

use crate::coding::Coding;
use crate::failure::LinkError;
use crate::layout::Layout;
use crate::link::{Link, Report};
use crate::plan::{CollectivePlan, GraphPlan, PlanError};
use crate::request::Task;
use crate::residuals::Residuals;
use crate::round::Round;
use crate::strategies::Strategy;

/// The answer of a server with an optimizer. It prints as it is read: `weights`, or the codec of
/// deltas.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Returns {
    /// Its weights, as they are.
    Weights,
    /// The difference of its weights from the workers', by this codec. What a message loses is
    /// still missing at the next one, so it is fed back.
    Deltas(Coding),
}

/// The most bytes of its name.
pub(crate) const MAX_RETURNS: usize = 64;

impl Returns {
    pub(crate) fn plan(self) -> GraphPlan {
        match self {
            Self::Weights => GraphPlan::exact(),
            Self::Deltas(coding) => GraphPlan::of(coding, Strategy::Servers(None)),
        }
    }
}

impl fmt::Display for Returns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Weights => f.write_str("weights"),
            Self::Deltas(coding) => coding.fmt(f),
        }
    }
}

impl FromStr for Returns {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        if text == "weights" {
            return Ok(Self::Weights);
        }
        let coding = Coding::parse(text, Registry::BUILT_IN)?;
        let returns = Self::Deltas(coding);
        CollectivePlan::from(returns.plan()).check_served()?;
        Ok(returns)
    }
}

/// Exchanges with a server's optimizer.
impl Round<'_> {
    /// Gives a server's optimizer the weights that it starts from, those of rank 1, and all others
    /// the same ones. Says what the server returns from now on.
    ///
    /// # Errors
    /// The server has no optimizer, or takes no messages of the method; or the exchange failed.
    pub fn begin(&self, link: &mut Link, weights: &mut [f32]) -> Result<Returns, LinkError> {
        self.method.stepped()?;
        self.ask(link, Task::Begin);
        if link.rank() != 1 {
            weights.fill(0.0);
        }
        link.exchange(weights, self.layout, &CollectivePlan::exact(), &mut Residuals::new())?;
        let mut said = [0.0; MAX_RETURNS];
        link.pull(&mut said, &Layout::new([("returns", MAX_RETURNS)])?, &GraphPlan::exact())?;
        let text: String =
            said.iter().take_while(|byte| **byte != 0.0).map(|byte| *byte as u8 as char).collect();
        Ok(text.parse()?)
    }

    /// Gives a server's optimizer a gradient, and replaces it by what the server returns: weights,
    /// or what to add to them. The optimizer steps with the mean over all workers.
    ///
    /// # Errors
    /// As [`sum`](Self::sum); or the method has more messages than one for a tensor; or the server
    /// has no such weights.
    pub fn step(
        &self,
        link: &mut Link,
        buffer: &mut [f32],
        returns: Returns,
        residuals: &mut Residuals,
    ) -> Result<Report, LinkError> {
        let plan = self.method.stepped()?;
        self.ask(link, Task::Step);
        let first = link.push(buffer, self.layout, plan, residuals)?;
        let second = link.pull(buffer, self.layout, &returns.plan())?;
        self.check(link, buffer)?;
        Ok(first.then(second))
    }
}
