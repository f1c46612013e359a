//! The figures of the bench.

use serde::Serialize;

use super::frames::{Direction, Kind};

/// The figures. The serialised fields are those of `gradwire bench --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// `memcpy` of the payloads that the kernels encode, to where they encode them.
    pub memcpy_gbps: f64,
    /// Each kernel on each distribution.
    pub kernels: Vec<KernelRow>,
    /// The figures of an aggregator's work.
    pub sums: Vec<SumsRow>,
    /// The frame path, with the fastest of the kernels measured.
    pub frame_path: Vec<FrameRow>,
    /// Other codecs, if they were asked for.
    pub peers: Vec<PeerRow>,
}

/// A kernel on a distribution, in GB of raw gradient a second.
#[derive(Clone, Debug, Serialize)]
pub struct KernelRow {
    /// Name of the kernel.
    pub name: &'static str,
    /// The codec: 1 with the dense split, or 2.
    pub codec: u8,
    /// Name of the distribution.
    pub distribution: &'static str,
    /// Values to their code.
    pub encode_gbps: f64,
    /// Code to values, payload after payload, as a driver decodes a batch of frames too.
    pub decode_gbps: f64,
}

/// A kernel on blocks of 128 values of a distribution, in billions of values a second.
#[derive(Clone, Debug, Serialize)]
pub struct SumsRow {
    /// Name of the kernel.
    pub name: &'static str,
    /// The codec: 1 with the dense split, or 2.
    pub codec: u8,
    /// Name of the distribution.
    pub distribution: &'static str,
    /// A worker's values to their code.
    pub encode_gvalues: f64,
    /// Code to values.
    pub decode_gvalues: f64,
    /// Code to units, which are added to sums.
    pub add_gvalues: f64,
    /// Sums of four workers to a result's code.
    pub sums_gvalues: f64,
}

/// A 1514-byte frame on its way.
#[derive(Clone, Debug, Serialize)]
pub struct FrameRow {
    /// The rule's codec: 1 with the dense split, or 2. It says nothing of an untagged frame.
    pub codec: u8,
    /// `egress` or `ingress`.
    pub direction: &'static str,
    /// `routed`, `in-place`, `untagged`, or `kernel` for the kernel alone on the same payloads.
    pub kind: &'static str,
    /// Nanoseconds a frame.
    pub ns: f64,
    /// Gbit a second of the payload as the host has it: 1448 bytes a frame, whatever went over the
    /// wire.
    pub gbps: f64,
}

/// Another codec on a recording, or gradwire's own.
#[derive(Clone, Debug, Serialize)]
pub struct PeerRow {
    /// `CODEC/RECORDING`.
    pub name: String,
    /// Bytes of values by bytes compressed.
    pub ratio: f64,
    /// The largest error of a value.
    pub max_error: f64,
    /// GB of raw gradient a second, values to compressed.
    pub compress_gbps: f64,
    /// GB of raw gradient a second, compressed to values.
    pub decompress_gbps: f64,
}

impl Figures {
    /// The row of the frame path for `codec`, `direction` and `kind`.
    #[must_use]
    pub fn frame(&self, codec: u8, direction: Direction, kind: Kind) -> Option<&FrameRow> {
        let way = (codec, direction.name(), kind.name());
        self.frame_path.iter().find(|row| (row.codec, row.direction, row.kind) == way)
    }
}
