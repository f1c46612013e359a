//! Codings: a tensor's values become bytes.

use std::fmt;
use std::str::FromStr;

use gradwire::codec::bit_plane::Bound;
use gradwire::codec::{Params, Split};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire::sums::Summable;
use gradwire_codecs::{Chosen, Codec, Malformed, NameError, Raw, Registry};

use crate::part::Codecs;
use crate::strategies::Strategy;

/// The coding of a tensor: above the transport, or by the network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Coding {
    /// A host codec, on connections that are not tagged.
    Host(Chosen),
    /// `wire:C:B[:X]`: `f32` on tagged connections, which the dataplane compresses with this
    /// profile. The owner of a result does to its own copy what the network does to the others'.
    Wire(Wire),
}

/// The profile of `wire:C:B[:X]`. It prints so.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Wire {
    profile: Profile,
    c: u8,
    b: i16,
    x: i8,
}

impl Wire {
    /// Its text.
    pub const USAGE: &str = "wire:C:B[:X], C is the dataplane's codec 1 or 2, its bound is 2^(X-B)";
    /// Values that are coded together, so that a copy stays in the nearest cache.
    const CHUNK: usize = 1024;

    /// Codec 1 or 2 with the bound `2^(x-b)`.
    #[must_use]
    pub fn new(c: u8, b: i16, x: i8) -> Option<Self> {
        let profile = match c {
            1 => Params::new(u8::try_from(b).ok()?, Split::Dense, x).ok().map(Profile::SizeClass),
            2 => Bound::from_exponents(b.checked_neg()?, x).ok().map(Profile::BitPlane),
            _ => None,
        };
        profile.map(|profile| Self { profile, c, b, x })
    }

    /// The dataplane's profile.
    #[must_use]
    pub const fn profile(self) -> Profile {
        self.profile
    }

    /// The profile where values are summed.
    pub(crate) fn summable(self) -> Summable {
        self.profile.try_into().expect("the dense split has a small byte offset")
    }
}

/// `wire:2:10`, the bound of 2^-10.
impl Default for Wire {
    fn default() -> Self {
        Self::new(2, 10, 0).expect("a bound of codec 2")
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wire:{}:{}", self.c, self.b)?;
        if self.x == 0 { Ok(()) } else { write!(f, ":{}", self.x) }
    }
}

/// Values as they are, after they went through the profile: sent through a network that compresses
/// with it, they do not change.
impl Codec for Wire {
    fn bound(&self, n: usize) -> usize {
        Raw.bound(n)
    }

    fn feeds_back(&self) -> bool {
        false
    }

    fn encode(&self, acc: &mut [f32], _state: &mut [f32], _seed: u64, out: &mut [u8]) -> usize {
        let kernel = Kernel::detect();
        let mut coded = vec![0; self.profile.max_encoded_len(4 * Self::CHUNK)];
        let out = &mut out[..4 * acc.len()];
        for (values, out) in acc.chunks_mut(Self::CHUNK).zip(out.chunks_mut(4 * Self::CHUNK)) {
            let len = Raw.encode(&mut values.to_vec(), &mut [], 0, out);
            let coded_len = kernel.encode(&out[..len], &mut coded, self.profile).expect("there is room");
            kernel.decode(&coded[..coded_len], out, self.profile).expect("just encoded");
            for (value, sent) in values.iter_mut().zip(out.as_chunks().0) {
                let lost = *value - f32::from_le_bytes(*sent);
                *value = if lost.is_finite() { lost } else { 0.0 };
            }
        }
        out.len()
    }

    fn merge(&self, src: &[u8], sum: &mut [f32]) -> Result<usize, Malformed> {
        Raw.merge(src, sum)
    }
}

impl Coding {
    /// Values as they are.
    ///
    /// # Panics
    /// Never: `f32` is built in.
    #[must_use]
    pub fn exact() -> Self {
        Self::parse("f32", Registry::BUILT_IN).expect("f32 is a codec")
    }

