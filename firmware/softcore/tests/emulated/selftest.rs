//! Golden files on the target, and its instructions against a committed table.

use std::collections::BTreeMap;
use std::fs;
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
/// Counts of another compiler than the table's differ a little; a regression that matters differs more.
const TOLERANCE: Tolerance = Tolerance { part: 0.03, least: 0.0 };
/// Bursts with both kernels, and frames.
const GOLDEN: usize = 7 * 2 + 8;

/// Runs the selftest; what it said. It ends well only where every golden file came out byte for byte.
fn run(options: &Options) -> String {
    let output = options.spawn(&[]).unwrap().wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.ends_with("done\n"), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("golden ")).count(), GOLDEN, "{said}");
    said
}

/// Instructions for a value or a frame, by name.
fn counts(isa: &str, said: &str) -> BTreeMap<String, f64> {
    let counts = said.lines().filter_map(|line| line.strip_prefix("count "));
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

/// The table of README is that of `counts.csv`.
#[test]
fn readme_has_the_counts() {
    let table = fs::read_to_string(COUNTS).unwrap();
    let count = |name: &str| -> f64 {
        let row = table.lines().find_map(|line| line.strip_prefix(&format!("{name},")));
        row.unwrap_or_else(|| panic!("{name}")).parse().unwrap()
    };
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    for (isa, name) in [("rv32imac", "RV32IMAC"), ("rv32imac_zbb", "with Zbb")] {
        for (direction, verb) in [("encode", "egress"), ("decode", "ingress")] {
            let value = count(&format!("{isa},scalar32,{direction},value,0"));
            let frame = count(&format!("{isa},scalar32,{verb},frame,routed"));
            // 100 million instructions a second, 1514 bytes a frame.
            let rate = 1514.0 * 8.0 * 100.0 / frame;
            let row = format!(
                "| {name} | {direction} | {value:.1} | {:.0} | {frame:.0} | {rate:.0} Mbit/s |",
                8.0 * value
            );
            assert!(readme.contains(&row), "README lacks\n{row}");
        }
    }
}
