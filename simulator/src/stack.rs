//! HiPress' optimizations one on top of the other, each as a plan that the collectives run, too.
//!
//! | step | tensors | partitions | small tensors |
//! |---|---|---|---|
//! | none | all as `f32` | as many as workers | each by itself |
//! | codec | all by the codec | 1 | each by itself |
//! | + pipelining | all by the codec | as many as workers | each by itself |
//! | + bulk | all others by the codec | as many as workers | together, as `f32` or by the codec |
//! | + selection | as the [planner](crate::planner) decides | likewise | likewise |
//!
//! Source: Bai et al., 'Gradient Compression Supercharged High-Performance Data Parallel DNN
//! Training' (HiPress, SOSP 2021). The paper codes small tensors in a batch; plans by default send
//! them as `f32`.

use std::fmt;

use gradwire_collectives::{Choice, Coding, CollectivePlan, GraphPlan, Order, RowFilter, Strategy};
use serde::Serialize;

use crate::error::SimError;
use crate::planner::casync;
use crate::planner::cost_profile::{CodecCosts, CostProfile};
use crate::planner::curve::Curve;
use crate::planner::{Decision, Planner};
use crate::scenario::{CodecPlace, Compression, Mechanism, Packets, Ratios, Scenario, Wire};
use crate::time::{seconds, transmission};

/// The part of the stack that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// `f32`, as an exchange without a codec sends it.
    None,
    /// Every tensor whole, by the codec on the host.
    Codec,
    /// In partitions, so that codec and network work at once.
    Pipelining,
    /// Small tensors in one batch.
    Bulk,
    /// Only the tensors that the planner would compress, in its partitions.
    Selection,
}

impl Step {
    /// From the bottom to the top.
    pub const ALL: [Self; 5] = [Self::None, Self::Codec, Self::Pipelining, Self::Bulk, Self::Selection];
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Codec => "codec",
            Self::Pipelining => "+ pipelining",
            Self::Bulk => "+ bulk",
            Self::Selection => "+ selection",
        })
    }
}

/// A model on a cluster, and a codec to stack upon.
#[derive(Clone, Debug)]
pub struct Stack {
    /// Model, cluster and headers. Mechanism, plan and codec are the steps'; all links have the
    /// same rate.
    pub scenario: Scenario,
    /// [`Strategy::Ring`], or [`Strategy::Servers`] with everybody.
    pub strategy: Strategy,
    /// The codec on the host.
    pub coding: Coding,
    /// Bytes of raw values that it encodes and decodes in a second.
    pub rates: [f64; 2],
    /// Tensors with fewer values are small.
    pub small: usize,
    /// Are small tensors coded, in one batch?
    pub batch: bool,
    /// The smallest part of a tensor's time that compression has to save.
    pub threshold: f64,
}

/// The result of a step. Times are seconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The model.
    pub model: String,
    /// The number of ranks.
    pub ranks: u32,
    /// Bit/s of every link, each way.
    pub bandwidth: u64,
    /// The codec of the stack.
    pub codec: String,
    /// The step.
    pub step: Step,
    /// An iteration.
    pub iteration_s: f64,
    /// An iteration whose workers all begin with the same partition of a tensor, so that all send
    /// to one of them.
    pub uncoordinated_s: f64,
    /// Scaling efficiency: compute over iteration, which is what a worker alone would take.
    pub efficiency: f64,
    /// Part of the iteration in which the busiest link of a worker is busy, in the busier
    /// direction.
    pub communication: f64,
    /// Bytes that the worker with the most sends, with headers.
    pub sent_bytes: u64,
    /// Tensors that the codec codes.
    pub compressed: usize,
    /// Tensors, and batches of small ones, that are exchanged by themselves.
    pub exchanges: usize,
    /// The plan, as `gradwire allreduce --plan` reads it.
    pub plan: String,
}

