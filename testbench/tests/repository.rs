//! What documents say about the repository is true.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every Rust file that is not built output.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "target" && name != ".git" {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// How often a line of code opens something unsafe.
fn unsafe_in(line: &str) -> usize {
    let code = line.split("//").next().unwrap();
    let opens = ["{", "fn", "impl", "extern"];
    code.split("unsafe ")
        .skip(1)
        .filter(|rest| opens.iter().any(|word| rest.trim_start().starts_with(word)))
        .count()
}

#[test]
fn the_list_of_unsafe_code_is_complete() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let mut counted = BTreeMap::new();
    for path in files {
        let count: usize = fs::read_to_string(&path).unwrap().lines().map(unsafe_in).sum();
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        // This file has the word in a pattern.
        if count > 0 && !name.ends_with(file!().rsplit('/').next().unwrap()) {
            counted.insert(name, count);
        }
    }
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let section = architecture.split("## Unsafe code").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeMap<String, usize> = rows
        .map(|row| {
            let (name, rest) = row.split_once("` | ").unwrap();
            (name.to_owned(), rest.split(' ').next().unwrap().parse().unwrap())
        })
        .collect();
    assert_eq!(counted, listed, "counted, and as ARCHITECTURE.md lists them");
}
