//! `gradwire decode`: groups in, values out.

use std::io::{Read, Write};

use gradwire::codec::{BURST_LEN, Class, DecodeError, LANES, MAX_GROUP_LEN, Params, TAGS_LEN, VALUE_LEN};
use gradwire::kernels::Kernel;

use super::codec::{CodecArgs, read_full};
use crate::error::{Error, Outcome};
use crate::input::recordings::STDIN;

/// Bytes of groups held at once; memory does not grow with the input.
const BUFFER_LEN: usize = 1 << 16;
/// Bursts decoded at once.
const BURSTS: usize = 1024;

/// Reads groups on standard input and writes little-endian f32 values to standard output.
///
/// The last group does not say how many values it stands for. With --values N, N values come out. Without
/// --values, every group gives 8 values, and absent lanes come out as zeros.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The parameters have to be those of the encoder: groups do not carry them.

Examples:
  gradwire decode --values 1000 < values.groups > restored.f32
  gradwire decode --bound 6 --split paper --scale -4 < values.groups > restored.f32")]
pub struct Args {
    /// Codec parameters.
    #[command(flatten)]
    pub codec: CodecArgs,
    /// How many values there are [default: all lanes of the last group come out].
    #[arg(long, value_name = "N")]
    pub values: Option<u64>,
}

/// Decodes `input` to `out`.
///
/// # Errors
/// The groups end too early, go on after the last value, or have a tag without a value; or the input or
/// the output fails.
pub fn run(args: &Args, input: &mut impl Read, out: &mut impl Write) -> Result<Outcome, Error> {
    let mut decoder = Decoder {
        kernel: args.codec.kernel(),
        params: args.codec.params()?,
        left: args.values,
        values: vec![0; BURSTS * BURST_LEN],
    };
    let mut buffer = vec![0; BUFFER_LEN];
    // Bytes of the buffer that hold input, and the input's offset of the first of them.
    let (mut filled, mut offset) = (0, 0u64);
    loop {
        let room = buffer.get_mut(filled..).unwrap_or(&mut []);
        let read = read_full(input, room)?;
        let ended = read < room.len();
        filled += read;
        let used = decoder.decode(&buffer[..filled], offset, ended, out)?;
        buffer.copy_within(used..filled, 0);
        filled -= used;
        offset += used as u64;
        if ended {
            return Ok(Outcome::Held);
        }
    }
}

struct Decoder {
    kernel: Kernel,
    params: Params,
    /// How many values are to come, if that is known.
    left: Option<u64>,
    values: Vec<u8>,
}

impl Decoder {
    /// Decodes the groups of `bytes`, which stand at `offset` of the input, that are surely whole: all if
    /// the input has `ended`. Returns how many bytes that took.
    fn decode(
        &mut self,
        bytes: &[u8],
        offset: u64,
        ended: bool,
        out: &mut impl Write,
    ) -> Result<usize, Error> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let here = offset + at as u64;
            let no_input = rest.is_empty() && self.left.is_none();
            let undecided = rest.len() < MAX_GROUP_LEN && !ended;
            if self.left == Some(0) && !rest.is_empty() {
                return Err(Error::input(STDIN, here, "bytes after the last value", "the end of the input"));
            }
            if self.left == Some(0) || no_input || undecided {
                return Ok(at);
            }
            let left = self.left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
            // Whole bursts together; what is not whole by itself, so that a refusal knows where.
            let count = match whole_groups(rest, BURSTS.min(left / LANES)) {
                0 => left.min(LANES),
                groups => groups * LANES,
            };
            let values = &mut self.values[..count * VALUE_LEN];
            at += self.kernel.decode(rest, values, self.params).map_err(|e| refused(e, here))?;
            out.write_all(values)?;
            if let Some(left) = &mut self.left {
                *left -= count as u64;
            }
        }
    }
}

/// How many whole groups `bytes` starts with, at most `most`.
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

/// The decoder's refusal of the group at `at` of the input.
fn refused(error: DecodeError, at: u64) -> Error {
    match error {
        DecodeError::Truncated { need, have, .. } => {
            let found = format!("{have} bytes and the end of the input");
            Error::input(STDIN, at, found, format!("a group of {need} bytes or more"))
        }
        DecodeError::AbsentLane { tags, lanes, .. } => {
            let expected = format!("tag 0 in every lane from {lanes} on, where no value is");
            Error::input(STDIN, at, format!("tag vector {tags:#06x}"), expected)
        }
        other => Error::input(STDIN, at, other.to_string(), "groups of the same parameters"),
    }
}
