//! The tests that were skipped: `cargo test` says nothing of it, since a test that was skipped
//! passes.

use std::collections::BTreeMap;

/// The last words of a run: how many tests were skipped, and why, by what each wrote on a line of
/// `list`.
#[must_use]
pub fn summary(list: &str) -> String {
    let mut reasons = BTreeMap::<&str, usize>::new();
    for reason in list.lines() {
        *reasons.entry(reason).or_default() += 1;
    }
    if reasons.is_empty() {
        return "no test was SKIPPED; those that are `ignored` say what they need\n".to_owned();
    }
    let mut text = format!("{} tests were SKIPPED, and verified nothing:\n", list.lines().count());
    for (reason, tests) in reasons {
        text += &format!("{tests:>5}  {reason}\n");
    }
    text + "As root, .ci/netns installs what they need. GRADWIRE_REQUIRE_NET=1 makes a skip a failure (TESTING.md).\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_count() {
        let text = summary("needs root\nno nft\nneeds root\n");
        assert!(text.starts_with("3 tests were SKIPPED"), "{text}");
        assert!(text.contains("\n    2  needs root\n    1  no nft\n"), "{text}");
    }

    #[test]
    fn nothing_skipped_is_said_too() {
        assert!(summary("").starts_with("no test was SKIPPED"));
    }
}
