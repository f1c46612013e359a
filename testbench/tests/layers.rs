//! The crates' modules know each other as ARCHITECTURE.md says: each one only those below it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every Rust file below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found
}

/// The module that a file is, as its path from the crate's root; `src/a/mod.rs` is `[a]`.
fn module(file: &Path, src: &Path) -> Vec<String> {
    let path = file.strip_prefix(src).unwrap().with_extension("");
    let mut names: Vec<String> = path.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
    if matches!(names.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        names.pop();
    }
    names
}

/// Code without comments, strings left as they are, and without the tests at a file's end.
fn code(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap();
    code.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// The first names that follow a path's beginning: of `a::b` it is `a`, of `{a::b, c}` they are `a`
/// and `c`.
fn first_names(rest: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(group) = rest.strip_prefix('{') else { return vec![name(rest)] };
    let mut names = vec![name(group)];
    let mut depth = 1;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => names.push(name(&group[at + 1..])),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// The names at the crate's root that code of this module uses, by `crate::` and by as many
/// `super::` as lead there.
fn uses(code: &str, module: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let starts = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
    for (at, start) in code.match_indices("crate::") {
        if starts(at) {
            found.extend(first_names(&code[at + start.len()..]));
        }
    }
    let up = "super::".repeat(module.len());
    if !module.is_empty() {
        for (at, start) in code.match_indices(&up) {
            let rest = &code[at + start.len()..];
            if starts(at) && !rest.starts_with("super::") {
                found.extend(first_names(rest));
            }
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

/// The blocks of ARCHITECTURE.md: by folder, the modules from the top down; those of one line do
/// not know each other.
fn documented() -> BTreeMap<String, Vec<Vec<String>>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut crates = BTreeMap::new();
    for block in text.split("```layers ").skip(1) {
        let (folder, rest) = block.split_once('\n').unwrap();
        let lines = rest.split("```").next().unwrap().lines();
        let layers = lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect();
        crates.insert(folder.to_owned(), layers);
    }
    crates
}

/// The violations by modules in `src` of the layers that are documented for them.
fn violations(src: &Path, layers: &[Vec<String>]) -> Vec<String> {
    let layer_of = |name: &str| layers.iter().position(|layer| layer.iter().any(|module| module == name));
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for file in sources(src) {
        let module = module(&file, src);
        // The crate's root names everything, and binaries are above the library.
        let Some(top) = module.first().filter(|top| *top != "bin") else { continue };
        seen.insert(top.clone());
        let Some(mine) = layer_of(top) else { continue };
        for name in uses(&code(&fs::read_to_string(&file).unwrap()), &module) {
            match layer_of(&name) {
                Some(theirs) if name != *top && theirs <= mine => {
                    wrong.push(format!("{}: uses {name}, which is not below {top}", file.display()));
                }
                _ => {}
            }
        }
    }
    let listed: BTreeSet<String> = layers.iter().flatten().cloned().collect();
    wrong.extend(seen.symmetric_difference(&listed).map(|name| {
        format!("{}: module {name} is in the folder or in ARCHITECTURE.md, but not in both", src.display())
    }));
    wrong
}

#[test]
fn modules_use_only_what_is_below_them() {
    let documented = documented();
    let crates: Vec<&str> = documented.keys().map(String::as_str).collect();
    let expected = [
        "dataplane/src",
        "firmware/afxdp/src",
        "firmware/gateware/model/src",
        "firmware/gateware/src",
        "firmware/softcore/src",
        "host/codecs/src",
        "host/collectives/src",
        "host/python/src",
        "simulator/src",
        "testbench/src",
        "xtask/src",
    ];
    assert_eq!(crates, expected);
    let wrong: Vec<String> =
        documented.iter().flat_map(|(folder, layers)| violations(&root().join(folder), layers)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The test above would be worth nothing if it overlooked imports.
#[test]
fn imports_are_found_however_they_are_written() {
    let code = code(
        "use crate::a::B; // crate::comment::x\nuse crate::{\n    b::{C, D},\n    c,\n};\nfn f() { crate::d::g(); super::super::e::h() }\n\
         use super::near::N; use other_crate::o; use x::crate_like;\n#[cfg(test)]\nmod tests { use crate::t; }",
    );
    let module = ["m".to_owned(), "n".to_owned()];
    assert_eq!(Vec::from_iter(uses(&code, &module)), ["a", "b", "c", "d", "e"]);
    assert_eq!(Vec::from_iter(uses(&code, &module[..1])), ["a", "b", "c", "d", "near"]);
}

#[test]
fn an_import_that_points_up_is_found() {
    let src = root().join("dataplane/src");
    let mut layers = documented()["dataplane/src"].clone();
    assert!(violations(&src, &layers).is_empty());
    layers.reverse();
    assert!(!violations(&src, &layers).is_empty(), "upside down, every import points up");
}
