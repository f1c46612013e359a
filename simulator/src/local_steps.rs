//! Local steps: ranks train alone for some iterations, and then average what they moved.
//!
//! A fragment of the model is exchanged after each `every / fragments` iterations. [`Scenario`]
//! simulates its exchange, with the gradients' place taken by what ranks moved. With a plan, ranks
//! then tell each other that they hold the mean, as gradwire's do. Ranks wait for it at once, or
//! `delay` iterations later. One exchange is under way at a time.
//!
//! | not simulated | effect |
//! |---|---|
//! | float buffers, such as BatchNorm's | they are sent, too |
//! | jitter | ranks of a long round are nearer to each other than those of one iteration |

use std::ops::Range;

use gradwire_collectives::{CollectivePlan, Strategy};
use serde::Serialize;

use crate::error::SimError;
use crate::scenario::{Mechanism, Scenario};
use crate::time::{Picos, picos, seconds};
use crate::workload::{ComputeTimes, Model, Parameter, VALUE_BITS};

/// A model that trains by local steps on a cluster.
#[derive(Clone, Debug)]
pub struct LocalSteps {
    /// Model, cluster, and how a round's sum travels.
    pub scenario: Scenario,
    /// Iterations of a round.
    pub every: u32,
    /// Iterations that ranks go on for while an exchange is under way.
    pub delay: u32,
    /// Parts of the model, exchanged at different iterations of a round.
    pub fragments: u32,
    /// Bytes of values a second for which a rank's processor does what an exchange needs of it: the
    /// difference, residuals, the weights' move. It is the processor that trains, so no delay hides
    /// that.
    pub handled: f64,
}

/// The result of a run. Times are seconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct LocalRow {
    /// An iteration, as the mean of a round.
    pub iteration_s: f64,
    /// Compute over iteration.
    pub utilisation: f64,
    /// The exchanges of a round, as long as they would take if ranks waited for them, without what
    /// the processors do.
    pub exchange_s: f64,
    /// Of an iteration: what ranks wait for exchanges.
    pub waited_s: f64,
    /// Bytes that the rank with the most sends in a round, with headers.
    pub sent_bytes: u64,
}

/// A fragment's exchange.
struct Exchange {
    time: Picos,
    handled: Picos,
    sent: u64,
}

impl LocalSteps {
    /// Simulates.
    ///
    /// # Errors
    /// A round is too short for its delay and fragments, or [`Scenario::check`] refuses.
    pub fn run(&self) -> Result<LocalRow, SimError> {
        let rows = self.scenario.model.parameters.len();
        let ranges = [
            (self.every > 0 && self.fragments > 0, "the length of a round, or the number of fragments,"),
            (self.fragments as usize <= rows, "the number of fragments, beyond that of parameters,"),
            (
                u64::from(self.fragments) * u64::from(self.delay.max(1)) <= u64::from(self.every),
                "the length of a round, below its delay times its fragments,",
            ),
            (self.handled > 0.0, "the rate at which values are handled"),
            (self.scenario.barrier, "the barrier, which local steps have"),
        ];
        if let Some(&(_, what)) = ranges.iter().find(|(holds, _)| !holds) {
            return Err(SimError::OutOfRange { what });
        }
        let fragments = divided(&self.scenario.model.parameters, self.fragments as usize);
        let exchanges: Vec<Exchange> =
            fragments.into_iter().map(|fragment| self.exchange(fragment)).collect::<Result<_, _>>()?;
        let (iteration, waited) = self.rounds(&exchanges);
        let compute = seconds(self.scenario.compute());
        Ok(LocalRow {
            iteration_s: iteration,
            utilisation: if iteration > 0.0 { compute / iteration } else { 1.0 },
            exchange_s: exchanges.iter().map(|exchange| seconds(exchange.time)).sum(),
            waited_s: waited,
            sent_bytes: exchanges.iter().map(|exchange| exchange.sent).sum(),
        })
    }

