//! Bridges that filter. What is untagged meets them as if there were no shim, and what is tagged
//! passes by them only if the operator says so. nftables' own counters and the kernel's own TCP are
//! the checks.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener};
use std::path::Path;

use serde_json::Value;

use support::shim::{PATIENT, Shim};
use support::traffic::{TAG, assert_within_bound, connect_tagged, gradients, set_tos};
use support::{Lab, PATIENCE, Plan, Side};

const ROUTED: &str = "[[rule]]\ntos = 0x28\n";
const BYPASS: &str = "[[rule]]\ntos = 0x28\n[path]\nbypass-filter = true\n";
const ADDRESSES: [&str; 2] = ["10.77.0.2", "fd77::2"];
const PLACES: [&str; 2] = ["sa", "sb"];

/// A command of nftables, in a place.
fn nft(lab: &Lab, place: &str, command: &str) -> String {
    let output = lab.command_in(place, "nft").arg(command).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Packets that a named counter of table `inet fw` has seen.
fn counted(lab: &Lab, place: &str, name: &str) -> u64 {
    let listed = nft(lab, place, &format!("list counter inet fw {name}"));
    let (_, count) = listed.split_once("packets ").unwrap();
    count.split_whitespace().next().unwrap().parse().unwrap()
}

/// Has the bridges of both shims hand frames to a chain that drops what belongs to no connection
/// that it saw begin, as Kubernetes' aggregators have it; `false` if this kernel cannot.
fn filter_statefully(lab: &Lab) -> bool {
    if !Path::new("/proc/sys/net/bridge/bridge-nf-call-iptables").exists() {
        eprintln!("  this kernel has no br_netfilter");
        return false;
    }
    for place in PLACES {
        lab.run_in(
            place,
            "sysctl -q -w net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1",
        );
        for command in [
            "add table inet fw",
            "add counter inet fw new",
            "add counter inet fw established",
            "add counter inet fw invalid",
            "add chain inet fw forward { type filter hook forward priority 0 ; }",
            "add rule inet fw forward ct state invalid counter name invalid drop",
            "add rule inet fw forward ct state established counter name established accept",
            "add rule inet fw forward meta l4proto tcp ct state new counter name new accept",
        ] {
            nft(lab, place, command);
        }
    }
    true
}

/// Without a tag, a connection through shims is one like any other to a firewall that watches
/// connections.
#[test]
fn untagged_connections_pass_a_stateful_firewall() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    if !filter_statefully(&lab) {
        return;
    }
    let data = gradients(400_000);
    let new = || PLACES.map(|place| counted(&lab, place, "new"));
    let send = || {
        let before = new();
        for address in ADDRESSES {
            assert!(transferred(&lab, address, [0, 0], &data) == data);
        }
        let now = new();
        [now[0] - before[0], now[1] - before[1]]
    };
    let without = send();
    let established = PLACES.map(|place| counted(&lab, place, "established"));
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, BYPASS));
    let again = lab.syns_again("ha");
    let with = send();
    // Each SYN comes by, and one that a busy machine made the host send again may do so twice.
    assert_eq!(without, [2, 2]);
    assert!(with.iter().all(|new| (2..=2 + lab.syns_again("ha") - again).contains(new)), "{with:?}");
    for (place, before) in PLACES.into_iter().zip(established) {
        let after = counted(&lab, place, "established");
        eprintln!("  {place}: {before} frames of connections without shims, {} with", after - before);
        assert!(after - before > 400_000 / 1448, "not by the bridge");
        assert_eq!(counted(&lab, place, "invalid"), 0);
    }
    // Nothing of it went through the engines.
    for shim in &shims {
        let [egress, ingress] = shim.outcomes();
        assert_eq!(egress.untouched.values().sum::<u64>() + ingress.untouched.values().sum::<u64>(), 0);
    }
}

