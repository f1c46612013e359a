//! Runs tests and counts them: a filter that matches nothing, or a list that is empty, is no
//! success.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::Result;

/// Runs `command`, whose output goes to `out`, and fails if it does, or if fewer than `least` tests
/// passed.
///
/// # Errors
/// The command cannot be started, or fails; or too few tests passed.
pub fn run(least: usize, command: &[String], out: &mut impl Write) -> Result {
    let [program, arguments @ ..] = command else { return Err("no command".into()) };
    let mut child = Command::new(program)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let mut passed = 0;
    for line in BufReader::new(child.stdout.take().expect("a pipe was asked for")).split(b'\n') {
        let line = line?;
        passed += passed_in(&String::from_utf8_lossy(&line));
        out.write_all(&line)?;
        out.write_all(b"\n")?;
    }
    let status = child.wait()?;
    if !status.success() {
        return Err(format!("{}: {status}", command.join(" ")).into());
    }
    if passed < least {
        return Err(format!("{passed} tests passed, {least} are the least: {}", command.join(" ")).into());
    }
    Ok(writeln!(out, "at least {least} tests: {passed} passed")?)
}

/// Tests that passed, if the line sums up a test program.
pub(crate) fn passed_in(line: &str) -> usize {
    let counts = line.strip_prefix("test result: ok. ").and_then(|rest| rest.split_once(" passed;"));
    counts.and_then(|(passed, _)| passed.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(least: usize, script: &str) -> Result {
        run(least, &["sh", "-c", script].map(String::from), &mut Vec::new())
    }

    const THREE: &str = "echo 'test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out'";
    const NONE: &str = "echo 'test result: ok. 0 passed; 0 failed; 9 ignored; 0 measured; 0 filtered out'";

    #[test]
    fn tests_of_all_programs_are_added_up() {
        assert!(sh(6, &format!("{THREE}; {NONE}; {THREE}")).is_ok());
        assert!(sh(7, &format!("{THREE}; {NONE}; {THREE}")).is_err());
    }

    #[test]
    fn no_test_is_no_success() {
        assert!(sh(1, NONE).is_err());
        assert!(sh(1, "true").is_err());
    }

    #[test]
    fn a_failure_stays_one() {
        assert!(sh(1, &format!("{THREE}; exit 1")).is_err());
        assert!(run(1, &["/no/such/program".to_owned()], &mut Vec::new()).is_err());
        assert!(run(1, &[], &mut Vec::new()).is_err());
    }
}
