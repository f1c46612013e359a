//! Settings of an aggregator: `[aggregator]` of a file, or options of the same names, which win
//! over the file.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::path::Path;
use std::str::FromStr;

use gradwire::wire::chunk::PORT;
use serde::Deserialize;

use super::errors::{ConfigError, Fault, read, tables};
use super::tables::{MetricsTable, PathTable};
use super::{Mode, ZeroCopy};

/// Jobs that an aggregator has places for at a time, each with a group of its own.
pub const JOBS: usize = 16;
/// The last group that has so many behind it.
const LAST_GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 255, (256 - JOBS) as u8);

/// Settings of `gradwire-xdp aggregate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregatorConfig {
    /// The interface towards the workers.
    pub interface: String,
    /// The aggregator's address.
    pub address: Ipv4Addr,
    /// Its UDP port.
    pub port: u16,
    /// The group that gets results; to each worker, if there is no group.
    pub group: Option<Group>,
    /// The attachment of the XDP program.
    pub mode: Mode,
    /// Which drivers that can are to hand over frames without a copy.
    pub zero_copy: ZeroCopy,
    /// The address of the Prometheus endpoint.
    pub metrics: Option<SocketAddr>,
    /// Whether it may listen on one of the next ports if that one is taken: the file names none.
    pub any_metrics_port: bool,
}

/// The interface and addresses of an aggregator, as far as they are given: settings of a file, or
/// options of the same names.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct AggregatorOptions {
    /// The interface towards the aggregator's workers.
    #[arg(long, value_name = "IF")]
    pub interface: Option<String>,
    /// The aggregator's address.
    #[arg(long, value_name = "IPV4")]
    pub address: Option<HostAddress>,
    /// The aggregator's UDP port, if not 59255.
    #[arg(long, value_name = "PORT")]
    pub port: Option<NonZeroU16>,
    /// Send results to IPv4 groups, this one for the first job's place and those that follow for
    /// the others, in place of a copy to each worker. Workers must join the group that they are
    /// told.
    #[arg(long, value_name = "IPV4")]
    pub group: Option<Group>,
}

/// An IPv4 address that a host may have: not of "this network", of loopback, of a group, or of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct HostAddress(Ipv4Addr);

/// The text is no such address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an IPv4 address that a host may have, of the workers' network: 192.0.2.9, for example")]
pub struct NoHostAddress;

impl FromStr for HostAddress {
    type Err = NoHostAddress;

    fn from_str(text: &str) -> Result<Self, NoHostAddress> {
        let address = text.parse::<Ipv4Addr>().map_err(|_| NoHostAddress)?;
        // Linux gives a host none of 0.0.0.0/8 either (`ipv4_is_zeronet`).
        let is_for_no_host = address.octets()[0] == 0
            || address.is_loopback()
            || address.is_multicast()
            || address.is_broadcast();
        if is_for_no_host { Err(NoHostAddress) } else { Ok(Self(address)) }
    }
}

impl TryFrom<String> for HostAddress {
    type Error = NoHostAddress;

    fn try_from(text: String) -> Result<Self, NoHostAddress> {
        text.parse()
    }
}

/// The first of [`JOBS`] IPv4 groups that routers may forward (RFC 5771): 224.0.0.0/24 is for a
/// network's own protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Group(Ipv4Addr);

/// The text is no such group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an IPv4 group from 224.0.1.0 to {LAST_GROUP}: the groups of {JOBS} jobs follow each other")]
pub struct NoGroup;

impl Group {
    /// Its address.
    #[must_use]
    pub const fn address(self) -> Ipv4Addr {
        self.0
    }

    /// The last of the groups.
    #[must_use]
    pub const fn last(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.0.to_bits() + (JOBS as u32 - 1))
    }
}

impl FromStr for Group {
    type Err = NoGroup;

