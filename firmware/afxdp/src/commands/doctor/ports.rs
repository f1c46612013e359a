//! The two devices: are they there, how do they run XDP, who else does, MTU, queues.

use gradwire::rules::Alignment;

use super::facts::{Facts, PortFacts};
use super::finding::{Finding, word};
use super::offloads;
use crate::config::{Config, Mode, ZeroCopy};
use crate::path::limits::{Asked, asked, largest_mtu};
use crate::system::interface::Attached;
use crate::system::interface::{MAX_QUEUES, fewer_queues};
use crate::system::netlink::link::Link;
use crate::telemetry::{Bound, PortStatus};

pub(super) fn check(facts: &Facts, config: &Config, findings: &mut Vec<Finding>) {
    let (host, network) = (&facts.ports.host, &facts.ports.network);
    for port in [host, network] {
        each(port, config.mode, config.zero_copy, findings);
    }
    findings.extend(alignment(host, config).map(|finding| finding.of(host)));
    if let (Some(a), Some(b)) = (&host.link, &network.link) {
        if a.index == b.index {
            findings.push(
                Finding::failed("pair", "--host and --net are the same device")
                    .fix("ip -brief link   # lists them"),
            );
        }
        if a.mtu != b.mtu {
            let found = format!("MTU {} at {} and {} at {}", a.mtu, host.name, b.mtu, network.name);
            let command = format!("ip link set dev {} mtu {}", word(&host.name), b.mtu);
            findings.push(
                Finding::warning("pair", format!("{found}: larger frames are lost between them"))
                    .fix(format!("{command}   # and in the container")),
            );
        }
    }
}

/// Checks of any port, an aggregator's interface too.
pub(super) fn each(port: &PortFacts, mode: Mode, zero_copy: ZeroCopy, findings: &mut Vec<Finding>) {
    findings.push(link(port).of(port));
    if let Some(link) = &port.link {
        findings.push(xdp_mode(port, mode, zero_copy).of(port));
        findings.push(other_program(port, link).of(port));
        findings.push(mtu(port, link, mode).of(port));
        findings.push(queues(port, mode).of(port));
    }
}

fn link(port: &PortFacts) -> Finding {
    let name = word(&port.name);
    let Some(link) = &port.link else {
        return Finding::failed("link", "there is no such device in this network namespace")
            .fix("ip -brief link   # lists them");
    };
    let kind = port.driver.as_deref().unwrap_or("unknown driver");
    if !link.ethernet {
        return Finding::failed("link", format!("{kind}: not an Ethernet device"))
            .fix("ip -brief link show type veth   # or the network card");
    }
    if !link.up {
        return Finding::failed("link", format!("{kind}, down")).fix(format!("ip link set dev {name} up"));
    }
    if !link.carrier {
        let found = format!("{kind}, up, but without carrier: its cable is out, or its peer down");
        return Finding::warning("link", found).fix(format!("ip -d link show dev {name}   # names the peer"));
    }
    Finding::ok("link", format!("{kind}, up"))
}

/// Whether the program runs in the kernel's generic path, or would if it was started; none if it is
/// not known.
pub(super) fn is_generic(port: &PortFacts, mode: Mode) -> Option<bool> {
    if let Some(served) = &port.served {
        return Some(served.xdp == Attached::Generic);
    }
    match mode {
        Mode::Generic => Some(true),
        Mode::Native => Some(false),
        Mode::Auto => port.xdp.map(|features| !features.native() || offloads::keep_xdp_away(port)),
    }
}

