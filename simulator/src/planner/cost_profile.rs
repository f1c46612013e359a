//! Profiles: what sending, encoding and decoding take on this machine or link.
//!
//! ```toml
//! send = [[1024.0, 2.1e-5], [4096.0, 2.3e-5]]
//!
//! [[codecs]]
//! name = "dense"
//! bound = 10
//! ratio = 6.19
//! encode = [[4096.0, 1.1e-6], [16384.0, 4.0e-6]]
//! decode = [[662.0, 1.3e-6], [2647.0, 4.9e-6]]
//! ```
//! A curve is [bytes, seconds]; encode counts raw bytes, decode compressed ones.

use serde::{Deserialize, Serialize};

use super::curve::Curve;

/// Costs of a link and of codecs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostProfile {
    /// Time to send, by bytes.
    pub send: Curve,
    /// Codecs to choose from.
    pub codecs: Vec<CodecCosts>,
}

/// Costs of one codec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CodecCosts {
    /// Its name.
    pub name: String,
    /// Its error bound as an exponent: 10 means 2^-10.
    pub bound: u8,
    /// Raw bytes over compressed bytes, of the gradients it was measured on.
    pub ratio: f64,
    /// Time to encode, by raw bytes.
    pub encode: Curve,
    /// Time to decode, by compressed bytes.
    pub decode: Curve,
}
