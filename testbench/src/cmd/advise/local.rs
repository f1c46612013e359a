//! Whether local steps would pay in place of an exchange at each iteration.

use gradwire_simulator::local_steps::LocalSteps;
use serde::Serialize;

use super::advice::WORTH;
use super::cluster::{Cluster, Times};
use crate::cmd::simulate::local_steps::{USUAL, plan, planned};
use crate::error::Error;

/// Rounds to choose from: those of `gradwire.LocalSteps(every="auto")`.
const ROUNDS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// How many times the iterations tasks needed, least and most: docs/local-steps.md has the
/// measurements.
const SGD: (f64, f64) = (1.0, 1.2);
/// Likewise, by AdamW with small local batches.
const ADAMW: (f64, f64) = (1.25, 1.45);

/// Local steps on the cluster. The fields are those of `--json`.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the help of the command and the names of the fields")]
pub struct Local {
    pub plan: &'static str,
    pub every: u32,
    pub iteration_s: f64,
    pub utilisation: f64,
    pub most_iterations: f64,
    pub why: String,
}

impl Cluster {
    /// Local steps against the best of `times`; nothing if the job's compute is not known.
    ///
    /// # Errors
    /// The simulator refuses the scenario.
    pub(super) fn local(&self, times: &Times) -> Result<Option<Local>, Error> {
        if times.compute_s == 0.0 {
            return Ok(None);
        }
        let (usual, bits) = plan(USUAL)?;
        let scenario = planned(self.scenario(None), &usual, bits);
        let rows = ROUNDS.map(|every| {
            let steps = LocalSteps {
                scenario: scenario.clone(),
                every,
                delay: 0,
                fragments: 1,
                handled: self.handled,
            };
            steps.run().map(|row| (every, row))
        });
        let rows = rows.into_iter().collect::<Result<Vec<_>, _>>()?;
        let short = rows.iter().find(|(_, row)| row.utilisation >= 1.0 - WORTH);
        let &(every, row) = short.unwrap_or(&rows[rows.len() - 1]);
        let best = times.f32_s.min(times.bits16_s).min(times.in_nic_s).min(times.on_host_s);
        let most_iterations = best / row.iteration_s;
        let why = verdict(most_iterations);
        let (iteration_s, utilisation) = (row.iteration_s, row.utilisation);
        Ok(Some(Local { plan: USUAL, every, iteration_s, utilisation, most_iterations, why }))
    }
}

/// Whether they pay, if an iteration is so many times as fast.
fn verdict(most: f64) -> String {
    let (what, but) = match most {
        _ if most >= ADAMW.1 => ("would pay", ""),
        _ if most >= ADAMW.0 => ("would pay with SGD", ", and may with AdamW"),
        _ if most >= SGD.1 => ("would pay with SGD", ", and would not with AdamW"),
        _ if most > SGD.0 => ("may pay with SGD", ", and would not with AdamW"),
        _ => ("would not pay", ""),
    };
    format!(
        "{what}{but}: small models needed {:.1} to {:.1} times the iterations with SGD, {:.2} to {:.2} with AdamW and small local batches",
        SGD.0, SGD.1, ADAMW.0, ADAMW.1
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_goes_by_the_iterations_that_were_needed() {
        for (most, says) in [
            (2.0, "would pay: "),
            (1.3, "would pay with SGD, and may with AdamW: "),
            (1.22, "would pay with SGD, and would not"),
            (1.1, "may pay with SGD"),
            (1.0, "would not pay"),
            (0.5, "would not pay"),
        ] {
            assert!(verdict(most).starts_with(says), "{most}: {}", verdict(most));
        }
    }
}
