//! Runs the property tests with seeds that nobody has run. `cargo test` draws the same cases each
//! time (.cargo/config.toml), so that nobody's run fails by chance.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Result;
use crate::at_least::passed_in;
use crate::tools::{cargo, output, root, run, target};

/// The variable from which proptest takes its seed.
const SEED: &str = "PROPTEST_RNG_SEED";

/// The workspaces that have property tests: a folder of sources, others within it that are no part
/// of it, and cargo's arguments.
const WORKSPACES: [(&str, &[&str], &[&str]); 2] = [
    (".", &[":!firmware/softcore", ":!fuzz"], &["--workspace"]),
    (
        "firmware/softcore",
        &[],
        &[
            "--manifest-path",
            "firmware/softcore/Cargo.toml",
            "--no-default-features",
            "--features",
            "management",
        ],
    ),
];

/// The property tests of a workspace.
#[derive(Debug, Default)]
struct Properties {
    /// cargo's arguments that name the workspace.
    workspace: &'static [&'static str],
    /// Names of programs in folders `tests`.
    programs: BTreeSet<String>,
    /// Names of tests.
    tests: BTreeSet<String>,
}

impl Properties {
    fn of((folder, without, workspace): (&str, &[&str], &'static [&'static str])) -> Result<Self> {
        let mut properties = Self { workspace, ..Self::default() };
        let mut sources = Command::new("git");
        sources.args(["ls-files", "*.rs"]).args(without).current_dir(root().join(folder));
        let paths = output(&mut sources)?;
        let paths: Vec<_> = paths.lines().collect();
        for path in &paths {
            properties.add(path, &fs::read_to_string(root().join(folder).join(path))?, &paths);
        }
        Ok(properties)
    }

    /// Adds those of a source file, one of `paths`. A folder `tests` is one program if it has an
    /// `all.rs`, and a program a file or folder within it if not.
    fn add(&mut self, path: &str, text: &str, paths: &[&str]) {
        let tests = tests_in(text);
        if tests.is_empty() {
            return;
        }
        self.tests.extend(tests);
        let parts: Vec<_> = path.split('/').collect();
        if let Some(at) = parts.iter().position(|part| *part == "tests") {
            let all = [&parts[..=at], &["all.rs"]].concat();
            let program = if paths.contains(&&*all.join("/")) { "all.rs" } else { parts[at + 1] };
            self.programs.insert(program.trim_end_matches(".rs").to_owned());
        }
    }

    /// cargo's arguments that build and run the programs.
    fn programs(&self) -> Vec<&str> {
        let programs = self.programs.iter().flat_map(|program| ["--test", program]);
        let which = self.workspace.iter().copied().chain(["--lib"]).chain(programs);
        ["test", "--quiet", "--locked", "--no-fail-fast"].into_iter().chain(which).collect()
    }

    /// cargo, for one of the workspaces, which share what is built.
    fn cargo(&self) -> Command {
        let mut command = cargo();
        command.args(self.programs()).env("CARGO_TARGET_DIR", target());
        command
    }

    /// Runs every test with this seed. What a find says stays in `folder`.
    fn hold(&self, seed: u64, folder: &Path) -> Result {
        let path = folder.join(format!("{seed}.log"));
        let log = File::create(&path)?;
        let mut command = self.cargo();
        command.arg("--").args(&self.tests).env(SEED, seed.to_string());
        let status = command.stdout(log.try_clone()?).stderr(log).status()?;
        let text = fs::read_to_string(&path)?;
        if !status.success() {
            return Err(format!(
                "{text}\nA property test failed with a seed that nobody had run: a bug, and no matter of chance. Repeat it by\n  \
                 {SEED}={seed} cargo {} -- NAME\nThis output is kept in {}. Make a test with a name of its own of the minimal \
                 failing input above, then fix the bug.",
                self.programs().join(" "),
                path.display(),
            )
            .into());
        }
        let passed: usize = text.lines().map(passed_in).sum();
        if passed < self.tests.len() {
            return Err(format!("{text}\n{passed} of {} property tests ran", self.tests.len()).into());
        }
        Ok(fs::remove_file(&path)?)
    }
}

/// Names of the tests within `proptest!` blocks, which end at a brace as far from the margin as
/// they begin.
fn tests_in(text: &str) -> Vec<String> {
    let (mut tests, mut end) = (Vec::new(), None);
    for line in text.lines() {
        let code = line.trim_start();
        let margin = line.len() - code.len();
        if end == Some(margin) && code.starts_with('}') {
            end = None;
        } else if end.is_some() {
            let name = code.strip_prefix("fn ").and_then(|rest| rest.split_once('('));
            tests.extend(name.map(|(name, _)| name.to_owned()));
        } else if code.ends_with("proptest! {") {
            end = Some(margin);
        }
    }
    tests
}

/// Runs every property test with one fresh seed after the other for about `time`, at least with
/// one.
///
/// # Errors
/// A test failed, which is a bug that nobody knew: the error says how to repeat it, and the output
/// stays in a file. Or a test did not run.
pub fn fresh_seeds(time: Duration) -> Result {
    let all = WORKSPACES.into_iter().map(Properties::of).collect::<Result<Vec<_>>>()?;
    for properties in &all {
        run(properties.cargo().arg("--no-run"))?;
    }
    let folder = target().join("fresh-seeds");
    fs::create_dir_all(&folder)?;
    let (start, mut seeds) = (Instant::now(), 0);
    while seeds == 0 || start.elapsed() < time {
        let seed = RandomState::new().hash_one(seeds);
        all.iter().try_for_each(|properties| properties.hold(seed, &folder))?;
        seeds += 1;
    }
    let tests: usize = all.iter().map(|properties| properties.tests.len()).sum();
    println!("{tests} property tests held with {seeds} fresh seeds");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "fn a() {}\nmod tests {\n    proptest::proptest! {\n        #[test]\n        fn b(x: u8) {\n            x;\n        }\n\n        fn c(\n            y: u8,\n        ) {\n        }\n    }\n    fn d() {}\n}\n";

    #[test]
    fn tests_of_blocks_are_found_and_no_others() {
        assert_eq!(tests_in(TEXT), ["b", "c"]);
    }

    #[test]
    fn a_program_is_named_after_its_file_or_folder_or_is_all() {
        let paths =
            ["a/src/lib.rs", "tests/one.rs", "b/tests/two/main.rs", "c/tests/all.rs", "c/tests/three.rs"];
        let mut properties = Properties::default();
        for path in paths.iter().filter(|path| !path.ends_with("all.rs")) {
            properties.add(path, TEXT, &paths);
        }
        properties.add("a/tests/none.rs", "fn e() {}", &paths);
        assert!(
            properties.programs().ends_with(&["--lib", "--test", "all", "--test", "one", "--test", "two"])
        );
        assert_eq!(properties.tests.iter().map(String::as_str).collect::<Vec<_>>(), ["b", "c"]);
    }
}
