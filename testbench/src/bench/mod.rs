//! Speed, as ratios: kernels and the frame path against `memcpy` of the same buffers in the same
//! run.
//!
//! Machines are shared and their clocks change, so no time means much by itself. All work is timed
//! in turn, in short slices, many times over; of each the best counts. Speeds are in bytes of raw
//! gradient, whichever way they go.

use gradwire::codec::Params;
use gradwire::codec::bit_plane::Bound;
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire::sums::Summable;

mod blocks;
mod clock;
pub mod costs;
pub mod distributions;
mod figures;
mod frames;
mod payloads;
#[cfg(feature = "peers")]
mod peers;
mod slots;
mod table;

pub use blocks::{BlockWork, Blocks};
pub use clock::Effort;
pub use figures::{Figures, FrameRow, KernelRow, PeerRow, SumsRow};
pub use frames::{Direction, FRAME_LEN, Frames, Kind, PASS_FRAMES};
pub use payloads::{PASS_LEN, PASS_VALUES, PAYLOAD_LEN, Payloads, Work};
pub use table::write;

use clock::Timing;
use distributions::SUMMED;

/// Values of their bytes.
fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

/// Measures `kernels`, the fastest first, and the frame path with the first of them, each with
/// these profiles; with `peers` other codecs too.
#[must_use]
pub fn run(kernels: &[Kernel], profiles: &[Profile], peers: bool, effort: Effort) -> Figures {
    let works: Vec<Work> =
        kernels.iter().flat_map(|&kernel| [Work::Encode(kernel), Work::Decode(kernel)]).collect();
    let of_distributions = || {
        profiles.iter().flat_map(|&profile| distributions::ALL.map(|distribution| (profile, distribution)))
    };
    let mut distributions: Vec<(Payloads, Timing, Vec<Timing>)> = of_distributions()
        .map(|(profile, distribution)| {
            (Payloads::new(&distribution, profile), Timing::default(), vec![Timing::default(); works.len()])
        })
        .collect();
    let summable = profiles.iter().filter_map(|profile| Summable::try_from(*profile).ok());
    let block_works: Vec<BlockWork> =
        kernels.iter().flat_map(|&kernel| BlockWork::all(kernel).map(|(_, work)| work)).collect();
    let mut sums: Vec<((u8, &str), Blocks, Vec<Timing>)> = summable
        .flat_map(|profile| SUMMED.map(|distribution| (profile, distribution)))
        .map(|(profile, distribution)| {
            let timings = vec![Timing::default(); block_works.len()];
            ((profile.profile().codec(), distribution.name), Blocks::new(&distribution, profile), timings)
        })
        .collect();
    let frame_kernel = kernels.first().copied().unwrap_or_else(Kernel::detect);
    let ways = || Direction::ALL.into_iter().flat_map(|direction| Kind::ALL.map(|kind| (direction, kind)));
    let paths = || profiles.iter().flat_map(|&profile| ways().map(move |way| (profile, way)));
    let mut frames: Vec<(Frames, Timing)> = paths()
        .map(|(profile, (direction, kind))| {
            (Frames::new(direction, kind, profile, frame_kernel), Timing::default())
        })
        .collect();

    effort.rounds("seconds of the bench", || {
        for (payloads, memcpy, timings) in &mut distributions {
            memcpy.slice(effort, || payloads.pass(Work::Memcpy));
            for (timing, &work) in timings.iter_mut().zip(&works) {
                timing.slice(effort, || payloads.pass(work));
            }
        }
        for (_, blocks, timings) in &mut sums {
            for (timing, &work) in timings.iter_mut().zip(&block_works) {
                timing.slice(effort, || blocks.pass(work));
            }
        }
        for (frames, timing) in &mut frames {
            timing.slice(effort, || frames.pass());
        }
    });

    let mut rows = Vec::new();
    for (index, kernel) in kernels.iter().enumerate() {
        for ((profile, distribution), (_, _, timings)) in of_distributions().zip(&distributions) {
            let [encode, decode] = [0, 1].map(|work| timings[2 * index + work].giga(PASS_LEN));
            rows.push(KernelRow {
                name: kernel.name(),
                codec: profile.codec(),
                distribution: distribution.name,
                encode_gbps: encode,
                decode_gbps: decode,
            });
        }
    }
    let of_blocks = kernels.iter().enumerate().flat_map(|(index, kernel)| {
        sums.iter().map(move |((codec, distribution), _, timings)| {
            let [encode, decode, add, sums] =
                [0, 1, 2, 3].map(|work| timings[4 * index + work].giga(PASS_VALUES));
            SumsRow {
                name: kernel.name(),
                codec: *codec,
                distribution,
                encode_gvalues: encode,
                decode_gvalues: decode,
                add_gvalues: add,
                sums_gvalues: sums,
            }
        })
    });
    let sums = of_blocks.collect();
    let frame_path = paths().zip(&frames).map(|((profile, (direction, kind)), (_, timing))| FrameRow {
        codec: profile.codec(),
        direction: direction.name(),
        kind: kind.name(),
        ns: timing.seconds() * 1e9 / PASS_FRAMES as f64,
        gbps: 8.0 * timing.giga(PASS_LEN),
    });
    Figures {
        memcpy_gbps: distributions.iter().map(|(_, memcpy, _)| memcpy.giga(PASS_LEN)).fold(0.0, f64::max),
        kernels: rows,
        sums,
        frame_path: frame_path.collect(),
        peers: if peers { measure_peers(frame_kernel, effort) } else { Vec::new() },
    }
}

/// The profiles with which kernels are measured: both codecs, with the same bound.
#[must_use]
pub fn profiles() -> [Profile; 2] {
    [Params::DEFAULT.into(), Bound::new(-10).expect("a valid bound").into()]
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
