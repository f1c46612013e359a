//! Keeps comments within 100 columns: code may have more (rustfmt.toml), prose is harder to read.

/// The most columns of a line that is only a comment.
const MAX_WIDTH: usize = 100;

/// The marks of comments by the end of a file's name; shell scripts have none.
const MARKS: &[(&str, &str)] = &[
    (".rs", "//"),
    (".sv", "//"),
    (".svh", "//"),
    (".cpp", "//"),
    (".lua", "--"),
    (".py", "#"),
    (".toml", "#"),
];

/// The numbers of lines that are too wide, from 1 on. Tables, columns and examples may be wider,
/// and so may a word that fits no line.
pub(crate) fn too_wide(file: &str, text: &str) -> Vec<usize> {
    let mark = match MARKS.iter().find(|(end, _)| file.ends_with(end)) {
        Some((_, mark)) => mark,
        None if file.starts_with(".ci/") && text.starts_with("#!") => "#",
        None => return Vec::new(),
    };
    let mut is_example = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(comment) = line.trim_start().strip_prefix(mark) else {
            is_example = false;
            continue;
        };
        let words = comment.trim_start_matches(['/', '!', '-', '#']).trim();
        is_example ^= words.starts_with("```");
        let is_free = is_example || words.starts_with('|') || words.contains("  ");
        if line.chars().count() > MAX_WIDTH && !is_free && words.contains(' ') {
            found.push(number);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prose_has_to_be_narrow() {
        let wide = format!("/// {}", "word ".repeat(30));
        assert_eq!(too_wide("a.rs", &format!("{wide}\nfn a() {{}}\n    {wide}")), [1, 3]);
        let table = format!("/// |{}|", "word ".repeat(30));
        let columns = format!("// {}", "word  ".repeat(30));
        let link = format!("// {}", "word".repeat(30));
        let example = format!("/// ```text\n{wide}\n/// ```");
        let code = format!("let a = \"{}\";", "word ".repeat(30));
        for free in [table, columns, link, example, code] {
            assert_eq!(too_wide("a.rs", &free), [0; 0], "{free}");
        }
        assert_eq!(too_wide("a.md", &wide), [0; 0]);
    }
}
