//! Pipe-SGD's model of training time (Li et al., NeurIPS 2018, Eq. 2 to 7).
//!
//! The symbols are reconstructed from the text around the equations; Eq. 6 is our reading of it. T
//! is the number of iterations, K the staleness; all times are in seconds.

use super::collectives::{Linear, ring};

/// Times of an iteration's stages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stages {
    /// l_up: the parameter update.
    pub update: f64,
    /// l_for: the forward pass.
    pub forward: f64,
    /// l_back: the backward pass.
    pub backward: f64,
}

impl Stages {
    /// l_up + l_comp: all that a worker computes.
    #[must_use]
    pub fn compute(self) -> f64 {
        self.update + self.forward + self.backward
    }
}

/// Eq. 2, synchronous: T (l_up + l_comp + l_comm).
#[must_use]
pub fn synchronous(t: f64, stages: Stages, comm: f64) -> f64 {
    t * (stages.compute() + comm)
}

/// Eq. 3, a pipeline with resources without limit: T/K (l_up + l_comp + l_comm).
#[must_use]
pub fn ideal_pipeline(t: f64, k: f64, stages: Stages, comm: f64) -> f64 {
    t / k * (stages.compute() + comm)
}

/// Eq. 4, a pipeline on one processor and one link, K >= 2: T max(l_up + l_comp, l_comm).
///
/// It does not depend on K, so K = 2 is enough.
#[must_use]
pub fn pipeline(t: f64, stages: Stages, comm: f64) -> f64 {
    t * stages.compute().max(comm)
}

/// Eq. 5, gradients exchanged as one: T max(l_up + l_for + l_back, ring(p, n) + S), S the
/// synchronisation.
#[must_use]
pub fn sequential_gradients(t: f64, stages: Stages, machine: Linear, p: u32, n: f64, sync: f64) -> f64 {
    pipeline(t, stages, ring(machine, p, n) + sync)
}

/// Eq. 6, gradients exchanged in L segments as the backward pass yields them:
/// T max(l_up + l_for + l_back, l_b1 + L (2(p-1) alpha + S) + 2(p-1)/p n beta + (p-1)/p n gamma).
///
/// `first`: l_b1, the backward time before the first segment.
#[must_use]
pub fn pipelined_gradients(
    t: f64,
    stages: Stages,
    machine: Linear,
    p: u32,
    n: f64,
    sync: f64,
    (segments, first): (f64, f64),
) -> f64 {
    let bytes = ring(Linear { alpha: 0.0, ..machine }, p, n);
    let latency = ring(machine, p, 0.0) + sync;
    pipeline(t, stages, first + segments * latency + bytes)
}

/// Eq. 7, scaling efficiency: 1 if compute bounds, else (l_up + l_comp) / l_comm.
#[must_use]
pub fn scaling_efficiency(stages: Stages, comm: f64) -> f64 {
    stages.compute() / pipeline(1.0, stages, comm)
}
