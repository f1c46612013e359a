//! `gradwire decode`: values' code in, values out.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::PathBuf;

use gradwire::codec::bit_plane::SECTION_VALUES;
use gradwire::codec::{Class, DecodeError, LANES, MAX_GROUP_LEN, TAGS_LEN, VALUE_LEN};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;

use super::args::codec::{CodecArgs, open, read_full};
use crate::error::{Error, Outcome};
use crate::input::coded::{HEADER_LEN, Header};
use crate::input::recordings::{STDIN, display};
use crate::report;

/// Bytes of code held at once; memory does not grow with the input.
const BUFFER_LEN: usize = 1 << 16;
/// Values decoded at once.
const BLOCK_VALUES: usize = 16 * SECTION_VALUES;
/// No section is longer, not even one that no encoder makes.
const MAX_SECTION_LEN: usize = 4096;

/// Reads sections or groups and writes little-endian f32 values.
///
/// A file of `gradwire encode -o` says what it was made with. Bare code does not: its codec and
/// parameters are those of the options, and --values N says how many values the last section or
/// group stands for. Codec 2 needs it. With codec 1, every group gives 8 values without it, and
/// absent lanes come out as zeros.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file says what it was made with, and takes no options about that. Bare code needs the options of its encoder.

Examples:
  gradwire decode values.gw -o restored.f32
  gradwire decode --values 1000 < values.sections > restored.f32
  gradwire decode --codec 1 < values.groups > restored.f32
  gradwire decode --bound 6 --split paper --scale -4 < values.groups > restored.f32")]
pub struct Args {
    /// File of `gradwire encode -o`, or bare code [default: standard input].
    #[arg(value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// File to write instead of standard output.
    #[arg(long, short, value_name = "FILE", value_parser = report::output)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub codec: CodecArgs,
    /// The number of values there are [codec 1: by default all lanes of the last group come out].
    #[arg(long, value_name = "N")]
    pub values: Option<u64>,
}

/// Decodes `stdin`, or the file that `args` name, to `stdout`, or to the file that they name.
///
/// # Errors
/// Nobody says how many values sections stand for. The code ends too early, goes on after the last
/// value, or is none. The input or the output fails.
pub fn run(args: &Args, stdin: &mut impl Read, stdout: &mut impl Write) -> Result<Outcome, Error> {
    match &args.input {
        Some(path) if path.as_os_str() != "-" => from(args, &display(path), &mut open(path)?, stdout),
        _ => from(args, STDIN, stdin, stdout),
    }
}

/// Decodes `input`, which messages call `name`.
fn from(args: &Args, name: &str, input: &mut impl Read, stdout: &mut impl Write) -> Result<Outcome, Error> {
    let mut buffer = vec![0; BUFFER_LEN];
    // Bytes of the buffer that hold input, and the input's offset of the first of them.
    let (mut filled, mut offset) = (read_full(name, input, &mut buffer)?, 0u64);
    let header = Header::parse(name, &buffer[..filled])?;
    let written = args.codec.written().or(args.values.map(|_| "--values"));
    let (profile, left) = match header {
        Some(_) if let Some(option) = written => {
            let why = format!(
                "{name}: the file says its codec, parameters and number of values: leave out {option}"
            );
            return Err(Error::Usage(why));
        }
        Some(header) => (header.profile, Some(header.values)),
        None => (args.codec.profile()?, args.values),
    };
    if matches!(profile, Profile::BitPlane(_)) && left.is_none() {
        let why =
            "a section of codec 2 does not say how many values it stands for: give --values N, or --codec 1";
        return Err(Error::Usage(why.into()));
    }
    let mut file = match &args.output {
        Some(path) => {
            let refused = |source| Error::io(path.display().to_string(), "write", source);
            Some(BufWriter::new(File::create(path).map_err(refused)?))
        }
        None => None,
    };
    let out: &mut dyn Write = match &mut file {
        Some(file) => file,
        None => stdout,
    };
    let values = vec![0; BLOCK_VALUES * VALUE_LEN];
    let mut decoder = Decoder { name, kernel: args.codec.kernel(), profile, left, values };
    let mut used = if header.is_some() { HEADER_LEN } else { 0 };
    loop {
        let ended = filled < buffer.len();
        used += decoder.decode(&buffer[used..filled], offset + used as u64, ended, out)?;
        buffer.copy_within(used..filled, 0);
        filled -= used;
        offset += used as u64;
        used = 0;
        if ended {
            out.flush()?;
            return Ok(Outcome::Held);
        }
        filled += read_full(name, input, buffer.get_mut(filled..).unwrap_or(&mut []))?;
    }
}

