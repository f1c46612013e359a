//! Why a configuration is refused: errors name file, line and remedy.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::de::DeserializeOwned;
use toml::Spanned;

/// Why a configuration file was refused.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The operating system refused.
    #[error("{}: cannot read: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// A line is not what it should be.
    #[error("{}: line {line}: {found}", file.display())]
    Refused {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The fault, and the right form.
        found: String,
    },
    /// An option and the file, or two options, ask for what cannot be together.
    #[error("{NOT_IN_GENERIC}: leave out one of --zero-copy on and generic mode")]
    ZeroCopyInGeneric,
    /// Neither the file nor an option says where an aggregator is.
    #[error("{}", unsaid(setting, file.as_deref()))]
    Unsaid {
        /// The setting, and the option.
        setting: &'static str,
        /// The file, if there is one.
        file: Option<PathBuf>,
    },
}

/// Why no frame comes without a copy in generic mode.
pub(super) const NOT_IN_GENERIC: &str =
    "zero-copy needs the XDP program in the driver, and mode = \"generic\" never has it there";

fn unsaid(setting: &str, file: Option<&Path>) -> String {
    match file {
        Some(file) => {
            format!("{}: no {setting}: write it into [aggregator], or give --{setting}", file.display())
        }
        None => {
            format!("no {setting}: give --{setting}, or --config with a file that has it in [aggregator]")
        }
    }
}

pub(super) fn read(file: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(file).map_err(|source| ConfigError::Read { file: file.to_owned(), source })
}

/// A file's text as its tables.
pub(super) fn tables<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    toml::from_str(text).map_err(|error| Fault {
        at: error.span().unwrap_or_default(),
        found: error.message().trim().replace('\n', "; "),
    })
}

/// A refused setting, and its place: bytes of the file.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: Range<usize>,
    pub(super) found: String,
}

impl Fault {
    pub(super) fn at<T>(part: &Spanned<T>, found: impl Into<String>) -> Self {
        Self { at: part.span(), found: found.into() }
    }

    pub(super) fn refused(self, text: &str, file: &Path) -> ConfigError {
        let Self { at, found } = self;
        ConfigError::Refused { file: file.to_owned(), line: line_of(text, at.start), found }
    }
}

/// The line, from 1, of byte `at`.
fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}
