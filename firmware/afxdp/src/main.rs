//! The `gradwire-xdp` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let args = std::env::args().collect::<Vec<_>>();
    let run = gradwire_xdp::run::Run {
        host: &args[3],
        network: &args[5],
        file: args.get(7).map(std::path::Path::new),
        run_dir: std::path::Path::new(gradwire_xdp::control::RUN_DIR),
    };
    match gradwire_xdp::run::run(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gradwire-xdp: {error}");
            ExitCode::from(2)
        }
    }
}
