//! The setting of the claims and the figures: calibrated backward times, the sizes of Table 2 and,
//! unless said otherwise, 32 workers at 25 Gbit/s.

use gradwire_simulator::{Mechanism, Model, Scenario, SimError, seconds};

/// `mechanism` on the published model.
pub(super) fn scenario(model: &str, mechanism: Mechanism) -> Result<Scenario, SimError> {
    Ok(Scenario::new(Model::published(model)?.calibrated().table2_size(), mechanism))
}

/// Time of an iteration in seconds.
pub(super) fn time(scenario: &Scenario) -> Result<f64, SimError> {
    scenario.run().map(|results| seconds(results.iteration))
}

/// The same at another bandwidth.
pub(super) fn time_at(model: &str, mechanism: Mechanism, gigabits: u64) -> Result<f64, SimError> {
    let mut scenario = scenario(model, mechanism)?;
    scenario.links.bandwidth = gigabits * 1_000_000_000;
    time(&scenario)
}

/// The same on processors `speed` times as fast.
pub(super) fn time_with_compute(model: &str, mechanism: Mechanism, speed: f64) -> Result<f64, SimError> {
    let scenario = scenario(model, mechanism)?;
    let Model { forward, backward, .. } = scenario.model;
    time(&Scenario::new(scenario.model.timed(forward / speed, backward / speed), mechanism))
}
