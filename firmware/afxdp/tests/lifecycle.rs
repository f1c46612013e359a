//! Starting, reloading, stopping; and what it refuses.

mod support;

use std::thread;
use std::time::{Duration, Instant};

use gradwire_xdp::telemetry::{KeptStats, LossStats};
use rustix::process::Signal;

use support::shim::Shim;
use support::traffic::{TAG, Transfer, assert_within_bound, gradients, transfer};
use support::{Lab, PATIENCE, Plan, Side};

const ROUTED: &str = "[[rule]]\ntos = 0x28\n";

/// Other rules in the middle of a transfer: no frame is lost, the flow goes on, and is compressed
/// all the time.
#[test]
fn reloading_loses_no_frame_and_no_flow() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    lab.count_packets(TAG);
    // So few segments are under way that no ring fills, however long a thread waits for its
    // processor.
    lab.ip_in("ha", "route replace 10.77.0.0/24 dev eth0 cwnd lock 64");
    let mut shims = Side::BOTH.map(|side| Shim::start(&lab, side, ROUTED));
    let data = gradients(80_000_000);
    let end = Instant::now() + PATIENCE;
    let mut rounds = 0;
    loop {
        let before = (lab.packets_missing(), lab.dropped());
        let running = Transfer::start(&lab, "10.77.0.2", TAG, data.clone(), usize::MAX);
        for turn in 1..=4 {
            running.wait_for(turn * data.len() / 8);
            for shim in &mut shims {
                shim.reload(&format!("{ROUTED}bound = {}\n[[rule]]\ntos = 0x48\n", 10 + turn % 2));
            }
        }
        let (got, _) = running.finish();
        assert_within_bound(&data, &got);
        rounds += 1;
        // What was sent last may be on its way.
        while lab.packets_missing() > before.0 && lab.dropped() == before.1 {
            assert!(Instant::now() < end, "{} frames were lost", lab.packets_missing() - before.0);
            thread::sleep(Duration::from_millis(10));
        }
        // Others on this machine may fill the queue that a processor has for all interfaces.
        if lab.dropped() == before.1 {
            break;
        }
        assert!(Instant::now() < end, "interfaces dropped frames in each of {rounds} rounds");
    }
    for shim in &shims {
        let status = shim.status();
        assert_eq!((status.reloads, status.rules.len()), (4 * rounds, 2));
        let queue = &status.queues[0];
        assert_eq!(queue.losses.host, LossStats::default());
        assert_eq!(queue.losses.network, LossStats::default());
        // Every tagged frame came to the engine, but for acknowledgements behind a FIN.
        let KeptStats { stale, elsewhere, too_long, .. } = queue.kept.host;
        assert_eq!((stale, elsewhere, too_long), (0, 0, 0));
    }
    // The flow was known all the time: what was not compressed was sent before, or the peer was in
    // doubt, both of which a thread that waits for its processor brings about.
    let [egress, _] = shims[0].outcomes();
    let segments = rounds * data.len() as u64 / 1448;
    let counts = ["resent", "bypassed"].map(|reason| egress.untouched[reason]);
    let compressed = egress.changed["compressed"];
    assert!(compressed + counts.iter().sum::<u64>() >= segments, "{egress:?}");
    assert!(compressed > 1_000, "{egress:?}");
    assert_eq!(egress.untouched["alignment-unknown"], 0);

    // A rule that is gone is no rule; a file that cannot be understood changes nothing.
    for shim in &mut shims {
        shim.reload("[[rule]]\ntos = 0x48\n");
        shim.reload_refused("[[rule]]\ntos = 0x4z\n");
    }
    let (got, _) = transfer(&lab, "10.77.0.2", TAG, &data[..4_000_000]);
    assert!(got == data[..4_000_000]);
    let (got, _) = transfer(&lab, "10.77.0.2", 0x48, &data[..4_000_000]);
    assert_within_bound(&data[..4_000_000], &got);
}

