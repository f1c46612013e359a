//! Documents as tests read them: their tables, their links, what they name.

use std::fs;
use std::path::{Path, PathBuf};

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The text of a file, by its path from the root.
pub fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A Markdown table: its head, and the cells of each row, without the spaces around them.
#[derive(Debug)]
pub struct Table {
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// The first line of text behind it that is not empty.
    pub next: String,
}

impl Table {
    /// The number at the start of a cell, without its thousands' commas: `1.6 %` and `49,672` are
    /// numbers.
    pub fn number(cell: &str) -> f64 {
        let number = cell.split(' ').next().unwrap().replace(',', "");
        number.parse().unwrap_or_else(|_| panic!("not a number: {cell:?}"))
    }

    /// The rows as numbers behind their first cell, by that cell without its backticks.
    pub fn numbers(&self) -> Vec<(&str, Vec<f64>)> {
        let row = |row: &'_ Vec<String>| row[1..].iter().map(|cell| Self::number(cell)).collect();
        self.rows.iter().map(|cells| (cells[0].trim_matches('`'), row(cells))).collect()
    }
}

fn cells(line: &str) -> Vec<String> {
    line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// A document's lines outside its code blocks.
pub fn prose(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let outside = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    };
    text.lines().filter(outside).collect()
}

/// Every table of a document.
pub fn tables(text: &str) -> Vec<Table> {
    let lines = prose(text);
    let is_row = |line: &str| line.starts_with('|');
    let starts = (0..lines.len()).filter(|&at| is_row(lines[at]) && (at == 0 || !is_row(lines[at - 1])));
    starts
        .map(|start| {
            let end = (start..lines.len()).find(|&at| !is_row(lines[at])).unwrap_or(lines.len());
            assert!(lines[start + 1].starts_with("|---"), "a head and a rule: {}", lines[start]);
            let head = cells(lines[start]);
            let rows: Vec<_> = lines[start + 2..end].iter().map(|line| cells(line)).collect();
            for row in &rows {
                assert_eq!(row.len(), head.len(), "{row:?}");
            }
            let next = lines[end..].iter().find(|line| !line.is_empty()).unwrap_or(&"").to_string();
            Table { head, rows, next }
        })
        .collect()
}

/// The table whose head starts with these cells.
pub fn table(path: &str, head: &[&str]) -> Table {
    let mut found = tables(&text(path)).into_iter().filter(|table| {
        table.head.len() >= head.len() && table.head.iter().zip(head).all(|(cell, wanted)| cell == wanted)
    });
    let table = found.next().unwrap_or_else(|| panic!("{path}: no table {head:?}"));
    assert!(found.next().is_none(), "{path}: two tables {head:?}");
    table
}

/// The text between backticks in a line.
pub fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Every file of the repository with this extension that is not built output.
pub fn files_with(extension: &str) -> Vec<PathBuf> {
    fn visit(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap();
            if path.is_dir() && name != "target" && name != ".git" {
                visit(&path, extension, found);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    visit(&root(), extension, &mut found);
    found.sort();
    found
}

/// The anchor that GitHub gives a heading.
pub fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
