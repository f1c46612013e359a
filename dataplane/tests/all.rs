//! All tests of the dataplane but those that visit every value. One program: a program for each
//! file takes half as long again to build, and CI builds them for several processors and every
//! mutant.

use std::fs;
use std::path::Path;

mod common;

mod aggregate;
mod aggregate_ethernet;
mod aggregate_network;
mod aggregate_refusals;
mod aggregate_stack;
mod aggregate_window;
mod bit_plane;
mod chunks;
mod flow;
mod foreign;
mod forward;
mod frames;
mod golden;
mod handshake;
mod heuristic;
mod hostile;
mod kernels;
mod laws;
mod messages;
mod parser;
mod promises;
mod readme;
mod reasons;
mod sums;
mod tcp;

#[test]
fn every_file_is_in_this_program() {
    let text = include_str!("all.rs");
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let is_module =
            path.extension().is_some_and(|extension| extension == "rs") || path.join("mod.rs").exists();
        if is_module && !["all", "exhaustive"].contains(&name) {
            assert!(text.contains(&format!("\nmod {name};\n")), "{} is no module of all.rs", path.display());
        }
    }
}