fn xdp_mode(port: &PortFacts, mode: Mode, zero_copy: ZeroCopy) -> Finding {
    if let Some(served) = &port.served {
        return served_mode(port, served, mode);
    }
    let driver = port.driver.as_deref().unwrap_or("this driver");
    let Some(features) = port.xdp else {
        return Finding::unknown(
            "xdp",
            format!("before Linux 6.3 the kernel does not tell what {driver} can do"),
        );
    };
    let is_native = features.native() && features.redirect();
    if is_native && mode != Mode::Generic && offloads::keep_xdp_away(port) {
        let found = format!(
            "{driver} refuses native mode: the machine's host may merge segments, and cannot be told to stop"
        );
        return match mode {
            Mode::Native => Finding::failed("xdp", format!("{found}; the configuration asks for native"))
                .fix("mode = \"auto\"   # in [path] of the configuration"),
            _ => Finding::ok("xdp", format!("generic, which is slower: {found}")),
        };
    }
    let added = added(port, mode);
    if is_native
        && mode != Mode::Generic
        && added > 0
        && features.zero_copy()
        && asked(zero_copy, port.driver.as_deref()) == Asked::Yes
        && let Some(link) = &port.link
    {
        let found = format!(
            "native, with a copy, though zero-copy is on: XDP adds {added} queues, and when they go, Linux goes on using their memory and crashes"
        );
        let all = link.rx_queues.min(MAX_QUEUES);
        return Finding::warning("xdp", found).fix(format!("ethtool -L {} combined {all}", word(&port.name)));
    }
    // What the driver offers depends on the card, and shows only when a socket is bound.
    let copies = match (features.zero_copy(), asked(zero_copy, port.driver.as_deref())) {
        (true, Asked::Yes) => {
            "without a copy if the card allows it; when gradwire-xdp runs, this line says what is"
        }
        (true, Asked::No) => "with a copy, as configured",
        (true, Asked::Untried) => "with a copy: zero-copy was not tried with this driver on this kernel",
        (false, _) => "with a copy: the driver offers no other way",
    };
    match (mode, is_native) {
        (Mode::Generic, true) => Finding::warning("xdp", format!("generic, but {driver} runs XDP itself"))
            .fix("mode = \"auto\"   # in [path] of the configuration"),
        (Mode::Auto | Mode::Native, true) => Finding::ok("xdp", format!("native, {copies}")),
        (Mode::Native, false) => Finding::failed(
            "xdp",
            format!("{driver} does not run XDP, and the configuration asks for native"),
        )
        .fix("mode = \"auto\"   # in [path] of the configuration"),
        (Mode::Auto | Mode::Generic, false) => {
            Finding::ok("xdp", format!("generic, which is slower: {driver} does not run XDP itself"))
        }
    }
}

/// The attachment of the one that runs, which is not always what its driver could do.
fn served_mode(port: &PortFacts, served: &PortStatus, mode: Mode) -> Finding {
    let xdp = served.xdp.name();
    let copies = match served.bind {
        Bound::ZeroCopy => "without a copy",
        Bound::Copy => "with a copy",
    };
    let queues = if served.queues == 1 { "1 queue".to_owned() } else { format!("{} queues", served.queues) };
    let found = format!("{xdp}, {copies}, {queues}, as the gradwire-xdp that runs has it");
    let could = port.xdp.is_some_and(|features| features.native() && features.redirect());
    if served.xdp == Attached::Native || !could {
        return Finding::ok("xdp", found);
    }
    let driver = port.driver.as_deref().unwrap_or("this driver");
    if mode == Mode::Generic {
        return Finding::warning("xdp", format!("{found}, and {driver} runs XDP itself"))
            .fix("mode = \"auto\"   # in [path] of the configuration");
    }
    let why = match &served.refused {
        Some(refused) => format!("{driver} refused native mode ({refused})"),
        None => format!("it started with mode = \"generic\", and {driver} runs XDP itself"),
    };
    let finding = Finding::warning("xdp", format!("{found}; {why}"));
    if offloads::keep_xdp_away(port) {
        finding.fix(offloads::TAKE_ORDERS)
    } else {
        finding.fix(restart(port))
    }
}

fn other_program(port: &PortFacts, link: &Link) -> Finding {
    let Some(program) = link.xdp_program else {
        return Finding::ok("program", "no XDP program is attached");
    };
    match port.holders.as_slice() {
        [] => Finding::failed("program", format!("XDP program {program} is attached"))
            .fix(detach(port, link, program)),
        [holder, ..] if holder.is_gradwire() => {
            Finding::ok("program", format!("gradwire-xdp, process {}, runs here", holder.pid))
                .fix(format!("gradwire-xdp unload {}   # to end it", word(&port.name)))
        }
        [holder, ..] => {
            let found = format!("XDP program {program} of {}, process {}", holder.name, holder.pid);
            Finding::failed("program", found).fix(format!("kill {}", holder.pid))
        }
    }
}

