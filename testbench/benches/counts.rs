//! The work that `.ci/counts` counts the instructions of, under callgrind.
//!
//! Each piece of work runs inside one call of `gradwire_counted`, whose name the script gives to
//! callgrind: it counts in there only, and writes a file at the end of each call. On standard
//! output is what each of these files is of, in order: a name, and by how many values or frames to
//! divide.

use gradwire::codec::bit_plane::Bound;
use gradwire::codec::{Params, Split};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire_codecs::{Codec, Registry};
use gradwire_testbench::bench::distributions;
use gradwire_testbench::bench::{Direction, Frames, Kind, PASS_FRAMES, PASS_VALUES, Payloads, Work};

/// Not generic and never inlined, so that callgrind finds one function of this name.
#[inline(never)]
fn gradwire_counted(work: &mut dyn FnMut()) {
    work();
}

/// Values that a host codec gets: a first-level cache holds them.
const HOST_VALUES: usize = 4096;

/// Codec 1 with both splits, and codec 2, with the same bound.
fn profiles() -> [(&'static str, Profile); 3] {
    let classes = |split| Params::new(10, split, 0).expect("a valid bound").into();
    let bit_plane = Bound::new(-10).expect("a valid bound").into();
    [("dense", classes(Split::Dense)), ("paper", classes(Split::Paper)), ("bit-plane", bit_plane)]
}

/// Counts a piece of work, and says what it was.
fn count(name: &str, divisor: usize, work: &mut dyn FnMut()) {
    // Look-ups of symbols and detection happen once, and not while counting.
    work();
    gradwire_counted(work);
    println!("{name} {divisor}");
}

/// The host codecs, with the processor's best kernels, on a recorded gradient.
fn host_codecs() {
    let bytes = distributions::RECORDED_VALUES.values(HOST_VALUES);
    let values: Vec<f32> = bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    for name in Registry::EXAMPLES {
        let codec = Registry::BUILT_IN.codec(name).expect("a codec of that crate");
        let mut state = vec![0.0; codec.state_len(values.len())];
        let (mut acc, mut sum) = (values.clone(), values.clone());
        let (mut out, mut len) = (vec![0; codec.bound(values.len())], 0);
        count(&format!("host,encode,{name},recorded"), values.len(), &mut || {
            // The residual would be another input.
            acc.copy_from_slice(&values);
            len = codec.encode(&mut acc, &mut state, 1, &mut out);
        });
        count(&format!("host,merge,{name},recorded"), values.len(), &mut || {
            codec.merge(&out[..len], &mut sum).expect("a message");
        });
    }
}

fn main() {
    host_codecs();
    for kernel in Kernel::available() {
        for (direction, work) in [("encode", Work::Encode(kernel)), ("decode", Work::Decode(kernel))] {
            for (profile_name, profile) in profiles() {
                for distribution in distributions::ALL {
                    let mut payloads = Payloads::new(&distribution, profile);
                    let name = format!(
                        "{},{direction},{profile_name},{}",
                        kernel.name(),
                        distribution.name.replace(' ', "-")
                    );
                    count(&name, PASS_VALUES, &mut || payloads.pass(work));
                }
            }
        }
        for direction in Direction::ALL {
            for kind in Kind::ALL {
                let mut frames = Frames::new(direction, kind, Profile::DEFAULT, kernel);
                let name = format!("{},{},frame,{}", kernel.name(), direction.name(), kind.name());
                count(&name, PASS_FRAMES, &mut || frames.pass());
            }
        }
    }
}
