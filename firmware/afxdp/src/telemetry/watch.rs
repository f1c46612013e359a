//! Changes of a shim's work: connections that are bypassed and trusted again, peers that restore
//! and those that say nothing, frames that begin and cease to be lost, threads that hang. Two
//! snapshots are compared, so no frame waits for a log.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use tracing::{debug, info, warn};

use crate::telemetry::{Bound, FlowStatus, KeptStats, LossStats, Outcomes, PerPort, Snapshot};

/// So many messages of one kind are logged in a [`WINDOW_MS`]; of the others, their number.
const MOST: u64 = 5;
const WINDOW_MS: u64 = 60_000;
/// The time that a count must rest until what it counts has ended.
const QUIET_MS: u64 = 10_000;
/// Peers that are remembered.
const MOST_PEERS: usize = 1024;

/// The subject of a message: each kind has its own limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A connection's far end restores, or does not.
    Flow,
    /// A host says that it restores, or says nothing.
    Peer,
    /// Frames are dropped, lost, or left to the bridge.
    Loss,
    /// A queue's thread.
    Queue,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Flow => "connections",
            Self::Peer => "peers",
            Self::Loss => "lost frames",
            Self::Queue => "queues",
        }
    }
}

/// The weight of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Something does not work as it should.
    Warn,
    /// It does again, or for the first time.
    Info,
    /// A detail.
    Debug,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its weight.
    pub weight: Weight,
    /// The event, and advice.
    pub text: String,
}

/// The state seen so far.
#[derive(Debug, Default)]
pub struct Watch {
    /// Whether each connection's far end restores, as it was logged last.
    trust: BTreeMap<String, String>,
    /// The handshake of each connection.
    handshakes: BTreeMap<String, String>,
    /// Whether a host said that it restores.
    peers: BTreeMap<IpAddr, bool>,
    /// Frames that the XDP program kept from the engines because the far end says nothing.
    not_negotiated: u64,
    losses: BTreeMap<String, Episode>,
    hanging: BTreeMap<u32, bool>,
    /// Ports that nothing leaves, by queue.
    stalled: BTreeSet<(u32, &'static str)>,
    limits: BTreeMap<Kind, Limit>,
    work: Work,
}

/// A count that may rise for a while.
#[derive(Debug, Default)]
struct Episode {
    count: u64,
    /// Since when it rises, from which count, and when it rose last.
    rising: Option<(u64, u64, u64)>,
}

/// The number of messages of a kind that were logged since when, and how many were not.
#[derive(Debug, Default)]
struct Limit {
    since: u64,
    logged: u64,
    left_out: u64,
}

/// Figures that debug messages compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    at: u64,
    compressed: u64,
    restored: u64,
    tagged: u64,
    bytes_in: u64,
    bytes_out: u64,
}

impl Watch {
    /// Logs what changed since the last time.
    pub fn log(&mut self, now: &Snapshot) {
        for Change { weight, text } in self.look(now) {
            match weight {
                Weight::Warn => warn!("{text}"),
                Weight::Info => info!("{text}"),
                Weight::Debug => debug!("{text}"),
            }
        }
    }

    /// The changes since the last time; the first time, since the start.
    pub fn look(&mut self, now: &Snapshot) -> Vec<Change> {
        let mut found = Vec::new();
        self.flows(now, &mut found);
        self.losses(now, &mut found);
        self.queues(now, &mut found);
        let mut changes = self.limited(now.uptime_ms, found);
        changes.extend(self.work(now));
        changes
    }