struct Decoder<'a> {
    /// The name of the input in messages.
    name: &'a str,
    kernel: Kernel,
    profile: Profile,
    /// The number of values that are to come, if that is known.
    left: Option<u64>,
    values: Vec<u8>,
}

impl Decoder<'_> {
    /// Decodes the groups or sections of `bytes`, which stand at `offset` of the input, that are
    /// surely whole: all if the input has `ended`. Returns how many bytes that took.
    fn decode(
        &mut self,
        bytes: &[u8],
        offset: u64,
        ended: bool,
        out: &mut dyn Write,
    ) -> Result<usize, Error> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let here = offset + at as u64;
            let no_input = rest.is_empty() && self.left.is_none();
            let longest = match self.profile {
                Profile::SizeClass(_) => MAX_GROUP_LEN,
                Profile::BitPlane(_) => MAX_SECTION_LEN,
            };
            let undecided = rest.len() < longest && !ended;
            if self.left == Some(0) && !rest.is_empty() {
                return Err(Error::input(
                    self.name,
                    here,
                    "bytes after the last value",
                    "the end of the input",
                ));
            }
            if self.left == Some(0) || no_input || undecided {
                return Ok(at);
            }
            let left = self.left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
            let count = match self.profile {
                // Whole bursts together; what is not whole by itself, so that a refusal knows
                // where.
                Profile::SizeClass(_) => match whole_groups(rest, BLOCK_VALUES.min(left) / LANES) {
                    0 => left.min(LANES),
                    groups => groups * LANES,
                },
                Profile::BitPlane(_) => left.min(SECTION_VALUES),
            };
            let values = &mut self.values[..count * VALUE_LEN];
            at += self.kernel.decode(rest, values, self.profile).map_err(|e| refused(self.name, e, here))?;
            out.write_all(values)?;
            if let Some(left) = &mut self.left {
                *left -= count as u64;
            }
        }
    }
}

/// The number of whole groups `bytes` starts with, at most `most`.
fn whole_groups(mut bytes: &[u8], most: usize) -> usize {
    for count in 0..most {
        let Some((tags, vectors)) = bytes.split_first_chunk::<TAGS_LEN>() else { return count };
        let tags = u16::from_le_bytes(*tags);
        let lens = (0..LANES).map(|lane| Class::from_tag(tags >> (2 * lane)).vector_len());
        let Some(rest) = vectors.get(lens.sum()..) else { return count };
        bytes = rest;
    }
    most
}

/// The decoder's refusal of the group or section at `at` of the input.
fn refused(name: &str, error: DecodeError, at: u64) -> Error {
    match error {
        DecodeError::Truncated { need, have, .. } => {
            let found = format!("{have} bytes and the end of the input");
            Error::input(name, at, found, format!("a group of {need} bytes or more"))
        }
        DecodeError::AbsentLane { tags, lanes, .. } => {
            let expected = format!("tag 0 in every lane from {lanes} on, where no value is");
            Error::input(name, at, format!("tag vector {tags:#06x}"), expected)
        }
        DecodeError::Section { .. } => {
            let found = "a section that is cut short, or none";
            Error::input(name, at, found, "a section of codec 2 and of as many values")
        }
        other => Error::input(name, at, other.to_string(), "groups of the same parameters"),
    }
}
