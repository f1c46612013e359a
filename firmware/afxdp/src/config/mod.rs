//! The configuration file: TOML, checked before anything is touched. Every error names file, line
//! and remedy.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use gradwire::codec::bit_plane::Bound;
use gradwire::profile::Profile;
use gradwire::rules::{DEFAULT_MARK, ECN, Rule, Rules};
use serde::Deserialize;

mod aggregator;
mod errors;
mod tables;

use errors::{Fault, read, tables};
use tables::{File, MetricsTable};

pub use aggregator::{AggregatorConfig, AggregatorOptions, Group, HostAddress, JOBS, NoGroup, NoHostAddress};
pub use errors::ConfigError;

/// The port of the Prometheus endpoint if the file names none; if another shim has it, the next
/// free one.
pub const METRICS_PORT: u16 = 9407;

/// Codec 2 at the bound that codec 1 has by default. Hosts have the processors for the denser
/// codec.
pub const DEFAULT_PROFILE: Profile = match Bound::new(-10) {
    Ok(bound) => Profile::BitPlane(bound),
    Err(_) => Profile::DEFAULT,
};

/// Settings of `gradwire-xdp run`, but for the names of its ports.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which frames are compressed, and how; the mark of compressed frames. The one part that is
    /// taken over when the file is read again.
    pub rules: Rules,
    /// The attachment of the XDP program.
    pub mode: Mode,
    /// Which drivers that can are to hand over frames without a copy.
    pub zero_copy: ZeroCopy,
    /// The most threads to run; one for each pair of queues, if there is no number.
    pub threads: Option<NonZeroU32>,
    /// The time that the kernel polls the driver at each call: for cores that do nothing else.
    pub busy_poll: Option<Duration>,
    /// Whether it runs although tagged connections pass by a filter between its ports.
    pub bypass_filter: bool,
    /// The address of the Prometheus endpoint.
    pub metrics: Option<SocketAddr>,
    /// Whether it may listen on one of the next ports if that one is taken: the file names none.
    pub any_metrics_port: bool,
}

/// The attachment of an XDP program to a port.
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
    /// The file cannot be read, is no TOML, has settings that are not known, or values that are
    /// refused.
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
            // The kernel takes an int (socket(7), SO_BUSY_POLL), and refuses others without a word
            // about this file.
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

/// The setting of an option: `--zero-copy`, which wins over the file's setting.
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

#[cfg(test)]
mod tests {
    use gradwire::codec::{Params, Split};
    use gradwire::rules::{Alignment, Framing, Handshake};

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
            alignment = "payload"
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
            alignment: Alignment::Payload,
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
            ("alignment", ["\"connection\"", "\"payload\""]),
            ("handshake", ["\"required\"", "\"off\""]),
            ("heuristic", ["\"on\"", "\"off\""]),
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
            (
                "[[rule]]\ntos = 0x28\nalignment = \"payload\"\nprofile = \"inceptionn\"",
                3,
                "remove `alignment`",
            ),
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