    fn flows(&mut self, now: &Snapshot, found: &mut Vec<(Kind, Change)>) {
        let (mut trust, mut handshakes) = (BTreeMap::new(), BTreeMap::new());
        let not_negotiated =
            now.queues.iter().fold(0u64, |sum, of| sum.wrapping_add(of.kept.host.not_negotiated));
        let left_alone = not_negotiated != self.not_negotiated;
        self.not_negotiated = not_negotiated;
        for flow in now.queues.iter().flat_map(|queue| &queue.flows) {
            let before = self.trust.get(&flow.flow).map_or("trusted", String::as_str);
            found.extend(of_trust(flow, before).map(|change| (Kind::Flow, change)));
            trust.insert(flow.flow.clone(), flow.trust.clone());
            // Before a connection's first payload, an answer may still come. If its payload goes by
            // the bridge, only the sum of all connections says so.
            if flow.traffic.frames == 0 && !left_alone {
                continue;
            }
            if self.handshakes.get(&flow.flow) != Some(&flow.handshake) {
                found.extend(self.of_peer(flow).map(|change| (Kind::Peer, change)));
            }
            handshakes.insert(flow.flow.clone(), flow.handshake.clone());
        }
        // Only those that are listed now: their number has a bound.
        (self.trust, self.handshakes) = (trust, handshakes);
    }

    /// The change of a far end's state, from a connection that is new or was answered.
    fn of_peer(&mut self, flow: &FlowStatus) -> Option<Change> {
        let restores = match flow.handshake.as_str() {
            "negotiated" => true,
            "advertised" => false,
            _ => return None,
        };
        let peer = peer_of(flow)?;
        if self.peers.len() == MOST_PEERS {
            self.peers.clear();
        }
        if self.peers.insert(peer, restores) == Some(restores) {
            return None;
        }
        Some(if restores {
            info(format!("{peer} restores what it is sent: connections to it are compressed"))
        } else {
            warning(format!(
                "{peer} does not advertise that it restores: connections to it go untouched (not-negotiated); start gradwire-xdp there, \
                 or look for a box that takes options out of SYNs"
            ))
        })
    }

    fn losses(&mut self, now: &Snapshot, found: &mut Vec<(Kind, Change)>) {
        for (what, count) in losses(now) {
            let episode = self.losses.entry(what.clone()).or_default();
            let grown = count != episode.count;
            episode.rising = match episode.rising {
                None if grown => {
                    let new = count.wrapping_sub(episode.count);
                    found
                        .push((Kind::Loss, warning(format!("{what}: {new} frames so far{}", remedy(&what)))));
                    Some((now.uptime_ms, episode.count, now.uptime_ms))
                }
                Some((since, from, _)) if grown => Some((since, from, now.uptime_ms)),
                Some((since, from, last)) if now.uptime_ms.saturating_sub(last) >= QUIET_MS => {
                    let (frames, seconds) = (count.wrapping_sub(from), last.saturating_sub(since) / 1_000);
                    found
                        .push((Kind::Loss, info(format!("{what}: no more; {frames} frames in {seconds} s"))));
                    None
                }
                rising => rising,
            };
            episode.count = count;
        }
    }

    fn queues(&mut self, now: &Snapshot, found: &mut Vec<(Kind, Change)>) {
        for queue in &now.queues {
            let number = queue.queue;
            let hung = self.hanging.insert(number, !queue.answered).unwrap_or(false);
            let change = match (hung, !queue.answered) {
                (false, true) => {
                    warning(format!("queue {number} does not answer: its frames go by the bridge"))
                }
                (true, false) => info(format!("queue {number} answers again")),
                _ => continue,
            };
            found.push((Kind::Queue, change));
        }
        self.stalls(now, found);
    }

    fn stalls(&mut self, now: &Snapshot, found: &mut Vec<(Kind, Change)>) {
        for queue in &now.queues {
            for ((way, port), (_, stalled)) in now.ports.named().into_iter().zip(queue.stalled.named()) {
                let (number, name, at) = (queue.queue, &port.name, (queue.queue, way));
                let change = match stalled {
                    Some(waiting) if self.stalled.insert(at) => {
                        let copies = match port.bind {
                            Bound::Copy => "",
                            Bound::ZeroCopy => "; if it stays so, start again with --zero-copy off",
                        };
                        warning(format!(
                            "{name}, queue {number}: frames were taken, and none left for a second; {waiting} wait. The bridge gets those \
                             that would leave there, until some do: ip -s link show dev {name}{copies}"
                        ))
                    }
                    None if self.stalled.remove(&at) => {
                        info(format!("{name}, queue {number}: frames are taken again"))
                    }
                    _ => continue,
                };
                found.push((Kind::Queue, change));
            }
        }
    }

