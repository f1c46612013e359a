//! Checks that the metrics that the files under `monitoring/` ask for exist: every metric, with
//! every label and every value that they name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use super::{aggregator, render};
use crate::telemetry::tests::{aggregator_example, example};

/// The metrics that shims and aggregators export: the values of each label of each metric.
fn exported() -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
    let mut metrics = BTreeMap::<_, BTreeMap<_, BTreeSet<_>>>::new();
    let page = render(&example()) + &aggregator::render(&aggregator_example());
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once('{').unwrap();
        let labels = metrics.entry(name.to_owned()).or_default();
        for pair in rest.split_once("} ").unwrap().0.split(',') {
            let (label, value) = pair.split_once('=').unwrap();
            labels.entry(label.to_owned()).or_default().insert(value.trim_matches('"').to_owned());
        }
    }
    metrics
}

/// The metrics of the shim's that an expression names, each with its selector; `promtool` checks
/// the rest of it.
fn selectors(expression: &str) -> Vec<(&str, &str)> {
    let starts = expression.match_indices("gradwire_").map(|(at, _)| at);
    let found = starts.map(|at| {
        let rest = &expression[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let selector = rest[end..].strip_prefix('{').and_then(|rest| rest.split_once('}'));
        (&rest[..end], selector.map_or("", |(selector, _)| selector))
    });
    found.collect()
}

/// The number of metrics it names; all of them exist.
fn check(expression: &str) -> usize {
    let exported = exported();
    let found = selectors(expression);
    for (name, selector) in &found {
        let labels = exported.get(*name).unwrap_or_else(|| panic!("no metric {name}: {expression}"));
        for pair in selector.split(',').filter(|pair| !pair.is_empty()) {
            let at = pair.find(['=', '!']).unwrap_or_else(|| panic!("{pair}: {expression}"));
            let (label, values) =
                (&pair[..at], pair[at..].trim_start_matches(['=', '!', '~']).trim_matches('"'));
            // Those that Prometheus adds, and what a dashboard's reader chooses.
            if ["instance", "job"].contains(&label) || values.starts_with('$') {
                assert!(label == "instance" || label == "job" || labels.contains_key(label), "{expression}");
                continue;
            }
            let known =
                labels.get(label).unwrap_or_else(|| panic!("{name} has no label {label}: {expression}"));
            for value in values.split('|') {
                assert!(known.contains(value), "{name} has no {label}={value}: {expression}");
            }
        }
    }
    found.len()
}

/// A file's text, without the backslashes that its quotes have within strings.
fn file(name: &str) -> String {
    let text = fs::read_to_string(format!("{}/monitoring/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    if name.ends_with(".yml") { text.replace("\\\"", "\"") } else { text }
}

#[test]
fn the_dashboard_shows_what_the_shim_exports() {
    check_dashboard("dashboard.json", 8);
}

#[test]
fn the_aggregators_dashboard_shows_what_an_aggregator_exports() {
    check_dashboard("dashboard-aggregator.json", 8);
}

fn check_dashboard(name: &str, least: usize) {
    let dashboard: Value = serde_json::from_str(&file(name)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        assert!(
            panel["title"].is_string() && panel["description"].is_string() && panel["gridPos"].is_object()
        );
        for target in panel["targets"].as_array().unwrap() {
            assert!(check(target["expr"].as_str().unwrap()) > 0, "{target}");
        }
    }
    assert!(panels.len() >= least);
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let checked = variable["definition"].as_str().map_or(0, check);
        assert!(checked > 0 || variable["type"] == "datasource", "{variable}");
    }
}

#[test]
fn the_rules_ask_for_what_the_shim_exports() {
    let rules = file("rules.yml");
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect::<Vec<_>>();
    let without_comments = rules.lines().filter(|line| !line.trim_start().starts_with('#'));
    assert!(check(&without_comments.collect::<Vec<_>>().join("\n")) >= 10);
    // Each alert is tried, and the reference says that it exists.
    let guide =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/shim-reference.md")).unwrap();
    let tests = file("rules_test.yml");
    for name in &names {
        assert!(tests.contains(&format!("alertname: {name}")), "{name} is not tried");
        assert!(guide.contains(&format!("`{name}`")), "docs/shim-reference.md does not know {name}");
    }
    assert!(names.len() >= 6);
    // The series that the tests make up are the shim's, too; a colon stands in the names of
    // recorded ones.
    assert!(check(&tests) > 10);
}

#[test]
fn metrics_that_do_not_exist_are_noticed() {
    for wrong in [
        "gradwire_payload_total",
        "gradwire_flows{side=\"in\"}",
        "gradwire_lost_frames_total{reason=\"none\"}",
        "gradwire_aggregator_datagrams_total{what=\"silent\"}",
    ] {
        assert!(std::panic::catch_unwind(|| check(wrong)).is_err(), "{wrong}");
    }
}
