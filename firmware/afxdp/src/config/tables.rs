//! The tables of the configuration file, as they stand there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::Range;

use gradwire::codec::bit_plane::Bound;
use gradwire::codec::{Params, ParamsError, Split};
use gradwire::profile::Profile;
use gradwire::rules::{Alignment, Framing, Handshake, Heuristic, Rule, RulesError};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::errors::{Fault, NOT_IN_GENERIC};
use super::{METRICS_PORT, Mode, ZeroCopy};

/// The file as it stands.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct File {
    pub(super) mark: Option<Spanned<u8>>,
    pub(super) rule: Option<Vec<Spanned<RuleTable>>>,
    #[serde(default)]
    pub(super) path: PathTable,
    pub(super) metrics: Option<MetricsTable>,
}

impl File {
    /// The place in the file of the setting for which its rules are refused.
    pub(super) fn refused(&self, error: RulesError) -> Fault {
        let rules = self.rule.as_deref().unwrap_or_default();
        let rule = |index: usize| rules.get(index).map(Spanned::as_ref);
        let (place, remedy) = match error {
            RulesError::TooMany { .. } => (rules.last().map(Spanned::span), "remove some".to_owned()),
            RulesError::TosOutsideMask { index } => {
                let found = rule(index);
                let allowed = found.map_or(0, |rule| rule.tos.as_ref() & rule.mask());
                (
                    found.map(|rule| rule.tos.span()),
                    format!("with this mask it would be tos = {allowed:#04x}"),
                )
            }
            RulesError::MatchesMark { index, .. } => {
                (rule(index).map(|rule| rule.tos.span()), "choose another tos, or another mark".to_owned())
            }
            RulesError::Hidden { index } => {
                (rule(index).map(|rule| rule.tos.span()), "remove it, or move it before them".to_owned())
            }
            RulesError::UdpOffset { index } => (
                rule(index).and_then(|rule| rule.udp_offset.as_ref()).map(Spanned::span),
                "remove it, or write handshake = \"off\" if both ends restore".to_owned(),
            ),
            _ => (None, "see the manual".to_owned()),
        };
        Fault { at: place.unwrap_or_default(), found: format!("{error}; {remedy}") }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct RuleTable {
    tos: Spanned<u8>,
    profile: Option<Spanned<String>>,
    mask: Option<Spanned<u8>>,
    codec: Option<Spanned<u8>>,
    bound: Option<Spanned<i16>>,
    #[serde(default, deserialize_with = "split")]
    split: Option<Spanned<Split>>,
    scale: Option<Spanned<i8>>,
    #[serde(default, deserialize_with = "framing")]
    framing: Option<Spanned<Framing>>,
    #[serde(default, deserialize_with = "alignment")]
    alignment: Option<Spanned<Alignment>>,
    #[serde(default, deserialize_with = "handshake")]
    handshake: Option<Spanned<Handshake>>,
    #[serde(default, deserialize_with = "heuristic")]
    heuristic: Option<Spanned<Heuristic>>,
    udp: Option<Spanned<toml::Value>>,
    udp_offset: Option<Spanned<u8>>,
}

/// The value of a setting; `None` if nobody wrote it, whatever its default is.
fn given<T: Copy>(setting: &Option<Spanned<T>>) -> Option<T> {
    setting.as_ref().map(|setting| *setting.as_ref())
}

impl RuleTable {
    fn mask(&self) -> u8 {
        given(&self.mask).unwrap_or(Rule::DEFAULT.mask)
    }

    pub(super) fn rule(&self) -> Result<Rule, Fault> {
        if let Some(udp) = &self.udp {
            let found = "`udp` is no setting any more: `handshake = \"off\"` says that both ends restore, and compresses UDP too";
            return Err(Fault::at(udp, found));
        }
        if let Some(name) = &self.profile {
            return self.preset(name);
        }
        Ok(Rule {
            tos: *self.tos.as_ref(),
            mask: self.mask(),
            profile: self.coding(given(&self.codec), given(&self.split))?,
            framing: given(&self.framing).unwrap_or_default(),
            alignment: given(&self.alignment).unwrap_or_default(),
            handshake: given(&self.handshake).unwrap_or_default(),
            heuristic: given(&self.heuristic).unwrap_or_default(),
            udp_offset: self.udp_offset(),
        })
    }

    /// All settings of one system at once. Beside the name, a table may have a bound, a scale and a
    /// UDP offset.
    fn preset(&self, name: &Spanned<String>) -> Result<Rule, Fault> {
        let Rule { tos, mask, framing, alignment, handshake, heuristic, .. } = Rule::INCEPTIONN;
        if name.as_ref() != "inceptionn" {
            return Err(Fault::at(name, format!("profile `{}`, expected `inceptionn`", name.as_ref())));
        }
        if *self.tos.as_ref() != tos {
            return Err(Fault::at(&self.tos, format!("profile inceptionn has tos = {tos:#04x}")));
        }
        // What is written here would have no effect, also if it equals its default.
        let set_twice = [
            ("mask", self.mask.as_ref().map(Spanned::span)),
            ("codec", self.codec.as_ref().map(Spanned::span)),
            ("split", self.split.as_ref().map(Spanned::span)),
            ("framing", self.framing.as_ref().map(Spanned::span)),
            ("alignment", self.alignment.as_ref().map(Spanned::span)),
            ("handshake", self.handshake.as_ref().map(Spanned::span)),
            ("heuristic", self.heuristic.as_ref().map(Spanned::span)),
        ];
        if let Some((setting, at)) = set_twice.into_iter().find_map(|(setting, at)| Some((setting, at?))) {
            let found = format!(
                "profile inceptionn sets `{setting}`, and all others but bound, scale and udp-offset; remove `{setting}`, or the profile"
            );
            return Err(Fault { at, found });
        }
        let profile = self.coding(Some(1), Some(Split::Paper))?;
        Ok(Rule {
            tos,
            mask,
            profile,
            framing,
            alignment,
            handshake,
            heuristic,
            udp_offset: self.udp_offset(),
        })
    }

    fn udp_offset(&self) -> u8 {
        given(&self.udp_offset).unwrap_or(0)
    }

    /// The table's bound and scale under a codec: the one named, else codec 1 if there is a split,
    /// else codec 2.
    fn coding(&self, codec: Option<u8>, split: Option<Split>) -> Result<Profile, Fault> {
        let bound = given(&self.bound).unwrap_or(i16::from(Params::DEFAULT.b()));
        let scale = given(&self.scale).unwrap_or(Params::DEFAULT.x());
        let fault = |setting: Option<Range<usize>>, found: String| Fault {
            at: setting.unwrap_or(self.tos.span()),
            found,
        };
        let codec_at = self.codec.as_ref().map(Spanned::span);
        let bound_at = self.bound.as_ref().map(Spanned::span);
        let scale_at = self.scale.as_ref().map(Spanned::span);
        match (codec, split) {
            (Some(1), split) => classes(bound, split.unwrap_or_default(), scale),
            (None, Some(split)) => classes(bound, split, scale),
            (None | Some(2), None) => Bound::from_exponents(bound.saturating_neg(), scale)
                .map(Profile::BitPlane)
                .map_err(|refused| (Wrong::Bound, format!("codec 2: {refused}"))),
            (Some(2), Some(_)) => {
                Err((Wrong::Codec, "codec 2 has no split; remove it, or write codec = 1".to_owned()))
            }
            (Some(other), _) => Err((Wrong::Codec, format!("codec {other}, expected 1 or 2"))),
        }
        .map_err(|(wrong, found)| match wrong {
            Wrong::Codec => fault(codec_at, found),
            Wrong::Bound => fault(bound_at.or(scale_at), found),
            Wrong::Scale => fault(scale_at, found),
        })
    }
}

/// The setting that is to blame.
enum Wrong {
    Codec,
    Bound,
    Scale,
}

fn classes(bound: i16, split: Split, scale: i8) -> Result<Profile, (Wrong, String)> {
    // What does not fit into the type is as wrong as 0.
    let params = Params::new(u8::try_from(bound).unwrap_or(0), split, scale);
    params.map(Profile::SizeClass).map_err(|refused| match refused {
        ParamsError::Scale { .. } => (Wrong::Scale, refused.to_string()),
        _ => (Wrong::Bound, format!("bound {bound}, expected 1 to 14 with codec 1")),
    })
}

/// A setting that is one of `all`, by its name: the dataplane, which knows no serde, has the names.
/// A refusal lists the default first.
fn named<'de, T: Copy + Default + PartialEq, D: Deserializer<'de>>(
    text: D,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<Option<Spanned<T>>, D::Error> {
    let given = Spanned::<String>::deserialize(text)?;
    let one = all.iter().copied().find(|one| name(*one) == given.as_ref()).ok_or_else(|| {
        let mut names = all.to_vec();
        names.sort_by_key(|one| *one != T::default());
        let names = names.into_iter().map(|one| format!("`{}`", name(one))).collect::<Vec<_>>();
        D::Error::custom(format!("unknown variant `{}`, expected {}", given.as_ref(), names.join(" or ")))
    })?;
    Ok(Some(Spanned::new(given.span(), one)))
}

fn split<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Spanned<Split>>, D::Error> {
    named(text, &Split::ALL, Split::name)
}

fn framing<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Spanned<Framing>>, D::Error> {
    named(text, &Framing::ALL, Framing::name)
}

fn handshake<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Spanned<Handshake>>, D::Error> {
    named(text, &Handshake::ALL, Handshake::name)
}

fn heuristic<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Spanned<Heuristic>>, D::Error> {
    named(text, &Heuristic::ALL, Heuristic::name)
}

fn alignment<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Spanned<Alignment>>, D::Error> {
    named(text, &Alignment::ALL, Alignment::name)
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct PathTable {
    pub(super) mode: Mode,
    pub(super) zero_copy: Option<Spanned<toml::Value>>,
    pub(super) threads: Option<Spanned<NonZeroU32>>,
    pub(super) busy_poll_us: Option<Spanned<u32>>,
    pub(super) bypass_filter: Option<Spanned<bool>>,
}

impl PathTable {
    pub(super) fn zero_copy(&self) -> Result<ZeroCopy, Fault> {
        let Some(given) = &self.zero_copy else { return Ok(ZeroCopy::default()) };
        let Ok(value) = given.as_ref().clone().try_into() else {
            let is = match given.as_ref() {
                toml::Value::String(text) => format!("{text:?}"),
                toml::Value::Boolean(flag) => flag.to_string(),
                other => format!("of type {}", other.type_str()),
            };
            let found = format!(
                "zero-copy {is}, expected \"auto\" (where it was tried), \"on\" (as true was: wherever a driver offers it) or \"off\" \
                 (as false was)"
            );
            return Err(Fault::at(given, found));
        };
        if value == ZeroCopy::On && self.mode == Mode::Generic {
            return Err(Fault::at(given, format!("{NOT_IN_GENERIC}; remove one")));
        }
        Ok(value)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct MetricsTable {
    pub(super) address: IpAddr,
    pub(super) port: Option<u16>,
}

impl Default for MetricsTable {
    fn default() -> Self {
        Self { address: IpAddr::V4(Ipv4Addr::LOCALHOST), port: None }
    }
}

impl MetricsTable {
    /// The address of the endpoint, and whether one of the next ports would do.
    pub(super) fn endpoint(table: Option<&Self>) -> (Option<SocketAddr>, bool) {
        let at = table.map(|table| SocketAddr::new(table.address, table.port.unwrap_or(METRICS_PORT)));
        (at, table.is_some_and(|table| table.port.is_none()))
    }
}
