//! `gradwire-xdp aggregate`: an aggregator, from its set-up to the last frame.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gradwire::aggregate::Settings;
use gradwire::kernels::Kernel;
use gradwire::wire::chunk::{Limits, MIN_MTU};
use tracing::{info, warn};

use super::CommandError;
use super::service::{
    RunError, Service, ServiceArgs, all_there, bind_endpoint, drop_privileges, manager_and_signals, serve,
    serve_control, system,
};
use super::threads::{events, spawn};
use super::unload::end_aggregator;
use crate::config::{AggregatorConfig, AggregatorOptions, ConfigError, Mode, ZeroCopy, zero_copy_of};
use crate::path::aggregator;
use crate::path::program::{AggregatorAddress, Program};
use crate::path::shim::StartError;
use crate::system::interface::Interface;
use crate::system::notify::Notifier;
use crate::telemetry::control::Control;
use crate::telemetry::{AggregatorTelemetry, PATIENCE};

/// The time that an aggregator that is replaced gets to end by itself, or as long as its thread may
/// give no sign of life.
const LEAVE: Duration = Duration::from_secs(5);

/// Sums what workers of training jobs send, at an address of its own, in the foreground.
///
/// The address must be nobody else's, or this interface's own. Datagrams to it, at the protocol's
/// port, pings and questions who has it go to the aggregator; all other frames go the kernel's way,
/// and so do all when the aggregator ends, however it ends. Workers notice, sum without the
/// aggregator, and use it again when it is back.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  gradwire-xdp aggregate --interface eth1 --address 10.0.0.9      then, at the ranks:
  gradwire allreduce --listen 10.0.0.2:7000 --ranks 10.0.0.1:7000,10.0.0.2:7000 --token-file token --aggregate 10.0.0.9

  gradwire-xdp aggregate --config /etc/gradwire-xdp/aggregator-sums.toml
  gradwire-xdp aggregate --interface eth1 --address 10.0.0.9 --replace      another version takes the place of the running one")]
#[command(group(clap::ArgGroup::new("what").required(true).multiple(true).args(["interface", "config"])))]
pub struct AggregateArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub place: AggregatorOptions,
    /// The attachment of its program: auto, unless the file says otherwise.
    #[arg(long, value_name = "MODE")]
    pub mode: Option<Mode>,
    /// Which drivers hand over frames without a copy, whatever the file says: auto, those that it
    /// was tried with; on, all that offer it; off, none.
    #[arg(long, value_name = "WHICH")]
    pub zero_copy: Option<ZeroCopy>,
    /// Serve metrics for Prometheus there.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Configuration file (TOML), with tables `aggregator`, `path` and `metrics`; options win over
    /// it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// End the aggregator that serves the interface now, and take its place.
    #[arg(long)]
    pub replace: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub service: ServiceArgs,
}

impl AggregateArgs {
    /// The settings of the file, and of options, which win.
    fn settings(&self) -> Result<AggregatorConfig, ConfigError> {
        let mut config = AggregatorConfig::load(self.config.as_deref(), &self.place)?;
        config.mode = self.mode.unwrap_or(config.mode);
        config.zero_copy = zero_copy_of(self.zero_copy, config.zero_copy, config.mode)?;
        if self.metrics.is_some() {
            (config.metrics, config.any_metrics_port) = (self.metrics, false);
        }
        Ok(config)
    }
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Why it did not start, or its thread failed.
pub fn run(args: &AggregateArgs) -> Result<(), CommandError> {
    let config = args.settings()?;
    if args.replace {
        end_aggregator(&args.service.run_dir, &config.interface, LEAVE.max(args.service.limit()))?;
    }
    Ok(start(&args.service, &config)?)
}

fn start(args: &ServiceArgs, config: &AggregatorConfig) -> Result<(), RunError> {
    args.start_log()?;
    let (notifier, signals) = manager_and_signals()?;
    let control = Control::bind_aggregator(&args.run_dir, &config.interface)?;
    let endpoint = bind_endpoint(config.metrics, config.any_metrics_port)?;
    let interface = Interface::find(&config.interface).map_err(StartError::from)?;
    let kernel = Kernel::detect();
    let summing = summing(config, args.limit(), &interface, kernel)?;
    let (program, status, mut worker) = aggregator::set_up(&interface, summing)?;
    drop_privileges()?;

    let address = SocketAddrV4::new(config.address, config.port);
    info!(interface = config.interface, %address, mode = ?status.xdp, bind = ?status.bind, queues = status.queues, "aggregator");
    let telemetry = Arc::new(AggregatorTelemetry::new(status, address, kernel.name()));
    let of_readers = Arc::clone(&telemetry);
    let _socket_file = serve_control(control, endpoint, move || of_readers.snapshot())?;
    let (events, inbox) = events(signals).map_err(system("signals"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let work = {
        let (stop, telemetry) = (Arc::clone(&stop), Arc::clone(&telemetry));
        move || worker.run(&stop, &telemetry.board)
    };
    let thread =
        spawn("aggregator".to_owned(), aggregator::STACK, events, work).map_err(system("threads"))?;
    let mut running = Running { interface, telemetry, stop, stalls: 0, _program: program };
    serve(&mut running, &notifier, &inbox, vec![thread])
}

fn summing(
    config: &AggregatorConfig,
    limit: Duration,
    interface: &Interface,
    kernel: Kernel,
) -> Result<aggregator::Service, RunError> {
    if interface.mtu < MIN_MTU {
        let name = &interface.name;
        return Err(RunError::SmallMtu { interface: name.clone(), mtu: interface.mtu });
    }
    let mac = interface.mac().map_err(StartError::from)?;
    let mtu = interface.mtu.min(Limits::MOST.mtu);
    let group = config.group.map(|group| group.address().octets());
    let secret = [(); 2].map(|()| RandomState::new().build_hasher().finish());
    Ok(aggregator::Service {
        address: AggregatorAddress { mac, ip: config.address, port: config.port },
        settings: Settings { kernel, limits: Limits { mtu, ..Limits::MOST }, group, parent: None, secret },
        limit,
        mode: config.mode,
        zero_copy: config.zero_copy,
    })
}

/// The state of the main thread.
struct Running {
    interface: Interface,
    telemetry: Arc<AggregatorTelemetry>,
    stop: Arc<AtomicBool>,
    /// The number of times that nothing left its interface, as it was told last.
    stalls: u64,
    /// Attached as long as it is there.
    _program: Program,
}

impl Service for Running {
    fn all_answer(&self) -> bool {
        self.telemetry.board.all_answer(PATIENCE)
    }

    fn look(&mut self) -> Result<bool, RunError> {
        all_there([&self.interface])?;
        let now = self.telemetry.snapshot();
        if now.rings.stalls != self.stalls {
            let name = &self.interface.name;
            warn!(
                "{name}: answers were to leave, and none did for a second; the kernel gets the aggregator's frames until some do, and \
                 workers sum without it: ip -s link show dev {name}"
            );
            self.stalls = now.rings.stalls;
        }
        Ok(now.answered)
    }

    fn reload(&mut self, _: &Notifier) {
        warn!(
            "SIGHUP: an aggregator takes its settings when it starts; --replace starts another one in its place"
        );
    }

    fn line(&self) -> String {
        format!("sums on {}", self.interface.name)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
