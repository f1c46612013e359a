//! The rate of an aggregator in the network.

/// An aggregator in a switch's place that sums what workers send, chunk by chunk: a server or a
/// soft core, not an ideal switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregatorRate {
    /// Values that a core takes in a second, from all workers together: receiving, adding, and its
    /// part of the results.
    pub rate: u64,
    /// Cores; they share the chunks.
    pub cores: u32,
}

impl AggregatorRate {
    /// Values in a second of all cores.
    #[must_use]
    pub fn values_a_second(self) -> f64 {
        self.rate as f64 * f64::from(self.cores)
    }
}

impl Default for AggregatorRate {
    /// A core that receives by UDP sockets: half a billion values a second, the kernel's work
    /// included.
    fn default() -> Self {
        Self { rate: 500_000_000, cores: 1 }
    }
}
