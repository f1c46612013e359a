//! The account of this machine's shims about a test: which bound their rules have, and what they
//! saved on its connections.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::telemetry::control::{self, ControlError};
use crate::telemetry::{FlowStatus, Snapshot};

/// Every shim that answers on this machine. None if there is no folder, or this user may not ask: a
/// container sees no shim of its host. One whose threads are late to answer is asked again, for as
/// long as `patience` lasts: what they last told may be of before the test.
pub(super) fn answering(run_dir: &Path, patience: Duration) -> Vec<Snapshot> {
    let sockets = control::sockets(run_dir).unwrap_or_default();
    let end = Instant::now() + patience;
    let ask = |socket: &PathBuf| loop {
        let answer = control::query::<Snapshot>(socket);
        let is_late = match &answer {
            Ok(snapshot) => snapshot.queues.iter().any(|queue| !queue.answered),
            Err(error) => matches!(error, ControlError::Silent { .. }),
        };
        if !is_late || Instant::now() >= end {
            return answer.ok();
        }
    };
    sockets.iter().filter_map(ask).collect()
}

/// The bound of the first rule that takes this type of service, if all of these shims agree.
pub(super) fn bound_for(shims: &[Snapshot], tos: u8) -> Option<f64> {
    let bound = |shim: &Snapshot| {
        let rule = shim.rules.iter().find(|rule| tos & rule.mask == rule.tos & rule.mask)?;
        Some(2f64.powi((i16::from(rule.scale) - rule.bound).into()))
    };
    let mut bounds = shims.iter().filter_map(bound);
    let first = bounds.next()?;
    bounds.all(|other| other == first).then_some(first)
}

/// The account of shims about a test's connections, on their way out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct OnTheWire {
    /// The shims' ports, `host/network`.
    pub(super) shims: Vec<String>,
    /// The number of those connections that they list.
    pub(super) connections: usize,
    /// Segments with payload, and those of them that left compressed.
    pub(super) segments: u64,
    pub(super) compressed: u64,
    /// Bytes of payloads, and by how many they got shorter.
    pub(super) bytes: u64,
    pub(super) saved: u64,
    /// `agreed`, `asked` or `none`: the least of the connections.
    pub(super) handshake: String,
}

impl OnTheWire {
    /// The account of these shims about connections from the first to the second address; none if
    /// they list none of them.
    pub(super) fn of(shims: &[Snapshot], connections: &[(SocketAddr, SocketAddr)]) -> Option<Self> {
        let names = connections.iter().map(|(from, to)| format!("{} > {}", plain(*from), plain(*to)));
        let names = names.collect::<Vec<_>>();
        let is_ours = |flow: &FlowStatus| {
            names.iter().any(|name| flow.flow.strip_prefix(name.as_str()).is_some_and(ends_there))
        };
        let mut sum = Self::default();
        for shim in shims {
            let flows = shim.queues.iter().flat_map(|queue| &queue.flows).filter(|flow| is_ours(flow));
            let before = sum.connections;
            for flow in flows {
                sum.connections += 1;
                sum.segments += flow.traffic.frames;
                sum.compressed += flow.traffic.compressed;
                sum.bytes += flow.traffic.bytes;
                sum.saved += flow.traffic.saved;
                let rank =
                    |state: &str| ["none", "advertised", "negotiated"].iter().position(|of| *of == state);
                if sum.handshake.is_empty() || rank(&flow.handshake) < rank(&sum.handshake) {
                    sum.handshake.clone_from(&flow.handshake);
                }
            }
            if sum.connections != before {
                sum.shims.push(name(shim));
            }
        }
        (sum.connections != 0).then_some(sum)
    }

    /// The factor by which the payloads had fewer bytes on the wire; 1 if none are known of.
    pub(super) fn ratio(&self) -> f64 {
        self.bytes.max(1) as f64 / self.bytes.saturating_sub(self.saved).max(1) as f64
    }
}

/// A shim's name: its ports.
pub(super) fn name(shim: &Snapshot) -> String {
    format!("{}/{}", shim.ports.host.name, shim.ports.network.name)
}

/// Behind a flow's two ends are its VLANs, or nothing.
fn ends_there(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(" vlan ")
}

/// Without the link that an address is of: frames do not carry it.
fn plain(mut address: SocketAddr) -> SocketAddr {
    if let SocketAddr::V6(address) = &mut address {
        address.set_scope_id(0);
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::tests::example;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_tests_connections_are_found_among_the_flows() {
        let shims = [example()];
        let (to, first, second) =
            (address("10.0.0.2:5400"), address("10.0.0.1:40001"), address("10.0.0.1:40002"));
        let found = OnTheWire::of(&shims, &[(first, to), (second, to)]).unwrap();
        assert_eq!((found.connections, found.bytes, found.saved), (2, 160_000, 135_000));
        assert_eq!(
            (found.handshake.as_str(), found.shims.as_slice()),
            ("negotiated", &["veth0/eth0".to_owned()][..])
        );
        assert!((found.ratio() - 6.4).abs() < 1e-9);
        // The other direction is not it, nor is a port that begins alike.
        assert_eq!(OnTheWire::of(&shims, &[(to, first)]), None);
        assert_eq!(OnTheWire::of(&shims, &[(first, address("10.0.0.2:540"))]), None);
    }

    #[test]
    fn the_least_handshake_is_told_and_a_vlan_hides_no_flow() {
        let mut shim = example();
        shim.queues[0].flows[0].flow += " vlan 7";
        shim.queues[0].flows[0].handshake = "none".to_owned();
        let to = address("10.0.0.2:5400");
        let of = [(address("10.0.0.1:40001"), to), (address("10.0.0.1:40002"), to)];
        let found = OnTheWire::of(&[shim], &of).unwrap();
        assert_eq!((found.connections, found.handshake.as_str()), (2, "none"));
        assert_eq!(OnTheWire::default().ratio(), 1.0);
    }

    #[test]
    fn the_bound_is_that_of_the_rule_if_all_agree() {
        assert_eq!(bound_for(&[example()], 0x28), Some(1.0 / 1024.0));
        // ECN's bits do not count.
        assert_eq!(bound_for(&[example()], 0x2a), Some(1.0 / 1024.0));
        assert_eq!(bound_for(&[example()], 0x50), None);
        assert_eq!(bound_for(&[], 0x28), None);
        let mut other = example();
        other.rules[0].bound = 8;
        assert_eq!(bound_for(&[example(), other.clone()], 0x28), None);
        assert_eq!(bound_for(&[other], 0x28), Some(1.0 / 256.0));
    }
}
