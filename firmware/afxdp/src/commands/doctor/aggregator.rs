//! Checks of an aggregator: of the machine and the interface what a shim's ports are checked by,
//! and whether its address can be its own.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use gradwire::wire::chunk::{Limits, MIN_MTU};

use super::facts::{GatherError, PortFacts, SystemFacts, read};
use super::finding::{Finding, word};
use super::{network, offloads, ports, system};
use crate::config::AggregatorConfig;
use crate::system::netlink::address::{self, Held};
use crate::system::netlink::link::Link;
use crate::telemetry::AggregatorSnapshot;
use crate::telemetry::control;

/// The time that a host gets to answer who it is.
const PATIENCE: Duration = Duration::from_secs(1);
/// The port of what nobody wants (RFC 863).
const DISCARD: u16 = 9;

/// All facts about an aggregator to be.
#[derive(Clone, Debug)]
pub struct AggregatorFacts {
    /// The machine, the network namespace and the process.
    pub system: SystemFacts,
    /// The interface.
    pub port: PortFacts,
    /// The holder of its address.
    pub holder: Holder,
    /// Whether a socket of this host has its UDP port, at an address that is this host's; none if
    /// it is not known.
    pub port_taken: Option<bool>,
}

/// The holder of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nobody that answers.
    Nobody,
    /// The interface itself.
    Interface,
    /// Another device of this host.
    Device(String),
    /// A station behind the interface, by its MAC address: it answers, or did a moment ago.
    Station(String),
    /// There is no way to ask.
    Unknown,
}

impl AggregatorFacts {
    /// Gathers them. Files are looked for below `root`, which is `/` but for tests; control sockets
    /// in `run_dir`. If no device of this host has the address, the kernel is made to look it up
    /// behind the interface, by one datagram.
    ///
    /// # Errors
    /// The kernel does not tell of its devices at all.
    pub fn gather(root: &Path, run_dir: &Path, config: &AggregatorConfig) -> Result<Self, GatherError> {
        let mut port = PortFacts::gather(root, &config.interface)?;
        let socket = control::aggregator_sockets(run_dir)
            .unwrap_or_default()
            .into_iter()
            .find(|socket| control::interface_of(socket).as_deref() == Some(config.interface.as_str()));
        let running = socket.and_then(|socket| control::query::<AggregatorSnapshot>(&socket).ok());
        port.served = running.map(|aggregator| aggregator.interface);
        let holder = match (address::held(), &port.link) {
            (Ok(held), Some(link)) => {
                let of_host = held.iter().find(|held| held.address == config.address);
                match of_host {
                    Some(Held { device, .. }) if *device == link.index => Holder::Interface,
                    Some(Held { device, .. }) => Holder::Device(name_of(*device)),
                    None => look_up(root, &config.interface, config.address).unwrap_or(Holder::Unknown),
                }
            }
            _ => Holder::Unknown,
        };
        let port_taken = (holder == Holder::Interface).then(|| is_taken(config)).flatten();
        Ok(Self { system: SystemFacts::gather(root), port, holder, port_taken })
    }
}

fn name_of(device: u32) -> String {
    let link = Link::with_index(device).ok().flatten();
    link.map_or_else(|| format!("device {device}"), |link| link.name)
}

fn is_taken(config: &AggregatorConfig) -> Option<bool> {
    match UdpSocket::bind((config.address, config.port)) {
        Ok(_) => Some(false),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Some(true),
        Err(_) => None,
    }
}

/// Has the kernel ask behind the interface who has an address. None if it asks elsewhere, or does
/// not know where.
fn look_up(root: &Path, interface: &str, address: Ipv4Addr) -> Option<Holder> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.send_to(&[0], (address, DISCARD)).ok()?;
    let end = Instant::now() + PATIENCE;
    loop {
        match answer(&read(root, "proc/net/arp")?, interface, address)? {
            Holder::Nobody if Instant::now() < end => thread::sleep(Duration::from_millis(20)),
            holder => return Some(holder),
        }
    }
}

/// The answer of the kernel's table of neighbours (proc_net(5), `/proc/net/arp`) about an address;
/// none if it is not in there.
fn answer(table: &str, interface: &str, address: Ipv4Addr) -> Option<Holder> {
    let address = address.to_string();
    table.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [ip, _, flags, mac, _, device] if ip == address && device == interface => {
            // ATF_COM, linux/if_arp.h.
            let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok()?;
            Some(if flags & 2 == 0 { Holder::Nobody } else { Holder::Station(mac.to_owned()) })
        }
        _ => None,
    })
}

