//! Facts for the checks: gathered once, from `/proc`, `/sys` and the kernel's answers about the two
//! ports. Tests fill it themselves, or gather it from a folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::system::filters;
use crate::system::holders::{Holder, holders};
use crate::system::interface::added_queues;
use crate::system::netlink::generic::{self, Offload, XdpFeatures};
use crate::system::netlink::link::Link;
use crate::telemetry::control;
use crate::telemetry::{PerPort, PortStatus, Snapshot};

/// Why facts could not be gathered.
#[derive(Debug, thiserror::Error)]
#[error("cannot ask the kernel about {name}: {source}")]
pub struct GatherError {
    /// The interface.
    pub name: String,
    /// The kernel's answer.
    pub source: io::Error,
}

/// All facts.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The machine, the network namespace and the process.
    pub system: SystemFacts,
    /// The two ports.
    pub ports: PerPort<PortFacts>,
    /// The filters between them; why the kernel does not tell.
    pub filters: Result<Vec<String>, String>,
}

/// The machine, the network namespace and the process. None: it could not be found out.
#[derive(Clone, Debug)]
pub struct SystemFacts {
    /// The kernel's release, as `uname -r` has it.
    pub release: String,
    /// Whether it has AF_XDP sockets.
    pub xdp_sockets: Option<bool>,
    /// `net.core.bpf_jit_enable`.
    pub bpf_jit: Option<u32>,
    /// Effective capabilities, a bit each.
    pub capabilities: Option<u64>,
    /// Memory that the process may lock, in bytes; `u64::MAX` without limit.
    pub lockable: Option<u64>,
    /// Processors that the process may use.
    pub cpus: usize,
    /// `net.ipv4.tcp_ecn` of this namespace.
    pub tcp_ecn: Option<u32>,
    /// `net.bridge.bridge-nf-call-iptables`; none also if bridges do not filter.
    pub bridge_iptables: Option<u32>,
    /// `net.bridge.bridge-nf-call-ip6tables`.
    pub bridge_ip6tables: Option<u32>,
    /// Whether the kernel has VLAN interfaces: it does not unless somebody makes one.
    pub vlans: bool,
}

/// One port. None: it could not be found out.
#[derive(Clone, Debug)]
pub struct PortFacts {
    /// The name that was asked for.
    pub name: String,
    /// The device; none if there is none of this name.
    pub link: Option<Link>,
    /// The device that it is a part of.
    pub master: Option<Link>,
    /// Its driver's name; of a virtual device its kind.
    pub driver: Option<String>,
    /// The XDP features of its driver.
    pub xdp: Option<XdpFeatures>,
    /// Its offloads by the kernel's names.
    pub offloads: Option<BTreeMap<String, Offload>>,
    /// Queues that receive.
    pub queues: Option<u32>,
    /// The number that its driver adds to them when it gets an XDP program, if the card has that
    /// many.
    pub added: u32,
    /// Processes that hold the XDP program which is attached to it.
    pub holders: Vec<Holder>,
    /// For what a gradwire-xdp that runs between the two ports was set up; none if none answers.
    pub served: Option<PortStatus>,
}

impl Facts {
    /// Gathers them. Files are looked for below `root`, which is `/` but for tests; control sockets
    /// in `run_dir`.
    ///
    /// # Errors
    /// The kernel does not tell of its devices at all.
    pub fn gather(root: &Path, run_dir: &Path, host: &str, network: &str) -> Result<Self, GatherError> {
        let mut ports =
            PerPort { host: PortFacts::gather(root, host)?, network: PortFacts::gather(root, network)? };
        let sockets = control::sockets(run_dir).unwrap_or_default();
        let pair = Some((host.to_owned(), network.to_owned()));
        let mut of_pair = sockets.iter().filter(|socket| control::ports_of(socket) == pair);
        if let Some(running) = of_pair.find_map(|socket| control::query::<Snapshot>(socket).ok()) {
            ports.host.served = Some(running.ports.host);
            ports.network.served = Some(running.ports.network);
        }
        let filters = match (&ports.host.link, &ports.network.link) {
            (Some(a), Some(b)) => filters::between(root, [a, b], ports.host.master.as_ref()),
            _ => Ok(Vec::new()),
        };
        let filters = filters.map_err(|error| error.to_string());
        Ok(Self { system: SystemFacts::gather(root), ports, filters })
    }
}

