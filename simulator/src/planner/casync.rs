//! CaSync's cost of exchanging one gradient, with and without compression (HiPress, SOSP 2021, Eq.
//! 1 and 2, Table 3).
//!
//! N ranks, a gradient of m bytes in K partitions, compressed to r m bytes:
//! ```text
//! (1)  T_orig(m, K) = a T_send(m/K)
//! (2)  T_cpr(m, K)  = a T_send(r m/K) + b T_enc(m/K) + g T_dec(r m/K)
//! ```
//! T_dec counts compressed bytes. For K > N the paper speaks of batches and gives no formula. Our
//! reading: ceil(K/N) batches, one after the other, and each costs what N partitions of m/K bytes
//! cost.

use super::curve::Curve;

/// A strategy of exchange: the factors a, b and g of Eq. 1 and 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Ring: a = 2(N-1), b = g = N.
    Ring,
    /// Parameter servers on hosts of their own (Table 3): a = 2N, b = K+1, g = N+1.
    Ps,
    /// A parameter server on every rank (Table 7): a = 2(N-1), b = K, g = N.
    PsColocated,
}

impl Strategy {
    fn factors(self, ranks: u32, partitions: u32) -> (f64, f64, f64) {
        let (n, k) = (f64::from(ranks), f64::from(partitions));
        match self {
            Self::Ring => (2.0 * (n - 1.0), n, n),
            Self::Ps => (2.0 * n, k + 1.0, n + 1.0),
            Self::PsColocated => (2.0 * (n - 1.0), k, n),
        }
    }
}

/// The costs of a machine, in seconds by bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// T_send.
    pub send: Curve,
    /// T_enc, by raw bytes.
    pub encode: Curve,
    /// T_dec, by compressed bytes.
    pub decode: Curve,
    /// r: compressed bytes over raw bytes.
    pub rate: f64,
}

/// A time and the number of partitions that gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// Seconds.
    pub time: f64,
    /// K.
    pub partitions: u32,
}

/// The number of batches there are, and how many partitions one has.
fn batches(ranks: u32, partitions: u32) -> (f64, u32) {
    (f64::from(partitions.div_ceil(ranks.max(1))), partitions.min(ranks))
}

/// Eq. 1.
#[must_use]
pub fn original(send: &Curve, strategy: Strategy, ranks: u32, bytes: f64, partitions: u32) -> f64 {
    let (batches, each) = batches(ranks, partitions);
    batches * strategy.factors(ranks, each).0 * send.at(bytes / f64::from(partitions))
}

/// Eq. 2: the time to send, to encode and to decode, whose sum it is.
#[must_use]
pub fn compressed(costs: &Costs, strategy: Strategy, ranks: u32, bytes: f64, partitions: u32) -> [f64; 3] {
    let (batches, each) = batches(ranks, partitions);
    let (a, b, g) = strategy.factors(ranks, each);
    let part = bytes / f64::from(partitions);
    let small = costs.rate * part;
    [a * costs.send.at(small), b * costs.encode.at(part), g * costs.decode.at(small)]
        .map(|time| batches * time)
}

/// The best K from 1 to N. Where a message costs a fixed time and a time for each byte, more
/// partitions than ranks are never better.
#[must_use]
pub fn best(ranks: u32, time: impl Fn(u32) -> f64) -> Best {
    (1..=ranks.max(1))
        .map(|partitions| Best { time: time(partitions), partitions })
        .min_by(|a, b| a.time.total_cmp(&b.time))
        .unwrap_or(Best { time: 0.0, partitions: 1 })
}
