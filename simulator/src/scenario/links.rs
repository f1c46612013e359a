//! The cluster's links.

use crate::time::Picos;

/// Links of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Links {
    /// Bit/s of every host's link, each way.
    pub bandwidth: u64,
    /// Bit/s of single workers, if they differ: (worker, bit/s).
    pub exceptions: Vec<(u32, u64)>,
    /// Time from a host's egress to what follows it.
    pub latency: Picos,
    /// Racks under the core switch; `None` is one switch for all.
    pub racks: Option<Racks>,
}

/// Racks of `size` consecutive workers. Servers hang on the core switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Racks {
    /// Workers in a rack.
    pub size: u32,
    /// Sum of the workers' rates over the rate of the rack's uplink; 1.0 is not oversubscribed.
    pub oversubscription: f64,
}
