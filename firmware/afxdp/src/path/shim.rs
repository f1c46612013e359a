//! Setting up: interfaces, program, memory, sockets; then the threads.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gradwire::forward::Port;
use gradwire::kernels::Kernel;
use gradwire::rules::Rules;
use tracing::{info, warn};

use crate::config::{Config, Mode as WantedMode, ZeroCopy};
use crate::path::device::Queues;
use crate::path::limits::{self, Asked};
use crate::path::program::{FollowError, Program, ProgramLoadError};
use crate::path::worker::{Duties, ThreadOrders, Worker};
use crate::path::xsk::Binding;
use crate::system::filters;
use crate::system::interface::Attached;
use crate::system::interface::{CUT_SEGMENTS, Interface, InterfaceError, MAX_QUEUES};
use crate::system::netlink::generic::{XdpFeatures, xdp_features};
use crate::system::netlink::link::Link;
use crate::system::port_settings::Settings;
use crate::telemetry::{Bound, PerPort, PortStatus, Telemetry};

/// Sets of each thread's flow table.
pub const SETS: usize = 1024;
/// TCP connections that each thread compresses at most.
pub const FLOWS: u32 = (SETS * gradwire::flow::WAYS) as u32;
/// Connections that the XDP program keeps in mind for each thread: untagged ones are among them.
const TRACKED_PER_THREAD: u32 = 2 * FLOWS;
const MAX_TRACKED: u32 = 1 << 18;
/// The time that a start waits for a queue that is not free, or as long as a thread may give no
/// sign of life.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Why the shim does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// Both ports are one.
    #[error("--host and --net are both {0}: name the container's veth and the network card")]
    SamePort(String),
    /// The XDP program.
    #[error(transparent)]
    Program(#[from] ProgramLoadError),
    /// Something filters frames between the ports, and tagged connections would pass by it.
    #[error(
        "tagged connections would pass by {}: whoever may tag a socket could do what it forbids. If it is not meant for them, start with \
         --bypass-filter, or write bypass-filter = true into [path]", found.join(", ")
    )]
    Filtered {
        /// The findings.
        found: Vec<String>,
    },
    /// The kernel does not tell what filters.
    #[error(
        "looking for what filters frames between the ports: {error} (needs CAP_NET_ADMIN, or root; --bypass-filter goes on without)"
    )]
    Filters {
        /// Why.
        error: io::Error,
    },
    /// The driver would drop frames that the MTU allows, of all connections.
    #[error(
        "{interface}: MTU {mtu}, but {driver} drops what has more than {largest} bytes in {mode} mode, untagged packets, too: \
         ip link set dev {interface} mtu {largest}, and the same on the other port, in the container and on all hosts"
    )]
    Mtu {
        /// The port.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// Its driver.
        driver: String,
        /// The attachment of the program.
        mode: &'static str,
        /// The largest MTU that loses nothing.
        largest: u32,
    },
    /// Frames could not be given memory.
    #[error("memory for frames, {mib} MiB: {error}")]
    Memory {
        /// The size.
        mib: u64,
        /// Why.
        error: io::Error,
    },
    /// A queue's socket.
    #[error("{interface}, queue {queue}: {error}{}", remedy(.error))]
    Socket {
        /// The port.
        interface: String,
        /// The queue.
        queue: u32,
        /// Why.
        error: io::Error,
    },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EBUSY) => "; another process has an AF_XDP socket on it, perhaps a second gradwire-xdp",
        Some(libc::ENOBUFS) => "; it may not lock so much memory: `ulimit -l unlimited`, or CAP_IPC_LOCK",
        Some(libc::EPERM) => "; needs CAP_NET_RAW, or root",
        _ => "",
    }
}

/// One port, as it was set up.
#[derive(Clone, Debug)]
pub struct PortSetup {
    /// The interface.
    pub interface: Interface,
    /// The attachment of the program.
    pub mode: Attached,
    /// Whether every socket's driver reads and writes the frames' memory itself.
    pub zero_copy: bool,
    /// The settings for which it was set up.
    pub settings: Settings,
    /// Its settings at the last look.
    seen: Settings,
}

