//! Frames longer than the shim has room for: an MTU that grew while it ran, segments that an
//! offload merged or did not cut. They are the bridge's, untouched, and their transfers complete as
//! if there were no shim.

mod support;

use std::time::Instant;

use gradwire::wire::frame::MAX_LINK_LEN;
use gradwire_testbench::input::Frame;
use gradwire_xdp::telemetry::QueueStatus;

use support::frames::{ACK, FIN, SYN, segment};
use support::injector::Injector;
use support::shim::Shim;
use support::traffic::{Capturing, TAG, assert_within_bound, gradients, transfer};
use support::{Lab, PATIENCE, Plan, Side};

const ROUTED: &str = "[[rule]]\ntos = 0x28\n";
const GENERIC: &str = "[[rule]]\ntos = 0x28\n[path]\nmode = \"generic\"\n";

/// Tagged frames that the shim left to the bridge because of their length; no frame was lost.
fn too_long(shim: &Shim) -> u64 {
    let of = |queue: &QueueStatus| {
        let dropped = queue.rings.host.rx_dropped + queue.rings.network.rx_dropped;
        assert_eq!(dropped, 0, "the kernel drops what has no room: {queue:?}");
        queue.kept.host.too_long + queue.kept.network.too_long
    };
    shim.status().queues.iter().map(of).sum()
}

/// As an operator raises it: on the hosts, the shims' ports and the wire. The running shims keep
/// their memory.
#[test]
fn the_mtu_is_raised_while_it_runs() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let mut shims = Side::BOTH.map(|side| Shim::start(&lab, side, ROUTED));
    lab.set_mtu(3000);
    for shim in &mut shims {
        shim.wait_for("MTU 3000");
    }
    let data = gradients(1_000_000);
    let (got, _) = transfer(&lab, "10.77.0.2", 0, &data);
    assert!(got == data, "an untagged stream changed");
    let capturing = Capturing::start(&lab, "ha");
    let (got, _) = transfer(&lab, "10.77.0.2", TAG, &data);
    assert_within_bound(&data, &got);
    // Nearly all of the stream; how TCP cuts it at a window's edge, and what it sends again, is its
    // own affair.
    let (capture, source) = (capturing.finish(), lab.mac("ha"));
    let is_long = |frame: &&Frame| frame.bytes[6..12] == source && frame.bytes.len() > 1500 + MAX_LINK_LEN;
    let long = capture.frames.iter().filter(is_long).count() as u64;
    assert!(long > 100, "{long}");
    assert_eq!(too_long(&shims[0]), long);

    // A restart is the remedy that the log names.
    for (shim, side) in shims.iter_mut().zip(Side::BOTH) {
        shim.end();
        *shim = Shim::start(&lab, side, ROUTED);
    }
    let (got, _) = transfer(&lab, "10.77.0.2", TAG, &data);
    assert_within_bound(&data, &got);
    assert!(got != data, "nothing was compressed");
    assert_eq!(too_long(&shims[0]), 0);
}

/// No engine gets a start or an end that is too long. Both count all the same: values are not cut
/// by a start that may not be the stream's, and behind its end a connection is left alone.
#[test]
fn a_start_and_an_end_that_are_too_long_count() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let injector = Injector::on(&lab, "ha", "eth0", 0);
    let (data, long) = (gradients(1_400), gradients(1_600));
    let (start, values) = (segment(&lab, SYN, 1_000, &[]), segment(&lab, ACK, 1_001, &data));
    let other_start = [start.clone(), segment(&lab, SYN, 2_002, &long), values.clone()];
    let end = [start, values, segment(&lab, FIN | ACK, 2_401, &long), segment(&lab, ACK, 4_001, &data)];
    for (frames, expected) in [(&other_start[..], 0), (&end, 1)] {
        lab.set_mtu(1500);
        let mut shim = Shim::start(&lab, Side::A, &format!("{ROUTED}handshake = \"off\"\n"));
        lab.set_mtu(3000);
        frames.iter().for_each(|frame| injector.send(frame.clone()));
        let deadline = Instant::now() + PATIENCE;
        let (compressed, untouched, kept) = loop {
            let queue = shim.status().queues.remove(0);
            let (egress, kept) = (queue.egress, queue.kept.host);
            let (compressed, untouched) =
                (egress.changed["compressed"], egress.untouched.values().sum::<u64>());
            if compressed + untouched + kept.unknown + kept.too_long >= frames.len() as u64 {
                break (compressed, untouched, kept);
            }
            assert!(Instant::now() < deadline, "{egress:?} {kept:?}");
        };
        // The engine has the first start, and what is compressed.
        assert_eq!((compressed, untouched, kept.too_long, kept.unknown), (expected, 1, 1, 1));
        shim.end();
    }
    injector.finish();
}

/// Only the receiver has a shim, in generic mode, and segments were merged before they come to it.
/// A veth between hosts of one machine leaves them so.
#[test]
fn generic_mode_and_receive_offload() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    lab.run_in("w", "ethtool -K a gro on");
    // A veth merges only what comes from one that does not segment.
    lab.run_in("sa", &format!("ethtool -K {} tso off", lab.network_port(Side::A)));
    let shim = Shim::start(&lab, Side::B, GENERIC);
    let data = gradients(1_000_000);
    let (got, _) = transfer(&lab, "10.77.0.2", TAG, &data);
    assert!(got == data, "nobody compressed");
    // How much is merged depends on how the kernel's threads are scheduled; that something was, on
    // nothing.
    assert!(too_long(&shim) > 0);
}

/// As [`generic_mode_and_receive_offload`], but the operator turns it on after the start: the log
/// tells.
#[test]
fn an_offload_is_turned_on_while_it_runs() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let mut shim = Shim::start(&lab, Side::A, GENERIC);
    let port = lab.network_port(Side::A);
    lab.run_in("sa", &format!("ethtool -K {port} gro on"));
    shim.wait_for(&format!("{port}: offload rx-gro was turned on"));
}

/// In generic mode a veth hands over what the container's TCP left to the card to cut.
#[test]
fn generic_mode_and_segmentation_offload() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    lab.run_in("ha", "ethtool -K eth0 tso on gso on");
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, GENERIC));
    let data = gradients(1_000_000);
    let (got, _) = transfer(&lab, "10.77.0.2", TAG, &data);
    assert_within_bound(&data, &got);
    assert!(too_long(&shims[0]) > 0);
}
