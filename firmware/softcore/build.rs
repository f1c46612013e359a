//! Linker scripts: riscv-rt's, defmt's and the board's memory map. Here and not in
//! `.cargo/config.toml`, which cargo looks for from the current folder up.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("riscv32") {
        return;
    }
    let board = if env::var_os("CARGO_FEATURE_BOARD_LITEX").is_some() { "litex" } else { "qemu_virt" };
    let folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("src/boards");
    println!("cargo::rerun-if-changed={}", folder.display());
    println!("cargo::rustc-link-search={}", folder.display());
    for script in [&format!("{board}.x"), "link.x", "defmt.x"] {
        println!("cargo::rustc-link-arg-bins=-T{script}");
    }
}
