//! Tagged frames that do not go from one port to the other: the bridge's own, and those of its
//! other ports. They are somebody else's, and have to arrive.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};

use support::shim::Shim;
use support::traffic::{TAG, connect_tagged, gradients, set_tos, transfer};
use support::{Lab, PATIENCE, Plan, Side};

const ROUTED: &str = "[[rule]]\ntos = 0x28\n";

/// Sends `data`, tagged, from one place to an address at another; what arrived.
fn tagged(lab: &Lab, from: &str, to: (&str, &str), data: &[u8]) -> Vec<u8> {
    let (place, address) = (to.0, to.1.parse().unwrap());
    let (tx, rx) = std::sync::mpsc::channel();
    let receiver = lab.enter(place, move || {
        let listener = TcpListener::bind((address, 0)).unwrap();
        set_tos(&listener, address, TAG).unwrap();
        tx.send(listener.local_addr().unwrap()).unwrap();
        let (mut stream, mut got) = (listener.accept().unwrap().0, Vec::new());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.read_to_end(&mut got).unwrap();
        got
    });
    let (to, sent) = (rx.recv().unwrap(), data.to_vec());
    let sender = lab.enter(from, move || {
        let mut stream = connect_tagged(to, TAG).unwrap();
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    });
    sender.join().unwrap();
    receiver.join().unwrap()
}

#[test]
fn traffic_of_the_bridge_itself_and_of_its_other_ports_arrives() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    // The machine of shim A has an address of its own, and a second container on the same bridge.
    lab.ip_in("sa", "address add 10.77.0.11/24 dev br0");
    lab.add_container("sa", "c2", "10.77.0.12");
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, ROUTED));
    let data = gradients(2_000_000);
    for (from, to) in [
        ("ha", ("sa", "10.77.0.11")),
        ("sa", ("ha", "10.77.0.1")),
        ("ha", ("c2", "10.77.0.12")),
        ("c2", ("ha", "10.77.0.1")),
        ("sa", ("hb", "10.77.0.2")),
        ("c2", ("hb", "10.77.0.2")),
    ] {
        assert!(
            tagged(&lab, from, to, &data) == data,
            "{from} to {to:?}: not its shim's traffic, so untouched"
        );
    }
    let kept = shims[0].status().queues[0].kept;
    eprintln!("  {kept:?}");
    assert!(kept.host.elsewhere > 1_000 && kept.network.elsewhere > 100, "{kept:?}");
    let [egress, ingress] = shims[0].outcomes();
    assert_eq!(egress.changed["compressed"] + ingress.changed["restored"], 0);

    // From outside, the other shim compresses what nobody restores here: it is sent again,
    // untouched.
    for to in [("sa", "10.77.0.11"), ("c2", "10.77.0.12")] {
        assert!(tagged(&lab, "hb", to, &data) == data);
    }
    // And what is the shim's is compressed, all along.
    let (got, _) = transfer(&lab, "10.77.0.2", TAG, &data);
    support::traffic::assert_within_bound(&data, &got);
    assert!(shims[0].outcomes()[0].changed["compressed"] > 100);
}
