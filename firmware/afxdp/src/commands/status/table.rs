//! Tables of text.

/// Rows under headings; every column as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    headings: [&'static str; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// Columns whose heading starts with `>` are aligned to the right.
    pub(crate) fn new(headings: &[&'static str; N]) -> Self {
        Self { headings: *headings, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    /// The table and an empty line, without columns whose cells are all empty; nothing if there is
    /// no row.
    pub(crate) fn render(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let headings = self.headings.map(|heading| heading.trim_start_matches('>').to_owned());
        let lines: Vec<_> = std::iter::once(&headings).chain(&self.rows).collect();
        let mut text = String::new();
        for cells in &lines {
            let mut line = String::new();
            for (column, cell) in cells.iter().enumerate() {
                if self.rows.iter().all(|cells| cells[column].is_empty()) {
                    continue;
                }
                let width = lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
                if column != 0 {
                    line += "  ";
                }
                line += &if self.headings[column].starts_with('>') {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:width$}")
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["name", "empty", ">count"]);
        assert_eq!(table.render(), "");
        table.row(["a", "", "1"].map(str::to_owned));
        table.row(["long name", "", "123456"].map(str::to_owned));
        assert_eq!(table.render(), "name        count\na               1\nlong name  123456\n\n");
    }
}