/// One connection from A to an address of B, each end with its own type of service; what B got. It
/// fails when the client gives up.
fn transferred(lab: &Lab, address: &str, [client, listener]: [u8; 2], data: &[u8]) -> Vec<u8> {
    let address: IpAddr = address.parse().unwrap();
    let (tx, rx) = std::sync::mpsc::channel();
    let receiver = lab.enter("hb", move || {
        let socket = TcpListener::bind((address, 0)).unwrap();
        set_tos(&socket, address, listener).unwrap();
        tx.send(socket.local_addr().unwrap()).unwrap();
        let (mut stream, mut got) = (socket.accept().unwrap().0, Vec::new());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.read_to_end(&mut got).unwrap();
        got
    });
    let (to, data) = (rx.recv().unwrap(), data.to_vec());
    let sender = lab.enter("ha", move || {
        let mut stream = connect_tagged(to, client).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&data).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    });
    sender.join().unwrap();
    receiver.join().unwrap()
}

/// Both SYNs of a connection go the same way, so a firewall that watches connections has seen a
/// whole start, or none. With the operator's consent tagged connections come about behind such
/// firewalls, whichever end has a shim or a tag.
#[test]
fn tagged_connections_come_about_beside_a_stateful_firewall() {
    let data = gradients(400_000);
    for sides in [&Side::BOTH[..], &[Side::A], &[Side::B]] {
        let Some(lab) = Lab::new(Plan::default()) else { return };
        if !filter_statefully(&lab) {
            return;
        }
        let shims = sides.iter().map(|side| Shim::start(&lab, *side, BYPASS)).collect::<Vec<_>>();
        for tags in [[TAG, TAG], [TAG, 0], [0, TAG]] {
            let compressed = || shims[0].outcomes()[0].changed["compressed"];
            let before = compressed();
            let got = transferred(&lab, ADDRESSES[0], tags, &data);
            eprintln!("  shims {sides:?}, tags {tags:?}: {} compressed", compressed() - before);
            assert_within_bound(&data, &got);
            let expected = sides.len() == 2 && tags[0] == TAG;
            assert_eq!(compressed() > before, expected, "shims {sides:?}, tags {tags:?}");
        }
        // Nobody listens: that is heard at once, too, and not only when the client gives up.
        for tos in [TAG, 0] {
            let refused =
                lab.enter("ha", move || connect_tagged("10.77.0.2:9".parse().unwrap(), tos).unwrap_err());
            assert_eq!(
                refused.join().unwrap().kind(),
                std::io::ErrorKind::ConnectionRefused,
                "{sides:?}, {tos}"
            );
        }
    }
}

/// Whether a connection comes about, of this type of service, from a place to a listener at
/// another.
fn connects(lab: &Lab, from: &str, to: (&str, SocketAddr), tos: u8) -> bool {
    let (place, address) = to;
    let (tx, rx) = std::sync::mpsc::channel();
    let listening = lab.enter(place, move || {
        let listener = TcpListener::bind(address).unwrap();
        tx.send(()).unwrap();
        listener
    });
    rx.recv().unwrap();
    let listener = listening.join().unwrap();
    let connected = lab.enter(from, move || connect_tagged(address, tos).is_ok()).join().unwrap();
    drop(listener);
    connected
}

/// A firewall in one direction: connections from the container to one port are forbidden, and all
/// that the network begins. Without a tag, that holds with shims as without.
#[test]
fn a_firewall_in_one_direction_holds_for_what_is_untagged() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    for command in [
        "add table inet fw",
        "add table bridge fw",
        "add counter bridge fw out",
        "add counter bridge fw in",
        "add chain bridge fw forward { type filter hook forward priority 0 ; }",
        "add rule bridge fw forward ip daddr 10.77.0.2 tcp dport 5400 counter name out drop",
        "add rule bridge fw forward ip daddr 10.77.0.1 tcp flags & (syn | ack) == syn counter name in drop",
    ] {
        nft(&lab, "sa", command);
    }
    let dropped = |name: &str| {
        let listed = nft(&lab, "sa", &format!("list counter bridge fw {name}"));
        let (_, count) = listed.split_once("packets ").unwrap();
        count.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    // A drop is seen by a counter, and a client need not try for two minutes.
    let hurry = |place: &str, retries: u32| {
        lab.run_in(place, &format!("sysctl -q -w net.ipv4.tcp_syn_retries={retries}"));
    };
    let forbidden = |tos: u8| {
        let [to_b, to_a] = ["10.77.0.2:5400", "10.77.0.1:5401"].map(|to| to.parse().unwrap());
        let before = (dropped("out"), dropped("in"));
        hurry("ha", 1);
        hurry("hb", 1);
        let connected = (connects(&lab, "ha", ("hb", to_b), tos), connects(&lab, "hb", ("ha", to_a), tos));
        hurry("ha", 6);
        hurry("hb", 6);
        (connected, (dropped("out") - before.0 > 0, dropped("in") - before.1 > 0))
    };
    let allowed = |tos: u8| connects(&lab, "ha", ("hb", "10.77.0.2:5402".parse().unwrap()), tos);
    let holds = ((false, false), (true, true));
    assert_eq!((forbidden(0), forbidden(TAG)), (holds, holds), "without shims");
    assert!(allowed(0) && allowed(TAG), "without shims");

    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, BYPASS));
    assert_eq!(forbidden(0), holds, "without a tag it holds as before");
    assert!(allowed(0) && allowed(TAG));
    // This is what the operator has consented to.
    assert_eq!(forbidden(TAG), ((true, true), (false, false)), "a tag passes by");
    assert!(shims[0].log().contains("tagged connections pass by nftables' bridge chain fw forward"));
}

