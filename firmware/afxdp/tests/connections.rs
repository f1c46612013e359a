//! Many connections: short ones, and more than the flow table holds.

mod support;

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gradwire_xdp::path::shim::FLOWS;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use support::shim::Shim;
use support::traffic::{TAG, assert_within_bound, connect_tagged, gradients, set_tos};
use support::{Lab, Plan, Side};

/// Ports that a host has for connections to one other: `net.ipv4.ip_local_port_range` is widened to
/// this.
const PORTS: &str = "net.ipv4.ip_local_port_range=2000 65000";

/// More than a flow table holds.
const OPEN: usize = FLOWS as usize + 1000;

fn address(lab: &Lab, address: &str) -> IpAddr {
    for place in ["ha", "hb"] {
        let words = ["netns", "exec", &lab.netns(place), "sysctl", "-q", "-w", PORTS];
        assert!(std::process::Command::new("ip").args(words).status().unwrap().success());
    }
    // Both ends of all connections are this process's.
    let maximum = getrlimit(Resource::Nofile).maximum;
    assert!(
        maximum.is_none_or(|most| most > 2 * OPEN as u64 + 100),
        "too few open files allowed: {maximum:?}"
    );
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    address.parse().unwrap()
}

/// Three thousand connections one after the other, four at a time, over each version of IP.
#[test]
fn thousands_of_short_connections() {
    const EACH: usize = 3000;
    const AT_ONCE: usize = 4;
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, "[[rule]]\ntos = 0x28\n"));
    for text in ["10.77.0.2", "fd77::2"] {
        let address = address(&lab, text);
        // 1 to 20 segments.
        let data = Arc::new(gradients(28_000));
        let (tx, rx) = std::sync::mpsc::channel();
        let expected = Arc::clone(&data);
        let receiver = lab.enter("hb", move || {
            let listener = TcpListener::bind((address, 0)).unwrap();
            set_tos(&listener, address, TAG).unwrap();
            tx.send(listener.local_addr().unwrap()).unwrap();
            let mut got = Vec::new();
            for _ in 0..EACH {
                let (mut stream, _) = listener.accept().unwrap();
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).unwrap();
                got.push(bytes);
            }
            assert!(got.iter().all(|got| !got.is_empty()));
            let sent = got.iter().flat_map(|got| &expected[..got.len()]).copied().collect::<Vec<_>>();
            assert_within_bound(&sent, &got.concat());
        });
        let to: SocketAddr = rx.recv().unwrap();
        let next = Arc::new(AtomicUsize::new(0));
        let senders = (0..AT_ONCE).map(|_| {
            let (data, next) = (Arc::clone(&data), Arc::clone(&next));
            lab.enter("ha", move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= EACH {
                        return;
                    }
                    let mut stream = connect_tagged(to, TAG).unwrap();
                    let len = 400 + 4 * (number * 997 % 6_900);
                    stream.write_all(&data[..len]).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
                }
            })
        });
        senders.collect::<Vec<_>>().into_iter().for_each(|sender| sender.join().unwrap());
        receiver.join().unwrap();
    }
    let [egress, _] = shims[0].outcomes();
    eprintln!("  {} segments compressed; {:?}", egress.changed["compressed"], egress.untouched);
    assert!(egress.changed["compressed"] > 2 * EACH as u64);
}

/// More connections at once than the flow table holds: those beyond go untouched, and all complete.
#[test]
fn a_full_table() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    let shims = Side::BOTH.map(|side| Shim::start(&lab, side, "[[rule]]\ntos = 0x28\n"));
    let address = address(&lab, "10.77.0.2");
    let data = gradients(2_800);
    let (tx, rx) = std::sync::mpsc::channel();
    let receiver = lab.enter("hb", move || {
        let listener = TcpListener::bind((address, 0)).unwrap();
        set_tos(&listener, address, TAG).unwrap();
        tx.send(listener.local_addr().unwrap()).unwrap();
        // All are open before the first ends.
        let streams = (0..OPEN).map(|_| listener.accept().unwrap().0).collect::<Vec<_>>();
        streams
            .into_iter()
            .map(|mut stream| {
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).unwrap();
                bytes
            })
            .collect::<Vec<_>>()
    });
    let to = rx.recv().unwrap();
    let sent = data.clone();
    let sender = lab.enter("ha", move || {
        let (first, second) = sent.split_at(sent.len() / 2);
        let connect = |_| {
            let mut stream = connect_tagged(to, TAG).unwrap();
            stream.write_all(first).unwrap();
            stream
        };
        let streams = (0..OPEN).map(connect).collect::<Vec<_>>();
        for mut stream in streams {
            stream.write_all(second).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        }
    });
    sender.join().unwrap();
    let got = receiver.join().unwrap();
    assert_eq!(got.len(), OPEN);
    assert_within_bound(&data.repeat(OPEN), &got.concat());
    let status = shims[0].status();
    let [egress, _] = shims[0].outcomes();
    eprintln!(
        "  {} flows known; {} segments compressed; {:?}",
        status.queues[0].flows_known.values().sum::<u64>(),
        egress.changed["compressed"],
        egress.untouched
    );
    assert!(egress.untouched["table-full"] > 500, "{egress:?}");
    assert!(egress.changed["compressed"] > u64::from(FLOWS));
}
