//! The published cells, and the values that a separate prototype of the same rules came to.

use gradwire::codec::{Params, Split, encode_payload, max_encoded_len};
use gradwire_testbench::recordings::builtin;
use gradwire_testbench::sim::published::{Setting, cells, compare, simulate};
use gradwire_testbench::sim::{Mechanism, Model, RECORDED, Scenario};

#[test]
fn every_cell_is_within_its_tolerance() {
    let comparisons: Vec<_> = cells().unwrap().into_iter().map(|cell| compare(cell).unwrap()).collect();
    for comparison in &comparisons {
        assert!(comparison.holds(), "{comparison:?}: off by {:.1} %", 100.0 * comparison.difference());
    }
    let judged = comparisons.iter().filter(|comparison| comparison.tolerance.is_some()).count();
    assert_eq!(judged, 85, "cells with a tolerance: all but the 16 measured on real hosts");
}

/// The prototype's values have three digits after the point.
#[test]
fn every_cell_agrees_with_the_prototype_in_every_setting() {
    for cell in cells().unwrap() {
        for (setting, prototype) in [
            (Setting::Uncalibrated, cell.prototype_uncalibrated),
            (Setting::Calibrated, cell.prototype_calibrated),
            (Setting::OwnSizes, cell.prototype_calibrated_csv_sizes),
        ] {
            let ours = simulate(&cell, setting).unwrap();
            assert!((ours - prototype).abs() < 0.0016, "{cell:?} {setting:?}: {ours}");
        }
    }
}

/// ring >= multicast and aggregation >= butterfly > multicast > aggregation: no inversion larger than 1 %.
#[test]
fn mechanisms_rank_as_published() {
    for name in Model::names() {
        let model = Model::published(name).unwrap().calibrated().table2_size();
        let ranking = [
            Mechanism::RING,
            Mechanism::BOTH,
            Mechanism::Butterfly,
            Mechanism::MULTICAST,
            Mechanism::AGGREGATION,
        ];
        let times =
            ranking.map(|mechanism| Scenario::new(model.clone(), mechanism).run().unwrap().iteration as f64);
        for (faster, slower) in times.iter().zip(&times[1..]) {
            assert!(*faster <= 1.01 * slower, "{name}: {times:?}");
        }
    }
}

/// The ratios that `b10`, `b8` and `b6` stand for, on the recording they are of. That of partial sums needs the
/// traffic of a whole ring, which is not built in.
#[test]
fn recorded_ratios_are_those_of_the_recording() {
    let recording =
        builtin().unwrap().into_iter().find(|recording| recording.name.starts_with("hdc256_i0040")).unwrap();
    for (bound, gradient, partial_sum) in RECORDED {
        let params = Params::new(bound, Split::Dense, 0).unwrap();
        let mut groups = vec![0; max_encoded_len(recording.values.len())];
        let len = encode_payload(&recording.values, &mut groups, params).unwrap();
        let ratio = recording.values.len() as f64 / len as f64;
        assert!((ratio - gradient).abs() < 0.01, "2^-{bound}: {ratio}");
        assert!(partial_sum < gradient);
    }
}
