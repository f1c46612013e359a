//! The README is read apart from the repository, on crates.io and docs.rs. Its code runs as a doc
//! test.

#[test]
fn the_readme_is_short_and_has_no_link_into_the_repository() {
    let readme = include_str!("../README.md");
    assert!(readme.lines().count() < 70);
    for (_, target) in readme.match_indices("](").map(|(at, found)| readme.split_at(at + found.len())) {
        assert!(target.starts_with("https://"), "{}", target.lines().next().unwrap_or(""));
    }
    // Such lines are hidden on docs.rs alone.
    assert!(!readme.lines().any(|line| line.starts_with("# ") && line != "# gradwire"));
}
