//! The `gradwire-xdp` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let args = std::env::args().collect::<Vec<_>>();
    match gradwire_xdp::run::run(&args[1], &args[2], args.get(3).map(std::path::Path::new)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gradwire-xdp: {error}");
            ExitCode::from(2)
        }
    }
}
