//! Filters of frames between the two ports in the kernel: a shim's tagged connections pass by all
//! of it.

use std::io;
use std::path::Path;

use crate::system::netlink::filter::{BRIDGE, Chain, chains, has_traffic_filter};
use crate::system::netlink::link::{BLOCKING, Link};

/// Hooks of the bridge family that forwarded frames come by: `NF_BR_PRE_ROUTING`, `NF_BR_FORWARD`,
/// `NF_BR_POST_ROUTING`.
const FORWARDED: [u32; 3] = [0, 2, 4];

/// The filters of frames between two ports, each in a few words. `bridge` is what joins them, if
/// something does; files are looked for below `root`, which is `/` but for tests.
///
/// # Errors
/// The kernel does not tell: without `CAP_NET_ADMIN`, it keeps nftables' chains to itself.
pub fn between(root: &Path, ports: [&Link; 2], bridge: Option<&Link>) -> io::Result<Vec<String>> {
    let mut found = by_bridge(root, ports, bridge);
    found.extend(chains()?.iter().filter(|chain| is_in_the_way(chain, ports)).map(|chain| {
        let Chain { family, table, name, .. } = chain;
        let family = if *family == BRIDGE { "bridge " } else { "" };
        format!("nftables' {family}chain {table} {name}")
    }));
    for port in ports {
        if has_traffic_filter(port.index)? {
            found.push(format!("traffic control's filters of {}", port.name));
        }
    }
    Ok(found)
}

/// The part that anybody may ask for, and that files and the ports' own settings tell.
#[must_use]
pub fn by_bridge(root: &Path, ports: [&Link; 2], bridge: Option<&Link>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, place) in [("iptables", 0), ("ip6tables", 1)] {
        let setting = format!("net.bridge.bridge-nf-call-{name}");
        // Without br_netfilter there is no such file, and what a bridge says itself has no effect.
        let file = root.join("proc/sys").join(setting.replace('.', "/"));
        let Ok(value) = std::fs::read_to_string(file) else { continue };
        if value.trim() != "0" {
            found.push(format!("{name} ({setting} = {})", value.trim()));
        } else if let Some(bridge) = bridge.filter(|bridge| bridge.calls_iptables[place]) {
            found.push(format!("{name} (nf_call_{name} of {})", bridge.name));
        }
    }
    let vlans = bridge.filter(|bridge| bridge.vlan_filtering);
    found.extend(vlans.map(|bridge| format!("VLAN filtering of {}", bridge.name)));
    // Frames go between one that is and one that is not.
    if ports.iter().all(|port| port.isolated) {
        found.push(format!("isolation of {} and {}", ports[0].name, ports[1].name));
    }
    for port in ports {
        if port.locked {
            found.push(format!("the lock of {} (802.1X)", port.name));
        }
        if port.bridge_state == Some(BLOCKING) {
            found.push(format!("spanning tree, which blocks {}", port.name));
        }
    }
    found
}

fn is_in_the_way(chain: &Chain, ports: [&Link; 2]) -> bool {
    let on_a_port = chain.devices.iter().any(|device| ports.iter().any(|port| port.name == *device));
    chain.acts && (on_a_port || chain.family == BRIDGE && FORWARDED.contains(&chain.hook))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::scratch::Scratch;

    fn port(name: &str) -> Link {
        Link { name: name.to_owned(), bridge_state: Some(3), ..Link::default() }
    }

    fn found(change: impl FnOnce(&mut Link, &mut Link, &mut Link)) -> Vec<String> {
        let (mut host, mut network) = (port("veth0"), port("eth0"));
        let mut bridge = Link { name: "br0".to_owned(), kind: "bridge".to_owned(), ..Link::default() };
        change(&mut host, &mut network, &mut bridge);
        by_bridge(Path::new("/nonexistent"), [&host, &network], Some(&bridge))
    }

    #[test]
    fn filters_of_a_bridge_are_found() {
        assert_eq!(found(|_, _, _| {}), [""; 0]);
        assert_eq!(found(|_, _, bridge| bridge.vlan_filtering = true), ["VLAN filtering of br0"]);
        // Frames go between an isolated port and one that is not.
        assert_eq!(found(|host, _, _| host.isolated = true), [""; 0]);
        let both = found(|host, network, _| (host.isolated, network.isolated) = (true, true));
        assert_eq!(both, ["isolation of veth0 and eth0"]);
        assert_eq!(found(|host, _, _| host.locked = true), ["the lock of veth0 (802.1X)"]);
        let blocked = found(|_, network, _| network.bridge_state = Some(BLOCKING));
        assert_eq!(blocked, ["spanning tree, which blocks eth0"]);
        // Without br_netfilter it has no effect.
        assert_eq!(found(|_, _, bridge| bridge.calls_iptables = [true; 2]), [""; 0]);
    }

    #[test]
    fn iptables_sees_frames_if_the_namespace_or_the_bridge_says_so() {
        let root = Scratch::new();
        let folder = root.path().join("proc/sys/net/bridge");
        fs::create_dir_all(&folder).unwrap();
        let (host, network) = (port("veth0"), port("eth0"));
        let found = |value: &str, bridge: Link| {
            fs::write(folder.join("bridge-nf-call-iptables"), value).unwrap();
            by_bridge(root.path(), [&host, &network], Some(&bridge))
        };
        assert_eq!(found("0\n", Link::default()), [""; 0]);
        assert_eq!(found("1\n", Link::default()), ["iptables (net.bridge.bridge-nf-call-iptables = 1)"]);
        let own = Link { name: "br0".to_owned(), calls_iptables: [true; 2], ..Link::default() };
        assert_eq!(found("0\n", own), ["iptables (nf_call_iptables of br0)"]);
    }

    #[test]
    fn only_chains_that_act_on_these_frames_count() {
        let (host, network) = (port("veth0"), port("eth0"));
        let chain = Chain {
            family: BRIDGE,
            table: "t".to_owned(),
            name: "c".to_owned(),
            hook: 2,
            devices: Vec::new(),
            acts: true,
        };
        let counts = |chain: Chain| is_in_the_way(&chain, [&host, &network]);
        assert!(counts(chain.clone()));
        assert!(!counts(Chain { acts: false, ..chain.clone() }), "empty, and accepts");
        assert!(!counts(Chain { hook: 1, ..chain.clone() }), "for the bridge itself");
        assert!(!counts(Chain { family: 2, ..chain.clone() }), "IPv4, without br_netfilter");
        let of_device = |device: &str| Chain { family: 5, devices: vec![device.to_owned()], ..chain.clone() };
        assert!(counts(of_device("eth0")) && !counts(of_device("eth1")));
    }
}
