//! The configuration file: TOML, checked before anything is touched. Every error names file, line and remedy.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use gradwire::codec::planar::Bound;
use gradwire::codec::{Params, ParamsError, Split};
use gradwire::profile::Profile;
use gradwire::rules::{Contents, DEFAULT_MARK, ECN, Framing, Grid, Handshake, Rule, Rules, RulesError};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

mod node;

pub use node::{Group, HostAddress, JOBS, NoGroup, NoHostAddress, NodeConfig, NodePlace};

/// The port of the Prometheus endpoint if the file names none; if another shim has it, the next free one.
pub const METRICS_PORT: u16 = 9407;

/// Codec 2 at the bound that codec 1 has by default. Hosts have the processors for the denser codec.
pub const DEFAULT_PROFILE: Profile = match Bound::new(-10) {
    Ok(bound) => Profile::Planar(bound),
    Err(_) => Profile::DEFAULT,
};

/// What `gradwire-xdp run` does, but for the names of its ports.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which frames are compressed, and how; the mark of compressed frames. The one part that is taken over when
    /// the file is read again.
    pub rules: Rules,
    /// How the XDP program is attached.
    pub mode: Mode,
    /// Which drivers that can are to hand over frames without a copy.
    pub zero_copy: ZeroCopy,
    /// The most threads to run; one for each pair of queues, if there is no number.
    pub threads: Option<NonZeroU32>,
    /// How long the kernel polls the driver at each call: for cores that do nothing else.
    pub busy_poll: Option<Duration>,
    /// Whether it runs although tagged connections pass by a filter between its ports.
    pub bypass_filter: bool,
    /// Where the Prometheus endpoint listens.
    pub metrics: Option<SocketAddr>,
    /// Whether it may listen on one of the next ports if that one is taken: the file names none.
    pub any_metrics_port: bool,
}

/// How an XDP program is attached to a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// In the driver; if it cannot, in the kernel's generic path, and said so.
    #[default]
    Auto,
    /// In the driver, or not at all.
    Native,
    /// In the kernel's generic path: slower, but for every driver.
    Generic,
}

/// Which drivers hand over frames without a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ZeroCopy {
    /// Those that it was tried with.
    #[default]
    Auto,
    /// All that offer it, tried or not.
    On,
    /// None.
    Off,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

impl Default for Config {
    /// [`Rule::DEFAULT`] with codec 2, the default mark, no metrics.
    fn default() -> Self {
        Self::of(&File::default()).expect("the defaults are valid: a test loads them")
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file cannot be read, is no TOML, has settings that are not known, or values that are refused.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(&read(path)?, path)
    }

    /// The configuration in a file; without a file, the default.
    ///
    /// # Errors
    /// Those of [`Config::load`].
    pub fn load_or_default(path: Option<&Path>) -> Result<Self, ConfigError> {
        path.map_or_else(|| Ok(Self::default()), Self::load)
    }

