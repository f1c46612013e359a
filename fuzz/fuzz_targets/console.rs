#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../oracles/console.rs"]
mod console;

fuzz_target!(|data: &[u8]| console::verify(data));
