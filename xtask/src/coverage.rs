//! The part of the dataplane and of the gateware's model that the fuzzer's corpora reach, in lines.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Result;
use crate::tools::{cargo, output, root, run, target};

/// Of each part, in per cent.
const LEAST: f64 = 95.0;
/// Files and folders of the dataplane, and all of the model.
const PARTS: [&str; 5] = ["wire", "codec", "flow", "engine", "model"];
const DATAPLANE: &str = "dataplane/src/";
const MODEL: &str = "firmware/gateware/model/src/";

/// Lines that could be reached, and lines that were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    all: u64,
    reached: u64,
}

impl Lines {
    fn share(self) -> f64 {
        if self.all == 0 { 0.0 } else { 100.0 * self.reached as f64 / self.all as f64 }
    }
}

/// Replays the corpora and prints a table by part; `lines` also prints every line that no input
/// reaches.
///
/// # Errors
/// A part has less than its share; llvm's tools, which have to be of the compiler's LLVM, are
/// missing.
pub fn coverage(lines: bool) -> Result {
    let llvm = llvm_version(&output(Command::new("rustc").arg("-vV"))?)?;
    let work = target().join("coverage");
    fs::create_dir_all(&work)?;
    let work = fs::canonicalize(work)?;
    for entry in fs::read_dir(&work)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "profraw" || extension == "profdata") {
            fs::remove_file(path)?;
        }
    }
    let binary = build(&work)?;
    run(Command::new(&binary)
        .args(["--quiet", "every_corpus_holds"])
        .env("LLVM_PROFILE_FILE", work.join("corpus-%m.profraw"))
        .stdout(Stdio::null())
        .stderr(Stdio::null()))?;
    let profile = work.join("corpus.profdata");
    let mut merge = Command::new(format!("llvm-profdata-{llvm}"));
    merge.args(["merge", "--sparse"]);
    for entry in fs::read_dir(&work)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("corpus-")) {
            merge.arg(path);
        }
    }
    run(merge.arg("-o").arg(&profile))?;

    let report = |arguments: &[&str]| {
        let mut command = Command::new(format!("llvm-cov-{llvm}"));
        command.arg(arguments[0]).arg(&binary).arg("--instr-profile").arg(&profile).args(&arguments[1..]);
        output(command.current_dir(root()).args([DATAPLANE, MODEL]))
    };
    if lines {
        print!("{}", unreached(&report(&["show", "--show-line-counts-or-regions=false"])?));
    }
    verify(&parts(&serde_json::from_str(&report(&["export", "--summary-only"])?)?)?)
}

/// The first part of `rustc -vV`'s LLVM version.
fn llvm_version(text: &str) -> Result<u32> {
    let version =
        text.lines().find_map(|line| line.strip_prefix("LLVM version: ")?.split('.').next()?.parse().ok());
    version.ok_or_else(|| "rustc -vV names no version of LLVM".into())
}

/// Builds the test that replays the corpora; where it is. Only the workspace's crates are
/// instrumented; the others are taken as the tests have built them.
fn build(work: &Path) -> Result<PathBuf> {
    let wrapper = work.join("rustc");
    fs::write(&wrapper, "#!/bin/sh\nexec \"$@\" -C instrument-coverage\n")?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    let messages = output(
        cargo()
            .args(["test", "--quiet", "--locked", "--package", "gradwire-testbench", "--no-default-features"])
            .args(["--test", "corpus", "--no-run", "--message-format=json"])
            .env("RUSTC_WORKSPACE_WRAPPER", &wrapper)
            // Incremental builds leave out functions that nobody calls, and so their lines.
            .env("CARGO_INCREMENTAL", "0")
            .env("LLVM_PROFILE_FILE", work.join("build-%p.profraw")),
    )?;
    let executable = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test = message["target"]["name"] == "corpus";
        message["executable"].as_str().filter(|_| is_test).map(PathBuf::from)
    };
    messages.lines().find_map(executable).ok_or_else(|| "cargo built no test `corpus`".into())
}

