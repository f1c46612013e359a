//! Profiles: what sending, encoding and decoding take on this machine or link.
//!
//! ```toml
//! send = [[1024.0, 2.1e-5], [4096.0, 2.3e-5]]
//!
//! [[codecs]]
//! name = "q8:256"
//! lost = 0.012
//! ratio = 3.94
//! encode = [[4096.0, 1.1e-6], [16384.0, 4.0e-6]]
//! decode = [[1040.0, 1.3e-6], [4160.0, 4.9e-6]]
//! ```
//! A curve is [bytes, seconds]; encode counts raw bytes, decode compressed ones. A profile of a run
//! has `compute` in place of codecs.

use gradwire_collectives::{Coding, CodingError};
use serde::{Deserialize, Serialize};

use super::curve::Curve;

/// Costs of a link and of codecs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostProfile {
    /// Time to send, by bytes.
    pub send: Curve,
    /// An iteration's computing, if a run was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<Compute>,
    /// Codecs to choose from.
    #[serde(default)]
    pub codecs: Vec<CodecCosts>,
}

/// An iteration's computing, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compute {
    /// Until the first gradients are there.
    pub forward: f64,
    /// From then to the last ones.
    pub backward: f64,
}

/// Costs of one codec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodecCosts {
    /// Its name, as a plan of the collectives has it: `q8:256`, or `wire:2:10` in the network.
    pub name: String,
    /// Its error bound as an exponent, if it has one that does not depend on the gradient: 10
    /// means 2^-10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<u8>,
    /// The part of a gradient's norm that its first message loses, on the gradients it was measured
    /// on.
    pub lost: f64,
    /// Raw bytes over compressed bytes, on the same gradients.
    pub ratio: f64,
    /// Time to encode, by raw bytes.
    pub encode: Curve,
    /// Time to decode, by compressed bytes.
    pub decode: Curve,
}

impl CodecCosts {
    /// Its coding in a plan.
    ///
    /// # Errors
    /// No codec has its name.
    pub fn coding(&self) -> Result<Coding, CodingError> {
        self.name.parse()
    }

    /// Is it the network's, and not the host's?
    #[must_use]
    pub fn is_networks(&self) -> bool {
        self.name.starts_with("wire:")
    }
}
