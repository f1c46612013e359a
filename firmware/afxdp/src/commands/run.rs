//! `gradwire-xdp run`: from set-up to the last frame.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use aya::util::KernelVersion;
use gradwire::rules::Rules;
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{error, info, warn};
use tracing_subscriber::filter::ParseError;

use super::arguments::{PortArgs, seconds};
use super::threads::{Event, forward, join, spawn};
use crate::config::{Config, ConfigError};
use crate::ops::control::{Control, ControlError, RUN_DIR};
use crate::ops::interface::not_there_yet;
use crate::ops::logging;
use crate::ops::metrics::Endpoint;
use crate::ops::notify::Notifier;
use crate::ops::privileges::{PrivilegesError, drop_all_but};
use crate::ops::telemetry::{PATIENCE, Telemetry};
use crate::ops::watch::Watch;
use crate::path::shim::{Shim, StartError};

/// How long after a thread's last sign of life frames go to the bridge.
pub const LIMIT: Duration = Duration::from_millis(100);
/// How often the main thread looks after what is not a frame's matter.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// How often it looks for ports that are missing.
const LOOK: Duration = Duration::from_millis(200);
/// A thread has the flow table on its stack while it is made.
const STACK: usize = 16 << 20;

/// Compresses and restores between two ports, in the foreground.
///
/// Both ports must be joined by a bridge. SIGHUP reads the configuration file again and takes over its rules without
/// losing a frame or a connection; SIGTERM and SIGINT end it. Under systemd it says when it is ready and that it is
/// alive (sd_notify).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  gradwire-xdp run --host veth0 --net eth0 --config /etc/gradwire-xdp/veth0.toml
  gradwire-xdp run --host veth0 --net eth0 --wait          before the container starts")]
pub struct RunArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub ports: PortArgs,
    /// Configuration file (TOML); without one there is one rule, for type of service 0x28.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of the control socket.
    #[arg(long, value_name = "FOLDER", default_value = RUN_DIR)]
    pub run_dir: PathBuf,
    /// Wait until both ports exist and a bridge joins them, at most so many seconds; without a number, a day.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "86400", value_parser = seconds)]
    pub wait: Option<Duration>,
    /// What is logged to standard error: off, error, warn, info, debug, trace, or such by module.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// How it is logged.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: logging::Format,
    /// Takes tagged frames and sends them on as they are: what a benchmark compares compression with.
    #[arg(long, hide = true)]
    pub plain: bool,
    /// How long after a thread's last sign of life frames go to the bridge: longer, for tests on machines whose threads
    /// wait for a processor.
    #[arg(long, hide = true, value_name = "MS", default_value_t = LIMIT.as_millis() as u64)]
    pub limit_ms: u64,
}

/// Why it ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// `--log` is no filter.
    #[error("--log {filter}: {source}; expected a level, or module=level, separated by commas")]
    Log {
        /// What was given.
        filter: String,
        /// Why it is none.
        source: ParseError,
    },
    /// The configuration file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Set-up.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The control socket.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Privileges.
    #[error(transparent)]
    Privileges(#[from] PrivilegesError),
    /// The operating system.
    #[error("{what}: {error}")]
    System {
        /// What was to be done.
        what: String,
        /// Why it was not.
        error: io::Error,
    },
    /// What `--wait` waits for did not come.
    #[error("waited {} s for {missing}", waited.as_secs())]
    Waited {
        /// What is missing.
        missing: String,
        /// How long.
        waited: Duration,
    },
    /// The protocol's packets do not fit.
    #[error(
        "{interface}: MTU {mtu} is too small for a node: ip link set {interface} mtu {}",
        gradwire::wire::chunk::MIN_MTU
    )]
    SmallMtu {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u16,
    },
    /// A port was removed: its container ended, or its card.
    #[error("{interface} has gone; start again when it is back: with --wait, that may be now")]
    PortGone {
        /// The port.
        interface: String,
    },
    /// A thread ended that should not have; frames go by the bridge.
    #[error("a worker thread failed")]
    Worker,
}

pub(super) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> RunError {
    move |error| RunError::System { what: what.into(), error }
}

