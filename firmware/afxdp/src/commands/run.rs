//! `gradwire-xdp run`: from set-up to the last frame.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gradwire::rules::Rules;
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;
use tracing::{error, info, warn};

use super::arguments::{PortArgs, seconds};
use super::service::{
    RunError, Service, ServiceArgs, all_there, bind_endpoint, drop_privileges, manager_and_signals, serve,
    serve_control, system,
};
use super::threads::{events, spawn};
use crate::config::{Config, ZeroCopy, zero_copy_of};
use crate::path::shim::Shim;
use crate::system::interface::not_there_yet;
use crate::system::notify::Notifier;
use crate::telemetry::control::Control;
use crate::telemetry::logging::Rarely;
use crate::telemetry::watch::Watch;
use crate::telemetry::{PATIENCE, Telemetry};

/// The number of times that it looks for ports that are missing.
const LOOK: Duration = Duration::from_millis(200);
/// A thread has the flow table on its stack while it is made.
const STACK: usize = 16 << 20;

/// Compresses and restores between two ports, in the foreground.
///
/// Both ports must be joined by a bridge. SIGHUP reads the configuration file again and takes over
/// its rules without losing a frame or a connection; SIGTERM and SIGINT end it. Under systemd it
/// says when it is ready and that it is alive (sd_notify).
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
    /// Run although tagged connections pass by what filters frames between the ports, such as
    /// nftables' bridge chains.
    #[arg(long)]
    pub bypass_filter: bool,
    /// Wait until both ports exist and a bridge joins them, at most so many seconds; without a
    /// number, a day.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "86400", value_parser = seconds)]
    pub wait: Option<Duration>,
    /// Which drivers hand over frames without a copy, whatever the file says: auto, those that it
    /// was tried with; on, all that offer it; off, none.
    #[arg(long, value_name = "WHICH")]
    pub zero_copy: Option<ZeroCopy>,
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub service: ServiceArgs,
    /// Takes tagged frames and sends them on as they are: what a benchmark compares compression
    /// with.
    #[arg(long, hide = true)]
    pub plain: bool,
}

/// Runs between two ports until SIGTERM or SIGINT; SIGHUP reads the configuration file again.
///
/// # Errors
/// Why it did not start, or a thread that failed.
pub fn run(args: &RunArgs) -> Result<(), RunError> {
    args.service.start_log()?;
    let PortArgs { host, net } = &args.ports;
    let file = args.config.as_deref();
    let mut config = Config::load_or_default(file)?;
    config.bypass_filter |= args.bypass_filter;
    config.zero_copy = zero_copy_of(args.zero_copy, config.zero_copy, config.mode)?;
    let (notifier, mut signals) = manager_and_signals()?;
    if let Some(patience) = args.wait
        && !wait_for_ports(args, patience, &notifier, &mut signals)?
    {
        return Ok(());
    }
    // First of all who else runs here: their answer is clearer than the kernel's.
    let control = Control::bind(&args.service.run_dir, host, net)?;
    let endpoint = bind_endpoint(config.metrics, config.any_metrics_port)?;
    let rules = engine_rules(args, &config)?;
    let mut shim = Shim::set_up(host, net, &config, rules, args.service.limit())?;
    drop_privileges()?;

    let telemetry = Arc::new(shim.telemetry(&config, file));
    let of_readers = Arc::clone(&telemetry);
    let _socket_file = serve_control(control, endpoint, move || of_readers.snapshot())?;
    let (events, inbox) = events(signals).map_err(system("signals"))?;
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
    let mut running =
        Running { args, shim, config, telemetry, watch: Watch::default(), bridge_failed: Rarely::default() };
    serve(&mut running, &notifier, &inbox, workers)
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
    let mut logged = None;
    while let Some(missing) = not_there_yet(host, net) {
        if signals.pending().any(|signal| signal != SIGHUP) {
            return Ok(false);
        }
        if start.elapsed() >= patience {
            return Err(RunError::Waited { missing, waited: start.elapsed() });
        }
        notifier.waiting(&format!("waits for {missing}"), 100 * LOOK);
        if logged.as_ref() != Some(&missing) {
            info!("waits for {missing}");
            logged = Some(missing);
        }
        thread::sleep(LOOK);
    }
    if logged.is_some() {
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

/// The state of the main thread.
struct Running<'a> {
    args: &'a RunArgs,
    shim: Shim,
    config: Config,
    telemetry: Arc<Telemetry>,
    watch: Watch,
    bridge_failed: Rarely,
}

impl Service for Running<'_> {
    /// A connection whose SYN comes before a thread's first sign of life is never compressed.
    fn all_answer(&self) -> bool {
        self.telemetry.board.all_answer(PATIENCE)
    }

    fn look(&mut self) -> Result<bool, RunError> {
        all_there(self.shim.ports.iter().map(|port| &port.interface))?;
        let snapshot = self.telemetry.snapshot();
        self.watch.log(&snapshot);
        self.shim.warn_of_changes();
        if let Err(error) = self.shim.follow_bridge()
            && self.bridge_failed.is_due(Instant::now())
        {
            warn!("the bridge's addresses: {error}");
        }
        Ok(snapshot.queues.iter().all(|queue| queue.answered))
    }

    fn line(&self) -> String {
        let PortArgs { host, net } = &self.args.ports;
        format!("{host} to {net}, {} rules", self.config.rules.as_slice().len())
    }

    fn stop(&self) {
        self.shim.orders.stop();
    }

    /// Reads the file again. What cannot be understood, or would break connections, changes
    /// nothing.
    fn reload(&mut self, notifier: &Notifier) {
        let Some(file) = self.args.config.as_deref() else {
            warn!("SIGHUP: there is no configuration file to read again (--config)");
            return;
        };
        notifier.reloading();
        match Config::load(file) {
            Ok(mut new) => {
                new.bypass_filter |= self.args.bypass_filter;
                new.zero_copy = self.args.zero_copy.unwrap_or(new.zero_copy);
                for setting in new.needs_restart(&self.config) {
                    warn!("{setting} changed: takes effect at the next start");
                }
                let broken = self.broken_by(&new.rules);
                // The threads first: a frame of a rule that they do not know yet would go
                // untouched.
                if broken == Some(0) && !self.args.plain {
                    self.shim.orders.set_rules(new.rules.clone());
                }
                self.shim.orders.withdraw();
                match broken {
                    Some(0) => {}
                    Some(broken) => {
                        error!(
                            "the in-place rule of {broken} connections changed, and they would get wrong values; the rules \
                             in force stay: end those connections first"
                        );
                        return;
                    }
                    None => {
                        error!(
                            "a thread does not say whether connections would get wrong values; the rules in force stay: \
                             reload again, and look at `status` if that does not help"
                        );
                        return;
                    }
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

impl Running<'_> {
    /// The number of connections these rules would break: what the far end sends them in place, as
    /// advertised on their SYNs, would be restored to other values. Until the proposal is
    /// withdrawn, no other one begins in a thread that has checked it. None if a thread does not
    /// check these rules as soon as it has to give signs of life.
    fn broken_by(&self, rules: &Rules) -> Option<usize> {
        let number = self.shim.orders.propose(rules.clone());
        let reports = self.telemetry.board.collect(PATIENCE.max(self.args.service.limit()));
        // The last report of a thread that does not answer is of an earlier proposal, or of none.
        let checked =
            reports.iter().map(|(_, report)| report.checked.filter(|checked| checked.number == number));
        checked.map(|checked| Some(checked?.broken)).sum()
    }
}
