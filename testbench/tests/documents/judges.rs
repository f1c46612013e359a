//! Every promise names what would fail if it were broken.

use std::collections::BTreeSet;
use std::fs;

use crate::support::document::{code_spans, files_with, root, tables, text};

/// Every test, fuzz target and step of CI that TESTING.md names as a judge exists, and each section of FORMAT.md that
/// has laws of the wire has some.
#[test]
fn every_promise_has_a_judge() {
    let testing = text("TESTING.md");
    let section = testing.split("\n## Promises and their judges\n").nth(1).unwrap();
    let tables = tables(section.split("\n## ").next().unwrap());
    let sources = files_with("rs");
    let is_test = |name: &str| {
        let Some((file, test)) = name.split_once("::") else { return false };
        // A program of tests may be a folder.
        let folder = format!("tests/{file}");
        let of = |path: &&std::path::PathBuf| {
            path.ends_with(format!("{file}.rs")) || path.parent().is_some_and(|of| of.ends_with(&folder))
        };
        let named = sources.iter().filter(of);
        let head = format!("fn {test}(");
        named.map(|path| fs::read_to_string(path).unwrap()).any(|text| text.contains(&head))
    };
    let mut judged = BTreeSet::new();
    for row in tables.iter().flat_map(|table| &table.rows) {
        let [promise, judges] = &row[..] else { panic!("two columns: {row:?}") };
        let names = code_spans(judges).filter(|name| *name != "replay").collect::<Vec<_>>();
        assert!(!names.is_empty(), "no judge: {promise}");
        for name in names {
            let exists = match name.strip_prefix("fuzz ") {
                Some(target) => root().join(format!("fuzz/fuzz_targets/{target}.rs")).is_file(),
                None => is_test(name) || name.starts_with(".ci/") && root().join(name).is_file(),
            };
            assert!(exists, "{promise}: there is no {name}");
        }
        judged.extend(promise.split(' ').next().filter(|word| word.contains('.')).map(str::to_owned));
    }
    let format = text("FORMAT.md");
    let laws =
        format.lines().filter_map(|line| line.strip_prefix("### ")).filter_map(|head| head.split(' ').next());
    for law in laws.filter(|number| number.starts_with(['5', '6'])) {
        assert!(judged.contains(law), "no judge of section {law}");
    }
}