/// It ends on request, also under load, and leaves nothing behind: frames go by the bridge, and it
/// starts again.
#[test]
fn a_clean_stop() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let mut shims = Side::BOTH.map(|side| Shim::start(&lab, side, ROUTED));
    let data = gradients(40_000_000);
    let running = Transfer::start_held(&lab, "fd77::2", TAG, &data, data.len() / 4);
    running.wait_for(data.len() / 10);
    for shim in &mut shims {
        shim.signal(Signal::TERM);
    }
    for shim in &mut shims {
        assert!(shim.wait().success(), "{}", shim.log());
    }
    let (got, _) = running.finish();
    assert_within_bound(&data, &got);
    for (place, port) in [("sa", lab.host_port(Side::A)), ("sb", lab.network_port(Side::B))] {
        let link = lab.ip_in(place, &format!("link show dev {port}"));
        assert!(!link.contains("xdp"), "{link}");
    }
    lab.wait_for_ping();
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, ROUTED));
    let (got, _) = transfer(&lab, "10.77.0.2", TAG, &data);
    assert_within_bound(&data, &got);
    assert!(shims[0].outcomes()[0].changed["compressed"] > 1_000);
}

/// A second one on the same ports, ports that do not exist, a port for both, an MTU that is too
/// large.
#[test]
fn refusals_come_with_their_reason_and_a_fix() {
    let Some(lab) = Lab::new(Plan { mtu: 9000, ..Plan::default() }) else { return };
    let refused = |lab: &Lab, words: &str| {
        let command = format!("{} run {words}", env!("CARGO_BIN_EXE_gradwire-xdp"));
        let output = lab.in_place("sa", &command);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let (host, net) = (lab.host_port(Side::A), lab.network_port(Side::A));
    let ports = format!("--host {host} --net {net}");
    let jumbo = refused(&lab, &ports);
    assert!(jumbo.contains(&format!("ip link set dev {host} mtu 3506")), "{jumbo}");
    for port in [&host, &net] {
        lab.ip_in("sa", &format!("link set dev {port} mtu 3506"));
    }
    let shim = Shim::start(&lab, Side::A, ROUTED);
    let second = refused(&lab, &ports);
    assert!(second.contains("gradwire-xdp unload"), "{second}");
    // The kernel distinguishes them, too: a pair of ports that shares one with the first.
    let shared = refused(&lab, &format!("--host {net} --net {host}"));
    assert!(shared.contains("another XDP program is attached"), "{shared}");
    assert!(refused(&lab, "--host nothere --net lo").contains("no such interface"));
    assert!(refused(&lab, &format!("--host {host} --net {host}")).contains("--net"));
    drop(shim);
}

/// The container ends, and its veth with it: so does the shim, for its service manager to start it
/// again.
#[test]
fn a_port_that_goes() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let mut shim = Shim::start(&lab, Side::A, ROUTED);
    let port = lab.host_port(Side::A);
    lab.ip_in("sa", &format!("link del dev {port}"));
    assert_eq!(shim.wait().code(), Some(2));
    assert!(shim.log().contains(&format!("{port} has gone")), "{}", shim.log());
}

/// MTU of the largest frames that are taken in one piece.
#[test]
fn the_largest_mtu_works() {
    let Some(lab) = Lab::new(Plan { mtu: 3506, ..Plan::default() }) else { return };
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, ROUTED));
    let data = gradients(8_000_000);
    let (got, _) = transfer(&lab, "10.77.0.2", TAG, &data);
    assert_within_bound(&data, &got);
    assert!(shims[0].outcomes()[0].changed["compressed"] > 1_000);
}

/// Ports whose driver runs no XDP programs.
#[test]
fn generic_mode_works_too() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    // Generic mode leaves the offloads of the other end alone: frames must come in one MTU each.
    let config = format!("{ROUTED}[path]\nmode = \"generic\"\n");
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, &config));
    let data = gradients(4_000_000);
    for address in ["10.77.0.2", "fd77::2"] {
        let (got, _) = transfer(&lab, address, TAG, &data);
        assert_within_bound(&data, &got);
        let (got, _) = transfer(&lab, address, 0, &data);
        assert!(got == data);
    }
    assert!(shims[0].outcomes()[0].changed["compressed"] > 1_000);
}

/// An idle one that polls all the time does the same.
#[test]
fn busy_polling_works_too() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let config = format!("{ROUTED}[path]\nbusy-poll-us = 20\n");
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, &config));
    let data = gradients(4_000_000);
    let (got, _) = transfer(&lab, "10.77.0.2", TAG, &data);
    assert_within_bound(&data, &got);
    assert!(shims[0].outcomes()[0].changed["compressed"] > 1_000);
}
