//! The options that choose a codec and its parameters.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use clap::builder::{PossibleValuesParser, StringValueParser, TypedValueParser};
use gradwire::codec::bit_plane::Bound;
use gradwire::codec::{Params, Split};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;

use super::kernel::KernelArg;
use crate::error::Error;

/// Codec, bound, scale, and the kernel that encodes and decodes with them.
#[derive(Clone, Debug, clap::Args)]
pub struct CodecArgs {
    /// Error bound: 10, 2^-10 or 0.001, which is rounded down to a power of two. Codec 1: 1 to 14
    /// [default: 10].
    #[arg(long, value_name = "B", allow_negative_numbers = true, value_parser = exponent)]
    pub bound: Option<i16>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub choice: CodecChoice,
    /// Scale exponent: the codec runs on f * 2^-X, and the bound becomes 2^(X-B). Codec 1: X from
    /// -80 to 127; codec 2: X-B from -94 to 111 [default: 0].
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub scale: Option<i8>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub kernel: KernelArg,
}

impl CodecArgs {
    /// The codec with its parameters.
    ///
    /// # Errors
    /// The codec refuses them.
    pub fn profile(&self) -> Result<Profile, Error> {
        self.choice.codec()?.profile(self.bound.unwrap_or(10), self.scale.unwrap_or(0))
    }

    /// An option that somebody wrote, whatever it says; not the kernel, which changes no byte.
    #[must_use]
    pub fn written(&self) -> Option<&'static str> {
        let CodecChoice { codec, split, profile } = &self.choice;
        let options = [
            ("--codec", codec.is_some()),
            ("--split", split.is_some()),
            ("--profile", profile.is_some()),
            ("--bound", self.bound.is_some()),
            ("--scale", self.scale.is_some()),
        ];
        options.into_iter().find(|(_, written)| *written).map(|(option, _)| option)
    }

    /// The kernel asked for, or the fastest.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        self.kernel.kernel()
    }
}

/// The codec, and what only codec 1 has.
#[derive(Clone, Debug, clap::Args)]
pub struct CodecChoice {
    /// Codec of the wire: 1 is that of INCEPTIONN (MICRO 2018), for hardware and soft cores; 2 is
    /// denser and faster in software [default: 2, with --split 1].
    #[arg(long, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub codec: Option<u8>,
    /// Border between the 8-bit and the 16-bit values of codec 1: dense keeps as few bits as the
    /// bound allows, paper as many as INCEPTIONN published [default: dense].
    #[arg(long, value_parser = split())]
    pub split: Option<Split>,
    /// All settings of one system at once: inceptionn is codec 1 with the paper split and, for
    /// frames, in-place framing, exactly ToS 0x28, and a value at the start of every payload.
    #[arg(long, value_name = "NAME", value_parser = [INCEPTIONN], conflicts_with_all = ["codec", "split"])]
    pub profile: Option<String>,
}

/// The name of [`gradwire::rules::Rule::INCEPTIONN`].
const INCEPTIONN: &str = "inceptionn";

impl CodecChoice {
    /// The codec that the options name.
    ///
    /// # Errors
    /// A split for codec 2.
    pub fn codec(&self) -> Result<Codec, Error> {
        match (self.codec, self.split) {
            _ if self.profile.is_some() => Ok(Codec::Classes(Split::Paper)),
            (Some(1), split) => Ok(Codec::Classes(split.unwrap_or(Split::Dense))),
            (None, Some(split)) => Ok(Codec::Classes(split)),
            (_, None) => Ok(Codec::BitPlane),
            (Some(_), Some(_)) => {
                Err(Error::Usage("--split is a parameter of codec 1: leave it out, or say --codec 1".into()))
            }
        }
    }
}

/// A codec without the parameters that every codec has: bound and scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Codec 1, with its split.
    Classes(Split),
    /// Codec 2.
    BitPlane,
}

impl Codec {
    /// The codec at the bound `2^(x-b)`.
    ///
    /// # Errors
    /// The codec refuses it.
    pub fn profile(self, b: i16, x: i8) -> Result<Profile, Error> {
        let refused = |refused: &dyn Display| Error::Usage(format!("--bound {b} --scale {x}: {refused}"));
        match self {
            Self::Classes(split) => {
                // What does not fit into the type is as wrong as 0.
                let params = Params::new(u8::try_from(b).unwrap_or(0), split, x);
                params.map(Profile::SizeClass).map_err(|_| {
                    let expected = format!(
                        "codec 1 has bounds from {} to {} and scales from {} to {}",
                        Params::MIN_B,
                        Params::MAX_B,
                        Params::MIN_SCALE,
                        i8::MAX
                    );
                    refused(&expected)
                })
            }
            Self::BitPlane => {
                let bound = Bound::from_exponents(b.saturating_neg(), x);
                bound.map(Profile::BitPlane).map_err(|error| refused(&format!("codec 2: {error}")))
            }
        }
    }
}

/// Parses a bound as people write it: `10` and `2^-10` are the exponent 10; a decimal is rounded
/// down to a power of two, so that the bound that was asked for holds.
///
/// # Errors
/// None of the three.
pub(crate) fn exponent(text: &str) -> Result<i16, String> {
    let expected =
        || "expected an exponent as 10, a power of two as 2^-10, or a number above zero as 0.001".to_owned();
    if let Some(exponent) = text.strip_prefix("2^") {
        return exponent.parse().ok().and_then(i16::checked_neg).ok_or_else(expected);
    }
    if !text.contains(['.', 'e', 'E']) {
        return text.parse().map_err(|_| expected());
    }
    match text.parse::<f64>() {
        // The exponent of a normal number's bits: a logarithm may round.
        Ok(bound) if bound.is_normal() && bound > 0.0 => Ok(1023 - (bound.to_bits() >> 52) as i16),
        _ => Err(expected()),
    }
}

/// Parses a bound of codec 1.
pub(crate) fn bound() -> impl TypedValueParser<Value = u8> {
    StringValueParser::new().try_map(|text| {
        let b = exponent(&text)?;
        let of_codec_1 = u8::try_from(b).ok().filter(|b| (Params::MIN_B..=Params::MAX_B).contains(b));
        of_codec_1.ok_or_else(|| format!("{b} is not in {}..={}", Params::MIN_B, Params::MAX_B))
    })
}

fn split() -> impl TypedValueParser<Value = Split> {
    PossibleValuesParser::new(Split::ALL.map(Split::name))
        .try_map(|name| Split::from_name(&name).ok_or("no split"))
}

/// Opens a file to read.
pub(crate) fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|source| Error::io(path.display().to_string(), "read", source))
}

/// Reads until `buffer` is full or `input`, which messages call `name`, ends; how many bytes that
/// gave.
pub(crate) fn read_full(name: &str, input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, Error> {
    let mut at = 0;
    while at < buffer.len() {
        match input.read(&mut buffer[at..]) {
            Ok(0) => break,
            Ok(len) => at += len,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io(name, "read", error)),
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_an_exponent_a_power_of_two_or_a_number() {
        for (text, b) in [
            ("10", 10),
            ("-3", -3),
            ("2^-10", 10),
            ("2^3", -3),
            ("0.001", 10),
            ("0.0009765625", 10),
            ("1e-3", 10),
            ("1.0", 0),
            ("3.0", -1),
            ("0.0019", 10),
        ] {
            assert_eq!(exponent(text), Ok(b), "{text}");
        }
        for text in ["", "ten", "2^", "2^x", "0.0", "-0.1", "1e-320", "inf", "1e999", "99999", "2^99999"] {
            assert!(exponent(text).is_err(), "{text}");
        }
    }
}
