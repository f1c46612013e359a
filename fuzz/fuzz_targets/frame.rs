#![no_main]

use gradwire_testbench::oracle::frames;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| frames::parse(data));