/// Lines by part, of what `llvm-cov export --summary-only` says.
fn parts(export: &Value) -> Result<BTreeMap<&'static str, Lines>> {
    let mut found = BTreeMap::from(PARTS.map(|part| (part, Lines::default())));
    let files = export["data"][0]["files"].as_array().ok_or("llvm-cov exported no files")?;
    for file in files {
        let (Some(name), Some(all), Some(reached)) = (
            file["filename"].as_str(),
            file["summary"]["lines"]["count"].as_u64(),
            file["summary"]["lines"]["covered"].as_u64(),
        ) else {
            return Err(format!("llvm-cov exported no lines of a file: {file}").into());
        };
        let of_dataplane = name.rsplit_once(DATAPLANE).and_then(|(_, file)| file.split(['/', '.']).next());
        let part = if name.contains(MODEL) { Some("model") } else { of_dataplane };
        if let Some(lines) = part.and_then(|part| found.get_mut(part)) {
            lines.all += all;
            lines.reached += reached;
        }
    }
    Ok(found)
}

fn verify(parts: &BTreeMap<&str, Lines>) -> Result {
    let mut low = Vec::new();
    for part in PARTS {
        let lines = parts.get(part).copied().unwrap_or_default();
        let share = lines.share();
        println!("{part:8} {:5} lines, {:4} missed, {share:.1} %", lines.all, lines.all - lines.reached);
        if share < LEAST {
            low.push(part);
        }
    }
    if low.is_empty() { Ok(()) } else { Err(format!("less than {LEAST} % of {}", low.join(", ")).into()) }
}

/// Lines of `llvm-cov show` whose count is zero, each behind its file's name.
fn unreached(shown: &str) -> String {
    let (mut file, mut found) = (String::new(), String::new());
    for line in shown.lines() {
        if let Some(name) = line.strip_suffix(':').filter(|name| name.starts_with('/')) {
            let name = name.rsplit(DATAPLANE).next().unwrap_or(name);
            name.rsplit("firmware/gateware/").next().unwrap_or(name).clone_into(&mut file);
        }
        let mut columns = line.splitn(3, '|');
        if let (Some(number), Some("0"), Some(code)) =
            (columns.next(), columns.next().map(str::trim), columns.next())
        {
            found += &format!("{file}{number}:{code}\n");
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, count: u64, covered: u64) -> Value {
        serde_json::json!({"filename": name, "summary": {"lines": {"count": count, "covered": covered}}})
    }

    fn export(files: &[Value]) -> Value {
        serde_json::json!({"data": [{"files": files}]})
    }

    #[test]
    fn files_and_folders_of_a_part_are_added_up() {
        let export = export(&[
            file("/home/dataplane/src/flow.rs", 10, 9),
            file("/home/dataplane/src/flow/trust.rs", 5, 5),
            file("/home/dataplane/src/forward.rs", 7, 0),
            file("/home/firmware/gateware/model/src/run.rs", 4, 3),
            file("/home/firmware/gateware/model/src/lib.rs", 2, 2),
        ]);
        assert_eq!(parts(&export).unwrap()["flow"], Lines { all: 15, reached: 14 });
        assert_eq!(parts(&export).unwrap()["model"], Lines { all: 6, reached: 5 });
    }

    #[test]
    fn a_part_below_its_share_or_without_lines_fails() {
        let all = |lines| BTreeMap::from(PARTS.map(|part| (part, lines)));
        assert!(verify(&all(Lines { all: 100, reached: 95 })).is_ok());
        assert!(verify(&all(Lines { all: 1000, reached: 949 })).is_err());
        assert!(verify(&all(Lines::default())).is_err());
        let mut parts = all(Lines { all: 1, reached: 1 });
        parts.remove("engine");
        assert!(verify(&parts).unwrap_err().to_string().contains("engine"));
    }

    #[test]
    fn an_export_without_files_or_lines_is_refused() {
        for export in [serde_json::json!({}), export(&[serde_json::json!({"filename": "a"})])] {
            assert!(parts(&export).is_err(), "{export}");
        }
    }

    #[test]
    fn lines_that_no_input_reaches_are_named() {
        let shown = "/home/dataplane/src/wire/mod.rs:\n    1|     12|fn a() {\n    2|      0|    b | c\n    3|       |\n";
        assert_eq!(unreached(shown), "wire/mod.rs    2:    b | c\n");
    }

    #[test]
    fn the_compilers_llvm_is_read() {
        assert_eq!(llvm_version("release: 1.95.0\nLLVM version: 21.1.2\n").unwrap(), 21);
        assert!(llvm_version("release: 1.95.0\n").is_err());
    }
}
