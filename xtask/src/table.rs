//! A committed table of figures, and whether what was measured agrees with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::Result;

/// A name, which fills all columns but the last, and its figure.
pub type Row = (String, f64);

/// The tolerance of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// As a part of the table's figure.
    pub part: f64,
    /// In units of the figure, if that is more.
    pub least: f64,
}

impl Tolerance {
    fn allows(self, measured: f64, was: f64) -> bool {
        // A figure that is no number is never allowed.
        (measured - was).abs() <= self.least.max(self.part * was.abs())
    }
}

/// A CSV file of one figure a row.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    /// The file.
    pub path: &'a Path,
    /// All lines above the rows: comments, which begin with `#`, then the names of the columns.
    pub head: &'a str,
    /// Digits behind the point.
    pub digits: usize,
    /// The tolerance of a figure.
    pub tolerance: Tolerance,
    /// The command that writes the file anew.
    pub refresh: &'a str,
}

impl Table<'_> {
    /// Writes what was measured, row by row.
    ///
    /// # Errors
    /// Nothing was measured, or the file system's.
    pub fn write(&self, measured: &[Row]) -> Result {
        self.refuse_nothing(measured)?;
        let rows: String =
            measured.iter().map(|(name, figure)| format!("{name},{figure:.*}\n", self.digits)).collect();
        Ok(fs::write(self.path, format!("{}{rows}", self.head))?)
    }

    /// Compares what was measured with the file: the same names, and every figure within the
    /// tolerance.
    ///
    /// # Errors
    /// Every difference, a line each. Nothing was measured; the file has no rows, or a row without
    /// a figure.
    pub fn compare(&self, measured: &[Row]) -> Result {
        let path = self.path.display();
        let text = fs::read_to_string(self.path).map_err(|error| format!("{path}: {error}"))?;
        let differences = self.differences(&text, measured)?;
        if differences.is_empty() {
            return Ok(());
        }
        Err(format!(
            "{}\n{path}: {} of {} figures differ. If that is meant, for better or worse: {}, and commit the file with the reason.",
            differences.join("\n"),
            differences.len(),
            measured.len(),
            self.refresh
        )
        .into())
    }

    fn differences(&self, text: &str, measured: &[Row]) -> Result<Vec<String>> {
        self.refuse_nothing(measured)?;
        let wanted = parse(text).map_err(|error| format!("{}: {error}", self.path.display()))?;
        let mut differences = Vec::new();
        let mut seen = BTreeSet::new();
        for (name, figure) in measured {
            let digits = self.digits;
            if !seen.insert(name) {
                differences.push(format!("{name}: measured twice"));
            }
            match wanted.get(name) {
                None => differences.push(format!("{name}: measured, but not in the table")),
                Some(was) if !self.tolerance.allows(*figure, *was) => differences.push(format!(
                    "{name}: {figure:.digits$}, was {was:.digits$} ({:+.1} %)",
                    100.0 * (figure / was - 1.0)
                )),
                Some(_) => {}
            }
        }
        let missing = wanted.keys().filter(|name| !seen.contains(name));
        differences.extend(missing.map(|name| format!("{name}: in the table, but not measured")));
        Ok(differences)
    }

    fn refuse_nothing(&self, measured: &[Row]) -> Result {
        if measured.is_empty() {
            return Err(format!("nothing was measured for {}", self.path.display()).into());
        }
        Ok(())
    }
}

