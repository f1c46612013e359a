//! Tables of what the simulator and the planner print.

use std::collections::BTreeSet;

use clap::Parser;
use gradwire_testbench::cmd::{Cli, run};
use gradwire_testbench::error::Outcome;
use serde_json::Value;

use crate::assert_cell;
use crate::support::document::table;

/// The rows of `gradwire simulate stack` for a model.
fn stack(model: &str) -> Vec<Value> {
    let cli = Cli::try_parse_from(format!("gradwire simulate stack --json --model {model}").split(' '));
    let mut out = Vec::new();
    assert_eq!(run(&cli.unwrap(), &mut out).unwrap(), Outcome::Held);
    let report: Value = serde_json::from_slice(&out).unwrap();
    report["rows"].as_array().unwrap().clone()
}

#[test]
fn simulator_has_the_stack() {
    let documented = table("docs/simulator.md", &["codec", "step", "VGG-16, s"]);
    let (vgg, resnet) = (stack("vgg16"), stack("resnet101 --bandwidth 1G"));
    assert_eq!([vgg.len(), resnet.len()], [documented.rows.len(); 2]);
    for (cells, (vgg, resnet)) in documented.rows.iter().zip(vgg.iter().zip(&resnet)) {
        for (row, cells) in [(vgg, &cells[2..6]), (resnet, &cells[6..])] {
            let what = format!("{} {} {}", row["model"], row["codec"], row["step"]);
            for (cell, (name, factor, decimals)) in cells.iter().zip([
                ("iteration_s", 1.0, 3),
                ("uncoordinated_s", 1.0, 3),
                ("efficiency", 100.0, 1),
                ("communication", 100.0, 1),
            ]) {
                assert_cell(cell, factor * row[name].as_f64().unwrap(), decimals, &what);
            }
        }
        assert_eq!(cells[1].trim_start_matches("+ "), vgg["step"]);
        assert!(vgg["step"] == "none" || cells[0].trim_matches('`') == vgg["codec"], "{cells:?}");
    }
}

/// How many times as fast as `f32` the whole stack is, by ranks and wire.
#[test]
fn papers_has_the_sweep_of_the_stack() {
    let documented = table("docs/papers.md", &["codec", "ranks", "10 Gbit/s"]);
    let codecs: BTreeSet<&str> = documented.rows.iter().map(|cells| cells[0].trim_matches('`')).collect();
    // The rates with which Table 7 comes out, whatever the codec.
    let codecs = codecs.iter().map(|codec| format!(" --codec {codec}@59,15.3")).collect::<String>();
    let rows =
        stack(&format!("vgg16 --ranks 4,16,64 --bandwidth 10G,25G,56G,100G --per-message 5.85us{codecs}"));
    let iteration = |step: &str, ranks: u64, gigabits: u64, codec: Option<&str>| {
        let row = rows.iter().find(|row| {
            row["step"] == step
                && row["ranks"] == ranks
                && row["bandwidth"] == gigabits * 1_000_000_000
                && codec.is_none_or(|codec| row["codec"] == codec)
        });
        row.unwrap()["iteration_s"].as_f64().unwrap()
    };
    assert_eq!(documented.rows.len(), 8);
    for cells in &documented.rows {
        let (codec, ranks) = (Some(cells[0].trim_matches('`')), cells[1].parse().unwrap());
        for (cell, gigabits) in cells[2..].iter().zip([10, 25, 56, 100]) {
            let gain =
                iteration("none", ranks, gigabits, None) / iteration("selection", ranks, gigabits, codec);
            assert_cell(cell, gain, 1, &format!("{cells:?}"));
        }
    }
}

/// What `gradwire plan published` prints.
#[test]
fn papers_has_the_tuples_of_table_7() {
    let mut out = Vec::new();
    let cli = Cli::try_parse_from(["gradwire", "plan", "published"]).unwrap();
    assert_eq!(run(&cli, &mut out).unwrap(), Outcome::Held);
    let printed = String::from_utf8(out).unwrap();
    // Columns are two spaces apart and more.
    let cells = |line: &str| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    let lines: Vec<Vec<String>> = printed.lines().map(cells).collect();
    let tuples = table("docs/papers.md", &["gradient", "CaSync", "ranks", "published"]).rows;
    let thresholds = table("docs/papers.md", &["CaSync", "ranks", "published: compresses from, MB"]).rows;
    assert_eq!((tuples.len(), thresholds.len()), (12, 4));
    let tuples = tuples.into_iter().map(|mut row| {
        row[0] = row[0].replace(" MB", "");
        row
    });
    for row in tuples.chain(thresholds) {
        assert!(lines.contains(&row), "{row:?} in\n{printed}");
    }
    assert!(printed.contains("12 of 12 decisions and 7 of 12 partitions"), "{printed}");
}
