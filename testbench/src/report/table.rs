//! Text in columns.

use std::io::{self, Write};

/// Lines of cells, aligned: the first column to the left, the others to the right.
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self(vec![head.iter().map(|&cell| cell.to_owned()).collect()])
    }

    pub(crate) fn row(&mut self, cells: impl Into<Vec<String>>) {
        self.0.push(cells.into());
    }

    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.0.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        for row in &self.0 {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let cell = if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") };
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
    fn tables_align() {
        let mut table = Table::new(&["a", "b"]);
        table.row(vec!["name".into(), "10".into()]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a      b\nname  10\n");
    }
}