/// Takes away a program that no process holds. The kernel does not tell here whether netlink
/// attached it, or a link that is pinned in a BPF file system: then it refuses the first command.
fn detach(port: &PortFacts, link: &Link, program: u32) -> String {
    let mode = if link.xdp_generic { "xdpgeneric" } else { "xdp" };
    let of_program = format!("bpftool link | sed -n 's/^\\([0-9]*\\): xdp  prog {program} .*/\\1/p'");
    format!(
        "ip link set dev {} {mode} off   # or, if that is refused: bpftool link detach id \"$({of_program})\"",
        word(&port.name)
    )
}

fn mtu(port: &PortFacts, link: &Link, mode: Mode) -> Finding {
    let attached = if is_generic(port, mode) == Some(true) { Attached::Generic } else { Attached::Native };
    let largest = largest_mtu(port.driver.as_deref(), attached);
    if link.mtu > largest {
        let driver = port.driver.as_deref().unwrap_or("its driver");
        let mode = attached.name();
        let found = format!(
            "{}; {driver} drops what has more than {largest} bytes in {mode} mode, untagged packets, too",
            link.mtu
        );
        return Finding::failed("mtu", found)
            .fix(format!("ip link set dev {} mtu {largest}", word(&port.name)));
    }
    if let Some(served) = port.served.as_ref().filter(|served| served.mtu != link.mtu) {
        let found = format!(
            "{}, but the gradwire-xdp that runs started with {}: frames longer than that go untouched",
            link.mtu, served.mtu
        );
        return Finding::warning("mtu", found).fix(restart(port));
    }
    Finding::ok("mtu", link.mtu.to_string())
}

fn restart(port: &PortFacts) -> String {
    format!("gradwire-xdp unload {}   # and start it again", word(&port.name))
}

/// TCP cuts segments at its MSS. Under `alignment = "payload"` that must be a place between two
/// values. The MSS is the MTU without headers, all of which are multiples of four.
fn alignment(host: &PortFacts, config: &Config) -> Option<Finding> {
    let mtu = host.link.as_ref()?.mtu;
    let by_payload = config.rules.as_slice().iter().any(|rule| rule.alignment == Alignment::Payload);
    (by_payload && !mtu.is_multiple_of(4)).then(|| {
        let found =
            format!("alignment = \"payload\", but with MTU {mtu} TCP cuts its segments within values");
        let command = format!("ip link set dev {} mtu {}", word(&host.name), mtu - mtu % 4);
        Finding::warning("alignment", found)
            .fix(format!("{command}   # and in the container, or alignment = \"connection\""))
    })
}

/// The number of queues that the attached program will add.
fn added(port: &PortFacts, mode: Mode) -> u32 {
    let (Some(link), Some(queues)) = (&port.link, port.queues) else { return 0 };
    let may_add = port.served.is_none() && is_generic(port, mode) == Some(false);
    if may_add && queues + port.added <= link.rx_queues { port.added } else { 0 }
}

fn queues(port: &PortFacts, mode: Mode) -> Finding {
    let Some(queues) = port.queues else { return Finding::unknown("queues", "the driver does not tell") };
    if let Some(served) = port.served.as_ref().filter(|served| served.queues < queues) {
        let found = format!(
            "{queues}, but the gradwire-xdp that runs started with {}: frames on the others pass it by",
            served.queues
        );
        return Finding::warning("queues", found).fix(restart(port));
    }
    let added = added(port, mode);
    if queues + added <= MAX_QUEUES {
        return Finding::ok("queues", format!("{queues}, each with a socket of its own"));
    }
    let with = if added > 0 { format!(" and {added} that XDP adds") } else { String::new() };
    let found =
        format!("{queues}{with}; at most {MAX_QUEUES} are served, frames of the others would pass by");
    Finding::failed("queues", found).fix(fewer_queues(&word(&port.name), port.driver.as_deref(), port.added))
}

