//! Offloads that put more into a frame, or take more out of it, than an XDP program may see.

use super::facts::{Facts, PortFacts};
use super::finding::{Finding, word};
use super::ports;
use crate::config::Config;
use crate::system::interface::Attached;
use crate::system::interface::CUT_SEGMENTS;

/// The driver of a virtual machine's card: its host merges segments, and cuts them again for the
/// machine if it is told to.
const VIRTIO: &str = "virtio_net";

pub(super) fn check(facts: &Facts, config: &Config, findings: &mut Vec<Finding>) {
    for port in [&facts.ports.host, &facts.ports.network] {
        if port.link.is_none() {
            continue;
        }
        if let Some(finding) = untold(port) {
            findings.push(finding.of(port));
            continue;
        }
        let before = findings.len();
        findings.extend(merging(port).map(|finding| finding.of(port)));
        findings.extend(vlans(port, facts.system.vlans).map(|finding| finding.of(port)));
        if ports::is_generic(port, config.mode) == Some(true) {
            findings.extend(merged(port).map(|finding| finding.of(port)));
            if port.name == facts.ports.host.name {
                findings.extend(uncut(port).map(|finding| finding.of(port)));
            }
        }
        if findings.len() == before {
            findings.push(none(port));
        }
    }
}

/// An aggregator takes datagrams, which nothing cuts or merges unless asked. But what merges
/// segments in the card may keep XDP away.
pub(super) fn check_aggregator(port: &PortFacts, findings: &mut Vec<Finding>) {
    if port.link.is_some() {
        let finding = untold(port).or_else(|| merging(port));
        findings.push(finding.map_or_else(|| none(port), |finding| finding.of(port)));
    }
}

fn none(port: &PortFacts) -> Finding {
    Finding::ok("offloads", "none that is in the way").of(port)
}

fn untold(port: &PortFacts) -> Option<Finding> {
    port.offloads.is_none().then(|| {
        let found = "before Linux 5.10 the kernel does not tell this way";
        let command = format!("ethtool -k {}   # lro, gro, tso and gso should be off", word(&port.name));
        Finding::unknown("offloads", found).fix(command)
    })
}

fn is_on(port: &PortFacts, offload: &str) -> bool {
    port.offloads.as_ref().and_then(|offloads| offloads.get(offload)).is_some_and(|offload| offload.on)
}

/// The command that turns offloads off, by ethtool's own names.
fn turn_off(port: &PortFacts, offloads: &[&str]) -> String {
    let settings: Vec<_> = offloads.iter().map(|offload| format!("{offload} off")).collect();
    format!("ethtool -K {} {}", word(&port.name), settings.join(" "))
}

/// Makes that host take such orders; by default it does.
pub(super) const TAKE_ORDERS: &str =
    "ctrl_guest_offloads=on   # on the machine's host, for QEMU's -device virtio-net-pci";

/// Whether a virtual machine's host may merge segments and takes no order to stop: the driver then
/// refuses native XDP.
pub(super) fn keep_xdp_away(port: &PortFacts) -> bool {
    let offload = port.offloads.as_ref().and_then(|offloads| offloads.get("rx-gro-hw"));
    is_virtio(port) && offload.is_some_and(|offload| offload.on && !offload.changeable)
}

fn is_virtio(port: &PortFacts) -> bool {
    port.driver.as_deref() == Some(VIRTIO)
}

/// The card merges received segments before XDP sees them; most drivers then refuse XDP.
fn merging(port: &PortFacts) -> Option<Finding> {
    // Its driver has agreed, and virtio's has told the host to stop; what the offload says then has
    // no effect.
    let is_native = port.served.as_ref().is_some_and(|served| served.xdp == Attached::Native);
    if is_on(port, "rx-lro") && !(is_native && is_virtio(port)) {
        let found = "LRO merges segments in the card: frames get longer than the MTU";
        return Some(Finding::failed("offloads", found).fix(turn_off(port, &["lro"])));
    }
    if keep_xdp_away(port) {
        let found = "the machine's host may merge segments, which go untouched, and nothing in the machine changes that";
        return Some(Finding::warning("offloads", found).fix(TAKE_ORDERS));
    }
    if is_on(port, "rx-gro-hw") && !is_native && !is_virtio(port) {
        let found = "hardware GRO merges segments in the card: some drivers then refuse XDP";
        return Some(Finding::warning("offloads", found).fix(turn_off(port, &["rx-gro-hw"])));
    }
    None
}

