//! The published cells beside ours.
//!
//! `cells.csv` holds every cell of Chang et al. that can be simulated, and what a separate
//! prototype of the same rules came to.

use gradwire_simulator::{Assignment, Mechanism, Model, Scenario, SimError, seconds};
use serde::Deserialize;

const CELLS: &str = include_str!("cells.csv");

/// A published cell.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Cell {
    /// Table, or `txt` for the text.
    pub table: String,
    /// Model as the paper writes it.
    pub model: String,
    /// The measured quantity, and its unit: seconds, or `x` for the gain over the baseline.
    pub column: String,
    /// The paper's value.
    pub published: f64,
    /// The prototype's, under [`Setting::Uncalibrated`].
    pub prototype_uncalibrated: f64,
    /// Under [`Setting::Calibrated`].
    pub prototype_calibrated: f64,
    /// Under [`Setting::OwnSizes`].
    pub prototype_calibrated_csv_sizes: f64,
}

/// With which inputs a cell is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Compute times of Table 3, sizes of Table 2.
    Uncalibrated,
    /// Backward times with which Table 8's ring cell fits, sizes of Table 2.
    Calibrated,
    /// The same backward times, sizes of our model files.
    OwnSizes,
}

/// A cell, simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The published cell.
    pub cell: Cell,
    /// The inputs that the tolerance is for.
    pub setting: Setting,
    /// Our value.
    pub ours: f64,
    /// Largest relative difference; `None`: the cell is not expected to reproduce.
    pub tolerance: Option<f64>,
}

impl Comparison {
    /// Our value over the published one, less 1.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.ours / self.cell.published - 1.0
    }

    /// Whether the difference is within the tolerance; a cell without one is.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.tolerance.is_none_or(|tolerance| self.difference().abs() <= tolerance)
    }
}

/// Every published cell.
///
/// # Errors
/// None, unless the committed file is damaged.
pub fn cells() -> Result<Vec<Cell>, SimError> {
    csv::Reader::from_reader(CELLS.as_bytes()).deserialize().collect::<Result<_, _>>().map_err(SimError::Csv)
}

/// Simulates `cell` with the inputs and the tolerance that are specified for it.
///
/// # Errors
/// The cell names a model or a column that is not known.
pub fn compare(cell: Cell) -> Result<Comparison, SimError> {
    let (setting, tolerance) = acceptance(&cell);
    Ok(Comparison { ours: simulate(&cell, setting)?, cell, setting, tolerance })
}

/// Inputs and tolerance of a cell. VGG-16 needs no calibration; the other three models' backward
/// times, as printed, contradict Table 8.
fn acceptance(cell: &Cell) -> (Setting, Option<f64>) {
    use Setting::{Calibrated, Uncalibrated};
    let vgg = cell.model == "VGG-16";
    let inception = cell.model == "Inception-v3";
    match cell.table.as_str() {
        // Measured on real hosts, which no simulation here claims to be.
        "T1real(5G)" => (Uncalibrated, None),
        "T1sim(5G)" if inception && cell.column == "8 PS" => (Uncalibrated, Some(0.15)),
        "T1sim(5G)" => (Uncalibrated, Some(0.10)),
        "T4/8 implied" => (Uncalibrated, Some(0.06)),
        _ if vgg => (Uncalibrated, Some(0.05)),
        "T4" if cell.column == "mc x" => (Uncalibrated, Some(0.06)),
        "T9" if inception && cell.column == "nobarrier 2it" => (Calibrated, Some(0.15)),
        "T10" => (Calibrated, Some(0.15)),
        _ => (Calibrated, Some(0.10)),
    }
}

/// Our value of a cell under any setting.
///
/// # Errors
/// As [`compare`].
pub fn simulate(cell: &Cell, setting: Setting) -> Result<f64, SimError> {
    let model = published_model(&cell.model, setting)?;
    let unknown = || SimError::BadMechanism { text: cell.column.clone() };
    let time = |scenario: Scenario| scenario.run().map(|outcome| seconds(outcome.iteration));
    let at_25g = |mechanism| Scenario::new(model.clone(), mechanism);
    let at = |mechanism, gigabits: u64| {
        let mut scenario = at_25g(mechanism);
        scenario.links.bandwidth = gigabits * 1_000_000_000;
        scenario
    };
    match cell.table.as_str() {
        "T4/8 implied" => time(at_25g(Mechanism::BASELINE)),
        "T4" | "T6" => {
            let name = cell.column.strip_suffix(" x").ok_or_else(unknown)?;
            Ok(time(at_25g(Mechanism::BASELINE))? / time(at_25g(name.parse()?))?)
        }
        "T8" => match cell.column.as_str() {
            "8PS mc+agg s" => time(at_25g(Mechanism::BOTH.with_servers(8, Assignment::Even))),
            column => time(at_25g(column.strip_suffix(" s").ok_or_else(unknown)?.parse()?)),
        },
        "T9" => {
            let scenario = match cell.column.strip_suffix(" 2it").ok_or_else(unknown)? {
                "nobarrier" => Scenario { barrier: false, ..at_25g(Mechanism::BOTH) },
                name => at_25g(name.parse()?),
            };
            Ok(2.0 * time(scenario)?)
        }
        "T10" => {
            let (name, rate) = cell.column.split_once(' ').ok_or_else(unknown)?;
            let gigabits = rate.strip_suffix("G s").and_then(|rate| rate.parse().ok()).ok_or_else(unknown)?;
            let mechanism = if name == "block" { Mechanism::BLOCK } else { name.parse()? };
            time(at(mechanism, gigabits))
        }
        "txt" => time(at(Mechanism::Ring { messages: false, multicast: false }, 10)),
        // Table 1 has 8 workers at 5 Gbit/s.
        "T1sim(5G)" | "T1real(5G)" => {
            let servers = cell.column.strip_suffix(" PS").and_then(|count| count.parse().ok());
            let mechanism =
                Mechanism::BASELINE.with_servers(servers.ok_or_else(unknown)?, Assignment::RoundRobin);
            time(Scenario { workers: 8, ..at(mechanism, 5) })
        }
        _ => Err(unknown()),
    }
}

/// The model that the paper calls `name`, with the inputs of `setting`.
fn published_model(name: &str, setting: Setting) -> Result<Model, SimError> {
    let model = Model::published(&name.to_lowercase().replace('-', ""))?;
    Ok(match setting {
        Setting::Uncalibrated => model.table2_size(),
        Setting::Calibrated => model.calibrated().table2_size(),
        Setting::OwnSizes => model.calibrated(),
    })
}
