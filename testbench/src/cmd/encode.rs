//! `gradwire encode`: values in, their code out.

use std::io::{Read, Write};

use gradwire::codec::VALUE_LEN;
use gradwire::codec::planar::SECTION_VALUES;

use super::codec::{CodecArgs, read_full};
use crate::error::{Error, Outcome};
use crate::input::known;
use crate::input::recordings::STDIN;

/// Bytes of values read at once, whole sections and so whole bursts; memory does not grow with the input.
const BLOCK_LEN: usize = 16 * SECTION_VALUES * VALUE_LEN;

/// Reads little-endian f32 values on standard input and writes sections or groups to standard output.
///
/// Codec 2: every 512 values make a section, the last one may stand for fewer. Codec 1: every 8 values make a
/// group: a 16-bit tag vector, then 0, 1, 2 or 4 bytes a value. The last group may stand for fewer values; its
/// absent lanes have tag 0.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  gradwire encode < values.f32 > values.sections
  gradwire encode --codec 1 < values.f32 > values.groups
  gradwire encode --bound 8 < values.f32 | gradwire decode --bound 8 --values 1000 > restored.f32")]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub codec: CodecArgs,
}

/// Encodes `input` to `out`.
///
/// # Errors
/// The input ends within a value, or is a file of a known format; or one of the two fails.
pub fn run(args: &Args, input: &mut impl Read, out: &mut impl Write) -> Result<Outcome, Error> {
    let profile = args.codec.profile()?;
    let kernel = args.codec.kernel();
    let mut values = vec![0; BLOCK_LEN];
    let mut coded = vec![0; profile.max_encoded_len(values.len())];
    let mut offset = 0u64;
    loop {
        let len = read_full(input, &mut values)?;
        // A file's header would be encoded as if it were values.
        if let (0, Some(name)) = (offset, known::name(&values[..len])) {
            return Err(Error::input(STDIN, 0u64, name, "bare little-endian f32 values"));
        }
        let len = kernel.encode(&values[..len], &mut coded, profile).map_err(|_| {
            let found = format!("the end of the input within a value, after {} of its 4 bytes", len % 4);
            Error::input(STDIN, offset + len as u64, found, "whole little-endian f32 values")
        })?;
        out.write_all(&coded[..len])?;
        if len == 0 {
            return Ok(Outcome::Held);
        }
        offset += values.len() as u64;
    }
}