    /// The coding that `text` names, with the host codecs of `registry`.
    ///
    /// # Errors
    /// It names none.
    pub fn parse(text: &str, registry: Registry) -> Result<Self, CodingError> {
        if text == "wire" || text.starts_with("wire:") {
            let numbers: Option<Vec<i16>> = text.split(':').skip(1).map(|word| word.parse().ok()).collect();
            let small = |number: &i16| i8::try_from(*number).ok();
            let wire = numbers.and_then(|numbers| match &numbers[..] {
                [c, b] => Wire::new(u8::try_from(*c).ok()?, *b, 0),
                [c, b, x] => Wire::new(u8::try_from(*c).ok()?, *b, small(x)?),
                _ => None,
            });
            return wire.map(Self::Wire).ok_or_else(|| CodingError::Wire { got: text.to_owned() });
        }
        registry.codec(text).map(Self::Host).map_err(|error| {
            let others = matches!(error, NameError::Unknown { .. });
            let more = if others { format!(", and {}", Wire::USAGE) } else { String::new() };
            CodingError::Codec { why: format!("{error}{more}") }
        })
    }

    /// The codecs that a graph runs with.
    #[must_use]
    pub fn codecs(&self) -> Codecs<'_> {
        match self {
            Self::Host(codec) => Codecs::both(codec),
            Self::Wire(wire) => Codecs { partial: &Raw, result: wire },
        }
    }

    /// The codec that gradients are given to.
    #[must_use]
    pub fn codec(&self) -> &dyn Codec {
        self.codecs().result
    }

    /// Does the network compress it, so that it goes on tagged connections?
    #[must_use]
    pub const fn is_tagged(&self) -> bool {
        matches!(self, Self::Wire(_))
    }

    /// The ranks of a group, between which it goes on tagged connections by this strategy, if it
    /// does.
    pub(crate) fn tagged_group(&self, strategy: Strategy) -> Option<usize> {
        strategy.tagged_group().filter(|_| self.is_tagged())
    }

    /// Is nothing lost?
    #[must_use]
    pub fn is_exact(&self) -> bool {
        matches!(self, Self::Host(codec) if codec.name() == "f32")
    }

    /// Does the pair make sense?
    ///
    /// # Errors
    /// It does not; the error says why, and what would.
    pub fn check(&self, strategy: Strategy) -> Result<(), CodingError> {
        let refuse = |why| Err(CodingError::Pair { strategy, coding: self.to_string(), why });
        if self.is_tagged() && strategy.tagged_group().is_none() {
            return refuse(
                "only connections of rings are tagged: use the strategy ring or hierarchy:GROUP, or a host codec such as bounded:10",
            );
        }
        if !strategy.one_encodes() && !self.is_exact() {
            return refuse(
                "several ranks would encode one sum, and their residuals would count more than once: use f32, or halving-doubling",
            );
        }
        Ok(())
    }
}

impl FromStr for Coding {
    type Err = CodingError;

    fn from_str(text: &str) -> Result<Self, CodingError> {
        Self::parse(text, Registry::BUILT_IN)
    }
}

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(codec) => codec.fmt(f),
            Self::Wire(wire) => wire.fmt(f),
        }
    }
}

/// Why values are not coded so.
#[non_exhaustive]
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what is wrong")]
pub enum CodingError {
    /// No such host codec.
    #[error("{why}")]
    Codec { why: String },
    /// No such profile of the network.
    #[error("codec '{got}': expected {}", Wire::USAGE)]
    Wire { got: String },
    /// A pair that makes no sense.
    #[error("strategy {strategy} with codec {coding}: {why}")]
    Pair { strategy: Strategy, coding: String, why: &'static str },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_went_through_the_profile_do_not_change_again() {
        for text in ["wire:2:10", "wire:1:8:3", "wire:2:6:-2"] {
            let coding = Coding::parse(text, Registry::BUILT_IN).unwrap();
            assert_eq!(coding.to_string(), text);
            let mut values: Vec<f32> = (0..3000).map(|i| ((i * 7919) % 2003) as f32 / 700.0 - 1.4).collect();
            values[1] = f32::INFINITY;
            values[2] = f32::NAN;
            let mut first = vec![0; 12_000];
            coding.codec().encode(&mut values, &mut [], 0, &mut first);
            assert!(values.iter().any(|&lost| lost != 0.0) && values.iter().all(|lost| lost.is_finite()));
            let mut sent = vec![0.0; 3000];
            coding.codec().merge(&first, &mut sent).unwrap();
            let mut second = vec![0; 12_000];
            coding.codec().encode(&mut sent, &mut [], 0, &mut second);
            assert!(first == second, "{text}");
        }
    }
}
