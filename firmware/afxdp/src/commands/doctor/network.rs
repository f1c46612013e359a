//! Checks of the surroundings of the ports: the bridge behind them, its packet filter, queueing
//! disciplines, ECN.

use gradwire::rules::{ECN, Framing};

use super::facts::{Facts, PortFacts};
use super::finding::{Finding, word};
use crate::config::Config;
use crate::system::netlink::link::{FORWARDING, Link};

/// Queueing disciplines that people set to limit or delay traffic.
const SHAPING: &[&str] = &["tbf", "htb", "hfsc", "cbq", "cake", "netem", "drr", "red", "ets", "prio"];

pub(super) fn check(facts: &Facts, config: &Config, findings: &mut Vec<Finding>) {
    let (host, network) = (&facts.ports.host, &facts.ports.network);
    if let (Some(a), Some(b)) = (&host.link, &network.link) {
        findings.push(bridge(host, network));
        for (port, link) in [(host, a), (network, b)] {
            findings.extend(forwarding(port, link).map(|finding| finding.of(port)));
            findings.extend(shaping(port, link).map(|finding| finding.of(port)));
        }
    }
    findings.extend(filters(facts, config));
    findings.extend(iptables(facts, config));
    findings.push(ecn(facts, config));
}

/// Untagged traffic, and all traffic while the shim does not run, goes by a bridge.
fn bridge(host: &PortFacts, network: &PortFacts) -> Finding {
    let bridge_of = |port: &PortFacts| port.master.clone().filter(|master| master.kind == "bridge");
    let (inner, outer) = (word(&host.name), word(&network.name));
    let why = "untagged frames, and all frames when the shim ends, have no way";
    let join = |port: &str, bridge: &str| format!("ip link set dev {port} master {bridge}");
    match (bridge_of(host), bridge_of(network)) {
        (Some(a), Some(b)) if a.index == b.index => {
            let name = word(&a.name);
            if a.up {
                Finding::ok("bridge", format!("{} joins both", a.name))
            } else {
                Finding::failed("bridge", format!("{} is down: {why}", a.name))
                    .fix(format!("ip link set dev {name} up"))
            }
        }
        (Some(a), Some(b)) => Finding::failed("bridge", format!("{} and {} are two: {why}", a.name, b.name))
            .fix(join(&inner, &word(&b.name))),
        (Some(a), None) => Finding::failed("bridge", format!("{} is in no bridge: {why}", network.name))
            .fix(join(&outer, &word(&a.name))),
        (None, Some(b)) => Finding::failed("bridge", format!("{} is in no bridge: {why}", host.name))
            .fix(join(&inner, &word(&b.name))),
        (None, None) => Finding::failed("bridge", format!("the ports are in no bridge: {why}")).fix(format!(
            "ip link add br-gw type bridge && ip link set dev br-gw up && {} && {}   # then move {outer}'s \
             addresses to br-gw",
            join(&inner, "br-gw"),
            join(&outer, "br-gw")
        )),
    }
}

/// A port that spanning tree keeps closed.
fn forwarding(port: &PortFacts, link: &Link) -> Option<Finding> {
    // A port that is down is disabled; that it is down is another check's finding.
    let closed = link.up && link.carrier && link.bridge_state.is_some_and(|state| state != FORWARDING);
    let bridge = port.master.as_ref().map_or_else(String::new, |master| word(&master.name));
    closed.then(|| {
        Finding::warning("bridge", "the bridge does not forward on this port: spanning tree")
            .fix(format!("ip link set dev {bridge} type bridge stp_state 0 forward_delay 0"))
    })
}

/// Frames of a socket do not pass the port's queueing discipline.
pub(super) fn shaping(port: &PortFacts, link: &Link) -> Option<Finding> {
    SHAPING.contains(&link.qdisc.as_str()).then(|| {
        let found =
            format!("{} has no effect on what gradwire-xdp sends here: shape at another hop", link.qdisc);
        Finding::warning("qdisc", found).fix(format!("tc qdisc del dev {} root", word(&port.name)))
    })
}

