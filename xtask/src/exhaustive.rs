//! The record of all 2^32 values, `dataplane/tests/exhaustive.csv`: runs the tests `exhaustive` of
//! the dataplane and of the gateware's model bound by bound.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;

use crate::Result;
use crate::tools::{cargo, output, root, run};

const RECORD: &str = "dataplane/tests/exhaustive.csv";
const HEAD: &str = "\
# All 2^32 values with these parameters; written by .ci/exhaustive. Codec 1: k tells the split. Codec 2: b and k are empty, and
# x is y. Kernels: portable, scalar32 and that of the machine, but for those with rows of their own. commit: the last that changed the code.
test,b,k,x,seconds,date,commit,machine
";
#[rustfmt::skip]
const TEST: [&str; 10] = [
    "test", "--quiet", "--locked", "--release", "--package", "gradwire", "--package", "gradwire-gateware-model",
    "--test", "exhaustive",
];
/// The code that is tested.
const CODE: [&str; 2] = ["dataplane/src", "firmware/gateware/model/src"];
/// Each prints a row for each set of parameters.
const TESTS: [&str; 3] = ["kernels", "lane-blocks", "laws"];
/// Those of codec 2.
const BIT_PLANE: [&str; 2] = ["bit-plane-kernels", "bit-plane-laws"];

/// The tests that run at once: some tests, with one bound of codec 1 or with all of codec 2.
struct Part<'a> {
    tests: &'a [&'a str],
    bound: Option<u8>,
}

impl Part<'_> {
    /// The start of a test's row.
    fn start(&self, test: &str) -> String {
        self.bound.map_or_else(|| format!("{test},,,"), |bound| format!("{test},{bound},"))
    }

    fn has(&self, row: &str) -> bool {
        self.tests.iter().any(|test| row.starts_with(&self.start(test)))
    }
}

/// Writes the rows of codec 1 with these bounds; other rows stay. Some hours on two cores for all.
/// With `kernel`, that kernel alone is compared with the definition, in rows of its own name: for a
/// processor that the others were not recorded on.
///
/// # Errors
/// The dataplane or the model differs from its last commit; a value breaks a law; a test printed no
/// row.
pub fn exhaustive(bounds: &[u8], kernel: Option<&str>) -> Result {
    let tests = kernel.as_ref().map_or(&TESTS[..], std::slice::from_ref);
    let parts: Vec<Part<'_>> = bounds.iter().map(|bound| Part { tests, bound: Some(*bound) }).collect();
    record(&parts, |part, test| {
        let bound = part.bound.map(|bound| bound.to_string()).unwrap_or_default();
        test.env("GRADWIRE_BOUNDS", bound);
        if let Some(kernel) = kernel {
            test.args(["--exact", "kernels"]).env("GRADWIRE_KERNEL", kernel);
        } else {
            test.args(["--exact", "kernels", "lane_blocks", "laws"]);
        }
    })
}

/// As [`exhaustive`], for codec 2, all bounds at once. Half an hour on two cores.
///
/// # Errors
/// Those of [`exhaustive`].
pub fn bit_plane(kernel: Option<&str>) -> Result {
    let tests = kernel.as_ref().map_or(&BIT_PLANE[..], std::slice::from_ref);
    record(&[Part { tests, bound: None }], |_, test| {
        test.args(["--exact", "bit_plane_kernels"]).env("GRADWIRE_BIT_PLANE", "all");
        if let Some(kernel) = kernel {
            test.env("GRADWIRE_KERNEL", kernel);
        } else {
            test.arg("bit_plane_laws");
        }
    })
}

