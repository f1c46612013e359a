//! Verifies the Linux shim's configuration: any text is refused at a line that it has, or does what
//! its tables say. The `toml` crate's own tables and the equations of FORMAT.md say what that is.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use gradwire::rules::Rule;
use gradwire_testbench::oracle::settings::is_rule;
use gradwire_xdp::config::{
    AggregatorConfig, AggregatorOptions, Config, ConfigError, METRICS_PORT, Mode, ZeroCopy,
};
use toml::Table;

/// Any bytes as a configuration file.
///
/// # Panics
/// It is taken and does not do what it says, or is refused without a line and a reason.
pub(crate) fn verify(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let file = || text.parse::<Table>().expect("what was taken is TOML");
    match Config::parse(text, Path::new("fuzz.toml")) {
        Ok(config) => does_what_it_says(&config, &file()),
        Err(error) => has_its_line(error, text),
    }
    match AggregatorConfig::parse(text, Path::new("fuzz.toml"), &AggregatorOptions::default()) {
        Ok(aggregator) => sums_where_it_says(&aggregator, &file()),
        Err(ConfigError::Unsaid { setting, .. }) => {
            assert!(
                file().get("aggregator").is_none_or(|aggregator| aggregator.get(setting).is_none()),
                "{setting}"
            );
        }
        Err(error) => has_its_line(error, text),
    }
}

fn has_its_line(error: ConfigError, text: &str) {
    let ConfigError::Refused { line, found, .. } = error else { panic!("{error}") };
    assert!((1..=1 + text.matches('\n').count()).contains(&line), "line {line}: {found}");
    assert!(!found.is_empty() && !found.contains('\n'), "{found:?}");
}

fn sums_where_it_says(aggregator: &AggregatorConfig, file: &Table) {
    let table = file["aggregator"].as_table().expect("a table");
    let text = |name: &str| table.get(name).map(|value| value.as_str().expect("a text").to_owned());
    assert_eq!(text("interface").as_ref(), Some(&aggregator.interface));
    assert_eq!(text("address"), Some(aggregator.address.to_string()));
    assert_eq!(text("group"), aggregator.group.map(|group| group.to_string()));
    assert!(
        aggregator.group.is_none_or(|group| (0xe000_0100..=0xefff_fff0).contains(&group.address().to_bits()))
    );
    assert_eq!(i64::from(aggregator.port), integer(table, "port", 59_255));
    assert_ne!(aggregator.port, 0);
    assert!(file.get("path").and_then(|path| path.get("bypass-filter")).is_none());
    path_and_metrics(file, aggregator.mode, aggregator.zero_copy, aggregator.metrics);
}

fn does_what_it_says(config: &Config, file: &Table) {
    assert_eq!(i64::from(config.rules.mark()), integer(file, "mark", 0x30));
    let list = config.rules.as_slice();
    match file.get("rule") {
        None => {
            assert_eq!(list.len(), 1);
            is_rule(&list[0], (2, "on"), |_| None);
        }
        Some(rules) => {
            let rules = rules.as_array().expect("a list of rules");
            assert_eq!(list.len(), rules.len());
            for (rule, table) in list.iter().zip(rules) {
                does_what_its_table_says(rule, table.as_table().expect("a rule is a table"));
            }
        }
    }
    // Every rule has a type of service, and none the mark of compressed frames.
    let first = |tos: u8| list.iter().position(|rule| (rule.tos ^ tos) & rule.mask == 0);
    for index in 0..list.len() {
        assert!((0..=u8::MAX).any(|tos| first(tos) == Some(index)), "rule {index} is never used");
    }
    assert!((0..4).all(|ecn| first(config.rules.mark() | ecn).is_none()));

    path_and_metrics(file, config.mode, config.zero_copy, config.metrics);
    let path = file.get("path").map(|path| path.as_table().expect("a table"));
    let bypass =
        path.and_then(|path| path.get("bypass-filter")).is_some_and(|bypass| bypass.as_bool() == Some(true));
    assert_eq!(config.bypass_filter, bypass);
    let number = |name: &str| path?.get(name).map(|value| value.as_integer().expect("a number"));
    assert_eq!(config.threads.map(|threads| i64::from(threads.get())), number("threads"));
    let busy_poll = number("busy-poll-us").map(|us| Duration::from_micros(us.try_into().expect("some time")));
    assert_eq!(config.busy_poll, busy_poll);
    assert_ne!(config.busy_poll, Some(Duration::ZERO));
}

/// The settings that a shim's file and an aggregator's share.
fn path_and_metrics(file: &Table, given: Mode, zero_copy: ZeroCopy, endpoint: Option<SocketAddr>) {
    let none = Table::new();
    let path = file.get("path").map_or(&none, |path| path.as_table().expect("a table"));
    let mode = match name(path, "mode", "auto") {
        "auto" => Mode::Auto,
        "native" => Mode::Native,
        "generic" => Mode::Generic,
        other => panic!("mode {other}"),
    };
    assert_eq!(given, mode);
    let asked = match name(path, "zero-copy", "auto") {
        "auto" => ZeroCopy::Auto,
        "on" => ZeroCopy::On,
        "off" => ZeroCopy::Off,
        other => panic!("zero-copy {other}"),
    };
    assert_eq!(zero_copy, asked);
    assert!((asked, mode) != (ZeroCopy::On, Mode::Generic));
    let metrics = file.get("metrics").map(|metrics| {
        let metrics = metrics.as_table().expect("a table");
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let address = metrics.get("address").map_or(loopback, |address| {
            address.as_str().and_then(|text| text.parse().ok()).expect("an address")
        });
        let port = integer(metrics, "port", METRICS_PORT.into());
        SocketAddr::new(address, port.try_into().expect("a port"))
    });
    assert_eq!(endpoint, metrics);
}

fn does_what_its_table_says(rule: &Rule, table: &Table) {
    assert!(table.contains_key("tos"));
    assert_eq!(rule.tos & !rule.mask, 0);
    is_rule(rule, (2, "on"), |name| {
        let value = table.get(name)?;
        Some(match name {
            "profile" | "split" | "framing" | "alignment" | "handshake" | "heuristic" => {
                value.as_str().expect("a name").to_owned()
            }
            _ => value.as_integer().expect("a number").to_string(),
        })
    });
}

fn integer(table: &Table, name: &str, default: i64) -> i64 {
    table.get(name).map_or(default, |value| value.as_integer().expect("a number"))
}

fn name<'a>(table: &'a Table, name: &str, default: &'a str) -> &'a str {
    table.get(name).map_or(default, |value| value.as_str().expect("a name"))
}