    /// Of each kind as many as are allowed; the others become details.
    fn limited(&mut self, now: u64, found: Vec<(Kind, Change)>) -> Vec<Change> {
        let mut changes = Vec::new();
        for (kind, limit) in &mut self.limits {
            if now.saturating_sub(limit.since) >= WINDOW_MS {
                if limit.left_out > 0 {
                    changes.push(info(format!(
                        "{} more messages about {} were left out in the last {} s; `--log debug` has them",
                        limit.left_out,
                        kind.name(),
                        now.saturating_sub(limit.since) / 1_000
                    )));
                }
                *limit = Limit { since: now, ..Limit::default() };
            }
        }
        for (kind, mut change) in found {
            let limit = self.limits.entry(kind).or_insert(Limit { since: now, ..Limit::default() });
            if change.weight != Weight::Debug {
                if limit.logged < MOST {
                    limit.logged += 1;
                } else {
                    limit.left_out += 1;
                    change.weight = Weight::Debug;
                }
            }
            changes.push(change);
        }
        changes
    }

    /// The work since the last time, if there was any.
    fn work(&mut self, now: &Snapshot) -> Option<Change> {
        let (mut egress, mut ingress) = (Outcomes::default(), Outcomes::default());
        for queue in &now.queues {
            egress.add(&queue.egress);
            ingress.add(&queue.ingress);
        }
        let of = |counts: &BTreeMap<String, u64>, name: &str| counts.get(name).copied().unwrap_or(0);
        let work = Work {
            at: now.uptime_ms,
            compressed: of(&egress.changed, "compressed"),
            restored: of(&ingress.changed, "restored"),
            tagged: now.rules.iter().fold(0, |sum, rule| sum.wrapping_add(rule.traffic.frames)),
            bytes_in: egress.changed_bytes_in,
            bytes_out: egress.changed_bytes_out,
        };
        let before = std::mem::replace(&mut self.work, work);
        let grown = |of: fn(&Work) -> u64| of(&work).wrapping_sub(of(&before));
        let (compressed, restored, tagged) =
            (grown(|w| w.compressed), grown(|w| w.restored), grown(|w| w.tagged));
        (compressed != 0 || restored != 0 || tagged != 0).then(|| {
            let ratio = grown(|w| w.bytes_in) as f64 / grown(|w| w.bytes_out).max(1) as f64;
            let text = format!(
                "in {} ms: {tagged} tagged frames to the wire, {compressed} of them compressed (ratio {ratio:.2}), {restored} restored",
                grown(|w| w.at)
            );
            Change { weight: Weight::Debug, text }
        })
    }
}

const fn warning(text: String) -> Change {
    Change { weight: Weight::Warn, text }
}

const fn info(text: String) -> Change {
    Change { weight: Weight::Info, text }
}

/// The meaning of a connection's change from one state of trust to another.
fn of_trust(flow: &FlowStatus, before: &str) -> Option<Change> {
    let name = &flow.flow;
    match (before, flow.trust.as_str()) {
        ("trusted", "bypassed" | "probing") => Some(warning(format!(
            "{name}: bypassed. Most of it had to be sent again, so its far end does not seem to restore; is gradwire-xdp \
             running there, on the way of these frames?"
        ))),
        ("bypassed" | "probing", "trusted") => Some(info(format!("{name}: trusted again; it is compressed"))),
        (before, after) if before != after => {
            let what = if after == "probing" {
                "tries again if its far end restores"
            } else {
                "its far end still does not restore"
            };
            Some(Change { weight: Weight::Debug, text: format!("{name}: {what}") })
        }
        _ => None,
    }
}

/// The host at the far end of a flow, whose name is both ends, and VLANs behind them.
fn peer_of(flow: &FlowStatus) -> Option<IpAddr> {
    let (_, to) = flow.flow.split_once(" > ")?;
    let to = to.split(' ').next()?;
    to.parse::<SocketAddr>().ok().map(|address| address.ip())
}

