//! Rules: which type of service asks for which treatment.

use core::fmt;

use heapless::Vec;

use crate::codec::{Params, Split};
use crate::profile::Profile;

/// The low two bits of a type of service (IPv6: traffic class) are ECN (RFC 3168): routers set
/// them, and nothing here changes them.
pub const ECN: u8 = 0x03;
/// The default type of service of gradient sockets: AF11.
pub const DEFAULT_TOS: u8 = 0x28;
/// The default mark of compressed frames in routed framing: AF12, the same forwarding class as
/// AF11, so routers do not reorder the two.
pub const DEFAULT_MARK: u8 = 0x30;
/// The most rules that one engine takes.
pub const MAX_RULES: usize = 16;

/// The form of headers on the wire (FORMAT.md §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Framing {
    /// No header byte changes; the frame is shorter than its IP length says. Layer-2 neighbours
    /// only.
    InPlace,
    /// Lengths and checksums are right for the shorter packet, a segment header stands before the
    /// payload, and the type of service is the mark. Crosses routers and NATs.
    #[default]
    Routed,
}

impl Framing {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::InPlace, Self::Routed];

    /// Its name in options, configuration files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InPlace => "in-place",
            Self::Routed => "routed",
        }
    }

    /// The framing of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|framing| framing.name() == name)
    }
}

/// The source of the start of a TCP stream's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Alignment {
    /// The first byte after the connection's SYN starts a value, and every fourth after it.
    #[default]
    Connection,
    /// Every segment's payload starts with a value: for senders that never let TCP cut one. Without
    /// a handshake no SYN need have been seen; the first tagged segment then fixes the alignment.
    /// Segments that are not aligned with it go untouched.
    Payload,
}

impl Alignment {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Connection, Self::Payload];

    /// Its name in options, configuration files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Payload => "payload",
        }
    }

    /// Its number in the handshake's option.
    const fn number(self) -> u8 {
        match self {
            Self::Connection => 0,
            Self::Payload => 1,
        }
    }

    /// The alignment of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|alignment| alignment.name() == name)
    }
}

/// The way in which a sender knows that the far end restores its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Handshake {
    /// The far end of a TCP connection says so on its SYN (FORMAT.md §5.5); what nobody has said so
    /// of goes untouched, as does UDP, which has no SYN.
    #[default]
    Required,
    /// Both ends are configured alike: nothing is said or asked for, and UDP is compressed too. A
    /// TCP connection whose peer does not restore falls back to ordinary segments. UDP sends
    /// nothing again, so nothing shows that its datagrams are lost.
    Off,
}

impl Handshake {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Required, Self::Off];

    /// Its name in options, configuration files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Off => "off",
        }
    }

    /// The handshake of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|handshake| handshake.name() == name)
    }
}

/// The payload heuristic: whether a sender checks that a payload looks like values before it
/// compresses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Heuristic {
    /// Payload that does not look like values goes untouched, and so does all that its connection
    /// sends after it (FORMAT.md §5.1, S9).
    #[default]
    On,
    /// No check: whatever is tagged is values. Saves a pass over every word.
    Off,
}

impl Heuristic {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::On, Self::Off];

    /// Its name in options, configuration files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }

    /// The setting of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|heuristic| heuristic.name() == name)
    }
}

/// One rule: frames whose type of service equals `tos` under `mask` get this treatment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct Rule {
    /// The type of service looked for.
    pub tos: u8,
    /// Which of its bits count; 0xfc ignores ECN.
    pub mask: u8,
    /// The codec and its parameters. In-place framing: the same at both ends.
    pub profile: Profile,
    /// Framing of compressed frames.
    pub framing: Framing,
    /// The start of values in a TCP stream.
    pub alignment: Alignment,
    /// The way to know that the far end restores.
    #[cfg_attr(feature = "arbitrary", arbitrary(value = Handshake::Off))]
    pub handshake: Handshake,
    /// The payload heuristic.
    #[cfg_attr(feature = "arbitrary", arbitrary(value = Heuristic::Off))]
    pub heuristic: Heuristic,
    /// Bytes at the start of every UDP payload that are not values; sent raw. In-place framing: the
    /// same at both ends. 0 if a handshake is required, since UDP has none.
    pub udp_offset: u8,
}

impl Rule {
    /// ToS 0x28 under 0xfc, the default profile, routed framing, a handshake required: TCP only.
    pub const DEFAULT: Self = Self {
        tos: DEFAULT_TOS,
        mask: !ECN,
        profile: Profile::DEFAULT,
        framing: Framing::Routed,
        alignment: Alignment::Connection,
        handshake: Handshake::Required,
        heuristic: Heuristic::On,
        udp_offset: 0,
    };