/// Runs between two ports until SIGTERM or SIGINT; SIGHUP reads the configuration file again.
///
/// # Errors
/// Why it did not start, or a thread that failed.
pub fn run(args: &RunArgs) -> Result<(), RunError> {
    logging::start(&args.log, args.log_format)
        .map_err(|source| RunError::Log { filter: args.log.clone(), source })?;
    let PortArgs { host, net } = &args.ports;
    let file = args.config.as_deref();
    let config = Config::load_or_default(file)?;
    let notifier = Notifier::from_env().map_err(system("service manager"))?;
    // From here on no signal ends the process half set up.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(system("signals"))?;
    if let Some(patience) = args.wait
        && !wait_for_ports(args, patience, &notifier, &mut signals)?
    {
        return Ok(());
    }
    // First of all who else runs here: their answer is clearer than the kernel's.
    let control = Control::bind(&args.run_dir, host, net)?;
    let bind = if config.any_metrics_port { Endpoint::bind_free } else { Endpoint::bind };
    let endpoint = config.metrics.map(|at| bind(at).map_err(system(format!("metrics, {at}")))).transpose()?;
    let limit = Duration::from_millis(args.limit_ms);
    let mut shim = Shim::set_up(host, net, &config, engine_rules(args, &config)?, limit)?;
    drop_all_but(still_needed())?;

    let telemetry = Arc::new(shim.telemetry(&config, file));
    let snapshot = || {
        let telemetry = Arc::clone(&telemetry);
        move || telemetry.snapshot()
    };
    let (events, inbox) = channel();
    forward(signals, events.clone()).map_err(system("signals"))?;
    let _socket_file = control.serve(snapshot())?;
    if let Some(endpoint) = endpoint {
        let at = endpoint.address().map_err(system("metrics"))?;
        info!(%at, "metrics");
        endpoint.serve(snapshot()).map_err(system("metrics"))?;
    }
    let workers = std::mem::take(&mut shim.workers);
    let workers = workers
        .into_iter()
        .enumerate()
        .map(|(number, mut worker)| {
            let (orders, telemetry) = (Arc::clone(&shim.orders), Arc::clone(&telemetry));
            let work = move || worker.run(&orders, &telemetry.board, number);
            spawn(format!("worker-{number}"), STACK, events.clone(), work)
        })
        .collect::<io::Result<Vec<_>>>()
        .map_err(system("threads"))?;
    let threads = workers.len();
    let watch = Watch::default();
    let mut service = Service { args, threads, shim, config, telemetry, notifier, watch };
    let result = service.serve(&inbox);

    service.notifier.stopping();
    service.shim.orders.stop();
    join(workers);
    info!("stopped");
    result
}

/// Waits until both ports are there; `false` if the end is asked for before.
fn wait_for_ports(
    args: &RunArgs,
    patience: Duration,
    notifier: &Notifier,
    signals: &mut Signals,
) -> Result<bool, RunError> {
    let PortArgs { host, net } = &args.ports;
    let start = Instant::now();
    let mut told = None;
    while let Some(missing) = not_there_yet(host, net) {
        if signals.pending().any(|signal| signal != SIGHUP) {
            return Ok(false);
        }
        if start.elapsed() >= patience {
            return Err(RunError::Waited { missing, waited: start.elapsed() });
        }
        notifier.waiting(&format!("waits for {missing}"), 100 * LOOK);
        if told.as_ref() != Some(&missing) {
            info!("waits for {missing}");
            told = Some(missing);
        }
        thread::sleep(LOOK);
    }
    if told.is_some() {
        info!("{host} and {net} are there");
    }
    Ok(true)
}

/// The rules that the engines go by: those of the configuration, or none.
fn engine_rules(args: &RunArgs, config: &Config) -> Result<Rules, RunError> {
    if !args.plain {
        return Ok(config.rules.clone());
    }
    Rules::new(&[], config.rules.mark()).map_err(|error| system("rules")(io::Error::other(error)))
}

/// What the main thread still needs when all is set up: to change maps, before Linux 5.19 let their owner.
pub(super) fn still_needed() -> CapabilitySet {
    let recent = KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(5, 19, 0));
    if recent { CapabilitySet::empty() } else { CapabilitySet::BPF }
}

