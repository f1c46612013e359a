//! Arguments that several commands have.

use std::time::Duration;

/// The two ports.
#[derive(Clone, Debug, clap::Args)]
pub struct PortArgs {
    /// The port towards the host: a container's veth.
    #[arg(long, value_name = "IF")]
    pub host: String,
    /// The port towards the wire: the network card.
    #[arg(long, value_name = "IF")]
    pub net: String,
}

/// Parses seconds, also fractions of them.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds from 0.01 to 86400".to_owned())
}