/// Every way in which frames are lost or not compressed for the shim's own reasons, and how many
/// were.
fn losses(now: &Snapshot) -> Vec<(String, u64)> {
    let mut sums = BTreeMap::<String, u64>::new();
    let mut add = |what: String, count: u64| {
        let sum = sums.entry(what).or_default();
        *sum = sum.wrapping_add(count);
    };
    for queue in &now.queues {
        for (reason, count) in &queue.ingress.dropped {
            add(format!("compressed frames from the wire are dropped ({reason})"), *count);
        }
        let both = |of: &PerPort<LossStats>| [of.host.named(), of.network.named()];
        for (reason, count) in both(&queue.losses).into_iter().flatten() {
            add(format!("frames are lost ({reason})"), count);
        }
        let both = |of: &PerPort<KeptStats>| [of.host.named(), of.network.named()];
        let own = |reason: &str| reason == "stale" || reason == "too-long";
        for (reason, count) in both(&queue.kept).into_iter().flatten().filter(|(reason, _)| own(reason)) {
            add(format!("tagged frames are left to the bridge ({reason})"), count);
        }
        for rings in [queue.rings.host, queue.rings.network] {
            add("frames are lost (rx-ring-full)".to_owned(), rings.rx_ring_full);
        }
    }
    sums.into_iter().collect()
}

