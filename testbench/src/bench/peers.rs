//! Other codecs on the same recordings: how small, how exact, how fast.
//!
//! Each gets a whole recording at once, as it would in memory; gradwire gets it payload by payload,
//! as it has to in a card. Those that take a bound get gradwire's.
//!
//! Left out: SZ3, whose bindings are GPL and need cmake and libclang; SZx, which neither crates.io
//! nor Debian has; bindings of zfp, which need libclang. zfp is measured if its command is
//! installed (Debian: `zfp`).

use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, fs, io, path, process};

use gradwire::codec::{Params, max_encoded_len};
use gradwire::kernels::Kernel;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::clock::{Effort, Timing};
use super::figures::PeerRow;
use super::floats;
use super::payloads::PAYLOAD_LEN;
use crate::input::npy;
use crate::input::recordings::GRADIENTS;
use crate::verify::values::error;

/// The recordings that peers are measured on: small and large models, early and late in training.
const RECORDINGS: [&str; 3] = ["hdc256_i0040_w0.npy", "lm_i0950_w0.npy", "resnet_i0010_w0.npy"];

/// A codec at work on one recording. It keeps its buffers; what its library allocates
/// while it is timed is its own affair.
trait Peer {
    /// Its name in reports.
    fn name(&self) -> &'static str;
    /// Compresses `values`; how many bytes that gave.
    fn compress(&mut self, values: &Values) -> usize;
    /// Undoes the last compression, to the one of the two forms that the codec works on.
    fn decompress(&mut self, restored: &mut Values) -> Form;
}

/// The same values in the two forms that codecs take, so that no conversion is timed.
struct Values {
    floats: Vec<f32>,
    /// Little-endian.
    bytes: Vec<u8>,
}

enum Form {
    Floats,
    Bytes,
}

impl Values {
    fn new(bytes: &[u8]) -> Self {
        Self { floats: floats(bytes), bytes: bytes.to_vec() }
    }

    /// Not zero: what a peer forgot to write shows as an error.
    fn unlike(other: &Self) -> Self {
        Self::new(&f32::NAN.to_le_bytes().repeat(other.floats.len()))
    }
}

/// Measures every peer, and gradwire with `kernel`, on every recording.
pub(super) fn measure(kernel: Kernel, effort: Effort) -> Vec<PeerRow> {
    let mut recordings = Vec::new();
    for name in RECORDINGS {
        let file = GRADIENTS.iter().find(|file| file.name == name).expect("it is built in");
        let bytes = npy::parse(file.name, file.bytes).expect("a test reads every built-in recording");
        let values = Values::new(bytes);
        let name = name.trim_end_matches(".npy");
        let peers: Vec<(Box<dyn Peer>, [Timing; 2])> =
            all(kernel).into_iter().map(|peer| (peer, [Timing::default(); 2])).collect();
        recordings.push((name, values, peers));
    }
    effort.rounds("seconds of the peers", || {
        for (_, values, peers) in &mut recordings {
            let mut restored = Values::unlike(values);
            for (peer, [compress, decompress]) in peers {
                compress.slice(effort, || {
                    black_box(peer.compress(black_box(values)));
                });
                decompress.slice(effort, || {
                    black_box(peer.decompress(black_box(&mut restored)));
                });
            }
        }
    });

    let mut rows = Vec::new();
    for (recording, values, peers) in recordings {
        let raw_len = values.bytes.len();
        for (mut peer, [compress, decompress]) in peers {
            let compressed_len = peer.compress(&values);
            let mut restored = Values::unlike(&values);
            if let Form::Bytes = peer.decompress(&mut restored) {
                restored.floats = floats(&restored.bytes);
            }
            rows.push(PeerRow {
                name: format!("{}/{recording}", peer.name()),
                ratio: raw_len as f64 / compressed_len as f64,
                max_error: max_error(&values.floats, &restored.floats),
                compress_gbps: compress.giga(raw_len),
                decompress_gbps: decompress.giga(raw_len),
            });
        }
        rows.extend(zfp(recording, &values, effort));
    }
    rows
}

