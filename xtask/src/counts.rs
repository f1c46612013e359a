//! Instructions per value and per frame, counted by callgrind. Times depend on the machine and its
//! neighbours; these depend on the compiler and the source alone.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::table::{Row, Table, Tolerance};
use crate::tools::{cargo, output, root, run, target};

const TABLE: &str = "testbench/benches/counts.csv";
const REFRESH: &str = ".ci/counts --refresh";
/// In parts of the table's count.
const TOLERANCE: f64 = 0.02;

/// Counts, and compares with the committed table, or writes it.
///
/// # Errors
/// A count is off; or nothing could be counted, as on any processor but x86-64, whose instructions
/// the table has.
pub fn counts(refresh: bool) -> Result {
    if !cfg!(target_arch = "x86_64") {
        return Err(format!("{TABLE} is of x86-64: nothing to compare with on this processor").into());
    }
    let work = target().join("counts");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    run(cargo().args([
        "build",
        "--quiet",
        "--locked",
        "--release",
        "--package",
        "gradwire-testbench",
        "--example",
        "counts",
    ]))?;
    let names = callgrind(&work)?;
    let dumps = dumps(&work)?;
    let counted = counted(&names, &dumps)?;

    let compiler = output(Command::new("rustc").arg("--version"))?;
    let compiler = compiler.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let head = format!(
        "\
# Instructions per value, and in rows `frame` per frame, under callgrind; {compiler}, x86-64, release.
# AVX-512 is missing: valgrind shows programs a processor with AVX2 at most.
# Compared by .ci/counts with a tolerance of {:.0}%; written by {REFRESH}
kernel,direction,codec,of,instructions
",
        100.0 * TOLERANCE
    );
    let path = root().join(TABLE);
    let tolerance = Tolerance { part: TOLERANCE, least: 0.0 };
    let table = Table { path: &path, head: &head, digits: 3, tolerance, refresh: REFRESH };
    if refresh {
        table.write(&counted)?;
        println!("counts: {} written to {TABLE}", counted.len());
        return Ok(());
    }
    if !fs::read_to_string(&path)?.lines().next().is_some_and(|line| line.contains(&compiler)) {
        println!("counts: {TABLE} was not written with {compiler}: differences may be the compiler's");
    }
    table.compare(&counted)?;
    println!("counts: {}, all within {:.0} % of {TABLE}", counted.len(), 100.0 * TOLERANCE);
    Ok(())
}

/// Runs the program that is counted. It prints a line for each piece of work; callgrind leaves a
/// dump for each in `work`.
fn callgrind(work: &Path) -> Result<String> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=counts::gradwire_counted"]);
    // The whole name: valgrind 3.19 ignores --dump-after with a pattern.
    valgrind.arg("--dump-after=counts::gradwire_counted");
    valgrind.arg(format!("--callgrind-out-file={}", work.join("out").display()));
    valgrind.arg(format!("--log-file={}", work.join("log").display()));
    output(valgrind.arg(target().join("release/examples/counts"))).map_err(|error| {
        let log = fs::read_to_string(work.join("log")).unwrap_or_default();
        format!("{log}{error}").into()
    })
}

/// All dumps, in order: `out.1`, `out.2` and on.
fn dumps(work: &Path) -> Result<Vec<String>> {
    let mut dumps = Vec::new();
    loop {
        let path = work.join(format!("out.{}", dumps.len() + 1));
        if !path.exists() {
            return Ok(dumps);
        }
        dumps.push(fs::read_to_string(path)?);
    }
}

/// A row for each piece of work: `names` says what each dump is of, and by how many values or
/// frames to divide.
fn counted(names: &str, dumps: &[String]) -> Result<Vec<Row>> {
    if names.lines().count() != dumps.len() {
        return Err(format!(
            "callgrind counted {} calls of counts::gradwire_counted, and {} pieces of work were named",
            dumps.len(),
            names.lines().count()
        )
        .into());
    }
    let row = |(line, dump): (&str, &String)| -> Result<Row> {
        let unreadable = || format!("no name and number of values: {line}");
        let (name, divisor) = line.split_once(' ').ok_or_else(unreadable)?;
        let divisor: u32 = divisor.parse().map_err(|_| unreadable())?;
        let total = dump.lines().find_map(|line| {
            line.strip_prefix("totals: ")
                .or_else(|| line.strip_prefix("summary: "))?
                .trim()
                .parse::<u64>()
                .ok()
        });
        match total {
            Some(total @ 1..) if divisor > 0 => Ok((name.to_owned(), total as f64 / f64::from(divisor))),
            _ => Err(format!("{name}: callgrind counted nothing: is gradwire_counted inlined?").into()),
        }
    };
    names.lines().zip(dumps).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &str, dumps: &[&str]) -> Result<Vec<Row>> {
        counted(names, &dumps.iter().map(|dump| (*dump).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_dump_is_divided_by_its_values() {
        let rows =
            of("avx2,encode 4\nframe 2\n", &["version: 1\ntotals: 10\n", "summary: 7\ntotals: 7\n"]).unwrap();
        assert_eq!(rows, [("avx2,encode".to_owned(), 2.5), ("frame".to_owned(), 3.5)]);
    }

    #[test]
    fn names_and_dumps_have_to_match() {
        assert!(of("a 1\n", &[]).is_err());
        assert!(of("a 1\n", &["totals: 1\n", "totals: 1\n"]).is_err());
    }

    #[test]
    fn a_count_of_nothing_is_an_error() {
        for dump in ["", "totals: 0\n", "totals: many\n"] {
            assert!(of("a 1\n", &[dump]).is_err(), "{dump:?}");
        }
        for name in ["a", "a 0", "a b"] {
            assert!(of(name, &["totals: 1\n"]).is_err(), "{name:?}");
        }
    }
}
