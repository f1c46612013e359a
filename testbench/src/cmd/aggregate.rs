//! `gradwire aggregate`: an aggregator, on a UDP socket.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use gradwire_collectives::Aggregator;

use crate::error::{Error, Outcome};

/// Sums what ranks of `gradwire allreduce --aggregate` send, until it is ended.
///
/// It is for trying and for tests: packets take the system's way through a UDP socket, and every
/// rank gets a copy of each result. It serves four jobs at a time, and keeps nothing when it ends:
/// ranks notice, sum without it, and use it again when it is back.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It first prints the address where it listens.

Examples:
  gradwire aggregate --listen 10.0.0.9:59255      then, at the ranks:
  gradwire allreduce --listen 10.0.0.2:7000 --ranks 10.0.0.1:7000,10.0.0.2:7000 --token-file token --aggregate 10.0.0.9")]
pub struct Args {
    /// The address where it listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:59255")]
    pub listen: SocketAddr,
}

/// Serves without end.
///
/// # Errors
/// It cannot listen there.
pub fn run(args: &Args, out: &mut impl Write) -> Result<Outcome, Error> {
    let failed = |what| move |error| Error::io(args.listen.to_string(), what, error);
    let mut aggregator = Aggregator::bind(args.listen).map_err(failed("listen at"))?;
    writeln!(out, "{}", aggregator.address().map_err(failed("read the address of"))?)?;
    out.flush()?;
    aggregator.run(&AtomicBool::new(false)).map_err(failed("receive at"))?;
    Ok(Outcome::Held)
}
