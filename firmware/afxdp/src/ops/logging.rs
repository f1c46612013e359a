//! Logs: `tracing` events to standard error, as text or as JSON.

use std::io::IsTerminal;
use std::{env, io};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object on a line.
    Json,
}

/// From now on events that `filter` lets through (`info`, `debug`, `gradwire_xdp::ops=trace`, ...) go to standard
/// error. Under systemd without a time: the journal has its own.
///
/// # Errors
/// `filter` is none. To be called once.
pub fn start(filter: &str, format: Format) -> Result<(), ParseError> {
    let filter = EnvFilter::try_new(filter)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false);
    let journal = env::var_os("JOURNAL_STREAM").is_some();
    match format {
        Format::Json => builder.json().flatten_event(true).init(),
        Format::Text if journal => builder.without_time().init(),
        Format::Text => builder.init(),
    }
    Ok(())
}
