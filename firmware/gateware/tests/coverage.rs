//! How much of each engine the random frames reach: lines, branches and bits that take both values, by Verilator's count.

mod support;

use std::path::Path;
use std::process::Command;

use support::{Engine, judge, recorded};

/// Reports a percentage for an engine, and fails below `least`.
fn reached(engine: Engine, least: u32) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("coverage-{engine:?}"));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("counts.dat");
    let mut simulation = engine.design().coverage(&file).start().unwrap();
    judge(&mut simulation, engine, 4, 30_000, &recorded()).unwrap();
    drop(simulation);
    let mut command = Command::new("verilator_coverage");
    let output = command.arg("--annotate").arg(&folder).arg(&file).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    println!("{engine:?}: {text}");
    // Total coverage (1234/1300) 94.00%
    let share = text.split("Total coverage").nth(1).and_then(|rest| rest.split(')').nth(1));
    let share: f64 = share.and_then(|rest| rest.split('%').next()?.trim().parse().ok()).unwrap();
    assert!(
        share >= f64::from(least),
        "{engine:?}: {share} %, expected {least} at least; see {}",
        folder.display()
    );
}

#[test]
#[ignore = "needs Verilator: .ci/gateware coverage"]
fn of_the_compressor() {
    reached(Engine::Compressor, 90);
}

#[test]
#[ignore = "needs Verilator: .ci/gateware coverage"]
fn of_the_decompressor() {
    reached(Engine::Decompressor, 90);
}
