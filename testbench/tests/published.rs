//! The published cells, and the values that a separate prototype of the same rules came to.

use gradwire_simulator::{Mechanism, Model, Scenario};
use gradwire_testbench::cmd::simulate::published::cells::{Setting, cells, compare, simulate};

#[test]
fn every_cell_is_within_its_tolerance() {
    let comparisons: Vec<_> = cells().unwrap().into_iter().map(|cell| compare(cell).unwrap()).collect();
    for comparison in &comparisons {
        assert!(comparison.holds(), "{comparison:?}: off by {:.1} %", 100.0 * comparison.difference());
    }
    let checked = comparisons.iter().filter(|comparison| comparison.tolerance.is_some()).count();
    assert_eq!(checked, 85, "cells with a tolerance: all but the 16 measured on real hosts");
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

/// ring >= multicast and aggregation >= butterfly > multicast > aggregation: no inversion larger
/// than 1 %.
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