/// Everything set up; the threads are not yet running.
#[derive(Debug)]
pub struct Shim {
    /// By port.
    pub ports: [PortSetup; 2],
    /// The bridge's filters at the last look.
    filters: Vec<String>,
    /// The program. Dropping it detaches it.
    pub program: Program,
    /// The orders for the threads.
    pub orders: Arc<ThreadOrders>,
    /// One for each thread.
    pub workers: Vec<Worker<SETS>>,
}

impl Shim {
    /// Sets all up. No frame is taken before the workers run.
    ///
    /// `rules`: those of the engines; frames are taken by those of `config`. `limit`: how long
    /// after a thread's last sign of life frames go to the bridge.
    ///
    /// # Errors
    /// What is in the way, and what fixes it.
    pub fn set_up(
        host: &str,
        network: &str,
        config: &Config,
        rules: Rules,
        limit: Duration,
    ) -> Result<Self, StartError> {
        if host == network {
            return Err(StartError::SamePort(host.into()));
        }
        let interfaces = [Interface::find(host)?, Interface::find(network)?];
        for interface in &interfaces {
            check_mtu_before(interface, config.mode)?;
        }
        check_filters(&interfaces, config.bypass_filter)?;
        let most_threads = thread_count(interfaces.each_ref().map(most_queues), config);
        let tracked = (most_threads * TRACKED_PER_THREAD).min(MAX_TRACKED);
        let [host, network] = &interfaces;
        let frame_len = host.frame_len().max(network.frame_len());
        let mut program = Program::load(tracked, limit.as_nanos() as u64, frame_len as u64)?;
        let mut modes = [Attached::Native; 2];
        for ((port, interface), mode) in Port::ALL.into_iter().zip(&interfaces).zip(&mut modes) {
            *mode = attach(&mut program, port, interface, config.mode)?;
        }
        // Attaching gives virtio receive queues, one for each processor if the card has them. What
        // is served is what this says, whatever the interfaces are later.
        let before = &interfaces;
        let interfaces = [Interface::find(&host.name)?, Interface::find(&network.name)?];
        let [host, network] = &interfaces;
        for (interface, mode) in interfaces.iter().zip(modes) {
            check_mtu(interface, interface.mtu.into(), mode)?;
        }
        let threads = thread_count([host.queues, network.queues], config);
        if host.queues != network.queues {
            info!(
                host = host.queues,
                network = network.queues,
                "different numbers of queues; threads: {threads}"
            );
        }
        check_bridge(&mut program, &interfaces);

        let may = Port::ALL.map(|port| {
            let at = port as usize;
            may_bind(&interfaces[at], before[at].queues, config.zero_copy, modes[at])
        });
        let of_any = Bound::of(may.contains(&Bound::ZeroCopy));
        let mut zero_copy = [true; 2];
        let mut workers = Vec::new();
        for thread in 0..threads {
            let of_thread = |interface: &Interface| (thread..interface.queues).step_by(threads as usize);
            let sockets = of_thread(host).chain(of_thread(network)).count() as u32;
            let mut queues = Queues::new(sockets, frame_len, of_any).map_err(|error| StartError::Memory {
                mib: Queues::memory(sockets, frame_len, of_any) >> 20,
                error,
            })?;
            if network.has_checksums(modes[Port::Network as usize]) {
                queues.has_checksums(Port::Network);
            }
            queues.poll_busily(config.busy_poll);
            queues.rest_for(limit);
            let mut beats = [Vec::new(), Vec::new()];
            for (port, interface) in Port::ALL.into_iter().zip(&interfaces) {
                for queue in of_thread(interface) {
                    let error =
                        |error| StartError::Socket { interface: interface.name.clone(), queue, error };
                    let binding = Binding { interface: interface.index, queue, bound: may[port as usize] };
                    let socket = queues.bind(port, binding, PATIENCE.max(limit)).map_err(error)?;
                    zero_copy[port as usize] &= socket.bound() == Bound::ZeroCopy;
                    program.add_socket(port, queue, socket)?;
                    beats[port as usize].extend(program.beat(port, queue));
                }
            }
            let (busy_poll, kept) = (config.busy_poll.is_some(), program.kept(thread, threads));
            let duties = Duties { beats, limit, busy_poll, kept };
            workers.push(Worker::new(queues, rules.clone(), host.mtu, duties));
        }
        program.set_rules(&config.rules);

        let setup = |port: Port| {
            let (interface, mode) = (interfaces[port as usize].clone(), modes[port as usize]);
            let settings = Settings::served(&interface, mode);
            let seen = settings.clone();
            PortSetup { interface, mode, zero_copy: zero_copy[port as usize], settings, seen }
        };
        let ports = Port::ALL.map(setup);
        for PortSetup { interface, mode, zero_copy, .. } in &ports {
            info!(
                interface = interface.name,
                ?mode,
                copy = !zero_copy,
                queues = interface.queues,
                mtu = interface.mtu,
                "port"
            );
        }
        if config.zero_copy == ZeroCopy::On && zero_copy == [false; 2] {
            warn!(
                "zero-copy is on, but no driver offers it here: frames are copied, as they are with zero-copy off"
            );
        }
        let orders = Arc::new(ThreadOrders::new(rules));
        let filters = filters_of_bridge(interfaces.each_ref()).unwrap_or_default();
        Ok(Self { ports, filters, program, orders, workers })
    }
}