    /// Simulates the exchange of some of the parameters, all there at once.
    fn exchange(&self, fragment: Range<usize>) -> Result<Exchange, SimError> {
        let parameters = self.scenario.model.parameters[fragment].to_vec();
        let bytes: u64 = parameters.iter().map(|parameter| parameter.bits / 8).sum();
        let alone = |parameters, scenario: Scenario| {
            let model = Model { parameters, variables: Vec::new(), ..self.scenario.model.clone() };
            let compute_times = vec![ComputeTimes::of(&model.clone().timed(0.0, 0.0))];
            Scenario { model, compute_times, late: Vec::new(), ..scenario }.run()
        };
        let exchanged = alone(parameters, self.scenario.clone())?;
        let (mut time, mut sent) = (exchanged.iteration, exchanged.sent.into_iter().max().unwrap_or(0));
        if self.scenario.plan.is_some() {
            let one = Parameter { name: "held".into(), values: 1, forward_flops: 0, bits: VALUE_BITS };
            let plan = Some(CollectivePlan::exact());
            let mechanism = Mechanism::Graph(Strategy::Servers(None));
            let held = alone(vec![one], Scenario { plan, mechanism, ..self.scenario.clone() })?;
            time += held.iteration;
            sent += held.sent.into_iter().max().unwrap_or(0);
        }
        Ok(Exchange { time, handled: picos(bytes as f64 / self.handled), sent: sent / 8 })
    }

    /// Goes through some rounds: seconds of an iteration, and of it those that ranks wait.
    fn rounds(&self, exchanges: &[Exchange]) -> (f64, f64) {
        /// Rounds before those that count, so that the first one's start has no effect.
        const WARM: u32 = 2;
        const COUNTED: u32 = 2;
        let compute = self.scenario.compute();
        let (mut now, mut waited): (Picos, Picos) = (0, 0);
        let (mut began, mut waited_before) = (0, 0);
        // The exchange under way: when it ends, and the iteration that needs it.
        let mut under_way: Option<(Picos, u32)> = None;
        let stride = self.every / self.fragments;
        let round = stride * self.fragments;
        for iteration in 1..=(WARM + COUNTED) * round {
            now += compute;
            let mut arrive = |now: &mut Picos, under_way: &mut Option<(Picos, u32)>| {
                if let Some((end, _)) = under_way.take() {
                    waited += end.saturating_sub(*now);
                    *now = end.max(*now);
                }
            };
            if under_way.is_some_and(|(_, due)| iteration >= due) {
                arrive(&mut now, &mut under_way);
            }
            if iteration.is_multiple_of(stride) {
                arrive(&mut now, &mut under_way);
                let exchange = &exchanges[((iteration / stride - 1) % self.fragments) as usize];
                now += exchange.handled;
                under_way = Some((now + exchange.time, iteration + self.delay));
                if self.delay == 0 {
                    arrive(&mut now, &mut under_way);
                }
            }
            if iteration == WARM * round {
                (began, waited_before) = (now, waited);
            }
        }
        let each = |span| seconds(span) / f64::from(COUNTED * round);
        (each(now - began), each(waited - waited_before))
    }
}

/// Divides parameters into fragments of about as many values, as `gradwire.LocalSteps` does.
fn divided(parameters: &[Parameter], count: usize) -> Vec<Range<usize>> {
    let whole: u128 = parameters.iter().map(|parameter| u128::from(parameter.values)).sum();
    let mut starts = vec![0];
    let mut so_far: u128 = 0;
    for (at, parameter) in parameters.iter().enumerate() {
        let missing = count - starts.len();
        let left = parameters.len() - at;
        let full = so_far * count as u128 >= whole * starts.len() as u128;
        if at > starts[starts.len() - 1] && missing > 0 && (full || left == missing) {
            starts.push(at);
        }
        so_far += u128::from(parameter.values);
    }
    let ends = starts.iter().skip(1).copied().chain([parameters.len()]);
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Vec<Range<usize>> {
        let named = values.iter().map(|&values| Parameter {
            name: "p".into(),
            values,
            forward_flops: 0,
            bits: VALUE_BITS * values,
        });
        divided(&named.collect::<Vec<_>>(), 4)
    }

    /// What `divided` of `host/python/python/gradwire/local/fragment.py` returns.
    #[test]
    fn fragments_are_those_of_the_python_package() {
        // The MLP of the benchmark.
        assert_eq!(of(&[44_800, 700, 490_000, 700, 490_000, 700, 7000, 10]), [0..3, 3..4, 4..5, 5..8]);
        assert_eq!(of(&[1, 1, 1, 1]), [0..1, 1..2, 2..3, 3..4]);
        assert_eq!(of(&[100, 1, 1, 1, 1]), [0..1, 1..2, 2..3, 3..5]);
    }
}
