//! A port that nothing leaves: its frames must go by the bridge, which may know another way.

mod support;

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use support::shim::{PATIENT, Shim};
use support::traffic::{TAG, gradients, set_tos};
use support::{Lab, PATIENCE, Plan, Side};

/// UDP, so that the far end never sends, and nothing but the shim itself can notice.
const RULE: &str = "[[rule]]\ntos = 0x28\nhandshake = \"off\"\n";

/// Host A sends one datagram after the other until host B gets one, and says what that one was.
struct Datagrams {
    from: UdpSocket,
    to: UdpSocket,
    sent: Vec<u8>,
}

impl Datagrams {
    fn new(lab: &Lab) -> Self {
        let to = lab.enter("hb", || UdpSocket::bind("10.77.0.2:5400").unwrap()).join().unwrap();
        to.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let from = lab.enter("ha", || UdpSocket::bind("10.77.0.1:0").unwrap()).join().unwrap();
        set_tos(&from, "10.77.0.1".parse().unwrap(), TAG).unwrap();
        from.connect("10.77.0.2:5400").unwrap();
        Self { from, to, sent: gradients(1_000) }
    }

    /// Until `done`, which is told whether it arrived with other values than it left: compressed
    /// and restored.
    fn one_arrives(&self, done: impl Fn(bool) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut buffer = [0; 2048];
        loop {
            // A link that is down may say so.
            let _ = self.from.send(&self.sent);
            if let Ok(len) = self.to.recv(&mut buffer)
                && done(buffer[..len] != self.sent[..])
            {
                return;
            }
            assert!(Instant::now() < end, "no such datagram arrived");
        }
    }
}

/// The shim's cable is cut, at either end, and the bridge has another one. What the shim took was
/// lost then, for as long as it ran: the XDP program still knew host B behind the cut cable.
#[test]
fn frames_that_cannot_leave_a_port_go_by_the_bridge() {
    let Some(lab) = Lab::new(Plan::default()) else { return };
    // A second cable from A's bridge to the wire, which is not plugged in: two at a time would be a
    // loop. A's bridge learns nothing from it, so the program does not either.
    let second = format!("x{}", lab.network_port(Side::A));
    lab.ip_in("sa", &format!("link add {second} type veth peer name second netns {}", lab.netns("w")));
    for (place, name) in [("sa", second.as_str()), ("w", "second")] {
        lab.ip_in(place, &format!("link set dev {name} master br0"));
    }
    lab.ip_in("w", "link set dev second up");
    lab.ip_in("sa", &format!("link set dev {second} type bridge_slave learning off"));
    let neighbour = lab.link("hb", "eth0")["address"].as_str().unwrap().to_owned();
    lab.ip_in("ha", &format!("neigh replace 10.77.0.2 lladdr {neighbour} nud permanent dev eth0"));

    let mut shim = Shim::start_with(&lab, Side::A, RULE, "--limit-ms 3000");
    let _far = Shim::start_with(&lab, Side::B, RULE, PATIENT);
    let datagrams = Datagrams::new(&lab);
    let network = lab.network_port(Side::A);
    for (place, cable) in [("sa", network.clone()), ("w", Side::A.name().to_owned())] {
        datagrams.one_arrives(|changed| changed);
        lab.ip_in(place, &format!("link set dev {cable} down"));
        lab.ip_in("sa", &format!("link set dev {second} up"));
        let stalled = || shim.status().queues[0].stalled;
        datagrams.one_arrives(|changed| !changed && stalled().network.is_some());
        shim.wait_for(&format!("{network}, queue 0: frames were taken, and none left"));
        let status = shim.status();
        assert!(status.queues[0].stalled.host.is_none());
        assert!(status.queues[0].rings.network.stalls > 0 && status.queues[0].rings.host.stalls == 0);

        lab.ip_in("sa", &format!("link set dev {second} down"));
        lab.ip_in(place, &format!("link set dev {cable} up"));
        datagrams.one_arrives(|changed| changed);
        shim.wait_for("frames are taken again");
    }
}