    /// The NIC of the paper (Li et al., MICRO 2018), as FORMAT.md §3.6 has it, and as far as
    /// docs/papers.md does not list it as something that cannot be had: paper split, in-place
    /// framing, exactly ToS 0x28, every payload starts with a value, and both ends are known to
    /// restore. Settings that name it `profile = "inceptionn"` may choose another bound.
    pub const INCEPTIONN: Self = Self {
        tos: DEFAULT_TOS,
        mask: u8::MAX,
        profile: match Params::new(Params::DEFAULT.b(), Split::Paper, 0) {
            Ok(params) => Profile::SizeClass(params),
            Err(_) => Profile::DEFAULT,
        },
        framing: Framing::InPlace,
        alignment: Alignment::Payload,
        handshake: Handshake::Off,
        heuristic: Heuristic::Off,
        udp_offset: 0,
    };

    /// [`Rule::DEFAULT`] for hosts that are configured alike at both ends, as the paper's are:
    /// without a handshake.
    pub const STATIC: Self = Self { handshake: Handshake::Off, ..Self::DEFAULT };

    /// Whether frames of this type of service are its.
    pub(crate) const fn matches(&self, tos: u8) -> bool {
        (tos ^ self.tos) & self.mask == 0
    }

    /// The parameters that both ends must share under in-place framing: codec, its two parameters,
    /// alignment. None under routed framing.
    pub(crate) const fn in_place(&self) -> Option<[u8; 4]> {
        let [codec, first, second] = self.profile.to_bytes();
        match self.framing {
            Framing::InPlace => Some([codec, first, second, self.alignment.number()]),
            Framing::Routed => None,
        }
    }
}

impl Default for Rule {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A checked list of rules, the first match first, and the mark of compressed frames.
#[derive(Clone, Debug)]
pub struct Rules {
    list: Vec<Rule, MAX_RULES>,
    /// Index into `list` by type of service; `NONE` if no rule matches.
    by_tos: [u8; 256],
    mark: u8,
}

const NONE: u8 = u8::MAX;

impl Rules {
    /// Checks `rules` and `mark`, whose ECN bits are ignored.
    ///
    /// # Errors
    /// More than [`MAX_RULES`] rules; a rule whose `tos` has bits outside its `mask` or that
    /// matches the mark; a rule that earlier rules hide; a rule for TCP alone with an offset for
    /// UDP.
    pub fn new(rules: &[Rule], mark: u8) -> Result<Self, RulesError> {
        let mark = mark & !ECN;
        let list = Vec::from_slice(rules).map_err(|_| RulesError::TooMany { got: rules.len() })?;
        let mut by_tos = [NONE; 256];
        for (index, rule) in rules.iter().enumerate() {
            if rule.tos & !rule.mask != 0 {
                return Err(RulesError::TosOutsideMask { index });
            }
            if rule.handshake == Handshake::Required && rule.udp_offset != 0 {
                return Err(RulesError::UdpOffset { index });
            }
            let mut reached = false;
            for (tos, slot) in (0..=u8::MAX).zip(&mut by_tos) {
                if !rule.matches(tos) {
                    continue;
                }
                if tos & !ECN == mark {
                    return Err(RulesError::MatchesMark { index, mark });
                }
                if *slot == NONE {
                    *slot = index as u8;
                    reached = true;
                }
            }
            if !reached {
                return Err(RulesError::Hidden { index });
            }
        }
        Ok(Self { list, by_tos, mark })
    }

    /// The first rule that matches this type of service.
    #[must_use]
    pub fn find(&self, tos: u8) -> Option<&Rule> {
        self.find_indexed(tos).map(|(_, rule)| rule)
    }

    /// The first rule that matches, and its place in the list.
    pub(crate) fn find_indexed(&self, tos: u8) -> Option<(usize, &Rule)> {
        let index = usize::from(*self.by_tos.get(usize::from(tos))?);
        self.list.get(index).map(|rule| (index, rule))
    }

    /// Whether this type of service is the mark of compressed frames.
    #[must_use]
    pub const fn is_mark(&self, tos: u8) -> bool {
        tos & !ECN == self.mark
    }

    /// The mark, with ECN bits 0.
    #[must_use]
    pub const fn mark(&self) -> u8 {
        self.mark
    }