/// Runs each part, as `asked` tells the command, and writes its rows.
fn record(parts: &[Part<'_>], asked: impl Fn(&Part<'_>, &mut Command)) -> Result {
    let git = |arguments: &[&str]| output(Command::new("git").args(arguments).current_dir(root()));
    let others = format!(":!{RECORD}");
    let inputs = ["dataplane", "firmware/gateware/model", "Cargo.lock", &others];
    if !git(&[&["status", "--porcelain", "--"], &inputs[..]].concat())?.is_empty() {
        return Err("the code has changes that are not committed; the record names a commit".into());
    }
    let commit = git(&[&["log", "-1", "--format=%h", "--"], &CODE[..]].concat())?;
    let date = output(Command::new("date").args(["-u", "+%F"]))?;
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let source = format!("{},{},{processors} of {}", date.trim(), commit.trim(), processor()?);

    run(cargo().args(TEST).arg("--no-run"))?;
    for part in parts {
        // One test at a time: each has all processors.
        let mut test = cargo();
        test.args(TEST).args(["--", "--ignored", "--nocapture", "--test-threads", "1"]);
        // A record is of all values.
        test.env_remove("GRADWIRE_PART");
        asked(part, &mut test);
        let text = output(test.stdin(Stdio::null()))?;
        print!("{text}");
        let measured = rows(&text, part)?;
        let path = root().join(RECORD);
        let record = updated(&fs::read_to_string(&path)?, part, &measured, &source);
        fs::write(&path, record)?;
    }
    Ok(())
}

fn processor() -> Result<String> {
    let text = fs::read_to_string("/proc/cpuinfo")?;
    let name =
        text.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(": ").nth(1));
    Ok(name.unwrap_or(std::env::consts::ARCH).replace(',', " "))
}

/// The rows that the tests of a part printed, `laws,10,3,0,9.5`: at least one row of each.
fn rows<'a>(text: &'a str, part: &Part<'_>) -> Result<Vec<&'a str>> {
    // The harness may write in front of a row.
    let row = |line: &'a str| {
        let starts = part.tests.iter().filter_map(|test| line.find(&format!("{test},")));
        starts.min().map(|start| &line[start..]).filter(|row| is_row(row))
    };
    let found: Vec<&str> = text.lines().filter_map(row).collect();
    for start in part.tests.iter().map(|test| part.start(test)) {
        if !found.iter().any(|row| row.starts_with(&start)) {
            return Err(format!("no row that starts with {start}").into());
        }
    }
    Ok(found)
}

/// A test, three parameters and seconds.
fn is_row(row: &str) -> bool {
    let fields: Vec<&str> = row.split(',').collect();
    let [_, b, k, x, seconds] = fields[..] else { return false };
    let is_number = |field: &str| field.is_empty() || field.parse::<u8>().is_ok();
    is_number(b) && is_number(k) && x.parse::<i8>().is_ok() && seconds.parse::<f64>().is_ok()
}

