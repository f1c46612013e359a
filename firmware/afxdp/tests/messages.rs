//! Messages that a shim logs when something changes, and that it waits for ports that come later.

mod support;

use gradwire_xdp::system::interface::Attached;
use rustix::process::Signal;

use support::shim::{PATIENT, Shim};
use support::traffic::{TAG, gradients, transfer};
use support::{Lab, Plan, Side};

const RULE: &str = "[[rule]]\ntos = 0x28\n";

#[test]
fn a_peer_that_says_nothing_is_named_and_so_is_its_return() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let mut shim = Shim::start_with(&lab, Side::A, RULE, &format!("{PATIENT} --log debug"));
    let data = gradients(400_000);
    transfer(&lab, "10.77.0.2", TAG, &data);
    shim.wait_for("10.77.0.2 does not advertise that it restores");
    let _other = Shim::start(&lab, Side::B, RULE);
    transfer(&lab, "10.77.0.2", TAG, &data);
    // Details, since they were asked for, come behind what is more.
    shim.wait_for("10.77.0.2 restores what it is sent");
    shim.wait_for("tagged frames to the wire");
    assert!(shim.log().contains("DEBUG"), "{}", shim.log());
}

#[test]
fn a_connection_that_is_bypassed_is_named() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    // It is told that the other side restores, and nobody there does.
    let mut shim = Shim::start(&lab, Side::A, "[[rule]]\ntos = 0x28\nhandshake = \"off\"\n");
    let data = gradients(1_000_000);
    let (got, _) = transfer(&lab, "10.77.0.2", TAG, &data);
    assert!(got == data);
    shim.wait_for("> 10.77.0.2:");
    assert!(shim.log().contains("bypassed. Most of it had to be sent again"), "{}", shim.log());
    // Details were not asked for.
    assert!(!shim.log().contains("DEBUG"), "{}", shim.log());
}

#[test]
fn ports_of_different_mtus_are_told_at_start() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    lab.ip_in("sa", &format!("link set dev {} mtu 1400", lab.host_port(Side::A)));
    let shim = Shim::start(&lab, Side::A, RULE);
    let remedy = format!("ip link set dev {} mtu 1500", lab.host_port(Side::A));
    assert!(shim.log().contains("frames beyond 1400 are lost between them") && shim.log().contains(&remedy));
}

/// A veth takes no program while its other end may send frames of more than a page.
#[test]
fn a_driver_that_refuses_native_mode_is_told_with_its_reason() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let (host, net) = (lab.host_port(Side::A), lab.network_port(Side::A));
    lab.ip_in("ha", "link set dev eth0 mtu 9000");
    let shim = Shim::start(&lab, Side::A, RULE);
    let log = shim.log();
    let line = log.lines().find(|line| line.contains("generic mode")).unwrap_or_else(|| panic!("{log}"));
    for words in [
        "bpf_link_create: Numerical result out of range (os error 34): ",
        "Peer MTU is too large to set XDP; ",
        &format!("ethtool -K {host} gro off"),
        "nsenter --net=/proc/PID/ns/net ethtool -K eth0 tso off gso off",
    ] {
        assert!(line.contains(words), "no `{words}` in {line}");
    }
    assert!(!line.contains(&net), "its other port was not refused: {line}");
    let ports = shim.status().ports;
    assert_eq!((ports.host.xdp, ports.network.xdp), (Attached::Generic, Attached::Native));
    assert!(ports.host.refused.is_some_and(|why| why.ends_with("Peer MTU is too large to set XDP")));
    assert_eq!(ports.network.refused, None);
}

#[test]
fn the_shim_waits_for_ports_that_come_later() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let (host, net) = (lab.host_port(Side::A), lab.network_port(Side::A));
    lab.ip_in("sa", &format!("link set dev {host} down"));
    lab.ip_in("sa", &format!("link set dev {host} name gw-later"));
    let mut shim = Shim::spawn(&lab, Side::A, RULE, &format!("{PATIENT} --wait"));
    shim.wait_for(&format!("waits for {host} to appear"));
    lab.ip_in("sa", "link set dev gw-later nomaster");
    lab.ip_in("sa", &format!("link set dev gw-later name {host}"));
    lab.ip_in("sa", &format!("link set dev {host} up"));
    shim.wait_for(&format!("waits for {host} and {net} to be ports of one bridge"));
    lab.ip_in("sa", &format!("link set dev {host} master br0"));
    shim.wait_for("ready");
    // It has its sockets by now.
    assert_eq!(shim.status().ports.host.name, host);
    shim.end();

    // One that waits ends when it is told to, and one whose time is over says for what it waited.
    lab.ip_in("sa", &format!("link set dev {host} nomaster"));
    let mut shim = Shim::spawn(&lab, Side::A, RULE, "--wait 3600");
    shim.wait_for("to be ports of one bridge");
    shim.signal(Signal::TERM);
    assert!(shim.wait().success(), "{}", shim.log());
    let mut shim = Shim::spawn(&lab, Side::A, RULE, "--wait 0.3");
    assert_eq!(shim.wait().code(), Some(2));
    assert!(shim.log().contains("s for ") && shim.log().contains("ports of one bridge"), "{}", shim.log());
}
