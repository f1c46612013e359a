//! `gradwire encode`: values in, their code out; bare in a pipe, with a header in a file.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use gradwire::codec::VALUE_LEN;
use gradwire::codec::bit_plane::SECTION_VALUES;

use super::args::codec::{CodecArgs, open, read_full};
use crate::error::{Error, Outcome};
use crate::input::coded::{HEADER_LEN, Header};
use crate::input::known;
use crate::input::recordings::{STDIN, display};
use crate::report;

/// Bytes of values read at once, whole sections and so whole bursts; memory does not grow with the
/// input.
const BLOCK_LEN: usize = 16 * SECTION_VALUES * VALUE_LEN;

/// Reads little-endian f32 values and writes sections or groups: bare to standard output, or to a
/// file that begins with the codec, its parameters and the number of values.
///
/// Codec 2: every 512 values make a section, the last one may stand for fewer. Codec 1: every 8
/// values make a group: a 16-bit tag vector, then 0, 1, 2 or 4 bytes a value. The last group may
/// stand for fewer values; its absent lanes have tag 0.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file of --output begins with 20 bytes: ff ff 47 57 00 00 0d 0a, codec and parameters as in a segment header (3 bytes), version 1,
and the number of values (8 bytes, little-endian). `gradwire decode FILE` needs no options for it. Standard output is bare.

Examples:
  gradwire encode values.f32 --bound 8 -o values.gw && gradwire decode values.gw -o restored.f32
  gradwire encode < values.f32 > values.sections
  gradwire encode --codec 1 < values.f32 > values.groups
  gradwire encode --bound 8 < values.f32 | gradwire decode --bound 8 --values 1000 > restored.f32")]
pub struct Args {
    /// Bare little-endian f32 values, as numpy's a.astype('<f4').tofile(f) writes them [default:
    /// standard input].
    #[arg(value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Write a file that says what it was made with, not bare code to standard output.
    #[arg(long, short, value_name = "FILE", value_parser = report::output)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub codec: CodecArgs,
}

/// Encodes `stdin`, or the file that `args` name, to `stdout`, or to the file that they name.
///
/// # Errors
/// The input ends within a value, or is a file of a known format; or one of the two fails.
pub fn run(args: &Args, stdin: &mut impl Read, stdout: &mut impl Write) -> Result<Outcome, Error> {
    match &args.input {
        Some(path) if path.as_os_str() != "-" => to(args, &display(path), &mut open(path)?, stdout),
        _ => to(args, STDIN, stdin, stdout),
    }
}

/// Encodes `input`, which messages call `name`.
fn to(args: &Args, name: &str, input: &mut impl Read, stdout: &mut impl Write) -> Result<Outcome, Error> {
    let Some(path) = &args.output else {
        encode(&args.codec, name, input, stdout)?;
        return Ok(Outcome::Held);
    };
    // It gets its name when it is whole; until then a file of that name, which may be the input,
    // stays as it is.
    let part = path.with_added_extension("part");
    let written = write_file(&args.codec, name, input, &part).and_then(|()| {
        fs::rename(&part, path).map_err(|source| Error::io(path.display().to_string(), "write", source))
    });
    if written.is_err() {
        // What made it fail is what the user should know.
        drop(fs::remove_file(&part));
    }
    written.map(|()| Outcome::Held)
}

fn write_file(codec: &CodecArgs, name: &str, input: &mut impl Read, path: &Path) -> Result<(), Error> {
    let refused = |source| Error::io(path.display().to_string(), "write", source);
    let profile = codec.profile()?;
    let mut out = BufWriter::new(File::create(path).map_err(refused)?);
    // How many values there are shows at the end of the input.
    out.write_all(&[0; HEADER_LEN]).map_err(refused)?;
    let values = encode(codec, name, input, &mut out)?;
    out.rewind().and_then(|()| out.write_all(&Header { profile, values }.to_bytes())).map_err(refused)?;
    out.flush().map_err(refused)
}

/// Encodes all of `input`; how many values it had.
fn encode(codec: &CodecArgs, name: &str, input: &mut impl Read, out: &mut impl Write) -> Result<u64, Error> {
    let profile = codec.profile()?;
    let kernel = codec.kernel();
    let mut values = vec![0; BLOCK_LEN];
    let mut coded = vec![0; profile.max_encoded_len(values.len())];
    let mut offset = 0u64;
    loop {
        let read = read_full(name, input, &mut values)?;
        // A file's header would be encoded as if it were values.
        if let (0, Some(format)) = (offset, known::name(&values[..read])) {
            return Err(Error::input(name, 0u64, format, "bare little-endian f32 values"));
        }
        let len = kernel.encode(&values[..read], &mut coded, profile).map_err(|_| {
            let found = format!("the end of the input within a value, after {} of its 4 bytes", read % 4);
            Error::input(name, offset + read as u64, found, "whole little-endian f32 values")
        })?;
        out.write_all(&coded[..len])?;
        offset += read as u64;
        if read < values.len() {
            return Ok(offset / VALUE_LEN as u64);
        }
    }
}
