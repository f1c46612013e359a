#![no_main]

use gradwire_testbench::oracle::readers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| readers::capture(data));