/// All checks of an aggregator, in the order in which their faults should be fixed.
#[must_use]
pub fn examine_aggregator(facts: &AggregatorFacts, config: &AggregatorConfig) -> Vec<Finding> {
    let AggregatorFacts { system, port, .. } = facts;
    let mut findings = Vec::new();
    let words = format!("--interface {} --address {}", word(&config.interface), config.address);
    system::each(system, &[port], &words, &mut findings);
    ports::each(port, config.mode, config.zero_copy, &mut findings);
    offloads::check_aggregator(port, &mut findings);
    if let Some(link) = &port.link {
        findings.push(packets(port, link).of(port));
        findings.extend(network::shaping(port, link).map(|finding| finding.of(port)));
    }
    findings.extend(bridge(port).map(|finding| finding.of(port)));
    findings.push(address(facts, config));
    findings.push(udp_port(facts, config));
    findings.extend(group(config));
    findings
}

/// A block of values has to fit, and a full packet should.
fn packets(port: &PortFacts, link: &Link) -> Finding {
    let most = Limits::MOST.mtu;
    let fix = format!("ip link set dev {} mtu {most}   # and on the way to the workers", word(&port.name));
    if link.mtu < MIN_MTU.into() {
        let found =
            format!("with MTU {} the longest block of values does not fit, {MIN_MTU} would do", link.mtu);
        Finding::failed("packets", found).fix(fix)
    } else if link.mtu < most.into() {
        let found =
            format!("MTU {} makes more of them: up to {most} bytes the protocol has a use for", link.mtu);
        Finding::warning("packets", found).fix(fix)
    } else {
        Finding::ok("packets", format!("of up to {most} bytes, as long as they get"))
    }
}

/// The program sees what comes in by this one port of the bridge.
fn bridge(port: &PortFacts) -> Option<Finding> {
    let bridge = port.master.as_ref().filter(|master| master.kind == "bridge")?;
    let found =
        format!("a port of {}: hosts behind its other ports do not reach the aggregator", bridge.name);
    Some(Finding::warning("bridge", found).fix(format!(
        "ip link add agg0 type veth peer name agg1 && ip link set dev agg1 master {} up && ip link set dev agg0 up   \
         # and --interface agg0",
        word(&bridge.name)
    )))
}

fn address(facts: &AggregatorFacts, config: &AggregatorConfig) -> Finding {
    let address = config.address;
    match &facts.holder {
        Holder::Nobody => Finding::ok("address", format!("nobody answers for {address}")),
        Holder::Interface => {
            let found = format!(
                "{address} is the interface's own: the aggregator answers pings in the kernel's place"
            );
            Finding::ok("address", found)
        }
        Holder::Device(name) => {
            let found = format!("{address} is an address of {name}, which the kernel answers for");
            Finding::failed("address", found)
                .fix(format!("ip address del {address} dev {}   # or another --address", word(name)))
        }
        Holder::Station(mac) => {
            let found = format!("{address} is another's: {mac} answers, or did a moment ago");
            Finding::failed("address", found).fix(format!(
                "ip neighbor flush to {address} dev {}   # and ask again; if it still answers, another --address",
                word(&facts.port.name)
            ))
        }
        Holder::Unknown => {
            let found = format!("no way to ask here whether anybody has {address}");
            let interface = word(&facts.port.name);
            Finding::unknown("address", found).fix(format!(
                "arping -D -c 2 -I {interface} {address}   # of iputils-arping; nobody should answer"
            ))
        }
    }
}

fn udp_port(facts: &AggregatorFacts, config: &AggregatorConfig) -> Finding {
    let port = config.port;
    match (&facts.holder, facts.port_taken) {
        (Holder::Interface, Some(true)) => {
            let found = format!(
                "a socket of this host has UDP port {port}: while the aggregator runs it gets nothing"
            );
            Finding::warning("port", found)
                .fix(format!("ss -ulpn sport = :{port}   # names it; or another --port"))
        }
        (Holder::Interface, None) => {
            Finding::unknown("port", format!("whether a socket has UDP port {port}"))
        }
        _ => Finding::ok("port", format!("UDP {port}")),
    }
}