    /// Checks the text of a file; errors name `path`.
    ///
    /// # Errors
    /// [`ConfigError::Refused`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        tables(text).and_then(|file| Self::of(&file)).map_err(|fault| fault.refused(text, path))
    }

    fn of(file: &File) -> Result<Self, Fault> {
        let rules = match &file.rule {
            None => vec![Rule { profile: DEFAULT_PROFILE, ..Rule::DEFAULT }],
            Some(rules) => rules.iter().map(|rule| rule.as_ref().rule()).collect::<Result<_, _>>()?,
        };
        let mark = file.mark.as_ref().map_or(DEFAULT_MARK, |mark| *mark.as_ref());
        if let Some(given) = &file.mark
            && mark & ECN != 0
        {
            let found =
                format!("mark {mark:#04x} has ECN bits, which routers change; expected {:#04x}", mark & !ECN);
            return Err(Fault::at(given, found));
        }
        let rules = Rules::new(&rules, mark).map_err(|refused| file.refused(refused))?;
        let forwarding = &file.path;
        let busy_poll = match &forwarding.busy_poll_us {
            Some(us) if *us.as_ref() == 0 => {
                return Err(Fault::at(
                    us,
                    "busy-poll-us 0 polls for no time; remove the line to wait instead",
                ));
            }
            // The kernel takes an int (socket(7), SO_BUSY_POLL), and refuses others without a word about this file.
            Some(us) if i32::try_from(*us.as_ref()).is_err() => {
                return Err(Fault::at(
                    us,
                    format!("busy-poll-us {}, expected at most {}", us.as_ref(), i32::MAX),
                ));
            }
            us => us.as_ref().map(|us| Duration::from_micros(u64::from(*us.as_ref()))),
        };
        let (metrics, any_metrics_port) = MetricsTable::endpoint(file.metrics.as_ref());
        Ok(Self {
            rules,
            mode: forwarding.mode,
            zero_copy: forwarding.zero_copy()?,
            threads: forwarding.threads.as_ref().map(|threads| *threads.as_ref()),
            busy_poll,
            bypass_filter: forwarding.bypass_filter.as_ref().is_some_and(|bypass| *bypass.as_ref()),
            metrics,
            any_metrics_port,
        })
    }

    /// Names of settings that differ from those in force and that only a restart changes.
    #[must_use]
    pub fn needs_restart(&self, in_force: &Self) -> Vec<&'static str> {
        let differs = [
            ("path.mode", self.mode != in_force.mode),
            ("path.zero-copy", self.zero_copy != in_force.zero_copy),
            ("path.threads", self.threads != in_force.threads),
            ("path.busy-poll-us", self.busy_poll != in_force.busy_poll),
            ("path.bypass-filter", self.bypass_filter != in_force.bypass_filter),
            (
                "metrics",
                (self.metrics, self.any_metrics_port) != (in_force.metrics, in_force.any_metrics_port),
            ),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

/// Why a configuration file was refused.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The operating system refused.
    #[error("{}: cannot read: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// A line is not what it should be.
    #[error("{}: line {line}: {found}", file.display())]
    Refused {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is there, and what would be right.
        found: String,
    },
    /// An option and the file, or two options, ask for what cannot be together.
    #[error("{NOT_IN_GENERIC}: leave out one of --zero-copy on and generic mode")]
    ZeroCopyInGeneric,
    /// Neither the file nor an option says where a node is.
    #[error("{}", unsaid(setting, file.as_deref()))]
    Unsaid {
        /// The setting, and the option.
        setting: &'static str,
        /// The file, if there is one.
        file: Option<PathBuf>,
    },
}

/// Why no frame comes without a copy in generic mode.
const NOT_IN_GENERIC: &str =
    "zero-copy needs the XDP program in the driver, and mode = \"generic\" never has it there";

/// What is asked for if an option says so: `--zero-copy`, which wins over the file's setting.
///
/// # Errors
/// [`ConfigError::ZeroCopyInGeneric`].
pub fn zero_copy_of(
    option: Option<ZeroCopy>,
    of_file: ZeroCopy,
    mode: Mode,
) -> Result<ZeroCopy, ConfigError> {
    match option.unwrap_or(of_file) {
        ZeroCopy::On if mode == Mode::Generic => Err(ConfigError::ZeroCopyInGeneric),
        zero_copy => Ok(zero_copy),
    }
}

fn unsaid(setting: &str, file: Option<&Path>) -> String {
    match file {
        Some(file) => {
            format!("{}: no {setting}: write it into [node], or give --{setting}", file.display())
        }
        None => {
            format!("no {setting}: give --{setting}, or --config with a file that has it in [node]")
        }
    }
}

fn read(file: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(file).map_err(|source| ConfigError::Read { file: file.to_owned(), source })
}

