//! Linker scripts: the board's memory map, riscv-rt's, defmt's.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=memory.x");
    println!("cargo::rustc-link-search={}", env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    for script in ["memory.x", "link.x", "defmt.x"] {
        println!("cargo::rustc-link-arg-bins=-T{script}");
    }
}
