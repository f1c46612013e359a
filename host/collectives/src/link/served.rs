//! A link whose rank 0 is a server: what rank 1 asks, and the server does.

use std::time::Instant;

use super::{Link, Report};
use crate::failure::LinkError;
use crate::layout::Layout;
use crate::plan::GraphPlan;
use crate::protocol::{Command, Event};
use crate::residuals::Residuals;
use crate::strategies::Strategy;

impl Link {
    /// Is rank 0 a server, which has no gradient of its own?
    #[must_use]
    pub const fn is_served(&self) -> bool {
        self.served
    }

    /// Tells the server what all others do next, if this is rank 1.
    pub(crate) fn ask(&self, what: &str) {
        if self.rank == 1 {
            self.command(Command::Ask(what.to_owned()));
        }
    }

    /// The server's buffer becomes the sum of all others', which stay as they are.
    pub(crate) fn push(
        &mut self,
        buffer: &mut [f32],
        layout: &Layout,
        plan: &GraphPlan,
        residuals: &mut Residuals,
    ) -> Result<Report, LinkError> {
        self.check_fit(buffer.len(), layout, residuals)?;
        let chosen = |at: usize| plan.choice(&layout.tensors()[at].0);
        let jobs = self.jobs(layout, plan, &chosen, Strategy::Push)?;
        self.run_jobs(buffer, layout, plan, jobs, &chosen, residuals, None)
    }

    /// All buffers become what a message says of the server's; what that lost is in nobody's residual.
    pub(crate) fn pull(
        &mut self,
        buffer: &mut [f32],
        layout: &Layout,
        plan: &GraphPlan,
    ) -> Result<Report, LinkError> {
        let residuals = &mut Residuals::new();
        self.check_fit(buffer.len(), layout, residuals)?;
        let chosen = |at: usize| plan.choice(&layout.tensors()[at].0);
        let jobs = self.jobs(layout, plan, &chosen, Strategy::Pull)?;
        self.run_jobs(buffer, layout, plan, jobs, &chosen, residuals, None)
    }

    /// At a server: waits for what it is asked to do next; `None` when all others have left.
    ///
    /// Between two exchanges ranks may take any time, so it waits for as long as their connections live. A rank that keeps the
    /// others waiting is named by these, within the timeout.
    pub(crate) fn asked(&mut self) -> Result<Option<Vec<u8>>, LinkError> {
        loop {
            if let Some(asked) = self.asked.pop_front() {
                return Ok(asked);
            }
            if self.thread.is_none() {
                return Err(LinkError::Closed(self.failed.clone()));
            }
            match self.any_event(Instant::now() + self.timeout) {
                Ok(Event::Asked(asked)) => return Ok(asked),
                Ok(Event::Failed(failure)) => return Err(self.fail(failure)),
                Ok(_) | Err(()) => {}
            }
        }
    }

    /// At a server: fails at all ranks, because it cannot do what it is asked.
    pub(crate) fn refuse(&mut self, why: String) -> LinkError {
        self.command(Command::Fail(why));
        let failure = self.verdict();
        self.fail(failure)
    }
}
