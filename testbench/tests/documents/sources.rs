//! Every table of figures says where its figures come from.

use std::collections::BTreeSet;
use std::fs;

use crate::support::document::{code_spans, files_with, table, tables, text};
use crate::{FIRMWARE, HOST_CODECS, KERNELS, PERFORMANCE, README};

/// Documents with figures, and at most how many of their tables have no full source: TESTING.md
/// says so, too.
const DOCUMENTS: [(&str, usize); 11] = [
    (README, 0),
    (PERFORMANCE, 0),
    (KERNELS, 0),
    (FIRMWARE, 0),
    ("docs/deploy.md", 0),
    ("docs/aggregation.md", 2),
    ("docs/collectives.md", 0),
    ("docs/training.md", 0),
    (HOST_CODECS, 7),
    ("docs/codecs.md", 1),
    ("docs/papers.md", 5),
];

/// Whether a `Source` line says all that it takes to find or make the figures again.
fn check_source(line: &str, machines: &BTreeSet<String>, tests: &BTreeSet<String>) -> Result<(), String> {
    let source = line.strip_prefix("Source: ").ok_or("no line `Source: ` behind the table")?;
    let spans: Vec<&str> = code_spans(source).collect();
    if let Some(rest) = source.strip_prefix("test ") {
        assert!(rest.starts_with('`'));
        return if tests.contains(spans[0]) { Ok(()) } else { Err(format!("no test {}", spans[0])) };
    }
    let named: Vec<&str> =
        source.split("achine ").skip(1).map(|rest| rest.split(' ').next().unwrap()).collect();
    let commits = source.split("commit ").skip(1).filter(|rest| {
        let hash = rest.split([' ', ',', ';']).next().unwrap();
        hash.len() == 7 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    let known = named.iter().all(|machine| machines.contains(*machine));
    if named.is_empty() || !known || commits.count() < named.len() || spans.is_empty() {
        return Err("a known machine, the commit on each, and the command".into());
    }
    Ok(())
}

#[test]
fn every_table_of_figures_names_its_source() {
    let machines = table(PERFORMANCE, &["machine", "processor"]);
    let machines: BTreeSet<String> = machines.rows.iter().map(|row| row[0].clone()).collect();
    let sources: String = files_with("rs").iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let tests: BTreeSet<String> = sources
        .split("#[test]\n")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("fn ")?.1.split('(').next()?.to_owned()))
        .collect();
    let mut seen = 0;
    for (document, most) in DOCUMENTS {
        let mut lacking = Vec::new();
        for table in tables(&text(document)) {
            // The machines themselves, and tables of words.
            let cells = table.rows.iter().flat_map(|row| &row[1..]);
            let figures = cells.filter(|cell| cell.as_bytes().first().is_some_and(u8::is_ascii_digit));
            if table.head[0] == "machine" || figures.count() < table.rows.len() / 2 + 1 {
                continue;
            }
            if let Err(lacks) = check_source(&table.next, &machines, &tests) {
                lacking.push(format!("table {:?}: {lacks}\n{}", table.head, table.next));
            }
            seen += 1;
        }
        assert!(lacking.len() <= most, "{document}, more than {most}: {lacking:#?}");
    }
    assert!(seen >= 50, "{seen} tables of figures");
    // The check itself: it refuses what lacks a part.
    let lacking = [
        "",
        "Source: test `no_such_test`.",
        "Source: machine Z at commit 1cbb45f, `x`.",
        "Source: machine A, `x`.",
    ];
    for line in lacking {
        assert!(check_source(line, &machines, &tests).is_err(), "{line}");
    }
}
