//! The stages that both directions share, and the order in which one clock moves them.

use gradwire::codec::Params;
use gradwire::profile::Profile;
use gradwire::rules::Rule;

use super::aligner::{AlignmentUnit, Parcel};
use super::intake::Intake;
use super::{Beat, Clocks, Layout, Step};

/// Intake, a place for the blocks, alignment unit.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    pub(super) intake: Intake,
    aligner: AlignmentUnit,
    clocks: Clocks,
}

impl Pipeline {
    pub(super) fn new(rule: Option<&Rule>) -> Self {
        Self { intake: Intake::new(rule), aligner: AlignmentUnit::new(), clocks: Clocks::default() }
    }

    pub(super) const fn clocks(&self) -> Clocks {
        self.clocks
    }

    /// Nothing is inside.
    pub(super) fn is_idle(&self) -> bool {
        self.intake.is_idle() && self.aligner.is_empty()
    }

    /// One clock. `blocks` is the combinational logic between the burst buffer and the alignment
    /// unit's register.
    ///
    /// The stages move from the last to the first: each takes what the one before it held at the
    /// start of the clock, and room that one stage makes serves the stage before it in the same
    /// clock. So `ready` ripples back to the source within one clock; RTL that cuts this path with
    /// skid buffers changes latency, never bytes.
    pub(super) fn clock(
        &mut self,
        input: Option<&Beat>,
        layout: Layout,
        ready: bool,
        blocks: impl FnOnce(&mut Intake) -> Option<Parcel>,
    ) -> Step {
        let was_idle = self.is_idle();
        let has_beat = self.aligner.has_beat();

        let given = (has_beat && ready).then(|| self.aligner.give());
        self.aligner.collect();
        if self.aligner.is_ready() {
            self.aligner.load(blocks(&mut self.intake));
        }
        let taken = input.is_some_and(|beat| self.intake.accept(beat, layout));

        self.clocks.total = self.clocks.total.wrapping_add(1);
        count(&mut self.clocks.busy, !was_idle || taken);
        count(&mut self.clocks.beats_in, taken);
        count(&mut self.clocks.beats_out, given.is_some());
        count(&mut self.clocks.stalls, input.is_some() && !taken);
        count(&mut self.clocks.waits, has_beat && !ready);
        let (beat, fault) = given.unzip();
        Step { taken, beat, fault: fault.flatten() }
    }
}

fn count(counter: &mut u64, event: bool) {
    *counter = counter.wrapping_add(u64::from(event));
}

/// The parameters with which the blocks code a rule's frames. Under another codec than theirs they
/// never see a value: the intake bypasses all frames.
pub(super) const fn params_of(rule: &Rule) -> Params {
    match rule.profile {
        Profile::SizeClass(params) => params,
        Profile::BitPlane(_) => Params::DEFAULT,
    }
}
