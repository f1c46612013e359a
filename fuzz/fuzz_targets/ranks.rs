#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../oracles/ranks.rs"]
mod ranks;

fuzz_target!(|data: &[u8]| ranks::check(data));
