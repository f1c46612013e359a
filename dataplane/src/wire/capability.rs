//! The handshake's option: what a host advertises on a SYN (FORMAT.md §5.5).
//!
//! ```text
//! 0     1     2      3        4                5        6                     10              12
//! | NOP | NOP | 253  | 10     | ExID 0x6777    | version, framings | codecs   | in-place: codec, parameters, alignment |
//! ```

use core::num::NonZero;

use super::tcp_options::{TcpOptions, bind_payload};

/// Bytes by which a SYN that carries a capability is longer: the option, and two NOPs before it.
pub const CAPABILITY_LEN: usize = 12;
/// Bytes of the option itself.
const OPTION_LEN: usize = 10;
const NOP: u8 = 1;
/// One of the two kinds that experiments share (RFC 6994).
const KIND: u8 = 253;
/// Which experiment it is.
const EXID: [u8; 2] = [0x67, 0x77];
/// The version this build writes, and the only one it reads; the upper four bits of their byte.
const VERSION: u8 = 1;
/// Routed framing is restored; a bit of the lower four.
const ROUTED: u8 = 0x01;
/// In-place framing with the parameters of [`Capability::in_place`] is restored.
const IN_PLACE: u8 = 0x02;

/// The codecs that this build restores.
const CODECS: u8 = 0b11;

/// The codecs and framings that a host restores, as it advertises them on a SYN.
// Its one niche is zero, so that an empty flow is all zeros: a large table is then made in its
// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Capability {
    /// As the option has them, with the version.
    framings: NonZero<u8>,
    codecs: u8,
    parameters: [u8; 4],
}

impl Capability {
    /// Of a host that restores these codecs (bit c-1 for codec c) in routed framing if it is
    /// `routed`, and in-place frames with this codec, its two parameter bytes and this alignment.
    #[must_use]
    pub(crate) const fn new(routed: bool, codecs: u8, in_place: Option<[u8; 4]>) -> Self {
        const VERSION_ALONE: NonZero<u8> = NonZero::new(VERSION << 4).unwrap();
        let routed = if routed { ROUTED } else { 0 };
        let (in_place, parameters) = match in_place {
            Some(parameters) => (IN_PLACE, parameters),
            None => (0, [0; 4]),
        };
        Self { framings: VERSION_ALONE.saturating_add(routed | in_place), codecs, parameters }
    }

    /// Of a host that restores all codecs of this build in routed framing, and in-place frames with
    /// these parameters.
    #[must_use]
    pub(crate) const fn of(in_place: Option<[u8; 4]>) -> Self {
        Self::new(true, CODECS, in_place)
    }

    /// Whether it restores routed framing.
    #[must_use]
    pub const fn routed(self) -> bool {
        self.framings.get() & ROUTED != 0
    }

    /// The codecs that it restores in routed framing: bit c-1 for codec c.
    #[must_use]
    pub const fn codecs(self) -> u8 {
        self.codecs
    }

    /// The codec, its two parameter bytes and the alignment of frames with in-place framing; none
    /// if it restores none.
    #[must_use]
    pub const fn in_place(self) -> Option<[u8; 4]> {
        if self.framings.get() & IN_PLACE != 0 { Some(self.parameters) } else { None }
    }

    /// Its option behind two NOPs, which keep it and what follows it aligned.
    #[must_use]
    pub const fn to_options(self) -> [u8; CAPABILITY_LEN] {
        let [exid_high, exid_low] = EXID;
        let [codec, first, second, alignment] = self.parameters;
        let (len, framings) = (OPTION_LEN as u8, self.framings.get());
        [NOP, NOP, KIND, len, exid_high, exid_low, framings, self.codecs, codec, first, second, alignment]
    }

    /// Whether routed frames of this codec are restored.
    #[must_use]
    pub(crate) const fn restores(self, codec: u8) -> bool {
        // Codec 0 does not exist.
        self.routed() && (self.codecs as u32) << 1 & 1u32.unbounded_shl(codec as u32) != 0
    }

    /// The capability among the options of a SYN, and what has to be taken out for it.
    ///
    /// None if there is no such option, or it cannot be relied on: it is cut short or repeated, of
    /// another length or version, or stands among options that bind the payload or cannot be
    /// understood.
    #[must_use]
    pub fn find(options: &[u8]) -> Option<(Self, OptionPlace)> {
        if bind_payload(options) {
            return None;
        }
        let mut ours = TcpOptions::new(options).filter(|(_, option)| is_ours(option));
        let (at, option) = ours.next()?;
        let &[_, len, _, _, framings, codecs, ref in_place @ ..] = option.first_chunk::<OPTION_LEN>()?;
        if usize::from(len) != OPTION_LEN || framings >> 4 != VERSION || ours.next().is_some() {
            return None;
        }
        let in_place = (framings & IN_PLACE != 0).then_some(*in_place);
        // Two bytes before the first option are NOPs.
        let place = if at == CAPABILITY_LEN - OPTION_LEN {
            OptionPlace::First
        } else {
            OptionPlace::Elsewhere { at }
        };
        Some((Self::new(framings & ROUTED != 0, codecs, in_place), place))
    }

    /// Whether the options of a SYN have a capability option, right or wrong.
    #[must_use]
    pub(crate) fn is_among(options: &[u8]) -> bool {
        TcpOptions::new(options).any(|(_, option)| is_ours(option))
    }
}

/// The place where a capability option was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionPlace {
    /// The place where an egress puts it: first, behind its two NOPs.
    First,
    /// Elsewhere: somebody on the way has moved it, or put something before it.
    Elsewhere {
        /// The start of the option.
        at: usize,
    },
}

impl OptionPlace {
    /// The place and number of the bytes to take out, and their replacement: nothing, or as many
    /// NOPs.
    #[must_use]
    pub(crate) const fn removal(self) -> (usize, usize, &'static [u8]) {
        match self {
            Self::First => (0, CAPABILITY_LEN, &[]),
            Self::Elsewhere { at } => (at, OPTION_LEN, &[NOP; OPTION_LEN]),
        }
    }
}

/// Whether an option is of this experiment, whatever else it says.
fn is_ours(option: &[u8]) -> bool {
    matches!(option, [KIND, _, exid @ ..] if exid.starts_with(&EXID))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    /// This build advertises all that it restores.
    #[test]
    fn a_capability_names_the_codecs_that_there_are() {
        let capability = Capability::of(None);
        for codec in 0..=u8::MAX {
            let mut parameters = (0..=u16::MAX).map(u16::to_be_bytes);
            let known = parameters.any(|[first, second]| Profile::from_bytes([codec, first, second]).is_ok());
            assert_eq!(capability.restores(codec), known, "{codec}");
        }
    }

    /// Capabilities that are written are read alike, with and without in-place framing.
    #[test]
    fn a_capability_is_found_as_it_was_written() {
        for capability in [Capability::of(None), Capability::of(Some([2, 0, 0xf6, 1]))] {
            assert_eq!(Capability::find(&capability.to_options()), Some((capability, OptionPlace::First)));
        }
    }
}