    fn from_str(text: &str) -> Result<Self, NoGroup> {
        let group = text.parse::<Ipv4Addr>().ok();
        let group = group.filter(|group| (Ipv4Addr::new(224, 0, 1, 0)..=LAST_GROUP).contains(group));
        group.map(Self).ok_or(NoGroup)
    }
}

impl TryFrom<String> for Group {
    type Error = NoGroup;

    fn try_from(text: String) -> Result<Self, NoGroup> {
        text.parse()
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The file as it stands.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct File {
    aggregator: AggregatorOptions,
    path: PathTable,
    metrics: Option<MetricsTable>,
}

impl AggregatorConfig {
    /// The settings of a file, if there is one, and of `options`, which win.
    ///
    /// # Errors
    /// The file cannot be read, is no TOML, has settings that are not known, or values that are
    /// refused; neither says which interface, or which address.
    pub fn load(file: Option<&Path>, options: &AggregatorOptions) -> Result<Self, ConfigError> {
        match file {
            Some(path) => Self::parse(&read(path)?, path, options),
            None => Self::of(File::default(), ZeroCopy::default(), options, None),
        }
    }

    /// Checks the text of a file; errors name `path`.
    ///
    /// # Errors
    /// [`ConfigError::Refused`], [`ConfigError::Unsaid`].
    pub fn parse(text: &str, path: &Path, options: &AggregatorOptions) -> Result<Self, ConfigError> {
        let checked = tables::<File>(text).and_then(|file| {
            file.path.of_an_aggregator()?;
            let zero_copy = file.path.zero_copy()?;
            Ok((file, zero_copy))
        });
        let (file, zero_copy) = checked.map_err(|fault| fault.refused(text, path))?;
        Self::of(file, zero_copy, options, Some(path))
    }

    fn of(
        file: File,
        zero_copy: ZeroCopy,
        options: &AggregatorOptions,
        path: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        let File { aggregator, path: forwarding, metrics } = file;
        let unsaid = |setting| move || ConfigError::Unsaid { setting, file: path.map(Path::to_owned) };
        let (metrics, any_metrics_port) = MetricsTable::endpoint(metrics.as_ref());
        Ok(Self {
            interface: options.interface.clone().or(aggregator.interface).ok_or_else(unsaid("interface"))?,
            address: options.address.or(aggregator.address).ok_or_else(unsaid("address"))?.0,
            port: options.port.or(aggregator.port).map_or(PORT, NonZeroU16::get),
            group: options.group.or(aggregator.group),
            mode: forwarding.mode,
            zero_copy,
            metrics,
            any_metrics_port,
        })
    }
}

impl PathTable {
    /// An aggregator serves all queues in one thread, which waits for frames, and is no way around
    /// a bridge.
    fn of_an_aggregator(&self) -> Result<(), Fault> {
        let threads = self.threads.as_ref().map(|at| ("threads", at.span()));
        let busy_poll = self.busy_poll_us.as_ref().map(|at| ("busy-poll-us", at.span()));
        if let Some((setting, at)) = threads.or(busy_poll) {
            return Err(Fault {
                at,
                found: format!("an aggregator has one thread, which waits; remove `{setting}`"),
            });
        }
        match &self.bypass_filter {
            Some(bypass) => {
                Err(Fault::at(bypass, "an aggregator passes by no filter; remove `bypass-filter`"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::METRICS_PORT;

    fn parsed(text: &str, options: &AggregatorOptions) -> Result<AggregatorConfig, ConfigError> {
        AggregatorConfig::parse(text, Path::new("aggregator.toml"), options)
    }

    const PLACE: &str = "[aggregator]\ninterface = \"eth1\"\naddress = \"192.0.2.9\"\n";

    #[test]
    fn a_place_is_enough() {
        let config = parsed(PLACE, &AggregatorOptions::default()).unwrap();
        let expected = AggregatorConfig {
            interface: "eth1".to_owned(),
            address: Ipv4Addr::new(192, 0, 2, 9),
            port: PORT,
            group: None,
            mode: Mode::Auto,
            zero_copy: ZeroCopy::Auto,
            metrics: None,
            any_metrics_port: false,
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn options_win_over_the_file() {
        let text = format!(
            "{PLACE}port = 7\ngroup = \"239.1.0.1\"\n[path]\nmode = \"generic\"\nzero-copy = \"off\"\n[metrics]\n"
        );
        let of_file = parsed(&text, &AggregatorOptions::default()).unwrap();
        assert_eq!((of_file.port, of_file.mode, of_file.zero_copy), (7, Mode::Generic, ZeroCopy::Off));
        assert_eq!(of_file.group.map(Group::last), Some(Ipv4Addr::new(239, 1, 0, 16)));
        let metrics = Some(SocketAddr::from(([127, 0, 0, 1], METRICS_PORT)));
        assert_eq!((of_file.metrics, of_file.any_metrics_port), (metrics, true));

        let options = AggregatorOptions {
            interface: Some("eth2".to_owned()),
            address: "192.0.2.10".parse().ok(),
            port: NonZeroU16::new(8),
            group: "239.1.0.2".parse().ok(),
        };
        let config = parsed(&text, &options).unwrap();
        let expected = AggregatorConfig {
            interface: "eth2".to_owned(),
            address: Ipv4Addr::new(192, 0, 2, 10),
            port: 8,
            group: options.group,
            ..of_file
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn errors_name_the_line_and_what_would_be_right() {
        let cases = [
            (
                "[aggregator]\nadress = \"192.0.2.9\"",
                2,
                "unknown field `adress`, expected one of `interface`",
            ),
            ("[aggregator]\n\naddress = \"fe80::1\"", 3, "expected an IPv4 address"),
            ("[aggregator]\naddress = \"0.0.0.0\"", 2, "that a host may have"),
            ("[aggregator]\naddress = \"0.1.2.3\"", 2, "that a host may have"),
            ("[aggregator]\naddress = \"127.0.0.1\"", 2, "that a host may have"),
            ("[aggregator]\naddress = \"239.1.0.1\"", 2, "that a host may have"),
            ("[aggregator]\naddress = \"255.255.255.255\"", 2, "that a host may have"),
            ("[aggregator]\nport = 0", 2, "nonzero"),
            ("[aggregator]\ngroup = \"224.0.0.5\"", 2, "expected an IPv4 group from 224.0.1.0"),
            ("[aggregator]\ngroup = \"239.255.255.241\"", 2, "to 239.255.255.240"),
            ("[aggregator]\n[[rule]]\ntos = 0x28", 2, "unknown field `rule`, expected one of `aggregator`"),
            ("[path]\nzero-copy = \"on\"\nthreads = 2", 3, "remove `threads`"),
            ("[path]\nzero-copy = true", 2, "expected \"auto\""),
            ("[path]\nbusy-poll-us = 50", 2, "remove `busy-poll-us`"),
            ("[metrics]\nport = 70000", 2, "expected u16"),
        ];
        for (text, line, words) in cases {
            match parsed(text, &AggregatorOptions::default()) {
                Err(ConfigError::Refused { line: at, found, .. }) => {
                    assert_eq!(at, line, "{text:?}: {found}");
                    assert!(found.contains(words), "{text:?}: {found}");
                }
                other => panic!("{text:?} should be refused: {other:?}"),
            }
        }
    }

    #[test]
    fn missing_settings_are_named() {
        let interface =
            AggregatorOptions { interface: Some("eth1".to_owned()), ..AggregatorOptions::default() };
        let error = parsed("", &interface).unwrap_err().to_string();
        assert_eq!(error, "aggregator.toml: no address: write it into [aggregator], or give --address");
        let error = AggregatorConfig::load(None, &AggregatorOptions::default()).unwrap_err().to_string();
        assert_eq!(
            error,
            "no interface: give --interface, or --config with a file that has it in [aggregator]"
        );
    }
}