/// The aggregator only sends to groups; what switches do with them shows on the way only.
fn group(config: &AggregatorConfig) -> Option<Finding> {
    let group = config.group?;
    let found = format!(
        "{group} to {}, one for each job; workers join theirs by IGMP, so the switches between have to have a querier, or \
         flood groups",
        group.last()
    );
    Some(Finding::ok("group", found))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::commands::doctor::Status;
    use crate::commands::doctor::ports::tests::healthy;
    use crate::config::AggregatorOptions;

    fn config(more: &str) -> AggregatorConfig {
        let text = format!("[aggregator]\ninterface = \"eth0\"\naddress = \"192.0.2.9\"\n{more}");
        AggregatorConfig::parse(&text, Path::new("aggregator.toml"), &AggregatorOptions::default()).unwrap()
    }

    fn facts() -> AggregatorFacts {
        let shim = healthy();
        let port = PortFacts { master: None, ..shim.ports.network };
        AggregatorFacts { system: shim.system, port, holder: Holder::Nobody, port_taken: None }
    }

    /// The finding of a check after a change; ok if there is none.
    fn checked(
        check: &str,
        config: &AggregatorConfig,
        change: impl FnOnce(&mut AggregatorFacts),
    ) -> (Status, String) {
        let mut facts = facts();
        change(&mut facts);
        let found = examine_aggregator(&facts, config).into_iter().find(|finding| finding.check == check);
        found.map_or((Status::Ok, String::new()), |found| (found.status, found.fix.unwrap_or_default()))
    }

    #[test]
    fn a_healthy_machine_needs_no_fix() {
        let findings = examine_aggregator(&facts(), &config("group = \"239.1.0.1\""));
        for finding in &findings {
            assert_eq!((finding.status, &finding.fix), (Status::Ok, &None), "{finding:?}");
        }
        for check in
            ["kernel", "af-xdp", "memory", "link", "xdp", "queues", "packets", "address", "port", "group"]
        {
            assert!(findings.iter().any(|finding| finding.check == check), "{check}");
        }
    }

    #[test]
    fn an_address_is_to_be_nobody_elses() {
        let of = |holder| checked("address", &config(""), |facts| facts.holder = holder);
        assert_eq!(of(Holder::Interface).0, Status::Ok);
        let (status, fix) = of(Holder::Device("br0".to_owned()));
        assert_eq!(status, Status::Failed);
        assert!(fix.starts_with("ip address del 192.0.2.9 dev br0 "), "{fix}");
        let (status, fix) = of(Holder::Station("02:00:00:00:00:01".to_owned()));
        assert_eq!(status, Status::Failed);
        assert!(fix.starts_with("ip neighbor flush to 192.0.2.9 dev eth0 "), "{fix}");
        let (status, fix) = of(Holder::Unknown);
        assert_eq!(status, Status::Unknown);
        assert!(fix.starts_with("arping -D -c 2 -I eth0 192.0.2.9 "), "{fix}");
    }

    #[test]
    fn a_socket_at_the_aggregators_port_is_told_of() {
        let of = |holder, port_taken| {
            checked("port", &config(""), |facts| (facts.holder, facts.port_taken) = (holder, port_taken)).0
        };
        assert_eq!(of(Holder::Interface, Some(true)), Status::Warning);
        assert_eq!(of(Holder::Interface, Some(false)), Status::Ok);
        assert_eq!(of(Holder::Interface, None), Status::Unknown);
        assert_eq!(of(Holder::Nobody, None), Status::Ok);
    }

    #[test]
    fn the_longest_packets_should_fit() {
        let of = |mtu| checked("packets", &config(""), |facts| facts.port.link.as_mut().unwrap().mtu = mtu);
        let fix = "ip link set dev eth0 mtu 1500   # and on the way to the workers".to_owned();
        assert_eq!(of(776), (Status::Failed, fix.clone()));
        assert_eq!(of(777), (Status::Warning, fix.clone()));
        assert_eq!(of(1499), (Status::Warning, fix));
        assert_eq!(of(1500).0, Status::Ok);
        assert_eq!(of(3000).0, Status::Ok);
    }

    #[test]
    fn a_port_of_a_bridge_sees_one_side_of_it() {
        let (status, fix) =
            checked("bridge", &config(""), |facts| facts.port.master = healthy().ports.network.master);
        assert_eq!(status, Status::Warning);
        assert!(fix.contains("ip link set dev agg1 master br0 up"), "{fix}");
    }

    #[test]
    fn the_table_of_neighbours_is_read() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     192.0.2.9        0x1         0x2         02:00:00:00:00:01     *        eth0\n\
                     192.0.2.9        0x1         0x0         00:00:00:00:00:00     *        eth1\n\
                     192.0.2.10       0x1         0x0         00:00:00:00:00:00     *        eth0\n";
        let of = |device: &str, last: u8| answer(table, device, Ipv4Addr::new(192, 0, 2, last));
        assert_eq!(of("eth0", 9), Some(Holder::Station("02:00:00:00:00:01".to_owned())));
        assert_eq!(of("eth1", 9), Some(Holder::Nobody));
        assert_eq!(of("eth0", 10), Some(Holder::Nobody));
        assert_eq!(of("eth1", 10), None);
    }
}
