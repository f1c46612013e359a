//! Settings of a port that an operator may change while the shim runs.

use crate::system::interface::{Attached, Interface, mtu, receive_queues};
use crate::system::netlink::generic::offloads;

/// Offloads that change frames before the XDP program sees them: merged segments, and VLAN tags
/// beside the frame.
const ALWAYS: [&str; 3] = ["rx-lro", "rx-gro-hw", "rx-vlan-hw-parse"];
/// And if the program runs in the generic path, which comes after it.
const GENERIC: &str = "rx-gro";

/// These settings at one moment. None: the kernel did not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The MTU.
    pub mtu: Option<u32>,
    queues: Option<u32>,
    /// Those that are on, by the kernel's names.
    offloads: Option<Vec<&'static str>>,
}

impl Settings {
    /// Those of an interface that is served as `interface` says, with the offloads as they are now:
    /// attaching the program changes some.
    ///
    /// Not its queues and its MTU as they are by now: what came after it was looked at is not
    /// served.
    #[must_use]
    pub fn served(interface: &Interface, mode: Attached) -> Self {
        let (mtu, queues) = (Some(interface.mtu.into()), Some(interface.queues));
        Self { mtu, queues, offloads: watched(interface, mode) }
    }

    /// As they are now, if the program is attached in this way.
    #[must_use]
    pub fn of(interface: &Interface, mode: Attached) -> Self {
        Self {
            mtu: mtu(&interface.name).ok(),
            queues: receive_queues(&interface.name).ok(),
            offloads: watched(interface, mode),
        }
    }

    /// The differences between these settings, which are those of the start, and `now`: what
    /// follows, and what fixes it.
    #[must_use]
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if let (Some(before), Some(now)) = (self.mtu, now.mtu)
            && now != before
        {
            found.push(format!(
                "MTU {now}, {before} at start: frames longer than at start go untouched; restart gradwire-xdp on \
                 every host that has the new MTU"
            ));
        }
        if let (Some(before), Some(now)) = (self.queues, now.queues)
            && now != before
        {
            found.push(format!(
                "{now} receive queues, {before} at start: those added have no socket, so what arrives there is \
                 neither compressed nor restored; restart gradwire-xdp"
            ));
        }
        if let (Some(before), Some(now)) = (&self.offloads, &now.offloads) {
            found.extend(now.iter().filter(|name| !before.contains(name)).map(|name| {
                format!(
                    "offload {name} was turned on: frames change before the XDP program sees them; turn it off, as \
                     `gradwire-xdp doctor` says"
                )
            }));
        }
        found
    }
}

/// Those of the offloads that matter in this mode which are on, by the kernel's names.
fn watched(interface: &Interface, mode: Attached) -> Option<Vec<&'static str>> {
    let generic = (mode == Attached::Generic).then_some(GENERIC);
    let all = offloads(interface.index).ok()?;
    let is_on = |name: &&str| all.get(*name).is_some_and(|offload| offload.on);
    Some(ALWAYS.into_iter().chain(generic).filter(is_on).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(mtu: u32, queues: u32, offloads: &[&'static str]) -> Settings {
        Settings { mtu: Some(mtu), queues: Some(queues), offloads: Some(offloads.to_vec()) }
    }

    #[test]
    fn every_change_is_told_with_its_remedy() {
        let start = settings(1500, 4, &["rx-gro"]);
        assert_eq!(start.differences(&start), [""; 0]);
        let changes = start.differences(&settings(3000, 8, &["rx-lro"]));
        assert_eq!(changes.len(), 3, "what was turned off is no harm: {changes:?}");
        for (change, words) in
            changes.iter().zip(["MTU 3000, 1500 at start", "8 receive queues, 4", "rx-lro"])
        {
            assert!(change.contains(words), "{change}");
        }
    }

    /// A queue that comes between the look at an interface and the first look at its settings has
    /// no socket, and the log has to say so.
    #[test]
    fn changes_are_compared_with_the_served_settings() {
        let loopback =
            Interface { name: "lo".to_owned(), index: 1, mtu: 1400, queues: 7, driver: None, bridge: None };
        let now = Settings::of(&loopback, Attached::Native);
        let changes = Settings::served(&loopback, Attached::Native).differences(&now);
        for (change, words) in changes.iter().zip(["1400 at start", "1 receive queues, 7 at start"]) {
            assert!(change.contains(words), "{change}");
        }
        assert_eq!(changes.len(), 2, "{changes:?}");
    }

    #[test]
    fn unknown_settings_are_no_change() {
        let start = settings(1500, 4, &[]);
        let unknown = Settings { mtu: None, queues: None, offloads: None };
        assert_eq!(start.differences(&unknown), [""; 0]);
        assert_eq!(unknown.differences(&start), [""; 0]);
    }
}