/// `gradwire-xdp` beside host A, until it ends: its exit code, and what it printed.
fn run(lab: &Lab, words: &str) -> (Option<i32>, String) {
    let (host, net) = (lab.host_port(Side::A), lab.network_port(Side::A));
    let program = env!("CARGO_BIN_EXE_gradwire-xdp");
    let output = lab.in_place("sa", &format!("{program} {words} --host {host} --net {net}"));
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(printed).unwrap())
}

/// The doctor's findings about filters, as status and words.
fn found(lab: &Lab, config: &Path) -> Vec<(String, String, Option<String>)> {
    let (_, json) = run(lab, &format!("doctor --json --config {}", config.display()));
    let findings: Vec<Value> = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
    let filters = findings.iter().filter(|finding| finding["check"] == "packet-filter");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    filters.map(|f| (text(&f["status"]).unwrap(), text(&f["found"]).unwrap(), text(&f["fix"]))).collect()
}

/// Whatever filters between the ports is found by the doctor, keeps the shim from starting, and is
/// passed by only if the operator says so, as the doctor's own command does.
#[test]
fn a_tag_does_not_open_a_filter_unless_the_operator_says_so() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let (host, net) = (lab.host_port(Side::A), lab.network_port(Side::A));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [plain, consent] = [ROUTED, BYPASS].map(|config| {
        let path = folder.join(format!("{host}-{}.toml", config.len()));
        fs::write(&path, config).unwrap();
        path
    });
    let chain = "add chain bridge fw forward { type filter hook forward priority 0 ; }";
    // Filters, what they are called, and how they go again.
    let filters = [
        (
            vec![
                "nft add table bridge fw".to_owned(),
                format!("nft {chain}"),
                "nft add rule bridge fw forward tcp dport 5400 drop".to_owned(),
            ],
            "nftables' bridge chain fw forward".to_owned(),
            vec!["nft delete table bridge fw".to_owned()],
        ),
        (
            vec![
                "nft add table bridge fw".to_owned(),
                format!("nft {}", chain.replace("priority 0 ;", "priority 0 ; policy drop ;")),
            ],
            "nftables' bridge chain fw forward".to_owned(),
            vec!["nft delete table bridge fw".to_owned()],
        ),
        (
            vec![
                "nft add table netdev fw".to_owned(),
                format!(
                    "nft add chain netdev fw in {{ type filter hook ingress device {net} priority 0 ; }}"
                ),
                "nft add rule netdev fw in tcp dport 5400 drop".to_owned(),
            ],
            "nftables' chain fw in".to_owned(),
            vec!["nft delete table netdev fw".to_owned()],
        ),
        (
            vec!["sysctl -q -w net.bridge.bridge-nf-call-iptables=1".to_owned()],
            "iptables (net.bridge.bridge-nf-call-iptables = 1)".to_owned(),
            vec!["sysctl -q -w net.bridge.bridge-nf-call-iptables=0".to_owned()],
        ),
        (
            vec!["ip link set dev br0 type bridge nf_call_ip6tables 1".to_owned()],
            "ip6tables (nf_call_ip6tables of br0)".to_owned(),
            vec!["ip link set dev br0 type bridge nf_call_ip6tables 0".to_owned()],
        ),
        (
            vec!["ip link set dev br0 type bridge vlan_filtering 1".to_owned()],
            "VLAN filtering of br0".to_owned(),
            vec!["ip link set dev br0 type bridge vlan_filtering 0".to_owned()],
        ),
        (
            [&host, &net].map(|port| format!("ip link set dev {port} type bridge_slave isolated on")).into(),
            format!("isolation of {host} and {net}"),
            [&host, &net].map(|port| format!("ip link set dev {port} type bridge_slave isolated off")).into(),
        ),
        (
            vec![format!("ip link set dev {host} type bridge_slave locked on")],
            format!("the lock of {host} (802.1X)"),
            vec![format!("ip link set dev {host} type bridge_slave locked off")],
        ),
        (
            vec![
                format!("tc qdisc add dev {host} clsact"),
                format!("tc filter add dev {host} ingress matchall action drop"),
            ],
            format!("traffic control's filters of {host}"),
            vec![format!("tc qdisc del dev {host} clsact")],
        ),
        (
            vec![
                format!("tc qdisc add dev {net} clsact"),
                format!(
                    "tc filter add dev {net} egress protocol ip prio 1 u32 match ip dst 10.77.0.2/32 action drop"
                ),
            ],
            format!("traffic control's filters of {net}"),
            vec![format!("tc qdisc del dev {net} clsact")],
        ),
    ];
    let all_is_well = || {
        let checked = found(&lab, &plain);
        assert!(matches!(&checked[..], [(status, _, None)] if status == "ok"), "{checked:?}");
    };
    let mut tried = 0;
    for (make, name, take) in filters {
        all_is_well();
        if !make.iter().all(|command| lab.in_place("sa", command).status.success()) {
            eprintln!("  this kernel cannot: {make:?}");
            take.iter().for_each(|command| drop(lab.in_place("sa", command)));
            continue;
        }
        tried += 1;
        let checked = found(&lab, &plain);
        let [(status, found_words, Some(fix))] = &checked[..] else { panic!("{name}: {checked:?}") };
        assert!(status == "failed" && found_words.contains(&name), "{name}: {checked:?}");
        let (code, printed) = run(&lab, &format!("run --config {}", plain.display()));
        assert!(
            code == Some(2) && printed.contains(&name) && printed.contains("--bypass-filter"),
            "{name}: {printed}"
        );
        // The operator says so, in the file...
        let checked = found(&lab, &consent);
        assert!(
            checked.iter().all(|(status, words, _)| status == "ok" && words.contains(&name)),
            "{checked:?}"
        );
        let shim = Shim::start(&lab, Side::A, BYPASS);
        assert!(shim.log().contains(&name), "{}", shim.log());
        drop(shim);
        // ... or by the doctor's command.
        let command = fix.split("   #").next().unwrap().strip_prefix("gradwire-xdp run ").unwrap();
        assert!(command.contains(&host) && command.contains(&net), "{command}");
        let option = command.split_whitespace().last().unwrap();
        let shim = Shim::start_with(&lab, Side::A, ROUTED, &format!("{option} {PATIENT}"));
        assert!(shim.log().contains(&name), "{}", shim.log());
        drop(shim);
        for command in take {
            lab.run_in("sa", &command);
        }
    }
    assert!(tried >= 4, "only {tried} filters were tried");
    // What filters nothing between the ports is none of them.
    nft(&lab, "sa", "add table bridge fw");
    nft(&lab, "sa", chain);
    nft(&lab, "sa", "add chain bridge fw own { type filter hook input priority 0 ; }");
    nft(&lab, "sa", "add rule bridge fw own tcp dport 22 drop");
    nft(&lab, "sa", "add table inet fw");
    nft(&lab, "sa", "add chain inet fw forward { type filter hook forward priority 0 ; policy drop ; }");
    lab.run_in("sa", &format!("ip link set dev {host} type bridge_slave isolated on"));
    all_is_well();
    let mut shim = Shim::start(&lab, Side::A, ROUTED);
    // What comes later, its log tells, as far as it may see that without privileges.
    lab.run_in("sa", &format!("ip link set dev {net} type bridge_slave isolated on"));
    shim.wait_for(&format!(
        "tagged connections pass by isolation of {host} and {net}, which was not there at start"
    ));
}
