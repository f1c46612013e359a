#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../judges/console.rs"]
mod console;

fuzz_target!(|data: &[u8]| console::judge(data));
