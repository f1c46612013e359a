//! Models and their times, as options name them.

use std::path::{Path, PathBuf};

use gradwire_simulator::{ComputeTimes, Model, trace};

use super::codec::open;
use super::quantity::time;
use crate::error::Error;

/// The compute times of a model.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct TimesArgs {
    /// Forward time of a batch, for models that have none.
    #[arg(long, value_parser = time, help_heading = "Compute and model")]
    pub forward: Option<f64>,
    /// Backward time of a batch, for models that have none.
    #[arg(long, value_parser = time, help_heading = "Compute and model")]
    pub backward: Option<f64>,
}

impl TimesArgs {
    /// `model` with these times, if they are given.
    pub(in crate::cmd) fn of(self, model: Model) -> Model {
        let (forward, backward) =
            (self.forward.unwrap_or(model.forward), self.backward.unwrap_or(model.backward));
        model.timed(forward, backward)
    }
}

/// The model that comes with gradwire under `name`, or that of a CSV file.
///
/// # Errors
/// There is neither.
pub(in crate::cmd) fn model(name: &str) -> Result<Model, Error> {
    let path = Path::new(name);
    if path.extension().is_none_or(|ending| ending != "csv") {
        return Ok(Model::named(name)?);
    }
    Ok(Model::from_csv(&stem(path), open(path)?)?)
}

/// The model of recorded workers, and the compute times of each; named after the first file.
///
/// # Errors
/// There is no file; a file cannot be read; workers train different models.
pub(in crate::cmd) fn traced(paths: &[PathBuf]) -> Result<(Model, Vec<ComputeTimes>), Error> {
    let files = paths.iter().map(|path| Ok((path.display().to_string(), open(path)?)));
    let files = files.collect::<Result<Vec<_>, Error>>()?;
    Ok(trace::load(files, &paths.first().map_or_else(String::new, |path| stem(path)))?)
}

fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}
