//! Errors that Python sees.

use pyo3::PyErr;
use pyo3::exceptions::PyValueError;

/// ValueError, for what a caller got wrong.
pub(crate) fn invalid(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}
