//! `gradwire-xdp aggregate`: a node that sums in the network, from its set-up to the last frame.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gradwire::aggregate::Settings;
use gradwire::kernels::Kernel;
use gradwire::wire::chunk::{Limits, MIN_MTU, PORT};
use tracing::{info, warn};

use super::CommandError;
use super::service::{
    RunError, Service, ServiceArgs, all_there, drop_privileges, manager_and_signals, serve, system, tell,
};
use super::threads::{events, spawn};
use super::unload::end_node;
use crate::config::Mode;
use crate::ops::control::Control;
use crate::ops::interface::Interface;
use crate::ops::metrics::Endpoint;
use crate::ops::notify::Notifier;
use crate::ops::telemetry::{NodeTelemetry, PATIENCE};
use crate::path::node;
use crate::path::program::{NodeAddress, Program};

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
    #[command(flatten)]
    #[allow(missing_docs, reason = "a doc comment would become the help of the flattened options")]
    pub service: ServiceArgs,
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
        end_node(&args.service.run_dir, &args.interface, LEAVE.max(args.service.limit()))?;
    }
    Ok(start(args)?)
}

fn start(args: &AggregateArgs) -> Result<(), RunError> {
    args.service.start_log()?;
    let (notifier, signals) = manager_and_signals()?;
    let control = Control::bind_node(&args.service.run_dir, &args.interface)?;
    let endpoint = |at| Endpoint::bind(at).map_err(system(format!("metrics, {at}")));
    let endpoint = args.metrics.map(endpoint).transpose()?;
    let interface = Interface::find(&args.interface).map_err(crate::path::shim::StartError::from)?;
    let kernel = Kernel::detect();
    let summing = summing(args, &interface, kernel)?;
    let (program, status, mut worker) = node::set_up(&interface, summing)?;
    drop_privileges()?;

    let address = SocketAddrV4::new(args.address, args.port);
    info!(interface = args.interface, %address, mode = ?status.xdp, bind = ?status.bind, queues = status.queues, "node");
    let telemetry = Arc::new(NodeTelemetry::new(status, address, kernel.name()));
    let of_readers = Arc::clone(&telemetry);
    let _socket_file = tell(control, endpoint, move || of_readers.snapshot())?;
    let (events, inbox) = events(signals).map_err(system("signals"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let work = {
        let (stop, telemetry) = (Arc::clone(&stop), Arc::clone(&telemetry));
        move || worker.run(&stop, &telemetry.board)
    };
    let thread = spawn("node".to_owned(), node::STACK, events, work).map_err(system("threads"))?;
    let mut running = Running { interface, telemetry, stop, _program: program };
    serve(&mut running, &notifier, &inbox, vec![thread])
}

fn summing(args: &AggregateArgs, interface: &Interface, kernel: Kernel) -> Result<node::Service, RunError> {
    if interface.mtu < MIN_MTU {
        let name = &interface.name;
        return Err(RunError::SmallMtu { interface: name.clone(), mtu: interface.mtu });
    }
    let mac = interface.mac().map_err(crate::path::shim::StartError::from)?;
    let mtu = interface.mtu.min(Limits::MOST.mtu);
    let group = args.group.map(|group| group.octets());
    Ok(node::Service {
        address: NodeAddress { mac, ip: args.address, port: args.port },
        settings: Settings { kernel, limits: Limits { mtu, ..Limits::MOST }, group, above: None },
        limit: args.service.limit(),
        mode: args.mode,
        zero_copy: true,
    })
}

/// What the main thread looks after.
struct Running {
    interface: Interface,
    telemetry: Arc<NodeTelemetry>,
    stop: Arc<AtomicBool>,
    /// Attached as long as it is there.
    _program: Program,
}

impl Service for Running {
    fn all_answer(&self) -> bool {
        self.telemetry.board.all_answer(PATIENCE)
    }

    fn look(&mut self) -> Result<bool, RunError> {
        all_there([&self.interface])?;
        Ok(self.all_answer())
    }

    fn reload(&mut self, _: &Notifier) {
        warn!("SIGHUP: a node has no configuration to read again; --replace starts another one");
    }

    fn line(&self) -> String {
        format!("sums on {}", self.interface.name)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