/// The record with the rows of a part replaced, in order.
fn updated(record: &str, part: &Part<'_>, measured: &[&str], source: &str) -> String {
    let other = |line: &&str| {
        !line.is_empty() && !line.starts_with('#') && !line.starts_with("test,") && !part.has(line)
    };
    let mut rows: Vec<String> = record.lines().filter(other).map(str::to_owned).collect();
    rows.extend(measured.iter().map(|row| format!("{row},{source}")));
    let key = |row: &String| {
        let fields: Vec<&str> = row.split(',').collect();
        let number = |index: usize| fields.get(index).and_then(|field| field.parse::<i32>().ok());
        (fields.first().copied().unwrap_or_default().to_owned(), number(1), number(2), number(3))
    };
    rows.sort_by_cached_key(key);
    format!("{HEAD}{}\n", rows.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\nrunning 3 tests\nkernels,10,3,0,80.1\ntest kernels ... ok\ntest laws ... laws,10,3,-80,9.5\n\
        laws,10,3,0,9.4\nlane-blocks,10,3,0,1.0\n.\ntest result: ok.\n";

    const fn of<'a>(tests: &'a [&'a str], bound: u8) -> Part<'a> {
        Part { tests, bound: Some(bound) }
    }

    #[test]
    fn codec_2_replaces_its_own_rows_only() {
        let part = Part { tests: &["bit-plane-laws"], bound: None };
        let record = format!("{HEAD}laws,10,3,0,1.0,then,a,m\nbit-plane-laws,,,-10,1.0,then,a,m\n");
        let text = "running 1 test\nbit-plane-laws,,,-94,2.0\nbit-plane-laws,,,-10,3.0\n.\n";
        let measured = rows(text, &part).unwrap();
        let expected =
            "bit-plane-laws,,,-94,2.0,now,b,n\nbit-plane-laws,,,-10,3.0,now,b,n\nlaws,10,3,0,1.0,then,a,m\n";
        assert_eq!(updated(&record, &part, &measured, "now,b,n"), format!("{HEAD}{expected}"));
        assert!(rows(OUTPUT, &part).is_err());
        assert!(rows(text, &Part { tests: &BIT_PLANE, bound: None }).is_err(), "no row of the kernels");
    }

    #[test]
    fn one_kernel_of_codec_2_leaves_its_rows_of_codec_1() {
        let record = format!("{HEAD}avx512,10,3,0,1.0,then,a,m\navx512,,,-10,1.0,then,a,m\n");
        let part = Part { tests: &["avx512"], bound: None };
        let expected = "avx512,,,-10,2.0,now,b,n\navx512,10,3,0,1.0,then,a,m\n";
        assert_eq!(updated(&record, &part, &["avx512,,,-10,2.0"], "now,b,n"), format!("{HEAD}{expected}"));
    }

    #[test]
    fn rows_are_found_among_what_tests_print() {
        let found = rows(OUTPUT, &of(&TESTS, 10)).unwrap();
        assert_eq!(
            found,
            ["kernels,10,3,0,80.1", "laws,10,3,-80,9.5", "laws,10,3,0,9.4", "lane-blocks,10,3,0,1.0"]
        );
    }

    #[test]
    fn a_test_without_a_row_is_an_error() {
        assert!(rows("", &of(&TESTS, 10)).is_err());
        assert!(rows(OUTPUT, &of(&TESTS, 11)).is_err(), "rows of another bound");
        assert!(rows(&OUTPUT.replace("lane-blocks,", "blocks,"), &of(&TESTS, 10)).is_err());
    }

    #[test]
    fn rows_of_other_bounds_stay() {
        let record =
            format!("{HEAD}laws,2,0,0,1.0,then,a,m\nlaws,10,3,0,1.0,then,a,m\nlaws,10,4,0,1.0,then,a,m\n");
        let new = updated(&record, &of(&TESTS, 10), &["laws,10,3,0,9.4", "kernels,10,3,0,8.0"], "now,b,n");
        let expected = "kernels,10,3,0,8.0,now,b,n\nlaws,2,0,0,1.0,then,a,m\nlaws,10,3,0,9.4,now,b,n\n";
        assert_eq!(new, format!("{HEAD}{expected}"));
    }

    #[test]
    fn one_kernel_replaces_its_own_rows_only() {
        let record = format!("{HEAD}avx512,10,3,0,1.0,then,a,m\nkernels,10,3,0,1.0,then,a,m\n");
        let text = "running 1 test\navx512,10,3,0,2.0\n.\n";
        let measured = rows(text, &of(&["avx512"], 10)).unwrap();
        let expected = "avx512,10,3,0,2.0,now,b,n\nkernels,10,3,0,1.0,then,a,m\n";
        assert_eq!(updated(&record, &of(&["avx512"], 10), &measured, "now,b,n"), format!("{HEAD}{expected}"));
    }

    #[test]
    fn the_record_is_written_as_it_stands() {
        let record = fs::read_to_string(root().join(RECORD)).unwrap();
        assert_eq!(updated(&record, &of(&TESTS, 99), &[], ""), record);
    }
}