/// Names and figures of a file; at least one.
///
/// # Errors
/// It has no rows, or a row without a figure.
pub(crate) fn parse(text: &str) -> Result<BTreeMap<String, f64>> {
    let mut rows = BTreeMap::new();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    for (number, line) in lines.skip(1) {
        let row = line.rsplit_once(',').and_then(|(name, figure)| Some((name, figure.parse::<f64>().ok()?)));
        let Some((name, figure)) = row.filter(|(_, figure)| figure.is_finite()) else {
            return Err(format!("line {}: no figure: {line}", number + 1).into());
        };
        if rows.insert(name.to_owned(), figure).is_some() {
            return Err(format!("line {}: a second row of {name}", number + 1).into());
        }
    }
    if rows.is_empty() {
        return Err("no rows".into());
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Of a test.\nkernel,of,instructions\na,value,100.000\nb,value,-50\n";
    fn table(tolerance: Tolerance) -> Table<'static> {
        Table {
            path: Path::new("table.csv"),
            head: "# Of a test.\nname,figure\n",
            digits: 3,
            tolerance,
            refresh: "refresh",
        }
    }

    fn strict() -> Table<'static> {
        table(Tolerance { part: 0.02, least: 0.0 })
    }

    fn differences(measured: &[(&str, f64)]) -> Vec<String> {
        let rows: Vec<Row> = measured.iter().map(|(name, figure)| ((*name).to_owned(), *figure)).collect();
        strict().differences(TEXT, &rows).unwrap()
    }

    #[test]
    fn figures_within_the_tolerance_agree() {
        for (a, b) in [(100.0, -50.0), (102.0, -51.0), (98.0, -49.0)] {
            assert!(differences(&[("a,value", a), ("b,value", b)]).is_empty(), "{a} {b}");
        }
    }

    #[test]
    fn figures_outside_the_tolerance_differ() {
        for figure in [102.01, 97.99, 0.0, -100.0, f64::NAN, f64::INFINITY] {
            let found = differences(&[("a,value", figure), ("b,value", -50.0)]);
            assert_eq!(found.len(), 1, "{figure}");
            assert!(found[0].starts_with("a,value: "), "{found:?}");
        }
        assert_eq!(
            differences(&[("a,value", 103.0), ("b,value", -50.0)]),
            ["a,value: 103.000, was 100.000 (+3.0 %)"]
        );
    }

    #[test]
    fn a_small_figure_may_differ_by_the_least() {
        let table = table(Tolerance { part: 0.1, least: 16.0 });
        let rows = |figure| [("a,value".to_owned(), 100.0), ("b,value".to_owned(), figure)];
        assert!(table.differences(TEXT, &rows(-34.0)).unwrap().is_empty());
        assert_eq!(table.differences(TEXT, &rows(-33.9)).unwrap().len(), 1);
    }

    #[test]
    fn names_have_to_be_the_same() {
        assert_eq!(differences(&[("a,value", 100.0)]), ["b,value: in the table, but not measured"]);
        let found = differences(&[("a,value", 100.0), ("b,value", -50.0), ("c,value", 1.0)]);
        assert_eq!(found, ["c,value: measured, but not in the table"]);
        let found = differences(&[("a,value", 100.0), ("a,value", 100.0), ("b,value", -50.0)]);
        assert_eq!(found, ["a,value: measured twice"]);
    }

    #[test]
    fn nothing_never_agrees_with_nothing() {
        assert!(strict().differences(TEXT, &[]).is_err());
        assert!(strict().write(&[]).is_err());
        for text in ["", "# Only a comment.\n", "kernel,of,instructions\n"] {
            assert!(strict().differences(text, &[("a,value".to_owned(), 1.0)]).is_err(), "{text:?}");
        }
    }

    #[test]
    fn rows_without_a_figure_are_refused() {
        for row in ["a,value", "a,value,", "a,value,many", "a,value,NaN", "", "b,value,1\nb,value,1"] {
            assert!(parse(&format!("name,figure\n{row}\n")).is_err(), "{row:?}");
        }
    }

    #[test]
    fn a_written_table_agrees_with_itself() {
        let path = std::env::temp_dir().join(format!("xtask-table-{}.csv", std::process::id()));
        let table = Table { path: &path, ..strict() };
        let rows = [("a,value".to_owned(), 1.0 / 3.0), ("b,value".to_owned(), 2.5e6)];
        table.write(&rows).unwrap();
        table.compare(&rows).unwrap();
        let text = table.compare(&rows[..1]).unwrap_err().to_string();
        fs::remove_file(&path).unwrap();
        assert!(text.contains("1 of 1 figures differ") && text.contains("refresh"), "{text}");
    }
}