/// Frames that the shim takes do not come by the bridge, nor by what filters there: whoever may tag
/// a socket could do what that forbids.
fn filters(facts: &Facts, config: &Config) -> Vec<Finding> {
    let command = |option: &str| {
        let (host, network) = (word(&facts.ports.host.name), word(&facts.ports.network.name));
        format!("gradwire-xdp run --host {host} --net {network}{option}")
    };
    let found = match &facts.filters {
        Ok(found) if found.is_empty() => {
            return vec![Finding::ok(
                "packet-filter",
                "none between the ports that tagged connections would pass by",
            )];
        }
        Ok(found) => found,
        Err(error) => {
            let found = format!("what filters frames between the ports is not known: {error}");
            let doctor = command("").replacen(" run ", " doctor ", 1);
            return vec![Finding::unknown("packet-filter", found).fix(format!("sudo {doctor}"))];
        }
    };
    let checked = found.iter().map(|filter| {
        if config.bypass_filter {
            return Finding::ok(
                "packet-filter",
                format!("tagged connections pass by {filter}, as bypass-filter says"),
            );
        }
        let found = format!("tagged connections would pass by {filter}: `run` refuses");
        Finding::failed("packet-filter", found).fix(format!(
            "{}   # or bypass-filter = true in [path]; if what it forbids is not meant for them",
            command(" --bypass-filter")
        ))
    });
    checked.collect()
}

/// A bridge that filters IP drops frames that are shorter than their IP header says, as in-place
/// framing has them.
fn iptables(facts: &Facts, config: &Config) -> Option<Finding> {
    let in_place = config.rules.as_slice().iter().any(|rule| rule.framing == Framing::InPlace);
    let system = &facts.system;
    let filters =
        [system.bridge_iptables, system.bridge_ip6tables].iter().any(|on| on.is_some_and(|on| on != 0));
    (filters && in_place).then(|| {
        Finding::warning(
            "packet-filter",
            "bridges hand frames to iptables, which drops compressed ones of in-place framing on their way",
        )
        .fix("sysctl -w net.bridge.bridge-nf-call-iptables=0 net.bridge.bridge-nf-call-ip6tables=0")
    })
}

