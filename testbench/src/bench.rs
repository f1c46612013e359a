//! Speed, as ratios: kernels and the frame path against `memcpy` of the same buffers in the same run.
//!
//! Machines are shared and their clocks change, so no time means much by itself. All work is timed in turn, in short
//! slices, many times over; of each the best counts. Speeds are in bytes of raw gradient, whichever way they go.

use gradwire::codec::Params;
use gradwire::kernels::Kernel;
use serde::Serialize;

use crate::shapes;

mod clock;
mod frames;
mod payloads;
#[cfg(feature = "peers")]
mod peers;
mod slots;
mod table;

pub use clock::Effort;
pub use frames::{Direction, FRAME_LEN, Frames, Kind, PASS_FRAMES};
pub use payloads::{PASS_LEN, PASS_VALUES, PAYLOAD_LEN, Payloads, Work};
pub use table::write;

use clock::Timing;

/// What was measured. The serialised fields are those of `gradwire bench --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `memcpy` of the payloads that the kernels encode, to where they encode them.
    pub memcpy_gbps: f64,
    /// Each kernel on each shape.
    pub kernels: Vec<KernelRow>,
    /// The frame path, with the fastest of the kernels measured.
    pub frame_path: Vec<FrameRow>,
    /// Other codecs, where they were asked for.
    pub peers: Vec<PeerRow>,
}

/// A kernel on a shape, in GB of raw gradient a second.
#[derive(Clone, Debug, Serialize)]
pub struct KernelRow {
    /// Name of the kernel.
    pub name: &'static str,
    /// Name of the shape.
    pub shape: &'static str,
    /// Values to groups.
    pub encode_gbps: f64,
    /// Groups to values, payload after payload.
    pub decode_gbps: f64,
    /// Groups to values of the same payloads once more, as a driver with a receive batch decodes them: by consecutive
    /// calls. No kernel has an entry point for a batch, so this differs from `decode_gbps` by chance alone.
    pub decode_batch_gbps: f64,
}

/// A 1514-byte frame on its way.
#[derive(Clone, Debug, Serialize)]
pub struct FrameRow {
    /// `egress` or `ingress`.
    pub direction: &'static str,
    /// `routed`, `in-place`, `untagged`, or `kernel` for the kernel alone on the same payloads.
    pub kind: &'static str,
    /// Nanoseconds a frame.
    pub ns: f64,
    /// Gbit a second of the payload as the host has it: 1448 bytes a frame, whatever went over the wire.
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

impl Report {
    /// The row of the frame path for `direction` and `kind`.
    #[must_use]
    pub fn frame(&self, direction: Direction, kind: Kind) -> Option<&FrameRow> {
        self.frame_path.iter().find(|row| row.direction == direction.name() && row.kind == kind.name())
    }
}

/// Measures `kernels`, the fastest first, and the frame path with the first of them; with `peers` other codecs too.
#[must_use]
pub fn run(kernels: &[Kernel], peers: bool, effort: Effort) -> Report {
    let params = Params::DEFAULT;
    let works: Vec<Work> = kernels
        .iter()
        .flat_map(|&kernel| [Work::Encode(kernel), Work::Decode(kernel), Work::DecodeBatch(kernel)])
        .collect();
    let mut shapes: Vec<(Payloads, Timing, Vec<Timing>)> = shapes::ALL
        .iter()
        .map(|shape| (Payloads::new(shape, params), Timing::default(), vec![Timing::default(); works.len()]))
        .collect();
    let frame_kernel = kernels.first().copied().unwrap_or_else(Kernel::detect);
    let kinds = || Direction::ALL.into_iter().flat_map(|direction| Kind::ALL.map(|kind| (direction, kind)));
    let mut frames: Vec<(Frames, Timing)> = kinds()
        .map(|(direction, kind)| (Frames::new(direction, kind, frame_kernel), Timing::default()))
        .collect();

    effort.rounds("seconds of the bench", || {
        for (payloads, memcpy, timings) in &mut shapes {
            memcpy.slice(effort, || payloads.pass(Work::Memcpy));
            for (timing, &work) in timings.iter_mut().zip(&works) {
                timing.slice(effort, || payloads.pass(work));
            }
        }
        for (frames, timing) in &mut frames {
            timing.slice(effort, || frames.pass());
        }
    });

    let mut rows = Vec::new();
    for (index, kernel) in kernels.iter().enumerate() {
        for (shape, (_, _, timings)) in shapes::ALL.iter().zip(&shapes) {
            let [encode, decode, decode_batch] =
                [0, 1, 2].map(|work| timings[3 * index + work].giga(PASS_LEN));
            rows.push(KernelRow {
                name: kernel.name(),
                shape: shape.name,
                encode_gbps: encode,
                decode_gbps: decode,
                decode_batch_gbps: decode_batch,
            });
        }
    }
    let frame_path = kinds().zip(&frames).map(|((direction, kind), (_, timing))| FrameRow {
        direction: direction.name(),
        kind: kind.name(),
        ns: timing.seconds() * 1e9 / PASS_FRAMES as f64,
        gbps: 8.0 * timing.giga(PASS_LEN),
    });
    Report {
        memcpy_gbps: shapes.iter().map(|(_, memcpy, _)| memcpy.giga(PASS_LEN)).fold(0.0, f64::max),
        kernels: rows,
        frame_path: frame_path.collect(),
        peers: if peers { measure_peers(frame_kernel, effort) } else { Vec::new() },
    }
}

/// Whether other codecs are built in.
pub const HAS_PEERS: bool = cfg!(feature = "peers");

#[cfg(feature = "peers")]
fn measure_peers(kernel: Kernel, effort: Effort) -> Vec<PeerRow> {
    peers::measure(kernel, effort)
}

#[cfg(not(feature = "peers"))]
fn measure_peers(_: Kernel, _: Effort) -> Vec<PeerRow> {
    Vec::new()
}
