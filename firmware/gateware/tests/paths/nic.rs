//! Both directions of `gw_nic` at once.

use std::path::{Path, PathBuf};

use gradwire_gateware::{Batch, Design, Frame, Outcome, Pauses, Simulation};

use super::compare::Expected;

/// `gw_nic` with counters of what is reached, which go to [`counts`] of this name. One build serves
/// all tests.
pub fn nic(name: &str) -> Design {
    Design::new("gw_nic").coverage(&counts(name))
}

/// A file of counts.
pub fn counts(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("coverage-{name}.dat"))
}

/// Sends both at once; what comes out has to be what the engines say.
pub fn both_ways_through(
    simulation: &mut Simulation,
    from_host: &[Expected],
    from_wire: &[Expected],
    pauses: Pauses,
    seed: u64,
) -> Outcome {
    let (to_wire, to_host) = (outs(from_host), outs(from_wire));
    let expected = (to_wire.len() + to_host.len()) as u32;
    let outcome = simulation.run(&Batch { expected, ..batch(from_host, from_wire, pauses, seed) }).unwrap();
    assert_eq!(outcome.broken, "");
    let got =
        |port: u8| outcome.frames.iter().filter(move |frame| frame.port == port).map(|frame| &frame.bytes);
    assert!(got(1).eq(to_wire), "to the wire");
    assert!(got(0).eq(to_host), "to the host");
    outcome
}

/// The frames of both directions.
pub fn batch(from_host: &[Expected], from_wire: &[Expected], pauses: Pauses, seed: u64) -> Batch {
    let frame = |port: u8| {
        move |expected: &Expected| Frame {
            port,
            user: expected.user,
            ..Frame::new(0, expected.bytes.clone())
        }
    };
    let frames = from_host.iter().map(frame(0)).chain(from_wire.iter().map(frame(1))).collect();
    Batch { frames, pauses, seed, noise: true, ..Batch::of(vec![]) }
}

/// The outputs among them.
fn outs(expected: &[Expected]) -> Vec<&Vec<u8>> {
    expected.iter().filter_map(|one| one.out.as_ref()).collect()
}