/// What the main thread looks after.
struct Service<'a> {
    args: &'a RunArgs,
    threads: usize,
    shim: Shim,
    config: Config,
    telemetry: Arc<Telemetry>,
    notifier: Notifier,
    watch: Watch,
}

impl Service<'_> {
    /// Until the end is asked for.
    fn serve(&mut self, inbox: &Receiver<Event>) -> Result<(), RunError> {
        let tick = self.notifier.watchdog().map_or(TICK, |watchdog| TICK.min(watchdog / 3));
        let mut ready = false;
        let mut next = Instant::now();
        loop {
            match inbox.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Event::Signal(SIGHUP)) => {
                    self.reload();
                    if ready {
                        self.notifier.ready(&self.line());
                    }
                }
                Ok(Event::Signal(_)) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(Event::WorkerEnded) => return Err(RunError::Worker),
                // A connection whose SYN comes before a thread's first sign of life is never compressed. A thread
                // that answers has given one.
                Err(RecvTimeoutError::Timeout) if !ready => {
                    ready = self.telemetry.board.all_answer(PATIENCE);
                    if ready {
                        info!(threads = self.threads, "ready");
                        self.notifier.ready(&self.line());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.tick()?;
                    next = Instant::now() + tick;
                }
            }
        }
    }

    fn tick(&mut self) -> Result<(), RunError> {
        // Its sockets do not tell: they only have no more frames.
        let mut ports = self.shim.ports.iter().map(|port| &port.interface);
        if let Some(gone) = ports.find(|interface| !interface.exists()) {
            return Err(RunError::PortGone { interface: gone.name.clone() });
        }
        let snapshot = self.telemetry.snapshot();
        if self.notifier.watchdog().is_some() && snapshot.queues.iter().all(|queue| queue.answered) {
            self.notifier.alive();
        }
        self.watch.log(&snapshot);
        self.shim.warn_of_changes();
        if let Err(error) = self.shim.follow_bridge() {
            warn!("the bridge's addresses: {error}");
        }
        Ok(())
    }

    /// A line for people.
    fn line(&self) -> String {
        let PortArgs { host, net } = &self.args.ports;
        format!("{host} to {net}, {} rules", self.config.rules.as_slice().len())
    }

    /// How many connections these rules would break: what the far end sends them in place, as it was told on their
    /// SYNs, would be restored to other values. One that begins between the answer and the change is missed.
    fn broken_by(&self, rules: &Rules) -> usize {
        self.shim.orders.propose(Some(rules.clone()));
        // A thread that gives a sign of life within the limit is asked that long: one that has not answered broke nothing yet.
        let patience = PATIENCE.max(Duration::from_millis(self.args.limit_ms));
        let reports = self.telemetry.board.collect(patience);
        self.shim.orders.propose(None);
        reports.iter().map(|(_, report)| report.broken).sum()
    }

    /// Reads the file again. What cannot be understood, or would break connections, changes nothing.
    fn reload(&mut self) {
        let Some(file) = self.args.config.as_deref() else {
            warn!("SIGHUP: there is no configuration file to read again (--config)");
            return;
        };
        self.notifier.reloading();
        match Config::load(file) {
            Ok(new) => {
                for setting in new.needs_restart(&self.config) {
                    warn!("{setting} changed: takes effect at the next start");
                }
                let broken = self.broken_by(&new.rules);
                if broken > 0 {
                    error!(
                        "the in-place rule of {broken} connections changed, and they would get wrong values; the rules in \
                         force stay: end those connections first"
                    );
                    return;
                }
                // The threads first: a frame of a rule that they do not know yet would go untouched.
                if !self.args.plain {
                    self.shim.orders.set_rules(new.rules.clone());
                }
                self.shim.program.set_rules(&new.rules);
                self.telemetry.reloaded(new.rules.clone());
                self.config.rules = new.rules;
                info!(rules = self.config.rules.as_slice().len(), "reloaded");
            }
            Err(error) => error!("{error}; the rules in force stay"),
        }
    }
}