/// A file's text as its tables.
fn tables<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    toml::from_str(text).map_err(|error| Fault {
        at: error.span().unwrap_or_default(),
        found: error.message().trim().replace('\n', "; "),
    })
}

/// What was refused, and where: bytes of the file.
#[derive(Debug)]
struct Fault {
    at: Range<usize>,
    found: String,
}

impl Fault {
    fn at<T>(part: &Spanned<T>, found: impl Into<String>) -> Self {
        Self { at: part.span(), found: found.into() }
    }

    fn refused(self, text: &str, file: &Path) -> ConfigError {
        let Self { at, found } = self;
        ConfigError::Refused { file: file.to_owned(), line: line_of(text, at.start), found }
    }
}

/// The line, from 1, of byte `at`.
fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// The file as it stands.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    mark: Option<Spanned<u8>>,
    rule: Option<Vec<Spanned<RuleTable>>>,
    #[serde(default)]
    path: PathTable,
    metrics: Option<MetricsTable>,
}

impl File {
    /// Where in the file the reason stands for which its rules are refused.
    fn refused(&self, error: RulesError) -> Fault {
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
struct RuleTable {
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
    #[serde(default, deserialize_with = "grid")]
    grid: Option<Spanned<Grid>>,
    #[serde(default, deserialize_with = "handshake")]
    handshake: Option<Spanned<Handshake>>,
    #[serde(default, deserialize_with = "contents")]
    contents: Option<Spanned<Contents>>,
    udp: Option<Spanned<toml::Value>>,
    udp_offset: Option<Spanned<u8>>,
}

/// What a setting says; `None` if nobody wrote it, whatever its default is.
fn given<T: Copy>(setting: &Option<Spanned<T>>) -> Option<T> {
    setting.as_ref().map(|setting| *setting.as_ref())
}

impl RuleTable {
    fn mask(&self) -> u8 {
        given(&self.mask).unwrap_or(Rule::DEFAULT.mask)
    }

    fn rule(&self) -> Result<Rule, Fault> {
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
            grid: given(&self.grid).unwrap_or_default(),
            handshake: given(&self.handshake).unwrap_or_default(),
            contents: given(&self.contents).unwrap_or_default(),
            udp_offset: self.udp_offset(),
        })
    }

    /// All settings of one system at once. Beside the name, a table may have a bound, a scale and a UDP offset.
    fn preset(&self, name: &Spanned<String>) -> Result<Rule, Fault> {
        let Rule { tos, mask, framing, grid, handshake, contents, .. } = Rule::INCEPTIONN;
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
            ("grid", self.grid.as_ref().map(Spanned::span)),
            ("handshake", self.handshake.as_ref().map(Spanned::span)),
            ("contents", self.contents.as_ref().map(Spanned::span)),
        ];
        if let Some((setting, at)) = set_twice.into_iter().find_map(|(setting, at)| Some((setting, at?))) {
            let found = format!(
                "profile inceptionn sets `{setting}`, and all others but bound, scale and udp-offset; remove `{setting}`, or the profile"
            );
            return Err(Fault { at, found });
        }
        let profile = self.coding(Some(1), Some(Split::Paper))?;
        Ok(Rule { tos, mask, profile, framing, grid, handshake, contents, udp_offset: self.udp_offset() })
    }

    fn udp_offset(&self) -> u8 {
        given(&self.udp_offset).unwrap_or(0)
    }

    /// The table's bound and scale under a codec: the one named, else codec 1 if there is a split, else codec 2.
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
                .map(Profile::Planar)
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
    params.map(Profile::Classes).map_err(|refused| match refused {
        ParamsError::Scale { .. } => (Wrong::Scale, refused.to_string()),
        _ => (Wrong::Bound, format!("bound {bound}, expected 1 to 14 with codec 1")),
    })
}

/// A setting that is one of `all`, by its name: the dataplane, which knows no serde, has the names. A refusal lists the default first.
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