/// A tag that is not in the frame is not seen, and not sent on. Whether there are VLAN interfaces
/// in a container, the kernel does not tell here: `possible` says whether it has any at all.
fn vlans(port: &PortFacts, possible: bool) -> Option<Finding> {
    // With a veth, it is the other end that leaves tags beside frames, whatever this end says.
    if port.driver.as_deref() == Some("veth") {
        let found = "VLAN interfaces in the container leave their tags beside frames, and their tagged connections lose them";
        let command = "nsenter --net=/proc/PID/ns/net ethtool -K eth0 txvlan off   # PID of the container";
        return possible.then(|| Finding::warning("offloads", found).fix(command));
    }
    let found = "the card takes VLAN tags out of frames; tagged connections in VLANs lose them";
    let command = || turn_off(port, &["rxvlan", "txvlan"]);
    is_on(port, "rx-vlan-hw-parse").then(|| Finding::warning("offloads", found).fix(command()))
}

/// Generic mode sees frames as the stack has merged them.
fn merged(port: &PortFacts) -> Option<Finding> {
    is_on(port, "rx-gro").then(|| {
        let found = "GRO merges segments before generic XDP sees them: too long to be taken";
        Finding::failed("offloads", found).fix(turn_off(port, &["gro"]))
    })
}

/// Nor does it make a veth's other end cut what it sends, as native mode does.
fn uncut(port: &PortFacts) -> Option<Finding> {
    (port.driver.as_deref() == Some("veth")).then(|| {
        let found = "with generic XDP the container's uncut segments come through the veth: traffic stalls";
        Finding::warning("offloads", found).fix(format!("{CUT_SEGMENTS}   # PID of the container"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::Status;
    use crate::commands::doctor::ports::tests::{healthy, served};
    use crate::config::Mode;
    use crate::system::netlink::generic::Offload;
    use crate::telemetry::Bound;

    fn checked(offload: &str, mode: Mode) -> Vec<(String, Status, Option<String>)> {
        let mut facts = healthy();
        for port in [&mut facts.ports.host, &mut facts.ports.network] {
            let offloads = port.offloads.as_mut().unwrap();
            offloads.insert(offload.to_owned(), Offload { on: true, changeable: true });
        }
        let mut findings = Vec::new();
        check(&facts, &Config { mode, ..Config::default() }, &mut findings);
        findings.into_iter().map(|f| (f.port.unwrap(), f.status, f.fix)).collect()
    }

    fn fixes(found: &[(String, Status, Option<String>)], port: &str, status: Status, fix: &str) -> bool {
        found.contains(&(port.to_owned(), status, Some(fix.to_owned())))
    }

    #[test]
    fn merging_in_the_card_is_in_the_way() {
        let found = checked("rx-lro", Mode::Auto);
        assert!(fixes(&found, "eth0", Status::Failed, "ethtool -K eth0 lro off"), "{found:?}");
        let found = checked("rx-gro-hw", Mode::Auto);
        assert!(fixes(&found, "eth0", Status::Warning, "ethtool -K eth0 rx-gro-hw off"), "{found:?}");
    }

    fn with_offload(driver: &str, offload: &str, changeable: bool) -> PortFacts {
        let mut port = healthy().ports.network;
        port.driver = Some(driver.to_owned());
        port.offloads.as_mut().unwrap().insert(offload.to_owned(), Offload { on: true, changeable });
        port
    }

    /// When it attaches, virtio tells its host to stop, and the offload goes on saying that it is
    /// on.
    #[test]
    fn an_offload_without_effect_is_no_warning() {
        let native = |port: &PortFacts| served(port, Attached::Native, Bound::Copy);
        for (driver, before) in [("virtio_net", false), ("bnxt_en", true)] {
            let port = with_offload(driver, "rx-gro-hw", true);
            assert_eq!(merging(&port).is_some(), before, "{driver}");
            assert_eq!(merging(&native(&port)), None, "{driver}");
        }
        // Before Linux 5.19, virtio calls it LRO.
        assert_eq!(merging(&native(&with_offload("virtio_net", "rx-lro", true))), None);
        assert!(merging(&native(&with_offload("ixgbe", "rx-lro", true))).is_some());
    }

    /// A virtual machine whose host takes no such order (QEMU's `ctrl_guest_offloads=off`) has
    /// generic mode.
    #[test]
    fn a_host_that_takes_no_order_keeps_xdp_away() {
        let port = with_offload("virtio_net", "rx-gro-hw", false);
        assert!(merging(&port).unwrap().fix.unwrap().starts_with("ctrl_guest_offloads=on "));
        assert_eq!(ports::is_generic(&port, Mode::Auto), Some(true));
        assert!(!keep_xdp_away(&with_offload("virtio_net", "rx-gro-hw", true)));
        assert!(!keep_xdp_away(&with_offload("ixgbe", "rx-gro-hw", false)));
    }

    /// A running shim's mode counts, not what its driver could do.
    #[test]
    fn one_that_runs_in_generic_mode_has_its_advice() {
        let mut facts = healthy();
        for port in [&mut facts.ports.host, &mut facts.ports.network] {
            let on = Offload { on: true, changeable: true };
            port.offloads.as_mut().unwrap().insert("rx-gro".to_owned(), on);
        }
        let fixes = |facts: &Facts, config: &Config| {
            let mut findings = Vec::new();
            check(facts, config, &mut findings);
            findings.into_iter().filter_map(|finding| finding.fix).collect::<Vec<_>>()
        };
        assert_eq!(fixes(&facts, &Config::default()), [""; 0]);
        let mut runs = facts.clone();
        runs.ports.host = served(&facts.ports.host, Attached::Native, Bound::Copy);
        runs.ports.network = served(&facts.ports.network, Attached::Generic, Bound::Copy);
        assert_eq!(fixes(&runs, &Config::default()), ["ethtool -K eth0 gro off"]);
        runs.ports.host = served(&facts.ports.host, Attached::Generic, Bound::Copy);
        let found = fixes(&runs, &Config::default());
        assert!(found.contains(&"ethtool -K veth0 gro off".to_owned()), "{found:?}");
        assert!(found.iter().any(|fix| fix.contains("tso off gso off")), "{found:?}");
        // Nor does what the file says now.
        let generic = Config { mode: Mode::Generic, ..Config::default() };
        runs.ports.host = served(&facts.ports.host, Attached::Native, Bound::Copy);
        assert_eq!(fixes(&runs, &generic), ["ethtool -K eth0 gro off"]);
    }

    #[test]
    fn tags_must_stay_in_frames() {
        let found = checked("rx-vlan-hw-parse", Mode::Auto);
        assert!(fixes(&found, "eth0", Status::Warning, "ethtool -K eth0 rxvlan off txvlan off"), "{found:?}");
        assert!(found.contains(&("veth0".to_owned(), Status::Ok, None)), "{found:?}");
        // What a veth says has no effect: its other end, in the container, leaves them beside
        // frames, if there are any.
        let mut facts = healthy();
        facts.system.vlans = true;
        let mut findings = Vec::new();
        check(&facts, &Config::default(), &mut findings);
        let veth = findings.iter().find(|finding| finding.port.as_deref() == Some("veth0")).unwrap();
        assert_eq!(veth.status, Status::Warning);
        assert!(veth.fix.as_ref().unwrap().contains("ethtool -K eth0 txvlan off"), "{veth:?}");
    }

    #[test]
    fn generic_mode_needs_frames_of_their_length() {
        let native = checked("rx-gro", Mode::Auto);
        assert!(native.iter().all(|(_, status, _)| *status == Status::Ok), "{native:?}");
        let generic = checked("rx-gro", Mode::Generic);
        for port in ["veth0", "eth0"] {
            let command = format!("ethtool -K {port} gro off");
            assert!(fixes(&generic, port, Status::Failed, &command), "{generic:?}");
        }
        let container =
            generic.iter().filter(|(port, status, _)| port == "veth0" && *status == Status::Warning);
        assert_eq!(container.count(), 1);
    }

    #[test]
    fn a_kernel_that_does_not_tell_is_no_clean_bill() {
        let mut facts = healthy();
        facts.ports.host.offloads = None;
        let mut findings = Vec::new();
        check(&facts, &Config::default(), &mut findings);
        assert_eq!(findings[0].status, Status::Unknown);
    }
}
