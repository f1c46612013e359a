//! The `gradwire-xdp` command: exit codes.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;
use gradwire_xdp::cli::{Cli, CommandError, Outcome, run};

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
                report(&cli, &error);
            }
            ExitCode::from(error.exit_code())
        }
    }
}

/// A line on standard error, of the kind that its reader expects there.
fn report(cli: &Cli, error: &CommandError) {
    // Not before a log is set up, nor with `--log off`: an error is never without a line.
    if cli.logs_json() && tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!("{error}");
    } else {
        eprintln!("gradwire-xdp: {error}");
    }
}