fn remedy(what: &str) -> &'static str {
    let is = |reason: &str| what.ends_with(&format!("({reason})"));
    if what.starts_with("compressed") && is("too-long") {
        "; a far end has a larger MTU than the ports here: set the same on all hosts, then restart each shim"
    } else if what.starts_with("compressed") {
        "; they were damaged, forged, or changed by a box on the way"
    } else if is("too-long") {
        "; the MTU was raised, or an offload merges segments: gradwire-xdp doctor"
    } else if is("stale") {
        "; its threads do not get a processor in time: see what else runs there"
    } else {
        "; more come than a thread or the other port can take"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::tests::example;
    use gradwire::verdict::TaggedTraffic;

    /// All is well, at this time.
    fn calm(at: u64) -> Snapshot {
        let mut snapshot = example();
        snapshot.uptime_ms = at;
        for queue in &mut snapshot.queues {
            queue.answered = true;
            queue.stalled = PerPort::default();
            for counts in [&mut queue.egress, &mut queue.ingress] {
                counts.dropped.values_mut().for_each(|count| *count = 0);
            }
            queue.losses = PerPort::default();
            queue.kept = PerPort::default();
            queue.rings = PerPort::default();
        }
        snapshot
    }

    fn changed(at: u64, change: impl FnOnce(&mut Snapshot)) -> Snapshot {
        let mut snapshot = calm(at);
        change(&mut snapshot);
        snapshot
    }

    /// The messages that are more than details.
    fn messages(watch: &mut Watch, now: &Snapshot) -> Vec<(Weight, String)> {
        let changes = watch.look(now).into_iter().filter(|change| change.weight != Weight::Debug);
        changes.map(|change| (change.weight, change.text)).collect()
    }

    #[test]
    fn without_a_change_nothing_is_logged() {
        let mut watch = Watch::default();
        let first = messages(&mut watch, &calm(1_000));
        assert_eq!(
            first,
            [(
                Weight::Info,
                "10.0.0.2 restores what it is sent: connections to it are compressed".to_owned()
            )]
        );
        for at in 2..200 {
            assert_eq!(watch.look(&calm(at * 1_000)), []);
        }
    }

    #[test]
    fn a_connection_that_is_bypassed_and_trusted_again_is_told_twice() {
        let mut watch = Watch::default();
        watch.look(&calm(0));
        let states = ["bypassed", "bypassed", "probing", "bypassed", "probing", "trusted", "trusted"];
        let mut weights = Vec::new();
        for (state, at) in states.into_iter().zip(1..) {
            let now = changed(1_000 * at, |now| now.queues[1].flows[0].trust = state.to_owned());
            let found = messages(&mut watch, &now);
            assert!(found.iter().all(|(_, text)| text.starts_with("10.0.0.1:40002 > 10.0.0.2:5400: ")));
            weights.extend(found.into_iter().map(|(weight, _)| (at, weight)));
        }
        assert_eq!(weights, [(1, Weight::Warn), (6, Weight::Info)]);
    }

    #[test]
    fn a_peer_that_falls_silent_is_told_and_so_is_its_return() {
        let mut watch = Watch::default();
        watch.look(&calm(0));
        let connection = |at: u64, number: u64, state: &str| {
            changed(at, |now| {
                let flow = &mut now.queues[0].flows[0];
                flow.flow = format!("10.0.0.1:{number} > 10.0.0.2:5400 vlan 3");
                flow.handshake = state.to_owned();
            })
        };
        let missing = messages(&mut watch, &connection(1_000, 1, "advertised"));
        assert!(
            matches!(&missing[..], [(Weight::Warn, text)] if text.contains("10.0.0.2 does not advertise")),
            "{missing:?}"
        );
        // Another connection that says the same is no news, nor is one that nobody asked.
        assert_eq!(messages(&mut watch, &connection(2_000, 2, "advertised")), []);
        assert_eq!(messages(&mut watch, &connection(3_000, 3, "none")), []);
        let back = messages(&mut watch, &connection(4_000, 4, "negotiated"));
        assert!(
            matches!(&back[..], [(Weight::Info, text)] if text.contains("10.0.0.2 restores")),
            "{back:?}"
        );
        // Without payload, a connection says nothing, unless its payload goes by the bridge.
        let without_payload = |at: u64, kept: u64| {
            let mut now = connection(at, 5, "advertised");
            now.queues[0].flows[0].traffic = TaggedTraffic::NONE;
            now.queues[1].kept.host.not_negotiated = kept;
            now
        };
        assert_eq!(messages(&mut watch, &without_payload(5_000, 0)), []);
        let missing = messages(&mut watch, &without_payload(6_000, 9));
        assert!(
            matches!(&missing[..], [(Weight::Warn, text)] if text.contains("does not advertise")),
            "{missing:?}"
        );
    }

    #[test]
    fn losses_have_a_beginning_and_an_end() {
        let mut watch = Watch::default();
        watch.look(&calm(0));
        let dropped = |at: u64, count: u64| {
            changed(at, |now| {
                now.queues[0].ingress.dropped.insert("too-long".to_owned(), count);
            })
        };
        let began = messages(&mut watch, &dropped(1_000, 3));
        assert!(
            matches!(&began[..], [(Weight::Warn, text)] if text.contains("dropped (too-long): 3 frames") && text.contains("larger MTU")),
            "{began:?}"
        );
        // It goes on, pauses for less than the time, and goes on.
        for (at, count) in [(2_000, 5), (3_000, 5), (10_000, 5), (12_000, 9), (21_000, 9)] {
            assert_eq!(messages(&mut watch, &dropped(at, count)), [], "{at}");
        }
        let ended = messages(&mut watch, &dropped(22_000, 9));
        let text = "compressed frames from the wire are dropped (too-long): no more; 9 frames in 11 s";
        assert_eq!(ended, [(Weight::Info, text.to_owned())]);
        // Each port and each kind counts; an unknown connection is no loss.
        let kept = changed(23_000, |now| {
            now.queues[0].ingress.dropped.insert("too-long".to_owned(), 9);
            now.queues[1].kept.network.stale = 1;
            now.queues[1].kept.network.unknown = 1;
            now.queues[1].losses.host.no_queue = 1;
            now.queues[0].rings.host.rx_ring_full = 1;
        });
        let began = messages(&mut watch, &kept);
        assert_eq!(began.len(), 3, "{began:?}");
    }

    #[test]
    fn a_thread_that_hangs_and_comes_back_is_told() {
        let mut watch = Watch::default();
        watch.look(&calm(0));
        let hanging = |at| changed(at, |now| now.queues[1].answered = false);
        let text = "queue 1 does not answer: its frames go by the bridge";
        assert_eq!(messages(&mut watch, &hanging(1_000)), [(Weight::Warn, text.to_owned())]);
        assert_eq!(messages(&mut watch, &hanging(2_000)), []);
        assert_eq!(messages(&mut watch, &calm(3_000)), [(Weight::Info, "queue 1 answers again".to_owned())]);
    }

    #[test]
    fn a_port_that_nothing_leaves_is_told_with_what_waits_and_so_is_its_return() {
        let mut watch = Watch::default();
        watch.look(&calm(0));
        let stalled = |at, bind| {
            changed(at, |now| {
                now.ports.network.bind = bind;
                now.queues[1].stalled.network = Some(7);
            })
        };
        let began = messages(&mut watch, &stalled(1_000, Bound::Copy));
        let [(Weight::Warn, text)] = &began[..] else { panic!("{began:?}") };
        assert!(
            text.starts_with("eth0, queue 1: frames were taken, and none left for a second; 7 wait."),
            "{text}"
        );
        assert!(text.ends_with("ip -s link show dev eth0"), "{text}");
        assert_eq!(messages(&mut watch, &stalled(2_000, Bound::Copy)), []);
        let again = "eth0, queue 1: frames are taken again".to_owned();
        assert_eq!(messages(&mut watch, &calm(3_000)), [(Weight::Info, again)]);
        let [(_, text)] = &messages(&mut watch, &stalled(4_000, Bound::ZeroCopy))[..] else {
            panic!("{began:?}")
        };
        assert!(text.ends_with("if it stays so, start again with --zero-copy off"), "{text}");
    }

    #[test]
    fn a_flood_of_changes_is_a_few_messages_and_their_number() {
        let mut watch = Watch::default();
        watch.look(&calm(0));
        let many = |at: u64, from: u64, trust: &str| {
            changed(at, |now| {
                let flow = now.queues[0].flows[0].clone();
                now.queues[0].flows = (from..from + 30)
                    .map(|port| FlowStatus {
                        flow: format!("10.0.0.1:{port} > 10.0.0.2:1"),
                        trust: trust.to_owned(),
                        ..flow.clone()
                    })
                    .collect();
            })
        };
        let mut lines = 0;
        let mut details = 0;
        for second in 1..=59 {
            let changes = watch.look(&many(1_000 * second, 100 * second, "bypassed"));
            lines += changes.iter().filter(|change| change.weight != Weight::Debug).count();
            details += changes.len();
        }
        assert_eq!((lines, details), (MOST as usize, 59 * 30));
        let after = messages(&mut watch, &calm(70_000));
        assert!(
            after[0].1.contains(&format!("{} more messages about connections", 59 * 30 - MOST)),
            "{after:?}"
        );
        // Other kinds have their own limit, and the next minute is a new one.
        let next = messages(&mut watch, &many(71_000, 100, "bypassed"));
        assert_eq!(next.len(), MOST as usize);
    }

    #[test]
    fn the_reference_has_these_limits() {
        let guide =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/shim-reference.md"))
                .unwrap();
        assert_eq!((MOST, WINDOW_MS, QUIET_MS), (5, 60_000, 10_000));
        assert!(guide.contains("five messages a minute") && guide.contains("has rested for ten seconds"));
    }

    #[test]
    fn details_say_what_was_done() {
        let mut watch = Watch::default();
        watch.look(&calm(1_000));
        let now = changed(2_000, |now| {
            now.rules[0].traffic.frames += 40;
            now.queues[0].egress.changed.insert("compressed".to_owned(), 50 + 30);
            now.queues[0].egress.changed_bytes_in += 6_000;
            now.queues[0].egress.changed_bytes_out += 2_000;
        });
        let text = "in 1000 ms: 40 tagged frames to the wire, 30 of them compressed (ratio 3.00), 0 restored";
        assert_eq!(watch.look(&now), [Change { weight: Weight::Debug, text: text.to_owned() }]);
    }
}
