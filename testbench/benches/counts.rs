//! The work that `.ci/counts` counts the instructions of, under callgrind.
//!
//! Each piece of work runs inside one call of `gradwire_counted`, whose name the script gives to callgrind: it counts in
//! there only, and writes a file at the end of each call. On standard output is what each of these files is of, in
//! order: a name, and by how many values or frames to divide.

use gradwire::codec::planar::Bound;
use gradwire::codec::{Params, Split};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire_testbench::bench::shapes;
use gradwire_testbench::bench::{Direction, Frames, Kind, PASS_FRAMES, PASS_VALUES, Payloads, Work};

/// Not generic and never inlined, so that callgrind finds one function of this name.
#[inline(never)]
fn gradwire_counted(work: &mut dyn FnMut()) {
    work();
}

/// Codec 1 with both splits, and codec 2, with the same bound.
fn profiles() -> [(&'static str, Profile); 3] {
    let classes = |split| Params::new(10, split, 0).expect("a valid bound").into();
    let planar = Bound::new(-10).expect("a valid bound").into();
    [("dense", classes(Split::Dense)), ("paper", classes(Split::Paper)), ("planar", planar)]
}

fn main() {
    let count = |name: String, divisor: usize, work: &mut dyn FnMut()| {
        // Look-ups of symbols and detection happen once, and not while counting.
        work();
        gradwire_counted(work);
        println!("{name} {divisor}");
    };
    for kernel in Kernel::available() {
        for (direction, work) in [("encode", Work::Encode(kernel)), ("decode", Work::Decode(kernel))] {
            for (profile_name, profile) in profiles() {
                for shape in shapes::ALL {
                    let mut payloads = Payloads::new(&shape, profile);
                    let name = format!(
                        "{},{direction},{profile_name},{}",
                        kernel.name(),
                        shape.name.replace(' ', "-")
                    );
                    count(name, PASS_VALUES, &mut || payloads.pass(work));
                }
            }
        }
        for direction in Direction::ALL {
            for kind in Kind::ALL {
                let mut frames = Frames::new(direction, kind, Profile::DEFAULT, kernel);
                let name = format!("{},{},frame,{}", kernel.name(), direction.name(), kind.name());
                count(name, PASS_FRAMES, &mut || frames.pass());
            }
        }
    }
}
