//! The options that choose codec parameters.

use std::io::Read;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use gradwire::codec::{Params, Split};
use gradwire::kernels::Kernel;

use super::kernel::KernelArg;
use crate::error::Error;
use crate::input::recordings::STDIN;

/// Bound, split, scale, and the kernel that encodes and decodes with them.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct CodecArgs {
    /// Error bound as an exponent: 10 means that errors stay below 2^-10.
    #[arg(long, value_name = "B", default_value_t = 10, value_parser = bound())]
    pub bound: u8,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub split: SplitArg,
    /// Scale exponent: the codec runs on f * 2^-X, and the bound becomes 2^(X-B). -80 to 127.
    #[arg(long, value_name = "X", default_value_t = 0, allow_negative_numbers = true, value_parser = scale)]
    pub scale: i8,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub kernel: KernelArg,
}

impl CodecArgs {
    /// The parameters.
    ///
    /// # Errors
    /// The codec refuses them.
    pub fn params(self) -> Result<Params, Error> {
        params(self.bound, self.split.split, self.scale)
    }

    /// The kernel asked for, or the fastest.
    #[must_use]
    pub fn kernel(self) -> Kernel {
        self.kernel.kernel()
    }
}

/// The split.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct SplitArg {
    /// Border between 8-bit and 16-bit values: dense keeps as few bits as the bound allows, paper as many as
    /// INCEPTIONN (MICRO 2018) published.
    #[arg(long, default_value = "dense", value_parser = split())]
    pub split: Split,
}

/// Parameters from options.
///
/// # Errors
/// The codec refuses them.
pub fn params(bound: u8, split: Split, scale: i8) -> Result<Params, Error> {
    Params::new(bound, split, scale).map_err(|refused| Error::Usage(refused.to_string()))
}

/// Parses a bound exponent.
pub(crate) fn bound() -> clap::builder::RangedI64ValueParser<u8> {
    clap::value_parser!(u8).range(i64::from(Params::MIN_B)..=i64::from(Params::MAX_B))
}

/// Parses a scale exponent.
pub(crate) fn scale(text: &str) -> Result<i8, String> {
    let expected = || format!("expected a number from {} to {}", Params::MIN_SCALE, i8::MAX);
    text.parse().ok().filter(|x| *x >= Params::MIN_SCALE).ok_or_else(expected)
}

fn split() -> impl TypedValueParser<Value = Split> {
    PossibleValuesParser::new(Split::ALL.map(Split::name))
        .try_map(|name| Split::from_name(&name).ok_or("no split"))
}

/// Reads until `buffer` is full or `input` ends; how many bytes that gave.
pub(crate) fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, Error> {
    let mut at = 0;
    while at < buffer.len() {
        match input.read(&mut buffer[at..]) {
            Ok(0) => break,
            Ok(len) => at += len,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io(STDIN, "read", error)),
        }
    }
    Ok(at)
}
