//! Time of one exchange of n bytes among p workers, by the usual linear model.
//!
//! Each message costs alpha seconds and beta seconds a byte; summing costs gamma seconds a byte.

/// The machine of the linear model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    /// Latency of a message, in seconds.
    pub alpha: f64,
    /// Seconds a byte on the wire.
    pub beta: f64,
    /// Seconds a byte to sum.
    pub gamma: f64,
}

/// Ring all-reduce: 2(p-1) alpha + 2(p-1)/p n beta + (p-1)/p n gamma.
///
/// The same as INC(p), the gradient-centric exchange of INCEPTIONN (Li et al., MICRO 2018), whose
/// n-terms tend to 2 n beta + n gamma: nearly constant in p.
#[must_use]
pub fn ring(Linear { alpha, beta, gamma }: Linear, p: u32, n: f64) -> f64 {
    let p = f64::from(p);
    2.0 * (p - 1.0) * alpha + (p - 1.0) / p * n * (2.0 * beta + gamma)
}

/// One parameter server: 2 alpha + 2 p n beta + p n gamma; its link carries p copies each way.
#[must_use]
pub fn parameter_server(Linear { alpha, beta, gamma }: Linear, p: u32, n: f64) -> f64 {
    2.0 * alpha + f64::from(p) * n * (2.0 * beta + gamma)
}

/// Butterfly mixing: log2 p (alpha + n beta + n gamma).
#[must_use]
pub fn butterfly(Linear { alpha, beta, gamma }: Linear, p: u32, n: f64) -> f64 {
    f64::from(p).log2() * (alpha + n * (beta + gamma))
}

/// Workers and one aggregator, which broadcasts by a tree: WA(p) = (1 + log2 p) alpha + (p + log2
/// p) n beta + (p-1) n gamma, nearly linear in p.
///
/// Source: INCEPTIONN (Li et al., MICRO 2018); the formula is reconstructed from standard
/// collectives.
#[must_use]
pub fn worker_aggregator(Linear { alpha, beta, gamma }: Linear, p: u32, n: f64) -> f64 {
    let p = f64::from(p);
    (1.0 + p.log2()) * alpha + (p + p.log2()) * n * beta + (p - 1.0) * n * gamma
}
