//! `gradwire decode`: groups in, values out.

use std::io::{Read, Write};

use gradwire::codec::{BURST_LEN, LANES, MAX_GROUP_LEN, Params, VALUE_LEN, decode_burst};
use gradwire::error::DecodeError;

use super::codec::{CodecArgs, read_full};
use crate::error::{Error, Outcome};
use crate::recordings::STDIN;

/// Bytes of groups held at once; memory does not grow with the input.
const BUFFER_LEN: usize = 1 << 16;

/// Reads groups on standard input and writes little-endian f32 values to standard output.
///
/// Groups do not say how many values the last one stands for. With --values N that many come out; without
/// it every group gives 8 values, and lanes that were absent come out as zeros.
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
    /// How many values there are; without it, all lanes of the last group come out.
    #[arg(long, value_name = "N")]
    pub values: Option<u64>,
}

/// Decodes `input` to `out`.
///
/// # Errors
/// The groups end too early, go on after the last value, or have a tag where no value is; or the input or
/// the output fails.
pub fn run(args: &Args, input: &mut impl Read, out: &mut impl Write) -> Result<Outcome, Error> {
    let params = args.codec.params()?;
    let mut left = args.values;
    let mut buffer = vec![0; BUFFER_LEN];
    // Bytes of the buffer that hold input, and the input's offset of the first of them.
    let (mut filled, mut offset) = (0, 0u64);
    loop {
        let room = buffer.get_mut(filled..).unwrap_or(&mut []);
        let read = read_full(input, room)?;
        let ended = read < room.len();
        filled += read;
        let used = decode(&buffer[..filled], offset, ended, &mut left, params, out)?;
        buffer.copy_within(used..filled, 0);
        filled -= used;
        offset += used as u64;
        if ended {
            return Ok(Outcome::Held);
        }
    }
}

/// Decodes the groups of `bytes`, which stand at `offset` of the input, that are surely whole: all where
/// the input has `ended`. Returns how many bytes that took; `left` counts down.
fn decode(
    bytes: &[u8],
    offset: u64,
    ended: bool,
    left: &mut Option<u64>,
    params: Params,
    out: &mut impl Write,
) -> Result<usize, Error> {
    let mut burst = [0; BURST_LEN];
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        let lanes = left.map_or(LANES, |left| left.min(LANES as u64) as usize);
        let no_input = rest.is_empty() && left.is_none();
        let undecided = rest.len() < MAX_GROUP_LEN && !ended;
        if lanes == 0 && !rest.is_empty() {
            return Err(Error::input(
                STDIN,
                offset + at as u64,
                "bytes after the last value",
                "the end of the input",
            ));
        }
        if lanes == 0 || no_input || undecided {
            return Ok(at);
        }
        let values = &mut burst[..lanes * VALUE_LEN];
        let group_len = decode_burst(rest, 0, values, params).map_err(|e| refused(e, offset + at as u64))?;
        out.write_all(values)?;
        at += group_len;
        if let Some(left) = left {
            *left -= lanes as u64;
        }
    }
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