/// A thread for each pair of queues; if the ports have different numbers of them, the rest is dealt
/// out: every queue needs a socket, since frames of any may be compressed.
fn thread_count([host, network]: [u32; 2], config: &Config) -> u32 {
    let pairs = host.min(network);
    config.threads.map_or(pairs, |most| pairs.min(most.get()))
}

/// The number of receive queues a port may have at most: maps are made before it is known how many
/// it has.
fn most_queues(interface: &Interface) -> u32 {
    let made_with = Link::with_index(interface.index).ok().flatten().map(|link| link.rx_queues);
    made_with.unwrap_or(MAX_QUEUES).clamp(interface.queues, MAX_QUEUES)
}

/// The allowed binding for sockets of a port which had so many queues before the program was
/// attached; says so if that is not as its driver could.
pub(super) fn may_bind(interface: &Interface, queues_before: u32, wanted: ZeroCopy, mode: Attached) -> Bound {
    let driver = interface.driver.as_deref();
    let asked = limits::asked(wanted, driver);
    let name = &interface.name;
    match (driver, asked, mode) {
        (Some(driver), Asked::Untried, Attached::Native)
            if xdp_features(interface.index).is_ok_and(XdpFeatures::zero_copy) =>
        {
            info!("{name}: {}", limits::untried(driver));
        }
        (_, Asked::Yes, Attached::Generic) if wanted == ZeroCopy::On => {
            warn!(
                "{name}: frames are copied, though zero-copy is on: the XDP program is attached in generic mode"
            );
        }
        (_, Asked::Yes, Attached::Native) if limits::keeps_memory(queues_before, interface.queues) => {
            warn!(
                "{name}: frames are copied, though zero-copy is on: XDP has added queues, and when they go, Linux goes on using their memory and \
                 crashes. Give the card all of its queues before: ethtool -L {name} combined {}",
                most_queues(interface)
            );
            return Bound::Copy;
        }
        _ => {}
    }
    limits::binding(asked, mode)
}

/// Attaches the program as the configuration wants it.
pub(super) fn attach(
    program: &mut Program,
    port: Port,
    interface: &Interface,
    wanted: WantedMode,
) -> Result<Attached, StartError> {
    let native = match wanted {
        WantedMode::Generic => None,
        WantedMode::Auto | WantedMode::Native => Some(program.attach(port, interface, Attached::Native)),
    };
    let refused = match native {
        Some(Ok(())) => return Ok(Attached::Native),
        // Not a matter of the mode.
        Some(Err(error @ (ProgramLoadError::Busy { .. } | ProgramLoadError::NoLink { .. }))) => {
            return Err(error.into());
        }
        Some(Err(error)) if wanted == WantedMode::Native => return Err(error.into()),
        Some(Err(error)) => Some(error),
        None => None,
    };
    if let Some(error) = refused {
        let name = &interface.name;
        // A veth has no driver on a bus.
        let container = match interface.driver {
            Some(_) => String::new(),
            None => format!(", and in the container {CUT_SEGMENTS}   (PID of the container)"),
        };
        warn!(
            interface = name,
            "{error}; so generic mode it is, which is slower, and leaves merged segments untouched: \
             ethtool -K {name} gro off{container}"
        );
        program.remember_refusal(port, error.to_string());
    }
    program.attach(port, interface, Attached::Generic)?;
    Ok(Attached::Generic)
}