    /// Whether under one of the rules payload alone opens a flow: no SYN need have been seen, and
    /// nobody has to say that it restores.
    // No field: with one more here, the compiler builds the engine of firmware on the stack, which
    // cannot hold it.
    pub(crate) fn opens_by_payload(&self) -> bool {
        self.list.iter().any(|rule| rule.alignment == Alignment::Payload && rule.handshake == Handshake::Off)
    }

    /// Whether one of the rules has in-place framing.
    pub(crate) fn any_in_place(&self) -> bool {
        self.list.iter().any(|rule| rule.framing == Framing::InPlace)
    }

    /// The rules, in the order of their precedence.
    #[must_use]
    pub fn as_slice(&self) -> &[Rule] {
        &self.list
    }
}

/// Why a list of rules was refused.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum RulesError {
    /// More than [`MAX_RULES`] rules.
    TooMany {
        /// The number found.
        got: usize,
    },
    /// A rule looks for bits that its mask ignores.
    TosOutsideMask {
        /// Its place in the list, from 0.
        index: usize,
    },
    /// A rule matches the mark of compressed frames.
    MatchesMark {
        /// Its place in the list, from 0.
        index: usize,
        /// The mark.
        mark: u8,
    },
    /// Earlier rules match all that this one would.
    Hidden {
        /// Its place in the list, from 0.
        index: usize,
    },
    /// A rule that requires a handshake, which UDP does not have, says where UDP's values start.
    UdpOffset {
        /// Its place in the list, from 0.
        index: usize,
    },
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooMany { got } => write!(f, "{got} rules, expected at most {MAX_RULES}"),
            Self::TosOutsideMask { index } => write!(f, "rule {index}: tos has bits outside its mask"),
            Self::MatchesMark { index, mark } => write!(f, "rule {index}: matches the mark {mark:#04x}"),
            Self::Hidden { index } => write!(f, "rule {index}: earlier rules match all of it"),
            Self::UdpOffset { index } => {
                write!(f, "rule {index}: an offset for UDP, which needs handshake off")
            }
        }
    }
}

impl core::error::Error for RulesError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_counts() {
        let rule = |tos, mask| Rule { tos, mask, ..Rule::DEFAULT };
        // Each also matches what those before it match, but for the last.
        let list = [rule(0x29, 0xff), rule(0x28, 0xfe), rule(0x28, 0xfc), rule(0x20, 0xf0), rule(0x80, 0x80)];
        let rules = Rules::new(&list, DEFAULT_MARK).unwrap();
        for tos in 0..=u8::MAX {
            let expected = match tos {
                0x29 => Some(0),
                0x28 => Some(1),
                0x2a | 0x2b => Some(2),
                0x20..=0x2f => Some(3),
                0x80.. => Some(4),
                _ => None,
            };
            assert_eq!(rules.find_indexed(tos).map(|(index, _)| index), expected, "{tos:#x}");
        }
    }

    #[test]
    fn contradictory_rules_are_refused() {
        let rules = |list: &[Rule]| Rules::new(list, DEFAULT_MARK).map(|_| ());
        let tos = |tos, mask| Rule { tos, mask, ..Rule::DEFAULT };
        assert_eq!(rules(&[Rule::DEFAULT, Rule::INCEPTIONN]), Err(RulesError::Hidden { index: 1 }));
        assert_eq!(rules(&[Rule::INCEPTIONN, Rule::DEFAULT]), Ok(()));
        assert_eq!(rules(&[tos(0x29, 0xfc)]), Err(RulesError::TosOutsideMask { index: 0 }));
        // Whatever its ECN bits, the mark is the mark.
        for matching in [tos(0x30, 0xfc), tos(0x31, 0xff), tos(0, 0)] {
            assert_eq!(rules(&[matching]), Err(RulesError::MatchesMark { index: 0, mark: 0x30 }));
        }
        let many: std::vec::Vec<Rule> = (0..17).map(|place| tos(place << 2 | 0x80, 0xfc)).collect();
        assert_eq!(rules(&many), Err(RulesError::TooMany { got: 17 }));
        assert_eq!(rules(&many[..16]), Ok(()));
    }

    #[test]
    fn names_name_what_they_name() {
        for handshake in Handshake::ALL {
            assert_eq!(Handshake::from_name(handshake.name()), Some(handshake));
        }
        for heuristic in Heuristic::ALL {
            assert_eq!(Heuristic::from_name(heuristic.name()), Some(heuristic));
        }
        assert_eq!((Handshake::from_name("none"), Heuristic::from_name("none")), (None, None));
    }
}
