#![no_main]

use gradwire_testbench::oracle::flows;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| flows::run(data));