/// Refuses an MTU that no mode takes which the configuration allows: before anything is attached.
pub(super) fn check_mtu_before(interface: &Interface, wanted: WantedMode) -> Result<(), StartError> {
    let check = |mode| check_mtu(interface, interface.mtu.into(), mode);
    match wanted {
        WantedMode::Generic => check(Attached::Generic),
        WantedMode::Native => check(Attached::Native),
        // The driver may refuse native mode. If not, this is checked again.
        WantedMode::Auto => check(Attached::Generic).or_else(|_| check(Attached::Native)),
    }
}

/// Refuses an MTU whose longest frames the driver drops before the program sees them.
pub(super) fn check_mtu(interface: &Interface, mtu: u32, mode: Attached) -> Result<(), StartError> {
    let largest = limits::largest_mtu(interface.driver.as_deref(), mode);
    if mtu <= largest {
        return Ok(());
    }
    Err(StartError::Mtu {
        interface: interface.name.clone(),
        mtu,
        driver: interface.driver.clone().unwrap_or_else(|| "its driver".to_owned()),
        mode: mode.name(),
        largest,
    })
}

/// A tag must not open what the operator has closed, unless the operator says so.
fn check_filters(interfaces: &[Interface; 2], bypass: bool) -> Result<(), StartError> {
    match filters_between(interfaces.each_ref()) {
        Ok(found) if found.is_empty() => Ok(()),
        Ok(found) if bypass => {
            warn!("tagged connections pass by {} (bypass-filter)", found.join(", "));
            Ok(())
        }
        Ok(found) => Err(StartError::Filtered { found }),
        Err(error) if bypass => {
            warn!(
                "tagged connections pass by what filters frames between the ports (bypass-filter); what does is not known: {error}"
            );
            Ok(())
        }
        Err(error) => Err(StartError::Filters { error }),
    }
}

fn filters_between([host, network]: [&Interface; 2]) -> io::Result<Vec<String>> {
    let (ports, bridge) = links([host, network])?;
    filters::between(Path::new("/"), ports.each_ref(), bridge.as_ref())
}

/// The part of it that needs no capability.
fn filters_of_bridge([host, network]: [&Interface; 2]) -> io::Result<Vec<String>> {
    let (ports, bridge) = links([host, network])?;
    Ok(filters::by_bridge(Path::new("/"), ports.each_ref(), bridge.as_ref()))
}

/// Both ports, and what they are a part of.
fn links(interfaces: [&Interface; 2]) -> io::Result<([Link; 2], Option<Link>)> {
    let link = |interface: &Interface| -> io::Result<Link> {
        Link::with_index(interface.index)?.ok_or(io::ErrorKind::NotFound.into())
    };
    let ports = [link(interfaces[0])?, link(interfaces[1])?];
    let bridge = ports[0].master.map(Link::with_index).transpose()?.flatten();
    Ok((ports, bridge))
}

/// The bridge forwards all frames that are not compressed, and every frame when this process is
/// gone.
fn check_bridge(program: &mut Program, interfaces: &[Interface; 2]) {
    let [host, network] = interfaces;
    match (&host.bridge, &network.bridge) {
        (Some(bridge), Some(other)) if bridge == other => {
            if let Err(error) = program.follow_bridge(bridge, &host.name, &network.name) {
                warn!(bridge, "reading the bridge's addresses: {error}");
            }
        }
        _ => warn!(
            "{} and {} are not ports of one bridge: untagged frames go nowhere, and none do when this process \
             ends; `ip link set {} master BRIDGE`",
            host.name, network.name, host.name
        ),
    }
    if network.mtu != host.mtu {
        let smaller = network.mtu.min(host.mtu);
        warn!(
            "MTU {} at {} and {} at {}: frames beyond {smaller} are lost between them; set the same on both, in the \
             container and on all hosts: ip link set dev {} mtu {}",
            host.mtu, host.name, network.mtu, network.name, host.name, network.mtu
        );
    }
}

