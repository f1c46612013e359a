//! Text in columns.

use std::io::{self, Write};

/// Columns of a terminal that people have beside something else, and of a page.
pub(crate) const WIDTH: usize = 100;
/// Names keep so many columns, whatever stands beside them.
const LEAST: usize = 12;

/// `text` in at most `room` columns: its start and its end, which tell names apart.
fn shorten(text: &str, room: usize) -> String {
    let len = text.chars().count();
    if len <= room {
        return text.to_owned();
    }
    let (head, tail) = (room / 3, room - room / 3 - 1);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(len - tail)).collect()
}

/// Lines of cells, aligned: the first column to the left, the others to the right.
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self(vec![head.iter().map(|&cell| cell.to_owned()).collect()])
    }

    pub(crate) fn row(&mut self, cells: impl Into<Vec<String>>) {
        self.0.push(cells.into());
    }

    /// The whole table.
    pub(crate) fn write_long(&self, out: &mut impl Write) -> io::Result<()> {
        self.write_within(out, usize::MAX)
    }

    /// The table in [`WIDTH`] columns: names in the first that are too long for it lose their
    /// middle.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        self.write_within(out, WIDTH)
    }

    fn write_within(&self, out: &mut impl Write, room: usize) -> io::Result<()> {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.0.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let mut widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let others: usize = widths.iter().skip(1).map(|width| width + 2).sum();
        if let Some(first) = widths.first_mut() {
            *first = (*first).min(room.saturating_sub(others).max(LEAST));
        }
        for row in &self.0 {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let cell = if column == 0 {
                    format!("{:<width$}", shorten(cell, *width))
                } else {
                    format!("  {cell:>width$}")
                };
                line.push_str(&cell);
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_lose_their_middle() {
        let mut table = Table::new(&["a", "b"]);
        table.row(vec![format!("first{}last", "-".repeat(200)), "10".into()]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let row = text.lines().nth(1).unwrap();
        assert_eq!(row.chars().count(), WIDTH);
        assert!(row.starts_with("first--") && row.ends_with("-last  10") && row.contains('…'), "{row}");
        let mut out = Vec::new();
        table.write_long(&mut out).unwrap();
        assert!(!String::from_utf8(out).unwrap().contains('…'));
    }

    #[test]
    fn tables_align() {
        let mut table = Table::new(&["a", "b"]);
        table.row(vec!["name".into(), "10".into()]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a      b\nname  10\n");
    }
}