fn all(kernel: Kernel) -> Vec<Box<dyn Peer>> {
    vec![
        Box::new(Gradwire { kernel, groups: Vec::new(), lens: Vec::new() }),
        Box::new(Half::<f16>("f16", Vec::new())),
        Box::new(Half::<bf16>("bf16", Vec::new())),
        Box::new(Zstd(Vec::new())),
        Box::new(Lz4(Vec::new())),
        Box::new(Snappy(Vec::new())),
        Box::new(Pco(Vec::new())),
        Box::new(QuantisedPco { steps: Vec::new(), compressed: Vec::new() }),
    ]
}

fn max_error(sent: &[f32], got: &[f32]) -> f64 {
    sent.iter().zip(got).map(|(sent, got)| error(sent.to_bits(), got.to_bits())).fold(0.0, f64::max)
}

const CANNOT_FAIL: &str = "what was just compressed decompresses";

struct Gradwire {
    kernel: Kernel,
    groups: Vec<u8>,
    lens: Vec<usize>,
}

impl Peer for Gradwire {
    fn name(&self) -> &'static str {
        "gradwire"
    }

    fn compress(&mut self, values: &Values) -> usize {
        let payloads = values.bytes.chunks(PAYLOAD_LEN);
        let room = payloads.len() * max_encoded_len(PAYLOAD_LEN);
        self.groups.resize(room, 0);
        self.lens.clear();
        let mut at = 0;
        for payload in payloads {
            let len = self.kernel.encode(payload, &mut self.groups[at..], Params::DEFAULT);
            self.lens.push(len.expect("there is room for the longest groups"));
            at += self.lens.last().unwrap_or(&0);
        }
        at
    }

    fn decompress(&mut self, restored: &mut Values) -> Form {
        let mut groups = &self.groups[..];
        for (payload, &len) in restored.bytes.chunks_mut(PAYLOAD_LEN).zip(&self.lens) {
            self.kernel.decode(&groups[..len], payload, Params::DEFAULT).expect(CANNOT_FAIL);
            groups = &groups[len..];
        }
        Form::Bytes
    }
}

/// A 16-bit float: its name, and the values in it.
struct Half<T>(&'static str, Vec<T>);

impl<T: Clone + Default> Peer for Half<T>
where
    [T]: HalfFloatSliceExt,
{
    fn name(&self) -> &'static str {
        self.0
    }

    fn compress(&mut self, values: &Values) -> usize {
        self.1.resize(values.floats.len(), T::default());
        self.1.convert_from_f32_slice(&values.floats);
        size_of_val(&self.1[..])
    }

    fn decompress(&mut self, restored: &mut Values) -> Form {
        self.1.convert_to_f32_slice(&mut restored.floats);
        Form::Floats
    }
}

/// The fastest of zstd's usual levels.
struct Zstd(Vec<u8>);

impl Peer for Zstd {
    fn name(&self) -> &'static str {
        "zstd -1"
    }

    fn compress(&mut self, values: &Values) -> usize {
        self.0 = zstd::bulk::compress(&values.bytes, 1).expect("zstd takes any bytes");
        self.0.len()
    }

    fn decompress(&mut self, restored: &mut Values) -> Form {
        zstd::bulk::decompress_to_buffer(&self.0, &mut restored.bytes[..]).expect(CANNOT_FAIL);
        Form::Bytes
    }
}

struct Lz4(Vec<u8>);

impl Peer for Lz4 {
    fn name(&self) -> &'static str {
        "lz4"
    }

    fn compress(&mut self, values: &Values) -> usize {
        self.0 = lz4_flex::block::compress(&values.bytes);
        self.0.len()
    }

    fn decompress(&mut self, restored: &mut Values) -> Form {
        lz4_flex::block::decompress_into(&self.0, &mut restored.bytes).expect(CANNOT_FAIL);
        Form::Bytes
    }
}

struct Snappy(Vec<u8>);

impl Peer for Snappy {
    fn name(&self) -> &'static str {
        "snappy"
    }

    fn compress(&mut self, values: &Values) -> usize {
        self.0 = snap::raw::Encoder::new().compress_vec(&values.bytes).expect("below 4 GiB");
        self.0.len()
    }

    fn decompress(&mut self, restored: &mut Values) -> Form {
        snap::raw::Decoder::new().decompress(&self.0, &mut restored.bytes).expect(CANNOT_FAIL);
        Form::Bytes
    }
}

