#![no_main]

use gradwire_testbench::oracle::codec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| codec::clocked(data));
