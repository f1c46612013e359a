//! `gradwire-xdp aggregate`: a node that sums in the network, from its set-up to the last frame.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use gradwire::aggregate::Settings;
use gradwire::kernels::Kernel;
use gradwire::wire::chunk::{Limits, MIN_MTU, PORT};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use super::CommandError;
use super::run::{LIMIT, RunError, TICK, still_needed, system};
use super::threads::{Event, forward, join, spawn};
use super::unload::end_node;
use crate::config::Mode;
use crate::ops::control::{Control, RUN_DIR};
use crate::ops::interface::Interface;
use crate::ops::logging;
use crate::ops::metrics::Endpoint;
use crate::ops::notify::Notifier;
use crate::ops::privileges::drop_all_but;
use crate::ops::telemetry::{NodeTelemetry, PATIENCE};
use crate::path::node::{STACK, Service, set_up};
use crate::path::program::NodeAddress;

/// How long a node that is replaced gets to end by itself, or as long as its thread may give no sign of life.
const LEAVE: Duration = Duration::from_secs(5);

/// Sums what members of training jobs send, at an address of its own, in the foreground.
///
/// The address must be nobody else's, or this interface's own. Datagrams to it, at the protocol's port, pings and questions who has
/// it go to the node; all other frames go the kernel's way, and so do all when the node ends, however it ends. Members
/// notice, sum without the node, and use it again when it is back.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  gradwire-xdp aggregate --interface eth1 --address 10.0.0.9      then, at the members:
  gradwire allreduce --listen 10.0.0.2:7000 --members 10.0.0.1:7000,10.0.0.2:7000 --token-file token --aggregate 10.0.0.9

  gradwire-xdp aggregate --interface eth1 --address 10.0.0.9 --replace      another version takes the place of the running one")]
pub struct AggregateArgs {
    /// Where members are.
    #[arg(long, value_name = "IF")]
    pub interface: String,
    /// The node's address.
    #[arg(long, value_name = "IPV4")]
    pub address: Ipv4Addr,
    /// The node's UDP port.
    #[arg(long, value_name = "PORT", default_value_t = PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Send results to IPv4 groups, this one for the first job's place and those that follow for the others, in place of a copy to
    /// each member. Members must join the group that they are told.
    #[arg(long, value_name = "IPV4", value_parser = group)]
    pub group: Option<Ipv4Addr>,
    /// Where its program is attached.
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub mode: Mode,
    /// Serve metrics for Prometheus there.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// End the node that serves the interface now, and take its place.
    #[arg(long)]
    pub replace: bool,
    /// Folder of the control socket.
    #[arg(long, value_name = "FOLDER", default_value = RUN_DIR)]
    pub run_dir: PathBuf,
    /// What is logged to standard error: off, error, warn, info, debug, trace, or such by module.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// How it is logged.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: logging::Format,
    /// How long after its thread's last sign of life frames go to the kernel: longer, for tests on machines whose threads wait
    /// for a processor.
    #[arg(long, hide = true, value_name = "MS", default_value_t = LIMIT.as_millis() as u64)]
    pub limit_ms: u64,
}

/// An address of a group that routers may forward (RFC 5771): 224.0.0.0/24 is for a network's own protocols.
fn group(text: &str) -> Result<Ipv4Addr, String> {
    let group = text.parse::<Ipv4Addr>().ok();
    let group = group.filter(|group| group.is_multicast() && group.octets()[..3] != [224, 0, 0]);
    group.ok_or_else(|| "expected an IPv4 group from 224.0.1.0 to 239.255.255.255".to_owned())
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Why it did not start, or its thread failed.
pub fn run(args: &AggregateArgs) -> Result<(), CommandError> {
    if args.replace {
        end_node(&args.run_dir, &args.interface, LEAVE.max(Duration::from_millis(args.limit_ms)))?;
    }
    Ok(serve(args)?)
}

fn serve(args: &AggregateArgs) -> Result<(), RunError> {
    logging::start(&args.log, args.log_format)
        .map_err(|source| RunError::Log { filter: args.log.clone(), source })?;
    let notifier = Notifier::from_env().map_err(system("service manager"))?;
    // From here on no signal ends the process half set up.
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(system("signals"))?;
    let control = Control::bind_node(&args.run_dir, &args.interface)?;
    let endpoint = |at| Endpoint::bind(at).map_err(system(format!("metrics, {at}")));
    let endpoint = args.metrics.map(endpoint).transpose()?;
    let interface = Interface::find(&args.interface).map_err(crate::path::shim::StartError::from)?;
    let kernel = Kernel::detect();
    let service = service(args, &interface, kernel)?;
    let (program, status, mut worker) = set_up(&interface, service)?;
    drop_all_but(still_needed())?;

    let address = SocketAddrV4::new(args.address, args.port);
    info!(interface = args.interface, %address, mode = ?status.xdp, bind = ?status.bind, queues = status.queues, "node");
    let telemetry = Arc::new(NodeTelemetry::new(status, address, kernel.name()));
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
    let stop = Arc::new(AtomicBool::new(false));
    let work = {
        let (stop, telemetry) = (Arc::clone(&stop), Arc::clone(&telemetry));
        move || worker.run(&stop, &telemetry.board)
    };
    let thread = spawn("node".to_owned(), STACK, events, work).map_err(system("threads"))?;
    let result = watch(&interface, &telemetry, &notifier, &inbox);

    notifier.stopping();
    stop.store(true, Ordering::Relaxed);
    join([thread]);
    drop(program);
    info!("stopped");
    result
}

fn service(args: &AggregateArgs, interface: &Interface, kernel: Kernel) -> Result<Service, RunError> {
    if interface.mtu < MIN_MTU {
        let name = &interface.name;
        return Err(RunError::SmallMtu { interface: name.clone(), mtu: interface.mtu });
    }
    let mac = interface.mac().map_err(crate::path::shim::StartError::from)?;
    let mtu = interface.mtu.min(Limits::MOST.mtu);
    let group = args.group.map(|group| group.octets());
    Ok(Service {
        address: NodeAddress { mac, ip: args.address, port: args.port },
        settings: Settings { kernel, limits: Limits { mtu, ..Limits::MOST }, group, above: None },
        limit: Duration::from_millis(args.limit_ms),
        mode: args.mode,
        zero_copy: true,
    })
}

/// Until the end is asked for.
fn watch(
    interface: &Interface,
    telemetry: &NodeTelemetry,
    notifier: &Notifier,
    inbox: &Receiver<Event>,
) -> Result<(), RunError> {
    let tick = notifier.watchdog().map_or(TICK, |watchdog| TICK.min(watchdog / 3));
    let (mut is_ready, mut next) = (false, Instant::now());
    loop {
        match inbox.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Event::Signal(SIGHUP)) => {
                warn!("SIGHUP: a node has no configuration to read again; --replace starts another one");
            }
            Ok(Event::Signal(_)) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(Event::WorkerEnded) => return Err(RunError::Worker),
            Err(RecvTimeoutError::Timeout) => {
                if !interface.exists() {
                    return Err(RunError::PortGone { interface: interface.name.clone() });
                }
                let answers = telemetry.board.all_answer(PATIENCE);
                if answers && !is_ready {
                    info!("ready");
                    notifier.ready(&format!("sums on {}", interface.name));
                    is_ready = true;
                }
                if answers && notifier.watchdog().is_some() {
                    notifier.alive();
                }
                // A thread that has not answered yet is asked again at once.
                next = if is_ready { Instant::now() + tick } else { Instant::now() };
            }
        }
    }
}
