//! Golden files on the target, and its instructions against a committed table.

use std::collections::BTreeMap;
use std::path::Path;

use gradwire_testbench::softcore::machine::Options;
use xtask::table::{Row, Table, Tolerance};

use super::image;

const COUNTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/counts.csv");
const HEAD: &str = "\
# Instructions per value, or per frame of 1514 bytes, by minstret under QEMU's -icount shift=0.
# Gradients of hdc256_i0040_w0 at 2^-10. `how`: for values, their distance from a word in bytes; for frames, their kind.
# Compared by firmware/softcore/test; written anew by firmware/softcore/test --refresh
isa,kernel,direction,of,how,instructions
";
/// Counts of another compiler than the table's differ a little; a regression that matters differs
/// more.
const TOLERANCE: Tolerance = Tolerance { part: 0.03, least: 0.0 };
/// Bursts with both kernels, and frames.
const GOLDEN: usize = 7 * 2 + 8;

/// Runs the selftest; what it printed. It ends well only if every golden file came out byte for
/// byte.
fn run(options: &Options) -> String {
    let output = options.spawn(&[]).unwrap().wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && printed.ends_with("done\n"), "{printed}");
    assert_eq!(printed.lines().filter(|line| line.starts_with("golden ")).count(), GOLDEN, "{printed}");
    printed
}

/// Instructions for a value or a frame, by name.
fn counts(isa: &str, printed: &str) -> BTreeMap<String, f64> {
    let counts = printed.lines().filter_map(|line| line.strip_prefix("count "));
    let count = |line: &str| {
        let [name, instructions, units] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        (format!("{isa},{name}"), instructions.parse::<f64>().unwrap() / units.parse::<f64>().unwrap())
    };
    counts.map(count).collect()
}

#[test]
fn golden_files_and_instruction_counts() {
    let base = Options { icount: true, ..Options::new(image("build", "selftest")) };
    let zbb = Options { icount: true, cpu: "rv32,zbb=true".into(), ..Options::new(image("zbb", "selftest")) };
    let mut counted = counts("rv32imac", &run(&base));
    assert_eq!(counted, counts("rv32imac", &run(&base)), "the same run twice");
    counted.extend(counts("rv32imac_zbb", &run(&zbb)));
    let table = Table {
        path: Path::new(COUNTS),
        head: HEAD,
        digits: 3,
        tolerance: TOLERANCE,
        refresh: "firmware/softcore/test --refresh",
    };
    let rows: Vec<Row> = counted.clone().into_iter().collect();
    if std::env::var_os("SOFTCORE_REFRESH").is_some() {
        table.write(&rows).unwrap();
    }
    table.compare(&rows).unwrap();
    // What the kernel is made for.
    assert!(counted["rv32imac,scalar32,encode,value,0"] <= 10.0);
    assert!(counted["rv32imac,scalar32,decode,value,0"] <= 11.0);
}
