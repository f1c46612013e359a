#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../oracles/configuration.rs"]
mod configuration;

fuzz_target!(|data: &[u8]| configuration::verify(data));
