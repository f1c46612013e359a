#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../oracles/messages.rs"]
mod messages;

fuzz_target!(|data: &[u8]| messages::verify(data));
