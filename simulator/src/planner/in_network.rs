//! Whether an aggregator pays: the iteration with it against the iteration as planned.
//!
//! A worker encodes chunks and sends them to the aggregator. The aggregator adds them and
//! multicasts sums, which the worker decodes. All of that goes on at once, so a tensor takes what
//! its slowest stage takes for all of it, and the other stages take for one chunk. The aggregator
//! stands in the switch's place: it has a link to each worker.

use std::fmt;

use serde::Serialize;

use super::{Plan, Planner, iteration};
use crate::scenario::{AggregatorRate, CHUNK_VALUES, Content, Ratios, SUM_RATIOS};
use crate::time::seconds;
use crate::workload::{ComputeTimes, Model, VALUE_BITS};

/// The part that an iteration waits for most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bottleneck {
    /// Forward and backward passes.
    Compute,
    /// The codec on the workers.
    Codec,
    /// A worker's link.
    Link,
    /// The aggregator's cores.
    Aggregator,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compute => "compute",
            Self::Codec => "the codec",
            Self::Link => "the link",
            Self::Aggregator => "the aggregator",
        })
    }
}

/// The effect of an aggregator in the network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct InNetwork {
    /// An iteration with it, in seconds.
    pub iteration_s: f64,
    /// The planned iteration over that.
    pub gain: f64,
    /// The part that the iteration waits for most.
    pub bottleneck: Bottleneck,
    /// Cores with which the aggregator would not be it.
    pub cores: u32,
    /// Whether an iteration saves the threshold against the plan.
    pub pays: bool,
}

/// Times of encoder, way up, aggregator, way down and decoder.
type Stages = [f64; 5];

const AGGREGATOR: usize = 2;

/// Which stage is slowest.
fn slowest(stages: &Stages) -> usize {
    (0..stages.len()).max_by(|&a, &b| stages[a].total_cmp(&stages[b])).unwrap_or(AGGREGATOR)
}

impl Planner<'_> {
    /// The effect of `aggregator` on the iteration that was planned; nothing if there is nobody to
    /// sum with, or no codec.
    #[must_use]
    pub fn in_network(&self, model: &Model, plan: &Plan, aggregator: AggregatorRate) -> Option<InNetwork> {
        if self.ranks < 2 {
            return None;
        }
        // An aggregator sums what the network's codecs make, wherever they run.
        let codecs = self.candidates(true).filter_map(|codec| Some((codec, codec.bound?)));
        let all = |stages: &dyn Fn(f64) -> Stages| {
            let exchange = |bytes: f64| {
                let (whole, chunk) =
                    (stages(bytes), stages(bytes.min((CHUNK_VALUES * VALUE_BITS / 8) as f64)));
                let slowest = slowest(&whole);
                whole[slowest] + (0..whole.len()).filter(|&at| at != slowest).map(|at| chunk[at]).sum::<f64>()
            };
            let bytes: Vec<f64> =
                model.parameters.iter().map(|parameter| parameter.bits as f64 / 8.0).collect();
            iteration(model, |at| exchange(bytes[at]))
        };
        let timed = codecs.map(|(codec, bound)| {
            let bound = SUM_RATIOS.iter().map(|known| known.0).filter(|&known| known >= bound).min();
            let bound = bound.or(Some(SUM_RATIOS[0].0));
            let (gradient, partial_sum) = (codec.ratio, codec.ratio);
            let sums = Ratios { gradient, partial_sum, parameters: 1.0, bound }.of(Content::Sum(self.ranks));
            let stages = move |bytes: f64| {
                let (up, down) = (bytes / codec.ratio, bytes / sums);
                let added = f64::from(self.ranks) * bytes / 4.0 / aggregator.values_a_second();
                let coded = |time: f64| if self.in_nic { 0.0 } else { time };
                let send = &self.profile.send;
                [
                    coded(codec.encode.at(bytes)),
                    send.at(up),
                    added,
                    send.at(down),
                    coded(codec.decode.at(down)),
                ]
            };
            (all(&stages), stages(model.bits() as f64 / 8.0))
        });
        let (iteration_s, stages) = timed.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let compute = seconds(ComputeTimes::of(model).total());
        let bottleneck = match slowest(&stages) {
            _ if compute > stages[slowest(&stages)] => Bottleneck::Compute,
            0 | 4 => Bottleneck::Codec,
            AGGREGATOR => Bottleneck::Aggregator,
            _ => Bottleneck::Link,
        };
        let others =
            (0..stages.len()).filter(|&at| at != AGGREGATOR).map(|at| stages[at]).fold(compute, f64::max);
        let cores = f64::from(aggregator.cores) * stages[AGGREGATOR] / others;
        let gain = if iteration_s > 0.0 { plan.iteration_s / iteration_s } else { 1.0 };
        let pays = iteration_s <= (1.0 - self.threshold) * plan.iteration_s && gain > 1.0;
        Some(InNetwork { iteration_s, gain, bottleneck, cores: (cores.ceil() as u32).max(1), pays })
    }
}
