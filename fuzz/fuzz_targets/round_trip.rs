#![no_main]

use gradwire_testbench::oracle::conversation;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| conversation::run(data));
