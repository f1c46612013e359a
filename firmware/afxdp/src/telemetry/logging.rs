//! Logs: `tracing` events to standard error, as text or as JSON.

use std::io::IsTerminal;
use std::time::{Duration, Instant};
use std::{env, io};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// The format of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object on a line.
    Json,
}

/// The interval at which a repeated failure may be logged.
const AGAIN: Duration = Duration::from_secs(60);

/// When a failure was logged that may repeat as often as it is tried: a full disk of logs would be
/// a second failure.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rarely(Option<Instant>);

impl Rarely {
    /// Whether it may be logged now: the first time, and a minute after the last.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.0.is_none_or(|last| now.saturating_duration_since(last) >= AGAIN);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

/// From now on events that `filter` lets through (`info`, `debug`, `gradwire_xdp::path=trace`, ...)
/// go to standard error. Under systemd without a time: the journal has its own.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten times a second for a day, as a server without file descriptors fails to accept.
    #[test]
    fn repeated_failures_are_logged_once_a_minute() {
        let (start, mut rarely) = (Instant::now(), Rarely::default());
        let tries = (0..864_000).map(|try_| start + Duration::from_millis(100 * try_));
        assert_eq!(tries.filter(|now| rarely.is_due(*now)).count(), 24 * 60);
    }
}
