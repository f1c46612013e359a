//! The firmware in QEMU. `firmware/softcore/test` builds the images that these tests start, and
//! runs them.

mod aggregator;
mod board;
mod console;
mod forwarding;
#[allow(dead_code, reason = "not each of them is needed in each test that has this file")]
mod frames;
mod hostile;
mod interactive;
mod logs;
#[cfg(feature = "management")]
mod management;
mod random;
mod selftest;
mod workers;

use std::path::PathBuf;

use gradwire_testbench::softcore::machine::Options;

/// The image of this name, in the folder that the environment names or else where
/// `firmware/softcore/cargo` builds.
fn image(variant: &str, name: &str) -> PathBuf {
    let target = std::env::var_os("SOFTCORE_TARGET").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/softcore")),
        PathBuf::from,
    );
    target.join(variant).join("riscv32imac-unknown-none-elf/release").join(name)
}

/// The firmware on an RV32IMAC.
fn firmware() -> Options {
    Options::new(image("build", "softcore"))
}

/// A recorded capture.
fn recording(name: &str) -> gradwire_testbench::input::Capture {
    let path = format!("{}/../../testbench/recordings/{name}.pcap", env!("CARGO_MANIFEST_DIR"));
    gradwire_testbench::input::Capture::parse(name, &std::fs::read(path).unwrap()).unwrap()
}