/// On an ECN connection every data segment has ECN bits, which a rule's mask should ignore.
fn ecn(facts: &Facts, config: &Config) -> Finding {
    let strict = config.rules.as_slice().iter().enumerate().find(|(_, rule)| rule.mask & ECN != 0);
    let setting = match facts.system.tcp_ecn {
        Some(0) => "off here",
        Some(1 | 3 | 4) => "asked for here",
        Some(_) => "accepted here",
        None => "not known here",
    };
    match strict {
        None => Finding::ok("ecn", format!("{setting}; every rule ignores its bits")),
        Some((place, rule)) => {
            let found = format!(
                "ECN is {setting}; rule {place} (tos {:#04x}, mask {:#04x}) misses segments of ECN connections",
                rule.tos, rule.mask
            );
            Finding::warning("ecn", found).fix(format!(
                "mask = {:#04x}   # in that rule; or in the containers: sysctl -w net.ipv4.tcp_ecn=0",
                rule.mask & !ECN
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use gradwire::rules::{DEFAULT_MARK, Rule, Rules};

    use super::*;
    use crate::commands::doctor::Status;
    use crate::commands::doctor::ports::tests::healthy;

    fn with_rule(rule: Rule) -> Config {
        Config { rules: Rules::new(&[rule], DEFAULT_MARK).unwrap(), ..Config::default() }
    }

    #[test]
    fn one_bridge_must_join_both_ports() {
        let checked = |change: fn(&mut Facts)| {
            let mut facts = healthy();
            change(&mut facts);
            let finding = bridge(&facts.ports.host, &facts.ports.network);
            (finding.status, finding.fix.unwrap_or_default())
        };
        assert_eq!(checked(|_| {}).0, Status::Ok);
        let joined = checked(|facts| facts.ports.host.master = None);
        assert_eq!(joined, (Status::Failed, "ip link set dev veth0 master br0".to_owned()));
        let joined = checked(|facts| facts.ports.network.master = None);
        assert_eq!(joined, (Status::Failed, "ip link set dev eth0 master br0".to_owned()));
        let joined = checked(|facts| facts.ports.host.master.as_mut().unwrap().index = 10);
        assert_eq!(joined, (Status::Failed, "ip link set dev veth0 master br0".to_owned()));
        // A bond is no bridge.
        let joined = checked(|facts| facts.ports.network.master.as_mut().unwrap().kind = "bond".to_owned());
        assert_eq!(joined.0, Status::Failed);
        let (status, made) = checked(|facts| {
            facts.ports.host.master = None;
            facts.ports.network.master = None;
        });
        assert_eq!(status, Status::Failed);
        assert!(made.starts_with("ip link add br-gw type bridge && "), "{made}");
        let up = checked(|facts| facts.ports.host.master.as_mut().unwrap().up = false);
        assert_eq!(up, (Status::Failed, "ip link set dev br0 up".to_owned()));
    }

    #[test]
    fn a_closed_port_is_told_of() {
        let mut port = healthy().ports.host;
        let link = port.link.as_mut().unwrap();
        // BR_STATE_LEARNING.
        link.bridge_state = Some(2);
        let link = link.clone();
        let fix = forwarding(&port, &link).unwrap().fix.unwrap();
        assert_eq!(fix, "ip link set dev br0 type bridge stp_state 0 forward_delay 0");
        assert_eq!(forwarding(&port, &Link { up: false, ..link }), None);
    }

    #[test]
    fn a_shaper_on_a_port_is_told_of() {
        let port = healthy().ports.network;
        let link = port.link.clone().unwrap();
        assert_eq!(shaping(&port, &link), None);
        let shaped = Link { qdisc: "tbf".to_owned(), ..link };
        assert_eq!(shaping(&port, &shaped).unwrap().fix.as_deref(), Some("tc qdisc del dev eth0 root"));
    }

    #[test]
    fn a_filtering_bridge_and_in_place_framing_do_not_go_together() {
        let mut facts = healthy();
        let in_place = with_rule(Rule { framing: Framing::InPlace, ..Rule::DEFAULT });
        assert_eq!(iptables(&facts, &in_place), None);
        facts.system.bridge_ip6tables = Some(1);
        assert_eq!(iptables(&facts, &in_place).unwrap().status, Status::Warning);
        assert_eq!(iptables(&facts, &Config::default()), None);
    }

    #[test]
    fn a_bypassed_filter_is_refused_unless_the_operator_says_so() {
        let mut facts = healthy();
        let bypass = Config { bypass_filter: true, ..Config::default() };
        facts.filters =
            Ok(vec!["VLAN filtering of br0".to_owned(), "isolation of veth0 and eth0".to_owned()]);
        let found = filters(&facts, &Config::default());
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|finding| finding.status == Status::Failed), "{found:?}");
        let fix = found[0].fix.as_deref().unwrap();
        assert!(fix.starts_with("gradwire-xdp run --host veth0 --net eth0 --bypass-filter   # "), "{fix}");
        assert!(filters(&facts, &bypass).iter().all(|finding| finding.status == Status::Ok));
        facts.filters = Err("Operation not permitted".to_owned());
        let unknown = &filters(&facts, &bypass)[0];
        assert_eq!(unknown.status, Status::Unknown);
        assert_eq!(unknown.fix.as_deref(), Some("sudo gradwire-xdp doctor --host veth0 --net eth0"));
    }

    #[test]
    fn a_mask_that_compares_ecn_bits_is_told_of() {
        let facts = healthy();
        assert_eq!(ecn(&facts, &Config::default()).status, Status::Ok);
        let finding = ecn(&facts, &with_rule(Rule { mask: 0xff, ..Rule::DEFAULT }));
        assert_eq!(finding.status, Status::Warning);
        assert!(finding.fix.unwrap().starts_with("mask = 0xfc "));
    }
}
