//! Keeps old words out: each has a field's term in its place (CHANGELOG.md, "New names"). And keeps
//! comments narrow.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::tools::output;
use crate::width::too_wide;

/// A word that the project uses no more.
struct Old {
    /// The word in lower case, as a part of a name: `node` is in `node`, `NodeConfig` and
    /// `by_node`, and not in `nodelay`.
    words: &'static [&'static str],
    now: &'static str,
    /// Files and folders in which the word means something else.
    elsewhere: &'static [&'static str],
}

const OLD: &[Old] = &[
    Old {
        words: &["judge", "judges", "judged", "judging", "judgement"],
        now: "verifier, check",
        elsewhere: &[],
    },
    Old { words: &["mend", "mends", "mended", "mending"], now: "fix, remedy", elsewhere: &[] },
    Old { words: &["planar"], now: "bit-plane", elsewhere: &[] },
    Old {
        words: &["grid", "grids", "offgrid"],
        now: "alignment, misaligned",
        // Lines of a plot; learning rates.
        elsewhere: &["testbench/src/report/", "host/bench/"],
    },
    Old {
        words: &["node", "nodes"],
        now: "aggregator, rank",
        // Kubernetes'.
        elsewhere: &[
            "TESTING.md",
            "docs/deploy.md",
            "firmware/afxdp/guests/image.py",
            "firmware/afxdp/guests/pods.py",
            "firmware/afxdp/guests/scenarios.py",
            "firmware/afxdp/packaging/daemonset.yaml",
        ],
    },
    Old {
        words: &["member", "members", "membership"],
        now: "rank (hosts), child or worker (aggregation)",
        // Cargo's.
        elsewhere: &["Cargo.toml"],
    },
];

/// Text that is old whatever is around it, and the text in its place.
const OLD_TEXT: &[(&str, &str)] = &[
    ("Change::Told", "Change::OptionAdded"),
    ("Change::Heard", "Change::OptionStripped"),
    ("\"told\"", "option-added"),
    ("\"heard\"", "option-stripped"),
    ("not-agreed", "not-negotiated"),
    ("flow::Said", "flow::Negotiation"),
    ("Offers", "CapabilityTable"),
    ("wire::offer", "wire::capability"),
    ("flow::offers", "flow::capabilities"),
    ("-above\"", "from-parent, asked-parent, refused-by-parent"),
    ("contents = \"", "heuristic = "),
    ("contents=", "heuristic="),
    ("look_like_values", "looks_like_f32"),
    ("is_odd", "is_implausible"),
    ("Profile::Classes", "Profile::SizeClass"),
];

/// Text in which an old word has to stay: torchrun's option, Grafana's key, bytes that a job's key
/// is made of.
const FOREIGN: &[&str] = &["nproc_per_node", "gridPos", "b\"node\""];

/// Files that say which the old words are.
const ABOUT: &[&str] = &["CHANGELOG.md", "xtask/src/words.rs"];

/// The ends of the names of files that are read.
const ENDS: &[&str] = &[
    ".c", ".cpp", ".h", ".lua", ".md", ".py", ".pyi", ".rs", ".service", ".sv", ".svh", ".toml", ".yaml",
    ".yml",
];

/// Fails if a file of the project has an old word or a comment that is too wide, and names the
/// places.
///
/// # Errors
/// An old word, a wide comment, or a file that cannot be read.
pub fn words() -> Result {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no root")?;
    let files = output(std::process::Command::new("git").arg("ls-files").current_dir(root))?;
    let mut found = Vec::new();
    for file in files.lines().filter(|file| is_read(file)) {
        let text = fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))?;
        found.extend(
            too_wide(file, &text).into_iter().map(|number| format!("{file}:{number}: wider than 100")),
        );
        for (number, line) in (1..).zip(text.lines()) {
            found.extend(faults(file, line).into_iter().map(|fault| format!("{file}:{number}: {fault}")));
        }
    }
    if found.is_empty() { Ok(()) } else { Err(found.join("\n").into()) }
}

fn is_read(file: &str) -> bool {
    (ENDS.iter().any(|end| file.ends_with(end)) || file.starts_with(".ci/"))
        && !ABOUT.contains(&file)
        && !file.starts_with("fuzz/corpus/")
}

/// The old words of a line, each with the word in its place.
fn faults(file: &str, line: &str) -> Vec<String> {
    let mut line = line.to_owned();
    for foreign in FOREIGN {
        line = line.replace(foreign, "");
    }
    let parts = parts(&line);
    let words = OLD
        .iter()
        .filter(|old| !old.elsewhere.iter().any(|place| file.starts_with(place)))
        .flat_map(|old| old.words.iter().map(move |word| (*word, old.now)))
        .filter(|(word, _)| parts.iter().any(|part| part == word));
    let texts = OLD_TEXT.iter().copied().filter(|(text, _)| line.contains(text));
    words.chain(texts).map(|(old, now)| format!("`{old}` is now: {now}")).collect()
}

/// The parts of all names in a line, in lower case: `SoftNode` and `soft_node` both have `soft` and
/// `node`.
fn parts(line: &str) -> Vec<String> {
    let (mut parts, mut before) = (vec![String::new()], ' ');
    for letter in line.chars() {
        let is_start = letter.is_uppercase() && before.is_lowercase();
        if is_start || !letter.is_alphabetic() {
            parts.push(String::new());
        }
        if let (true, Some(part)) = (letter.is_alphabetic(), parts.last_mut()) {
            part.extend(letter.to_lowercase());
        }
        before = letter;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_words_are_found_in_names_and_prose() {
        for line in ["a node that sums", "struct NodeConfig", "by_node()", "[node]", "NODE=1", "the node's"] {
            assert_eq!(faults("a.rs", line), ["`node` is now: aggregator, rank"], "{line}");
        }
        assert_eq!(faults("a.rs", "Change::Told"), ["`Change::Told` is now: Change::OptionAdded"]);
    }

    #[test]
    fn other_words_and_other_meanings_are_left_alone() {
        for line in ["set_nodelay(true)", "ENODEV", "--nproc_per_node 2", "recommended", "amend", "remember"]
        {
            assert_eq!(faults("a.rs", line), [""; 0], "{line}");
        }
        assert_eq!(faults("docs/deploy.md", "on each node"), [""; 0]);
        assert!(!is_read("CHANGELOG.md") && !is_read("fuzz/corpus/member/a.rs") && is_read("README.md"));
    }

    #[test]
    fn the_project_has_none() {
        words().unwrap();
    }
}
