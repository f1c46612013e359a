//! The finding of a check, and its printed form.

use std::io::{self, Write};

use serde::Serialize;

use super::facts::PortFacts;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// As it should be.
    Ok,
    /// It could not be found out.
    Unknown,
    /// It runs, but not as well as it could, or not in every case.
    Warning,
    /// It does not run, or frames are lost.
    Failed,
}

/// The finding of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check.
    pub check: &'static str,
    /// The port that it is about, if it is about one.
    pub port: Option<String>,
    /// Its severity.
    pub status: Status,
    /// The finding, and its meaning.
    pub found: String,
    /// The command that fixes it, for a shell, or the line of the configuration file.
    pub fix: Option<String>,
}

impl Finding {
    fn new(check: &'static str, status: Status, found: impl Into<String>) -> Self {
        Self { check, port: None, status, found: found.into(), fix: None }
    }

    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Status::Ok, found)
    }

    pub(super) fn unknown(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Status::Unknown, found)
    }

    pub(super) fn warning(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Status::Warning, found)
    }

    pub(super) fn failed(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Status::Failed, found)
    }

    pub(super) fn of(self, port: &PortFacts) -> Self {
        Self { port: Some(port.name.clone()), ..self }
    }

    pub(super) fn fix(self, command: impl Into<String>) -> Self {
        Self { fix: Some(command.into()), ..self }
    }
}

/// Prints findings as text: a line each, and below it what fixes it.
///
/// # Errors
/// The output cannot be written.
pub(super) fn print(findings: &[Finding], out: &mut impl Write) -> io::Result<()> {
    let subject = |finding: &Finding| match &finding.port {
        Some(port) => format!("{} {port}", finding.check),
        None => finding.check.to_owned(),
    };
    let width = findings.iter().map(|finding| subject(finding).chars().count()).max().unwrap_or(0);
    for finding in findings {
        let mark = match finding.status {
            Status::Ok => "ok  ",
            Status::Unknown => "?   ",
            Status::Warning => "warn",
            Status::Failed => "FAIL",
        };
        writeln!(out, "{mark}  {:width$}  {}", subject(finding), finding.found)?;
        if let Some(fix) = &finding.fix {
            writeln!(out, "      {:width$}  fix: {fix}", "")?;
        }
    }
    let count = |status| findings.iter().filter(|finding| finding.status == status).count();
    let (failed, warnings, unknown) = (count(Status::Failed), count(Status::Warning), count(Status::Unknown));
    writeln!(out, "\n{} checks: {failed} failed, {warnings} warnings, {unknown} unknown", findings.len())
}

/// An interface's name as a word of a shell command.
pub(super) fn word(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._@-".contains(c);
    if name.chars().all(plain) { name.to_owned() } else { format!("'{}'", name.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_a_line_for_each_finding_and_the_remedy_below() {
        let findings = [
            Finding::ok("kernel", "6.18"),
            Finding { port: Some("eth0".to_owned()), ..Finding::failed("link", "down").fix("ip link") },
        ];
        let mut text = Vec::new();
        print(&findings, &mut text).unwrap();
        let expected = "\
ok    kernel     6.18
FAIL  link eth0  down
                 fix: ip link

2 checks: 1 failed, 0 warnings, 0 unknown
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn a_name_is_one_word_for_the_shell() {
        assert_eq!(word("eth0.5"), "eth0.5");
        assert_eq!(word("a;b"), "'a;b'");
        assert_eq!(word("a'b"), r"'a'\''b'");
    }
}