/// Lossless.
struct Pco(Vec<u8>);

impl Peer for Pco {
    fn name(&self) -> &'static str {
        "pco"
    }

    fn compress(&mut self, values: &Values) -> usize {
        self.0 = pco::standalone::simple_compress(&values.floats, &pco::ChunkConfig::default())
            .expect("below 2^24");
        self.0.len()
    }

    fn decompress(&mut self, restored: &mut Values) -> Form {
        pco::standalone::simple_decompress_into(&self.0, &mut restored.floats).expect(CANNOT_FAIL);
        Form::Floats
    }
}

/// Steps of twice the bound, and pco on their numbers: what an error bound buys if speed is no
/// matter.
struct QuantisedPco {
    steps: Vec<i32>,
    compressed: Vec<u8>,
}

impl Peer for QuantisedPco {
    fn name(&self) -> &'static str {
        "quantised pco"
    }

    fn compress(&mut self, values: &Values) -> usize {
        let scale = 0.5 / Params::DEFAULT.bound();
        self.steps.clear();
        self.steps.extend(values.floats.iter().map(|value| (value * scale).round_ties_even() as i32));
        self.compressed =
            pco::standalone::simple_compress(&self.steps, &pco::ChunkConfig::default()).expect("below 2^24");
        self.compressed.len()
    }

    fn decompress(&mut self, restored: &mut Values) -> Form {
        pco::standalone::simple_decompress_into(&self.compressed, &mut self.steps).expect(CANNOT_FAIL);
        let step = 2.0 * Params::DEFAULT.bound();
        for (value, steps) in restored.floats.iter_mut().zip(&self.steps) {
            *value = *steps as f32 * step;
        }
        Form::Floats
    }
}

/// zfp at fixed accuracy, if its command is installed. The times are the wall clock of the command,
/// with its start and its files, which are long so that these matter little. Unlike all others it
/// cannot be timed in short slices: on a busy machine it seems slower than it is, and its name in
/// reports says how it was measured.
fn zfp(recording: &str, values: &Values, effort: Effort) -> Option<PeerRow> {
    const LONG: usize = 1 << 23; // values
    let repeats = if effort.budget.is_zero() { 1 } else { LONG / values.floats.len() + 1 };
    let folder = env::temp_dir().join(format!("gradwire-zfp-{}", process::id()));
    let row = (|| {
        fs::create_dir_all(&folder)?;
        let (raw, compressed, restored) = (folder.join("raw"), folder.join("zfp"), folder.join("restored"));
        let raw_len = values.bytes.len() * repeats;
        fs::write(&raw, values.bytes.repeat(repeats))?;
        let count = (values.floats.len() * repeats).to_string();
        let bound = Params::DEFAULT.bound().to_string();
        let run = |files: [(&str, &path::Path); 2]| {
            let mut best = f64::INFINITY;
            for _ in 0..3 {
                let mut command = Command::new("zfp");
                for (option, file) in files {
                    command.arg(option).arg(file);
                }
                command.args(["-f", "-1", &count, "-a", &bound, "-q"]).stdout(Stdio::null());
                let start = Instant::now();
                if !command.stderr(Stdio::null()).status()?.success() {
                    return Err(io::Error::other("zfp failed"));
                }
                best = start.elapsed().as_secs_f64().min(best);
            }
            Ok(raw_len as f64 / best / 1e9)
        };
        let compress_gbps = run([("-i", &raw), ("-z", &compressed)])?;
        let decompress_gbps = run([("-z", &compressed), ("-o", &restored)])?;
        let got = floats(&fs::read(&restored)?);
        if got.len() < values.floats.len() {
            return Err(io::Error::other("zfp lost values"));
        }
        io::Result::Ok(PeerRow {
            name: format!("zfp command/{recording}"),
            ratio: raw_len as f64 / fs::metadata(&compressed)?.len() as f64,
            max_error: max_error(&values.floats, &got),
            compress_gbps,
            decompress_gbps,
        })
    })();
    // What is left in a folder for temporary files does no harm.
    let _ = fs::remove_dir_all(&folder);
    row.ok()
}
