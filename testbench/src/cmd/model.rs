//! Models, as options name them.

use std::fs::File;
use std::path::Path;

use gradwire_simulator::Model;

use crate::error::Error;

/// The model that comes with gradwire under `name`, or that of a CSV file.
///
/// # Errors
/// There is neither.
pub(super) fn model(name: &str) -> Result<Model, Error> {
    let path = Path::new(name);
    if path.extension().is_none_or(|ending| ending != "csv") {
        return Ok(Model::published(name)?);
    }
    Ok(Model::from_csv(&stem(path), open(path)?)?)
}

pub(super) fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

pub(super) fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|source| Error::io(path.display().to_string(), "read", source))
}