impl SystemFacts {
    pub(super) fn gather(root: &Path) -> Self {
        let sysctl = |name: &str| number(root, &format!("proc/sys/net/{name}"));
        // The process' limits and capabilities are its own, but `ulimit` and `capsh` show the same.
        let line = |file: &str, label: &str| {
            let text = read(root, file)?;
            text.lines().find_map(|line| Some(line.strip_prefix(label)?.trim().to_owned()))
        };
        let lockable = line("proc/self/limits", "Max locked memory").and_then(|limits| {
            match limits.split_whitespace().next()? {
                "unlimited" => Some(u64::MAX),
                soft => soft.parse().ok(),
            }
        });
        let capabilities =
            line("proc/self/status", "CapEff:").and_then(|bits| u64::from_str_radix(&bits, 16).ok());
        Self {
            release: read(root, "proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            xdp_sockets: has_xdp_sockets(),
            bpf_jit: sysctl("core/bpf_jit_enable"),
            capabilities,
            lockable,
            cpus: thread::available_parallelism().map_or(1, std::num::NonZero::get),
            tcp_ecn: sysctl("ipv4/tcp_ecn"),
            bridge_iptables: sysctl("bridge/bridge-nf-call-iptables"),
            bridge_ip6tables: sysctl("bridge/bridge-nf-call-ip6tables"),
            vlans: root.join("proc/net/vlan").is_dir(),
        }
    }
}

impl PortFacts {
    pub(super) fn gather(root: &Path, name: &str) -> Result<Self, GatherError> {
        let error = |source| GatherError { name: name.to_owned(), source };
        let link = Link::find(name).map_err(error)?;
        let mut facts = Self {
            name: name.to_owned(),
            link: None,
            master: None,
            driver: None,
            xdp: None,
            offloads: None,
            queues: None,
            added: 0,
            holders: Vec::new(),
            served: None,
        };
        let Some(link) = link else { return Ok(facts) };
        // What an older kernel, or a driver, does not tell stays unknown.
        facts.xdp = generic::xdp_features(link.index).ok();
        facts.offloads = generic::offloads(link.index).ok();
        facts.queues = generic::receive_channels(link.index).ok().or(Some(link.rx_queues));
        facts.master = match link.master {
            Some(index) => Link::with_index(index).map_err(error)?,
            None => None,
        };
        facts.driver = match &link.parent {
            Some((bus, device)) => driver(root, bus, device),
            None => Some(link.kind.clone()).filter(|kind| !kind.is_empty()),
        };
        facts.added = added_queues(root, facts.driver.as_deref());
        facts.holders = link.xdp_program.map(|program| holders(root, program)).unwrap_or_default();
        facts.link = Some(link);
        Ok(facts)
    }
}

/// The name of the driver that a device on a bus has.
fn driver(root: &Path, bus: &str, device: &str) -> Option<String> {
    let path: PathBuf = root.join("sys/bus").join(bus).join("devices").join(device).join("driver");
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}

/// Whether the kernel has AF_XDP sockets: by asking for one.
fn has_xdp_sockets() -> Option<bool> {
    let family = AddressFamily::from_raw(libc::AF_XDP as _);
    match socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, None) {
        Ok(_) => Some(true),
        Err(rustix::io::Errno::AFNOSUPPORT) => Some(false),
        // Without CAP_NET_RAW it does not tell.
        Err(_) => None,
    }
}

pub(super) fn read(root: &Path, file: &str) -> Option<String> {
    fs::read_to_string(root.join(file)).ok()
}

fn number(root: &Path, file: &str) -> Option<u32> {
    read(root, file)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn facts_come_from_the_files() {
        let root = Scratch::new();
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/sys/kernel/osrelease", "5.15.0-91-generic\n");
        write("proc/sys/net/core/bpf_jit_enable", "0\n");
        write("proc/sys/net/ipv4/tcp_ecn", "2\n");
        write("proc/sys/net/bridge/bridge-nf-call-iptables", "1\n");
        fs::create_dir_all(root.path().join("proc/net/vlan")).unwrap();
        write("proc/self/status", "Name:\tdoctor\nCapInh:\t0\nCapEff:\t0000000000003000\n");
        write(
            "proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units\n\
             Max locked memory         65536                unlimited            bytes\n",
        );
        write("sys/devices/system/cpu/possible", "0-7\n");
        write("sys/bus/pci/drivers/ixgbe/bind", "");
        write("sys/bus/pci/devices/0000:01:00.0/vendor", "");
        symlink("../../drivers/ixgbe", root.path().join("sys/bus/pci/devices/0000:01:00.0/driver")).unwrap();

        let facts = SystemFacts::gather(root.path());
        assert_eq!(facts.release, "5.15.0-91-generic");
        assert_eq!((facts.bpf_jit, facts.tcp_ecn), (Some(0), Some(2)));
        assert_eq!((facts.bridge_iptables, facts.bridge_ip6tables, facts.vlans), (Some(1), None, true));
        assert_eq!((facts.capabilities, facts.lockable), (Some(0x3000), Some(65536)));
        assert_eq!(driver(root.path(), "pci", "0000:01:00.0").as_deref(), Some("ixgbe"));
        assert_eq!(driver(root.path(), "pci", "0000:02:00.0"), None);
        assert_eq!(
            [Some("virtio_net"), Some("ixgbe"), None].map(|driver| added_queues(root.path(), driver)),
            [8, 0, 0]
        );
    }

    #[test]
    fn without_files_nothing_is_known() {
        let facts = SystemFacts::gather(Path::new("/nonexistent"));
        assert_eq!((facts.release.as_str(), facts.bpf_jit, facts.capabilities), ("", None, None));
    }

    #[test]
    fn a_port_that_is_not_there_has_no_link() {
        let facts = Facts::gather(Path::new("/"), Path::new("/nonexistent"), "gw-missing", "lo").unwrap();
        assert_eq!(facts.ports.host.link, None);
        let loopback = &facts.ports.network;
        assert_eq!(loopback.link.as_ref().unwrap().index, 1);
        assert!(loopback.offloads.is_some());
        assert!(!facts.system.release.is_empty());
    }
}