impl Shim {
    /// Its telemetry, before any frame; `file` is where the configuration is from.
    #[must_use]
    pub fn telemetry(&self, config: &Config, file: Option<&Path>) -> Telemetry {
        let ports = PerPort::new(|port| {
            let PortSetup { interface, mode, zero_copy, .. } = &self.ports[port as usize];
            PortStatus {
                name: interface.name.clone(),
                index: interface.index,
                mtu: interface.mtu.into(),
                queues: interface.queues,
                xdp: *mode,
                refused: self.program.refused(port),
                bind: Bound::of(*zero_copy),
            }
        });
        let kernel = Kernel::detect().name();
        Telemetry::new(ports, self.workers.len(), kernel, file.map(Path::to_owned), config.rules.clone())
    }

    /// Warns of what changed about the ports, and keeps this shim from doing its work until it is
    /// started again.
    pub fn warn_of_changes(&mut self) {
        for port in &mut self.ports {
            let now = Settings::of(&port.interface, port.mode);
            if now == port.seen {
                continue;
            }
            let name = &port.interface.name;
            for change in port.settings.differences(&now) {
                warn!("{name}: {change}");
            }
            if let Some(mtu) = now.mtu
                && let Err(error) = check_mtu(&port.interface, mtu, port.mode)
            {
                warn!("{error}");
            }
            if now == port.settings {
                info!("{name}: as it was at start again");
            }
            port.seen = now;
        }
        // Without its capabilities, it is not told of chains and of traffic control.
        let [host, network] = &self.ports;
        let Ok(now) = filters_of_bridge([&host.interface, &network.interface]) else { return };
        for filter in now.iter().filter(|filter| !self.filters.contains(filter)) {
            warn!("tagged connections pass by {filter}, which was not there at start: gradwire-xdp doctor");
        }
        self.filters = now;
    }

    /// Learns what the bridge knows by now: to be called every few seconds.
    ///
    /// # Errors
    /// The bridge's table cannot be read, or told to the program.
    pub fn follow_bridge(&mut self) -> Result<(), FollowError> {
        let [host, network] = &self.ports;
        let (host, network) = (&host.interface, &network.interface);
        match (&host.bridge, &network.bridge) {
            (Some(bridge), Some(other)) if bridge == other => {
                self.program.follow_bridge(bridge, &host.name, &network.name)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(driver: Option<&str>, mtu: u16) -> Interface {
        let (name, driver) = ("eth0".to_owned(), driver.map(str::to_owned));
        Interface { name, index: 2, mtu, queues: 1, driver, bridge: None }
    }

    /// virtio takes 12 bytes of each frame's page for its header, and starts with an MTU that
    /// leaves no room for them.
    #[test]
    fn an_mtu_whose_frames_the_driver_drops_is_refused_with_one_that_works() {
        let before = |driver, mtu, wanted| check_mtu_before(&interface(driver, mtu), wanted);
        let after = |driver, mtu: u16, mode| check_mtu(&interface(driver, mtu), mtu.into(), mode);
        let virtio = Some("virtio_net");
        let refused = after(virtio, 3495, Attached::Native).unwrap_err().to_string();
        assert!(
            refused.contains("virtio_net drops what has more than 3494 bytes in native mode")
                && refused.contains("ip link set dev eth0 mtu 3494,"),
            "{refused}"
        );
        assert!(after(virtio, 3494, Attached::Native).is_ok());
        assert!(after(virtio, 3506, Attached::Generic).is_ok());
        assert!(after(Some("igb"), 3506, Attached::Native).is_ok());
        // In between, the mode decides, which shows when it is attached.
        assert!(before(virtio, 3500, WantedMode::Auto).is_ok());
        assert!(before(virtio, 3500, WantedMode::Native).is_err());
        assert!(before(virtio, 3500, WantedMode::Generic).is_ok());
        // No mode takes it: the remedy is for the mode that will be.
        let refused = before(virtio, 9000, WantedMode::Auto).unwrap_err().to_string();
        assert!(refused.contains("mtu 3494,"), "{refused}");
        let refused = before(None, 9000, WantedMode::Auto).unwrap_err().to_string();
        assert!(refused.contains("mtu 3506,"), "{refused}");
    }
}