impl Stack {
    /// The plan of a step.
    ///
    /// # Errors
    /// The planner does not know the strategy.
    pub fn plan(&self, step: Step) -> Result<GraphPlan, SimError> {
        let choice = |coding, partitions| Choice { coding, strategy: self.strategy, partitions };
        let alone = GraphPlan { small: 0, bulk: 0, ..GraphPlan::of(self.coding, self.strategy) };
        let small_coding = self.batch.then_some(self.coding);
        let bulk = GraphPlan { small: self.small, small_coding, ..GraphPlan::of(self.coding, self.strategy) };
        Ok(match step {
            Step::None => GraphPlan { others: choice(Coding::exact(), None), ..alone },
            Step::Codec => GraphPlan { others: choice(self.coding, Some(1)), ..alone },
            Step::Pipelining => alone,
            Step::Bulk => bulk,
            Step::Selection => {
                let decided = self.decisions()?.into_iter().map(|decision| {
                    let coding = if decision.compress { self.coding } else { Coding::exact() };
                    (RowFilter::named(decision.tensor), choice(coding, Some(decision.partitions as usize)))
                });
                let usual = choice(self.coding, Some(self.scenario.workers as usize));
                GraphPlan { rows: decided.filter(|(_, choice)| *choice != usual).collect(), ..bulk }
            }
        })
    }

    /// The ratio of a large tensor.
    fn ratio(&self) -> f64 {
        const VALUES: u32 = 1 << 20;
        4.0 * f64::from(VALUES) / self.coding.codec().bound(VALUES as usize) as f64
    }

    /// The planner's decisions on tensors that are not small.
    fn decisions(&self) -> Result<Vec<Decision>, SimError> {
        let strategy = match self.strategy {
            Strategy::Ring => casync::Strategy::Ring,
            Strategy::Servers(None) => casync::Strategy::PsColocated,
            other => {
                return Err(SimError::BadPlan {
                    why: format!("the planner knows ring and servers, not {other}"),
                });
            }
        };
        let Scenario { model, workers, links, wire, per_message, .. } = &self.scenario;
        let headers = wire
            .packets
            .map_or(1.0, |Packets { payload, overhead }| payload as f64 / (payload + overhead) as f64);
        let (ratio, [encode, decode]) = (self.ratio(), self.rates);
        let codec = CodecCosts {
            name: self.coding.to_string(),
            bound: None,
            lost: 0.0,
            ratio,
            encode: Curve::affine(0.0, encode),
            // By compressed bytes.
            decode: Curve::affine(0.0, decode / ratio),
        };
        // At both ends.
        let fixed = seconds(2 * per_message + links.latency);
        let send = Curve::affine(fixed, headers * links.bandwidth as f64 / 8.0);
        let profile = CostProfile { send, compute: None, codecs: vec![codec] };
        let (ranks, threshold) = (*workers, self.threshold);
        let planner = Planner { profile: &profile, strategy, ranks, bound: 0, in_nic: false, threshold };
        let large = model.parameters.iter().filter(|row| row.values >= self.small as u64);
        Ok(large.map(|row| planner.decide(&row.name, row.bits / 8)).collect())
    }

    /// Runs a step.
    ///
    /// # Errors
    /// The scenario or the plan is refused.
    pub fn row(&self, step: Step) -> Result<Row, SimError> {
        let plan = self.plan(step)?;
        let [encode, decode] = self.rates;
        let ratio = self.ratio();
        let ratios = Ratios { gradient: ratio, partial_sum: ratio, parameters: 1.0, bound: None };
        let compression = Some(Compression { place: CodecPlace::Host { encode, decode }, ratios });
        let run = |order| {
            let scenario = Scenario {
                mechanism: Mechanism::Graph(self.strategy),
                plan: Some(GraphPlan { order, ..plan.clone() }.into()),
                wire: Wire { compression, ..self.scenario.wire },
                ..self.scenario.clone()
            };
            Ok::<_, SimError>((scenario.run()?, scenario))
        };
        let (results, scenario) = run(Order::Turns)?;
        let (uncoordinated, _) = run(Order::Free)?;
        let jobs = scenario.jobs()?;
        let coded = jobs.iter().filter(|job| !job.coding.is_exact()).map(|job| job.tensors.len());
        let busiest = *results.sent.iter().chain(&results.received).max().unwrap_or(&0);
        let iteration_s = seconds(results.iteration);
        let of_iteration = |time| if iteration_s > 0.0 { seconds(time) / iteration_s } else { 1.0 };
        Ok(Row {
            model: scenario.model.name.clone(),
            ranks: scenario.workers,
            bandwidth: scenario.links.bandwidth,
            codec: self.coding.to_string(),
            step,
            iteration_s,
            uncoordinated_s: seconds(uncoordinated.iteration),
            efficiency: of_iteration(scenario.compute()),
            communication: of_iteration(transmission(busiest, scenario.links.bandwidth)),
            sent_bytes: results.sent.iter().max().unwrap_or(&0) / 8,
            compressed: coded.sum(),
            exchanges: jobs.len(),
            plan: CollectivePlan::from(plan).to_toml(),
        })
    }
}
