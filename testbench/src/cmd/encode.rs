//! `gradwire encode`: values in, groups out.

use std::io::{Read, Write};

use gradwire::codec::{BURST_LEN, max_encoded_len};

use super::codec::{CodecArgs, read_full};
use crate::error::{Error, Outcome};
use crate::input::recordings::STDIN;

/// Bursts read at once; memory does not grow with the input.
const BURSTS: usize = 1024;

/// Reads little-endian f32 values on standard input and writes groups to standard output.
///
/// Every 8 values make a group: a 16-bit tag vector, then 0, 1, 2 or 4 bytes a value. The last group may
/// stand for fewer values; its absent lanes have tag 0.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  gradwire encode < values.f32 > values.groups
  gradwire encode --bound 8 < values.f32 | gradwire decode --bound 8 --values 1000 > restored.f32")]
pub struct Args {
    /// Codec parameters.
    #[command(flatten)]
    pub codec: CodecArgs,
}

/// Encodes `input` to `out`.
///
/// # Errors
/// The input ends within a value, or one of the two fails.
pub fn run(args: &Args, input: &mut impl Read, out: &mut impl Write) -> Result<Outcome, Error> {
    let params = args.codec.params()?;
    let kernel = args.codec.kernel();
    let mut values = vec![0; BURSTS * BURST_LEN];
    let mut groups = vec![0; max_encoded_len(values.len())];
    let mut offset = 0u64;
    loop {
        let len = read_full(input, &mut values)?;
        let len = kernel.encode(&values[..len], &mut groups, params).map_err(|_| {
            let found = format!("the end of the input within a value, after {} of its 4 bytes", len % 4);
            Error::input(STDIN, offset + len as u64, found, "whole little-endian f32 values")
        })?;
        out.write_all(&groups[..len])?;
        if len == 0 {
            return Ok(Outcome::Held);
        }
        offset += values.len() as u64;
    }
}
