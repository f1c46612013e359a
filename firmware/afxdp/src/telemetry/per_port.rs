//! A pair, one for each port: once for each port.

use gradwire::forward::Port;
use serde::{Deserialize, Serialize};

/// One for each port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerPort<T> {
    /// Towards the host.
    pub host: T,
    /// Towards the wire.
    pub network: T,
}

impl<T> PerPort<T> {
    /// The results of `of` for each port.
    pub fn new(mut of: impl FnMut(Port) -> T) -> Self {
        Self { host: of(Port::Host), network: of(Port::Network) }
    }

    /// Each with its port's name in metrics and reports.
    pub const fn named(&self) -> [(&'static str, &T); 2] {
        [("host", &self.host), ("network", &self.network)]
    }

    /// That of `port`.
    pub const fn get(&self, port: Port) -> &T {
        match port {
            Port::Host => &self.host,
            Port::Network => &self.network,
        }
    }
}
