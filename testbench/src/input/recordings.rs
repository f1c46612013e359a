//! The recordings that are built in, and those that the user names.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::npy;
use crate::error::Error;

/// The name of `-` in messages.
pub const STDIN: &str = "standard input";

/// A gradient: a flat vector of values.
#[derive(Clone, Debug)]
pub struct Recording {
    /// File name without its extension.
    pub name: String,
    /// Little-endian `f32`s.
    pub values: Vec<u8>,
}

/// A built-in file, compiled in so that the binary alone can do the main job.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// File name in `testbench/recordings`.
    pub name: &'static str,
    /// Its content.
    pub bytes: &'static [u8],
}

macro_rules! builtin {
    ($($name:literal),+ $(,)?) => {
        &[$(Builtin { name: $name, bytes: include_bytes!(concat!("../../recordings/", $name)) }),+]
    };
}

/// Gradients of four models, as `.npy`.
pub const GRADIENTS: &[Builtin] =
    builtin!["cnn_i0300_w0.npy", "hdc256_i0040_w0.npy", "lm_i0950_w0.npy", "resnet_i0010_w0.npy"];

/// Captures of ring all-reduces, as pcap.
pub const CAPTURES: &[Builtin] = builtin!["ring4_loss.pcap", "ring4_mtu1450.pcap"];

/// The built-in gradients.
///
/// # Errors
/// None, unless a recording was damaged before it was compiled in.
pub fn builtin() -> Result<Vec<Recording>, Error> {
    GRADIENTS.iter().map(|file| recording(file.name, file.bytes)).collect()
}

/// The gradients in `paths`, as [`load`] finds them; the built-in ones if `paths` is empty.
///
/// # Errors
/// Those of [`load`].
pub fn load_or_builtin(paths: &[PathBuf]) -> Result<(Vec<Recording>, Vec<Error>), Error> {
    if paths.is_empty() { Ok((builtin()?, Vec::new())) } else { load(paths) }
}

/// The gradients in `paths`: `.npy` files, folders of them, or `-` for standard input; and why
/// files of a folder were left out.
///
/// # Errors
/// A path that cannot be read or is not what it should be, or a folder without any `.npy`.
pub fn load(paths: &[PathBuf]) -> Result<(Vec<Recording>, Vec<Error>), Error> {
    let (mut recordings, mut refused) = (Vec::new(), Vec::new());
    for path in paths {
        if path.is_dir() {
            let files = npy_files(path)?;
            if files.is_empty() {
                let found = "a folder without .npy files";
                return Err(Error::input(path.display().to_string(), 0usize, found, "at least one"));
            }
            // Whoever names a folder does not know each of its files: one that is bad does not hide
            // the others.
            for file in files {
                let name = file.display().to_string();
                match read(&file).and_then(|bytes| recording(&name, &bytes)) {
                    Ok(recording) => recordings.push(recording),
                    Err(error) => refused.push(error),
                }
            }
        } else {
            recordings.push(recording(&display(path), &read(path)?)?);
        }
    }
    Ok((recordings, refused))
}

/// The whole content of `path`, or of standard input if it is `-`.
///
/// # Errors
/// It cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    if is_stdin(path) {
        let mut bytes = Vec::new();
        return match io::stdin().lock().read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(source) => Err(Error::io(STDIN, "read", source)),
        };
    }
    fs::read(path).map_err(|source| Error::io(path.display().to_string(), "read", source))
}

/// The name of `path` in messages.
#[must_use]
pub fn display(path: &Path) -> String {
    if is_stdin(path) { STDIN.into() } else { path.display().to_string() }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn recording(file: &str, bytes: &[u8]) -> Result<Recording, Error> {
    let values = npy::parse(file, bytes)?.to_vec();
    let name = Path::new(file).file_stem().map_or_else(|| file.into(), |stem| stem.to_string_lossy().into());
    Ok(Recording { name, values })
}

fn npy_files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let refused = |source| Error::io(folder.display().to_string(), "read", source);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(refused)? {
        let path = entry.map_err(refused)?.path();
        if path.extension().is_some_and(|extension| extension == "npy") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
