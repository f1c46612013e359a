#![no_main]

use gradwire_testbench::oracle::sums;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| sums::worker(data));