fn contents<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Spanned<Contents>>, D::Error> {
    named(text, &Contents::ALL, Contents::name)
}

fn grid<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Spanned<Grid>>, D::Error> {
    named(text, &Grid::ALL, Grid::name)
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct PathTable {
    mode: Mode,
    zero_copy: Option<Spanned<toml::Value>>,
    threads: Option<Spanned<NonZeroU32>>,
    busy_poll_us: Option<Spanned<u32>>,
    bypass_filter: Option<Spanned<bool>>,
}

impl PathTable {
    fn zero_copy(&self) -> Result<ZeroCopy, Fault> {
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
struct MetricsTable {
    address: IpAddr,
    port: Option<u16>,
}

impl Default for MetricsTable {
    fn default() -> Self {
        Self { address: IpAddr::V4(Ipv4Addr::LOCALHOST), port: None }
    }
}

impl MetricsTable {
    /// Where the endpoint listens, and whether one of the next ports would do.
    fn endpoint(table: Option<&Self>) -> (Option<SocketAddr>, bool) {
        let at = table.map(|table| SocketAddr::new(table.address, table.port.unwrap_or(METRICS_PORT)));
        (at, table.is_some_and(|table| table.port.is_none()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { profile: DEFAULT_PROFILE, ..Rule::DEFAULT };

    fn parse(text: &str) -> Config {
        Config::parse(text, Path::new("xdp.toml")).unwrap()
    }

    fn refused(text: &str) -> (usize, String) {
        match Config::parse(text, Path::new("xdp.toml")) {
            Err(ConfigError::Refused { line, found, .. }) => (line, found),
            other => panic!("it should be refused: {other:?}"),
        }
    }

    #[test]
    fn an_empty_file_is_the_default() {
        let config = parse("");
        assert_eq!(config.rules.as_slice(), [RULE]);
        assert_eq!(RULE.profile.to_bytes(), [2, 0, (-10i8).cast_unsigned()]);
        assert_eq!(config.rules.mark(), DEFAULT_MARK);
        assert_eq!((config.mode, config.zero_copy, config.threads), (Mode::Auto, ZeroCopy::Auto, None));
        assert_eq!((config.busy_poll, config.bypass_filter, config.metrics), (None, false, None));
        assert!(config.needs_restart(&Config::default()).is_empty());
    }

    #[test]
    fn every_setting_arrives() {
        let text = r#"
            mark = 0x48
            [[rule]]
            tos = 0x28
            bound = 6
            scale = -3
            split = "paper"
            framing = "in-place"
            grid = "payload"
            handshake = "off"
            udp-offset = 16
            [[rule]]
            tos = 0x50
            mask = 0xff
            [[rule]]
            tos = 0x60
            codec = 1
            [[rule]]
            tos = 0x70
            codec = 2
            bound = 16
            scale = -4
            [path]
            mode = "native"
            zero-copy = "off"
            threads = 4
            busy-poll-us = 50
            bypass-filter = true
            [metrics]
        "#;
        let config = parse(text);
        let first = Rule {
            profile: Params::new(6, Split::Paper, -3).unwrap().into(),
            framing: Framing::InPlace,
            grid: Grid::Payload,
            handshake: Handshake::Off,
            udp_offset: 16,
            ..Rule::DEFAULT
        };
        let second = Rule { tos: 0x50, mask: 0xff, ..RULE };
        let third = Rule { tos: 0x60, profile: Params::DEFAULT.into(), ..RULE };
        let fourth = Rule { tos: 0x70, profile: Bound::new(-20).unwrap().into(), ..RULE };
        assert_eq!(config.rules.as_slice(), [first, second, third, fourth]);
        assert_eq!(config.rules.mark(), 0x48);
        let inceptionn = parse("[[rule]]\ntos = 0x28\nprofile = \"inceptionn\"\nbound = 8");
        let profile = Params::new(8, Split::Paper, 0).unwrap().into();
        assert_eq!(inceptionn.rules.as_slice(), [Rule { profile, ..Rule::INCEPTIONN }]);
        assert_eq!((config.mode, config.zero_copy), (Mode::Native, ZeroCopy::Off));
        for (text, zero_copy) in [("auto", ZeroCopy::Auto), ("on", ZeroCopy::On)] {
            assert_eq!(parse(&format!("[path]\nzero-copy = \"{text}\"")).zero_copy, zero_copy);
        }
        assert_eq!(config.threads, NonZeroU32::new(4));
        assert_eq!((config.busy_poll, config.bypass_filter), (Some(Duration::from_micros(50)), true));
        // The endpoint is on loopback unless the file says otherwise.
        assert_eq!(config.metrics, Some(SocketAddr::from(([127, 0, 0, 1], METRICS_PORT))));
        let changed = [
            "path.mode",
            "path.zero-copy",
            "path.threads",
            "path.busy-poll-us",
            "path.bypass-filter",
            "metrics",
        ];
        assert_eq!(config.needs_restart(&Config::default()), changed);
        // The port that it has by default, but now no other would do.
        let port = parse(&format!("{text}port = {METRICS_PORT}"));
        assert_eq!(port.needs_restart(&config), ["metrics"]);

        assert!(config.any_metrics_port, "no port is named");
        let open = parse("[metrics]\naddress = \"::\"\nport = 80");
        assert_eq!((open.metrics, open.any_metrics_port), (Some("[::]:80".parse().unwrap()), false));
    }

    /// Also if it equals its default: beside a profile it would be ignored.
    #[test]
    fn a_setting_that_is_written_counts_also_if_it_is_the_default() {
        let settings = [
            ("mask", ["0xfc", "0xff"]),
            ("codec", ["2", "1"]),
            ("split", ["\"dense\"", "\"paper\""]),
            ("framing", ["\"routed\"", "\"in-place\""]),
            ("grid", ["\"connection\"", "\"payload\""]),
            ("handshake", ["\"required\"", "\"off\""]),
            ("contents", ["\"checked\"", "\"trusted\""]),
        ];
        for (setting, values) in settings {
            for value in values {
                let text =
                    format!("[[rule]]\ntos = 40\nprofile = \"inceptionn\"\nbound = 8\n{setting} = {value}\n");
                let (line, found) = refused(&text);
                assert_eq!(line, 5, "{text}{found}");
                assert!(found.contains(&format!("remove `{setting}`")), "{text}{found}");
            }
        }
    }

    #[test]
    fn no_rule_at_all_can_be_asked_for() {
        assert!(parse("rule = []").rules.as_slice().is_empty());
    }

    #[test]
    fn errors_name_the_line_and_what_would_be_right() {
        let cases = [
            ("\nmark = \n", 2, ""),
            ("mark = 0x30\nmarks = 1", 2, "unknown field `marks`, expected one of `mark`"),
            ("mark = 300", 1, "expected u8"),
            ("mark = 0x31", 1, "expected 0x30"),
            (
                "[[rule]]\ntos = 0x28\nbound = 10\n\n[[rule]]\ntos = 0x50\ncodec = 1\nbound = 15",
                8,
                "expected 1 to 14",
            ),
            ("[[rule]]\ntos = 0x28\nsplit = \"paper\"\nscale = -81", 4, "expected -80 to 127"),
            ("[[rule]]\ntos = 0x28\nbound = 95", 3, "codec 2: bound 2^-95, expected 2^-94 to 2^111"),
            ("[[rule]]\ntos = 0x28\nscale = -85", 3, "codec 2: bound 2^-95"),
            ("[[rule]]\ntos = 0x28\nprofile = \"cnn\"", 3, "expected `inceptionn`"),
            ("[[rule]]\ntos = 0x50\nprofile = \"inceptionn\"", 2, "has tos = 0x28"),
            ("[[rule]]\ntos = 0x28\ngrid = \"payload\"\nprofile = \"inceptionn\"", 3, "remove `grid`"),
            ("[[rule]]\ntos = 0x28\nprofile = \"inceptionn\"\nbound = 15", 4, "expected 1 to 14"),
            ("[[rule]]\ntos = 0x28\ncodec = 3", 3, "codec 3, expected 1 or 2"),
            ("[[rule]]\ntos = 0x28\ncodec = 2\nsplit = \"dense\"", 3, "codec 2 has no split"),
            ("[[rule]]\nbound = 8", 1, "missing field `tos`"),
            ("[[rule]]\ntos = 0x28\nframing = \"cut-through\"", 3, "expected `routed` or `in-place`"),
            ("[[rule]]\ntos = 0x28\nhandshake = \"on\"", 3, "expected `required` or `off`"),
            ("[[rule]]\ntos = 0x28\nudp = true", 3, "`handshake = \"off\"` says that both ends restore"),
            ("[[rule]]\ntos = 0x28\nudp-offset = 8", 3, "handshake = \"off\" if both ends restore"),
            ("[[rule]]\ntos = 0x29", 2, "with this mask it would be tos = 0x28"),
            ("[[rule]]\ntos = 0x30", 2, "matches the mark 0x30; choose another tos, or another mark"),
            ("[[rule]]\ntos = 0x28\n[[rule]]\ntos = 0x28", 4, "remove it, or move it before them"),
            ("[path]\nthreads = 0", 2, "nonzero"),
            ("[path]\nbusy-poll-us = 0", 2, "remove the line"),
            ("[path]\nbusy-poll-us = 2147483648", 2, "expected at most 2147483647"),
            (
                "[path]\nzero-copy = true",
                2,
                "zero-copy true, expected \"auto\" (where it was tried), \"on\" (as true was",
            ),
            ("[path]\nzero-copy = \"O\\nn\"", 2, "expected \"auto\""),
            ("[path]\nzero-copy = [[1],\n[2]]", 2, "zero-copy of type array, expected"),
            ("[path]\nmode = \"generic\"\nzero-copy = \"on\"", 3, "needs the XDP program in the driver"),
            ("[path]\nmode = \"fast\"", 2, "expected one of `auto`, `native`, `generic`"),
            ("[metrics]\n\naddress = \"localhost\"", 3, "invalid IP address"),
        ];
        for (text, line, words) in cases {
            let (at, found) = refused(text);
            assert_eq!(at, line, "{text:?}: {found}");
            assert!(found.contains(words), "{text:?}: {found}");
            assert!(!found.contains('\n'), "{found:?}");
        }
        let many = "[[rule]]\ntos = 0x28\n".repeat(17);
        let (at, found) = refused(&many);
        assert_eq!(at, 33, "{found}");
        assert!(found.contains("expected at most 16; remove some"), "{found}");
    }

    #[test]
    fn an_option_wins_over_the_file_and_contradicts_neither() {
        let zero_copy = |option, of_file, mode| zero_copy_of(option, of_file, mode).ok();
        assert_eq!(zero_copy(None, ZeroCopy::Off, Mode::Auto), Some(ZeroCopy::Off));
        assert_eq!(zero_copy(Some(ZeroCopy::On), ZeroCopy::Off, Mode::Auto), Some(ZeroCopy::On));
        assert_eq!(zero_copy(Some(ZeroCopy::Auto), ZeroCopy::On, Mode::Generic), Some(ZeroCopy::Auto));
        assert_eq!(zero_copy(Some(ZeroCopy::On), ZeroCopy::Off, Mode::Generic), None);
        assert_eq!(zero_copy(None, ZeroCopy::On, Mode::Generic), None);
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Config::load(Path::new("/nonexistent/xdp.toml")).unwrap_err();
        assert!(error.to_string().starts_with("/nonexistent/xdp.toml: cannot read: "), "{error}");
    }
}
