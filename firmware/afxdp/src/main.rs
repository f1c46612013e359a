//! The `gradwire-xdp` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let args = std::env::args().collect::<Vec<_>>();
    match gradwire_xdp::run::run(&args[3], &args[5], args.get(7).map(std::path::Path::new)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gradwire-xdp: {error}");
            ExitCode::from(2)
        }
    }
}
