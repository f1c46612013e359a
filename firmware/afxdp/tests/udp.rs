//! UDP has no acknowledgements: nothing tells a sender that its peer does not restore. So datagrams
//! are compressed only if a rule says that it does.

mod support;

use std::net::UdpSocket;
use std::sync::mpsc::channel;

use rustix::net::sockopt::set_ip_tos;

use support::shim::Shim;
use support::traffic::{TAG, assert_within_bound, gradients};
use support::{Lab, PATIENCE, Plan, Side};

const DATAGRAMS: usize = 500;
const EACH: usize = 1200;

/// Sends datagrams from A to B, one after the other; what arrived.
fn datagrams(lab: &Lab, data: &[u8]) -> Vec<u8> {
    let (tx, rx) = channel();
    let receiver = lab.enter("hb", move || {
        let socket = UdpSocket::bind("10.77.0.2:5400").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        tx.send(0).unwrap();
        let (mut got, mut buffer) = (Vec::new(), [0; 2048]);
        while got.len() < DATAGRAMS * EACH {
            let Ok(len) = socket.recv(&mut buffer) else { break };
            got.extend(&buffer[..len]);
            tx.send(got.len()).unwrap();
        }
        got
    });
    assert_eq!(rx.recv().unwrap(), 0);
    let sent = data.to_vec();
    let sender = lab.enter("ha", move || {
        let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
        set_ip_tos(&socket, TAG).unwrap();
        for datagram in sent.chunks(EACH) {
            socket.send_to(datagram, "10.77.0.2:5400").unwrap();
            // One at a time: no buffer on the way gets full.
            if rx.recv().is_err() {
                break;
            }
        }
    });
    sender.join().unwrap();
    receiver.join().unwrap()
}

#[test]
fn udp_to_a_peer_without_a_shim_arrives() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let _shim = Shim::start(&lab, Side::A, "[[rule]]\ntos = 0x28\n");
    let data = gradients(DATAGRAMS * EACH);
    assert!(datagrams(&lab, &data) == data, "untouched");
}

#[test]
fn udp_is_compressed_where_a_rule_says_so() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, "[[rule]]\ntos = 0x28\nhandshake = \"off\"\n"));
    let data = gradients(DATAGRAMS * EACH);
    let got = datagrams(&lab, &data);
    assert_within_bound(&data, &got);
    let (compressed, restored) =
        (shims[0].outcomes()[0].changed["compressed"], shims[1].outcomes()[1].changed["restored"]);
    assert_eq!((compressed, restored), (DATAGRAMS as u64, DATAGRAMS as u64));
}
