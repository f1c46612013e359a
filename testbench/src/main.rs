//! The `gradwire` command: dispatch and exit codes.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use gradwire_testbench::cmd::{Cli, run};
use gradwire_testbench::error::Outcome;

fn main() -> ExitCode {
    let cli = Cli::from_command_line();
    let mut out = BufWriter::new(io::stdout().lock());
    let result = run(&cli, &mut out).and_then(|outcome| {
        out.flush()?;
        Ok(outcome)
    });
    match result {
        Ok(Outcome::Held) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::from(1),
        // The reader of the output has gone. It did not get the answer, so this is not success
        // either.
        Err(error) if error.is_broken_pipe() => ExitCode::from(2),
        Err(error) => {
            eprintln!("gradwire: {error}");
            ExitCode::from(2)
        }
    }
}
