//! The compression ratios that the simulator assumes are those of the recordings.

use gradwire::codec::{Params, Split, encode_payload, max_encoded_len};
use gradwire_simulator::RECORDED_RATIOS;
use gradwire_testbench::input::recordings::builtin;

/// The ratios that `b10`, `b8` and `b6` stand for, on the recording they are of. That of partial
/// sums needs the traffic of a whole ring, which is not built in.
#[test]
fn recorded_ratios_are_those_of_the_recording() {
    let recording =
        builtin().unwrap().into_iter().find(|recording| recording.name.starts_with("hdc256_i0040")).unwrap();
    for (bound, gradient, partial_sum) in RECORDED_RATIOS {
        let params = Params::new(bound, Split::Dense, 0).unwrap();
        let mut groups = vec![0; max_encoded_len(recording.values.len())];
        let len = encode_payload(&recording.values, &mut groups, params).unwrap();
        let ratio = recording.values.len() as f64 / len as f64;
        assert!((ratio - gradient).abs() < 0.01, "2^-{bound}: {ratio}");
        assert!(partial_sum < gradient);
    }
}
