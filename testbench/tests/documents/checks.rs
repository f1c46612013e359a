//! Every promise names what would fail if it were broken.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::support::document::{code_spans, files_with, root, table, tables, text};

/// The numbers in a list: `9, 10`, or `1 to 5`.
fn numbers(list: &str) -> BTreeSet<u32> {
    let named = list.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok());
    let named: BTreeSet<u32> = named.collect();
    match (list.contains(" to "), named.first(), named.last()) {
        (true, Some(first), Some(last)) => (*first..=*last).collect(),
        _ => named,
    }
}

/// `FILE::TEST`, in Rust or in Python.
fn is_test(sources: &[PathBuf], name: &str) -> bool {
    let Some((file, test)) = name.split_once("::") else { return false };
    // A program of tests may be a folder, and so may a module.
    let folder = format!("tests/{file}");
    let of = |path: &&PathBuf| {
        ["rs", "py"].iter().any(|kind| path.ends_with(format!("{file}.{kind}")))
            || path.ends_with(format!("{file}/mod.rs"))
            || path.parent().is_some_and(|of| of.ends_with(&folder))
    };
    let named = sources.iter().filter(of);
    let heads = [format!("fn {test}("), format!("def {test}(")];
    named
        .map(|path| fs::read_to_string(path).unwrap())
        .any(|text| heads.iter().any(|head| text.contains(head)))
}

/// Events of a residual: each event in docs/training.md has a test.
#[test]
fn every_event_of_a_residual_has_a_test() {
    let table = table("docs/training.md", &["event", "residual", "test"]);
    let sources = [files_with("rs"), files_with("py")].concat();
    assert!(table.rows.len() >= 10, "{}", table.rows.len());
    for row in &table.rows {
        let names: Vec<&str> = code_spans(&row[2]).collect();
        assert!(!names.is_empty(), "{row:?}");
        names.iter().for_each(|name| assert!(is_test(&sources, name), "{row:?}: there is no {name}"));
    }
}

/// Every test, fuzz target and step of CI that TESTING.md names as a check exists. Each section of
/// FORMAT.md that has laws of the wire has some, and so has each law S1 to S12, each point of the
/// handshake, and each section of docs/aggregation-protocol.md between its words and its examples.
#[test]
fn every_promise_has_a_check() {
    let testing = text("TESTING.md");
    let section = testing.split("\n## Promises and their checks\n").nth(1).unwrap();
    let tables = tables(section.split("\n## ").next().unwrap());
    let sources = [files_with("rs"), files_with("py")].concat();
    let is_test = |name: &str| is_test(&sources, name);
    let ci = text(".ci/run");
    let (mut verified, mut points, mut summed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for row in tables.iter().flat_map(|table| &table.rows) {
        let [promise, checks] = &row[..] else { panic!("two columns: {row:?}") };
        let names = code_spans(checks).filter(|name| *name != "replay").collect::<Vec<_>>();
        assert!(!names.is_empty(), "no check: {promise}");
        for name in names {
            let exists = match name.strip_prefix("fuzz ") {
                Some(target) => root().join(format!("fuzz/fuzz_targets/{target}.rs")).is_file(),
                None => {
                    is_test(name) || name.contains('/') && ci.contains(name) && root().join(name).is_file()
                }
            };
            assert!(exists, "{promise}: there is no {name}, or CI does not run it");
        }
        verified.extend(promise.split(' ').take(2).map(str::to_owned));
        if let Some((list, _)) = promise.strip_prefix("5.5 point").and_then(|rest| rest.split_once(':')) {
            points.extend(numbers(list));
        }
        if let Some((section, _)) =
            promise.strip_prefix("aggregation ").and_then(|rest| rest.split_once(", "))
        {
            summed.insert(section.to_owned());
        }
    }
    let format = text("FORMAT.md");
    let sections =
        format.lines().filter_map(|line| line.strip_prefix("### ")).filter_map(|head| head.split(' ').next());
    let bold =
        format.split("**S").skip(1).filter(|text| text.starts_with(|first: char| first.is_ascii_digit()));
    let laws = bold.map(|law| format!("S{}", law.split('.').next().unwrap()));
    let laws: BTreeSet<String> =
        sections.filter(|number| number.starts_with(['5', '6'])).map(str::to_owned).chain(laws).collect();
    assert!(laws.len() > 12 && laws.contains("S1") && laws.contains("S12"), "{laws:?}");
    for law in laws {
        assert!(verified.contains(&law), "no check of {law}");
    }
    let handshake = format.split("\n### 5.5 ").nth(1).unwrap().split("\n### ").next().unwrap();
    let asked = handshake.lines().filter_map(|line| line.split_once(". ")?.0.parse().ok());
    let asked: BTreeSet<u32> = asked.collect();
    assert!(asked.len() > 10);
    assert_eq!(points, asked, "verified, and points of 5.5");
    let protocol = text("docs/aggregation-protocol.md");
    let heads = protocol.lines().filter_map(|line| line.strip_prefix("## ")?.split_once(". "));
    let between: BTreeSet<String> = heads
        .filter(|(_, name)| !["Words", "Examples"].contains(name))
        .map(|(number, _)| number.to_owned())
        .collect();
    assert!(between.len() >= 4);
    assert_eq!(summed, between, "verified, and sections of docs/aggregation-protocol.md");
}