#[cfg(test)]
pub(in crate::commands::doctor) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::commands::doctor::{Status, SystemFacts, examine};
    use crate::system::holders::Holder;
    use crate::system::netlink::generic::{Offload, XdpFeatures};
    use crate::system::netlink::link::FORWARDING;
    use crate::telemetry::PerPort;

    fn port(name: &str, index: u32, driver: &str) -> PortFacts {
        let bridge = Link { index: 9, name: "br0".to_owned(), kind: "bridge".to_owned(), ..Link::default() };
        let link = Link {
            index,
            name: name.to_owned(),
            ethernet: true,
            up: true,
            carrier: true,
            mtu: 1500,
            qdisc: "mq".to_owned(),
            kind: if driver == "veth" { driver.to_owned() } else { String::new() },
            master: Some(9),
            bridge_state: Some(FORWARDING),
            rx_queues: 4,
            ..Link::default()
        };
        let off = Offload { on: false, changeable: true };
        PortFacts {
            name: name.to_owned(),
            link: Some(link),
            master: Some(Link { up: true, ..bridge }),
            driver: Some(driver.to_owned()),
            xdp: Some(XdpFeatures(1 | 2 | 8)),
            offloads: Some(BTreeMap::from([("rx-lro".to_owned(), off), ("rx-gro".to_owned(), off)])),
            queues: Some(4),
            added: 0,
            holders: Vec::new(),
            served: None,
        }
    }

    /// A machine with nothing to fix.
    pub(in crate::commands::doctor) fn healthy() -> Facts {
        let system = SystemFacts {
            release: "6.18.44".to_owned(),
            xdp_sockets: Some(true),
            bpf_jit: Some(1),
            capabilities: Some(u64::MAX),
            lockable: Some(u64::MAX),
            cpus: 8,
            tcp_ecn: Some(2),
            bridge_iptables: Some(0),
            bridge_ip6tables: Some(0),
            vlans: false,
        };
        let ports = PerPort { host: port("veth0", 5, "veth"), network: port("eth0", 2, "ixgbe") };
        Facts { system, ports, filters: Ok(Vec::new()) }
    }

    /// The findings of the host's port after a change to it.
    fn checked(check: &str, change: impl FnOnce(&mut PortFacts)) -> (Status, Option<String>) {
        let mut facts = healthy();
        change(&mut facts.ports.host);
        let findings = examine(&facts, &Config::default());
        let finding = findings
            .iter()
            .find(|f| f.check == check && f.port.as_deref().is_none_or(|name| name == "veth0"));
        let finding = finding.unwrap_or_else(|| panic!("no {check} in {findings:?}"));
        (finding.status, finding.fix.clone())
    }

    fn on_link(change: impl FnOnce(&mut Link)) -> impl FnOnce(&mut PortFacts) {
        |port| change(port.link.as_mut().unwrap())
    }

    #[test]
    fn a_healthy_machine_has_nothing_to_fix() {
        for finding in examine(&healthy(), &Config::default()) {
            assert_eq!((finding.status, &finding.fix), (Status::Ok, &None), "{finding:?}");
        }
    }

    #[test]
    fn links_must_be_there_and_up() {
        let up = "ip link set dev veth0 up".to_owned();
        assert_eq!(checked("link", on_link(|link| link.up = false)), (Status::Failed, Some(up)));
        assert_eq!(checked("link", on_link(|link| link.carrier = false)).0, Status::Warning);
        assert_eq!(checked("link", on_link(|link| link.ethernet = false)).0, Status::Failed);
        assert_eq!(checked("link", |port| port.link = None).0, Status::Failed);
    }

    #[test]
    fn both_ports_must_not_be_one() {
        assert_eq!(checked("pair", on_link(|link| link.index = 2)).0, Status::Failed);
    }

    #[test]
    fn mtus_have_a_limit_and_must_agree() {
        let largest = largest_mtu(None, Attached::Native);
        let smaller = format!("ip link set dev veth0 mtu {largest}");
        assert_eq!(checked("mtu", on_link(|link| link.mtu = 9000)), (Status::Failed, Some(smaller)));
        assert_eq!(checked("mtu", on_link(|link| link.mtu = largest)), (Status::Ok, None));
        let agree = "ip link set dev veth0 mtu 1500   # and in the container".to_owned();
        assert_eq!(checked("pair", on_link(|link| link.mtu = 1450)), (Status::Warning, Some(agree)));
    }

    /// virtio's header needs room in the page, but only where the driver runs the program.
    #[test]
    fn the_largest_mtu_goes_by_driver_and_mode() {
        let mut port = healthy().ports.network;
        port.driver = Some("virtio_net".to_owned());
        let checked = |port: &PortFacts, length: u32, mode| {
            let found = mtu(port, &Link { mtu: length, ..port.link.clone().unwrap() }, mode);
            (found.status, found.fix.unwrap_or_default())
        };
        let smaller = (Status::Failed, "ip link set dev eth0 mtu 3494".to_owned());
        assert_eq!(checked(&port, 3494, Mode::Auto).0, Status::Ok);
        assert_eq!(checked(&port, 3495, Mode::Auto), smaller);
        assert_eq!(checked(&port, 3506, Mode::Generic).0, Status::Ok);
        // A shim that runs decides, also if the MTU was raised since it started.
        let native = served(&port, Attached::Native, Bound::Copy);
        assert_eq!(checked(&native, 3495, Mode::Generic), smaller);
        let generic = served(&port, Attached::Generic, Bound::Copy);
        assert_eq!(checked(&generic, 3495, Mode::Auto).0, Status::Warning, "it started with 1500");
    }

    #[test]
    fn queues_without_a_socket_are_refused() {
        let fewer = format!("ethtool -L veth0 rx {MAX_QUEUES}");
        assert_eq!(checked("queues", |port| port.queues = Some(65)), (Status::Failed, Some(fewer)));
        assert_eq!(checked("queues", |port| port.queues = None).0, Status::Unknown);
        // virtio's own are not all that there will be, if the card has more.
        let virtio = |queues, of_card| {
            checked("queues", move |port| {
                port.link.as_mut().unwrap().rx_queues = of_card;
                (port.driver, port.queues, port.added) = (Some("virtio_net".to_owned()), Some(queues), 8);
            })
        };
        let fewer = format!("ethtool -L veth0 combined {}", MAX_QUEUES - 8);
        assert_eq!(virtio(MAX_QUEUES, 128), (Status::Failed, Some(fewer)));
        assert_eq!(virtio(MAX_QUEUES - 8, 128).0, Status::Ok);
        assert_eq!(virtio(MAX_QUEUES, MAX_QUEUES).0, Status::Ok);
    }

    #[test]
    fn a_running_shim_is_asked_for_its_settings() {
        let again = "gradwire-xdp unload veth0   # and start it again".to_owned();
        let served = |mtu, queues| {
            move |port: &mut PortFacts| {
                *port = served(port, Attached::Native, Bound::Copy);
                if let Some(served) = &mut port.served {
                    (served.mtu, served.queues) = (mtu, queues);
                }
            }
        };
        assert_eq!(checked("mtu", served(1500, 4)), (Status::Ok, None));
        assert_eq!(checked("mtu", served(1400, 4)), (Status::Warning, Some(again.clone())));
        assert_eq!(checked("queues", served(1500, 2)), (Status::Warning, Some(again)));
        assert_eq!(checked("queues", served(1500, 8)), (Status::Ok, None));
    }

    #[test]
    fn an_alignment_by_payload_needs_segments_of_whole_values() {
        let text = "[[rule]]\ntos = 0x28\nalignment = \"payload\"\n";
        let by_payload = Config::parse(text, "xdp.toml".as_ref()).unwrap();
        let mut port = healthy().ports.host;
        assert_eq!(alignment(&port, &by_payload), None);
        port.link.as_mut().unwrap().mtu = 1490;
        assert_eq!(alignment(&port, &Config::default()), None);
        let found = alignment(&port, &by_payload).unwrap();
        assert_eq!(found.status, Status::Warning);
        assert!(found.fix.unwrap().starts_with("ip link set dev veth0 mtu 1488 "));
    }

    #[test]
    fn the_mode_is_what_driver_and_configuration_agree_on() {
        let mut port = healthy().ports.host;
        let mut config = Config::default();
        let status = |port: &PortFacts, config: &Config| xdp_mode(port, config.mode, config.zero_copy).status;
        config.mode = Mode::Generic;
        assert_eq!(status(&port, &config), Status::Warning);
        assert_eq!(is_generic(&port, config.mode), Some(true));
        port.xdp = Some(XdpFeatures(0));
        assert_eq!(status(&port, &config), Status::Ok);
        config.mode = Mode::Native;
        assert_eq!(status(&port, &config), Status::Failed);
        config.mode = Mode::Auto;
        assert!(xdp_mode(&port, config.mode, config.zero_copy).found.starts_with("generic, which is slower"));
        assert_eq!(is_generic(&port, config.mode), Some(true));
        port.xdp = None;
        assert_eq!(status(&port, &config), Status::Unknown);
        assert_eq!(is_generic(&port, config.mode), None);
    }

    /// A kernel of today crashes where zero-copy and such queues meet.
    #[test]
    fn zero_copy_waits_until_xdp_adds_no_queues() {
        let checked = |queues, wanted| {
            let mut port = healthy().ports.network;
            port.link.as_mut().unwrap().rx_queues = 8;
            (port.driver, port.queues, port.added) = (Some("virtio_net".to_owned()), Some(queues), 4);
            let found = xdp_mode(&port, Mode::Auto, wanted);
            (found.status, found.fix)
        };
        assert_eq!(
            checked(4, ZeroCopy::On),
            (Status::Warning, Some("ethtool -L eth0 combined 8".to_owned()))
        );
        assert_eq!(checked(8, ZeroCopy::On), (Status::Ok, None));
        assert_eq!(checked(4, ZeroCopy::Auto), (Status::Ok, None));
    }

    /// The port as a shim in this mode has it.
    pub(in crate::commands::doctor) fn served(port: &PortFacts, xdp: Attached, bind: Bound) -> PortFacts {
        let name = port.name.clone();
        let served = PortStatus { name, index: 5, mtu: 1500, queues: 4, xdp, refused: None, bind };
        PortFacts { served: Some(served), ..port.clone() }
    }

    /// The driver of this port could run XDP without a copy: what runs may be another thing.
    #[test]
    fn of_one_that_runs_the_doctor_says_what_is() {
        let port = healthy().ports.network;
        let checked = |port: &PortFacts, mode| {
            let found = xdp_mode(port, mode, ZeroCopy::On);
            (found.status, found.found)
        };
        let (status, found) = checked(&port, Mode::Auto);
        assert_eq!(status, Status::Ok);
        assert!(found.starts_with("native, without a copy if the card allows it"), "{found}");
        let here = ", as the gradwire-xdp that runs has it";
        let of = |xdp, bind| served(&port, xdp, bind);
        let native = of(Attached::Native, Bound::Copy);
        assert_eq!(
            checked(&native, Mode::Auto),
            (Status::Ok, format!("native, with a copy, 4 queues{here}"))
        );
        let zero_copy = of(Attached::Native, Bound::ZeroCopy);
        assert_eq!(
            checked(&zero_copy, Mode::Auto),
            (Status::Ok, format!("native, without a copy, 4 queues{here}"))
        );
        let mut generic = of(Attached::Generic, Bound::Copy);
        let (status, found) = checked(&generic, Mode::Auto);
        assert_eq!(status, Status::Warning);
        assert!(
            found.starts_with("generic, with a copy, 4 queues") && found.contains("it started with mode"),
            "{found}"
        );
        generic.served.as_mut().unwrap().refused = Some("no XDP here".to_owned());
        let (status, found) = checked(&generic, Mode::Auto);
        assert_eq!(status, Status::Warning);
        assert!(found.ends_with("; ixgbe refused native mode (no XDP here)"), "{found}");
        assert_eq!(is_generic(&generic, Mode::Auto), Some(true));
        assert_eq!(is_generic(&native, Mode::Generic), Some(false));
        // A driver that runs none is as good as it gets.
        let e1000e = PortFacts { xdp: Some(XdpFeatures(0)), ..generic };
        assert_eq!(checked(&e1000e, Mode::Auto).0, Status::Ok);
    }

    #[test]
    fn another_xdp_program_is_named_with_its_holder() {
        let attached = |name: Option<&str>| {
            let holders = name.map(|name| Holder { pid: 77, name: name.to_owned() });
            checked("program", |port| {
                port.link.as_mut().unwrap().xdp_program = Some(12);
                port.holders.extend(holders);
            })
        };
        let (status, off) = attached(None);
        assert_eq!(status, Status::Failed);
        let off = off.unwrap();
        assert!(off.starts_with("ip link set dev veth0 xdp off   # ") && off.contains("prog 12 "), "{off}");
        let (_, off) =
            checked("program", on_link(|link| (link.xdp_program, link.xdp_generic) = (Some(12), true)));
        assert!(off.unwrap().starts_with("ip link set dev veth0 xdpgeneric off   # "));
        assert_eq!(attached(Some("xdpd")), (Status::Failed, Some("kill 77".to_owned())));
        let unload = "gradwire-xdp unload veth0   # to end it".to_owned();
        assert_eq!(attached(Some("gradwire-xdp")), (Status::Ok, Some(unload)));
    }
}
