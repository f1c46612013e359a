//! `gradwire-xdp doctor`: what about this machine keeps the shim, or an aggregator, from running,
//! or from running well, each with the command that fixes it. [`Facts`], or [`AggregatorFacts`],
//! are gathered first; the checks read them and look at nothing else.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{CommandError, Outcome};
use crate::config::{AggregatorConfig, AggregatorOptions, Config};
use crate::telemetry::control::RUN_DIR;

mod aggregator;
mod facts;
mod finding;
mod network;
mod offloads;
mod ports;
mod system;

pub use aggregator::{AggregatorFacts, Holder, examine_aggregator};
pub use facts::{Facts, GatherError, PortFacts, SystemFacts};
pub use finding::{Finding, Status};

/// Looks for what keeps gradwire-xdp from running between two ports, or as an aggregator, or from
/// running well.
///
/// With --host and --net it checks what `run` needs, else what `aggregate` needs. Each fault comes
/// with the command that fixes it. Nothing is changed. As root it sees more.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
JSON: an array of {\"check\", \"port\", \"status\", \"found\", \"fix\"}; status is ok, unknown, warning or failed, port and
fix may be null.

Exit codes: 0 nothing failed, 1 something did, 2 it could not be looked at.

Examples:
  gradwire-xdp doctor --host veth0 --net eth0 --config /etc/gradwire-xdp/veth0.toml
  gradwire-xdp doctor --interface eth1 --address 10.0.0.9          before `aggregate` with these
  gradwire-xdp doctor --config /etc/gradwire-xdp/aggregator-sums.toml    before `aggregate` with this file")]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true).args(["host", "interface", "config"])))]
pub struct DoctorArgs {
    /// The port towards the host: a container's veth.
    #[arg(long, value_name = "IF", requires = "net", conflicts_with_all = ["interface", "address", "port", "group"])]
    pub host: Option<String>,
    /// The port towards the wire: the network card.
    #[arg(long, value_name = "IF", requires = "host")]
    pub net: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub place: AggregatorOptions,
    /// The configuration file that it would run with.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of the control sockets: one that runs is asked for what it was set up.
    #[arg(long, value_name = "FOLDER", default_value = RUN_DIR)]
    pub run_dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Examines the machine, and reports to `out`.
///
/// # Errors
/// It cannot be examined, or the output not be written.
pub fn run(args: &DoctorArgs, out: &mut impl Write) -> Result<Outcome, CommandError> {
    let (root, file) = (Path::new("/"), args.config.as_deref());
    let findings = if let (Some(host), Some(net)) = (&args.host, &args.net) {
        let config = Config::load_or_default(file)?;
        examine(&Facts::gather(root, &args.run_dir, host, net)?, &config)
    } else {
        let config = AggregatorConfig::load(file, &args.place)?;
        examine_aggregator(&AggregatorFacts::gather(root, &args.run_dir, &config)?, &config)
    };
    if args.json {
        serde_json::to_writer(&mut *out, &findings).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        finding::print(&findings, out)?;
    }
    Ok(Outcome::from_good(findings.iter().all(|finding| finding.status != Status::Failed)))
}

/// All checks of a shim, in the order in which their faults should be fixed.
#[must_use]
pub fn examine(facts: &Facts, config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    system::check(facts, config, &mut findings);
    ports::check(facts, config, &mut findings);
    offloads::check(facts, config, &mut findings);
    network::check(facts, config, &mut findings);
    findings
}
