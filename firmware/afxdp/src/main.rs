//! The `gradwire-xdp` command: exit codes.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;
use gradwire_xdp::cli::{Cli, Outcome, run};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = BufWriter::new(io::stdout());
    let result = run(&cli, &mut out).and_then(|outcome| {
        out.flush()?;
        Ok(outcome)
    });
    match result {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Bad) => ExitCode::from(1),
        Err(error) => {
            if !error.is_broken_pipe() {
                eprintln!("gradwire-xdp: {error}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}
