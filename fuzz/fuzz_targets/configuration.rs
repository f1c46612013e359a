#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../judges/configuration.rs"]
mod configuration;

fuzz_target!(|data: &[u8]| configuration::judge(data));
