//! A link whose rank 0 is a server: rank 1 asks, and the server sums (push) and answers (pull).

use std::sync::mpsc::Receiver;

use super::{Link, Report};
use crate::failure::LinkError;
use crate::layout::Layout;
use crate::plan::GraphPlan;
use crate::protocol::Command;
use crate::residuals::Residuals;
use crate::strategies::Strategy;

impl Link {
    /// Is rank 0 a server, which has no gradient of its own?
    #[must_use]
    pub const fn is_served(&self) -> bool {
        self.served
    }

    /// Ranks that have a gradient: all but a server.
    #[must_use]
    pub const fn workers(&self) -> usize {
        self.ranks - self.served as usize
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
        let chosen = |at: usize| plan.choice_at(layout, at);
        let jobs = self.jobs(layout, plan, &chosen, Strategy::Push)?;
        self.run_jobs(buffer, layout, plan, jobs, &chosen, residuals, None)
    }

    /// All buffers become what a message says of the server's; what that lost is in nobody's
    /// residual.
    pub(crate) fn pull(
        &mut self,
        buffer: &mut [f32],
        layout: &Layout,
        plan: &GraphPlan,
    ) -> Result<Report, LinkError> {
        let residuals = &mut Residuals::new();
        self.check_fit(buffer.len(), layout, residuals)?;
        let chosen = |at: usize| plan.choice_at(layout, at);
        let jobs = self.jobs(layout, plan, &chosen, Strategy::Pull)?;
        self.run_jobs(buffer, layout, plan, jobs, &chosen, residuals, None)
    }

    /// At a server: where requests of rank 1 come, once.
    pub(crate) fn requests(&mut self) -> Option<Receiver<Option<Vec<u8>>>> {
        self.requests.take()
    }

    /// Why the connections' thread has ended.
    pub(crate) fn ended(&mut self) -> LinkError {
        if self.thread.is_none() {
            return LinkError::Closed(self.failed.clone());
        }
        let failure = self.verdict();
        self.fail(failure)
    }

    /// At a server: fails at all ranks, because it cannot do what it is asked.
    pub(crate) fn refuse(&mut self, why: String) -> LinkError {
        self.command(Command::Fail(why));
        let failure = self.verdict();
        self.fail(failure)
    }
}
