//! Whether a shim is of use right now: what its counts come to, in a sentence with a remedy.

use std::collections::BTreeMap;

use gradwire::verdict::{Change, PassReason};

use super::sampled::{Sampled, percent_lost};
use super::snapshot::{Outcomes, Snapshot};

/// If a smaller share of frames with a payload is compressed, something is wrong.
const LITTLE: f64 = 0.2;
/// Values that lose a larger share of their norm are of no use, as `gradwire check` says.
const MUCH: f64 = 0.5;

/// The meaning of the counts since the start.
#[derive(Clone, Debug, PartialEq)]
pub enum Usefulness {
    /// There is no rule, so it only restores.
    NoRule,
    /// No tagged frame left the host.
    Untagged,
    /// Tagged frames left, and none of a connection whose start was seen.
    Unseen,
    /// Tagged frames left, and none had a payload.
    Receives,
    /// Most frames with a payload go untouched.
    Little {
        /// The share that is compressed.
        share: f64,
        /// Why most of the others are not.
        reason: String,
    },
    /// It does its work.
    Compresses {
        /// The share of frames with a payload that is compressed.
        share: f64,
        /// The factor by which these have fewer bytes on the wire, headers included.
        ratio: f64,
        /// The loss in some of them, over all rules.
        sampled: Sampled,
    },
}

impl Usefulness {
    /// Of all of a shim's queues.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut egress = Outcomes::default();
        snapshot.queues.iter().for_each(|queue| egress.add(&queue.from_host()));
        let (compressed, untouched) = egress.payload_frames();
        let tagged = snapshot.rules.iter().any(|rule| rule.traffic.frames != 0);
        let unseen = snapshot.queues.iter().any(|queue| queue.kept.host.unknown != 0);
        let share = compressed as f64 / (compressed.saturating_add(untouched)).max(1) as f64;
        match compressed {
            _ if snapshot.rules.is_empty() => Self::NoRule,
            0 if untouched == 0 && unseen => Self::Unseen,
            0 if untouched == 0 && tagged => Self::Receives,
            0 if untouched == 0 => Self::Untagged,
            _ if share < LITTLE => Self::Little { share, reason: most_frequent(&egress.untouched) },
            _ => Self::Compresses {
                share,
                ratio: egress.changed_bytes_in as f64 / egress.changed_bytes_out.max(1) as f64,
                sampled: snapshot.rules.iter().fold(Sampled::NONE, |sum, rule| sum + rule.sampled),
            },
        }
    }

    /// A word for it, which stays the same over versions.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoRule => "no-rule",
            Self::Untagged => "untagged",
            Self::Unseen => "unseen",
            Self::Receives => "receives",
            Self::Little { .. } => "little",
            Self::Compresses { sampled, .. } if sampled.norm_lost() > Some(MUCH) => "norm-lost",
            Self::Compresses { .. } => "compresses",
        }
    }

    /// A sentence, with what to do about it.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::NoRule => "there is no rule: it compresses nothing, and restores what arrives".to_owned(),
            Self::Untagged => {
                "NOTHING TAGGED: no frame of a rule's type of service left the host. Tag sockets before connect and listen; \
                 `gradwire-xdp test send` tries the path"
                    .to_owned()
            }
            Self::Unseen => {
                "NOTHING COMPRESSED: tagged connections were open before it started, or moved to another queue. New ones are \
                 compressed"
                    .to_owned()
            }
            Self::Receives => "this host sent no payload that is tagged: it only receives".to_owned(),
            Self::Little { share, reason } => format!(
                "COMPRESSES LITTLE: {:.1} % of frames with a payload. Most others: {reason}{}",
                100.0 * share,
                meaning(reason)
            ),
            Self::Compresses { share, ratio, sampled } => format!(
                "compresses {:.1} % of frames with a payload, to {ratio:.2} times fewer bytes. {}",
                100.0 * share,
                losses(sampled)
            ),
        }
    }
}

impl Outcomes {
    /// Frames to the wire that a rule matched and that have something to compress: how many were,
    /// and how many were not. A host that only receives sends many bare acknowledgements, which do
    /// not count.
    #[must_use]
    pub fn payload_frames(&self) -> (u64, u64) {
        let compressed = self.changed.get(Change::Compressed.name()).copied().unwrap_or(0);
        let untouched = self.untouched.iter().filter(|(reason, _)| has_payload(reason));
        (compressed, untouched.fold(0, |sum, (_, count)| sum.wrapping_add(*count)))
    }
}

/// Whether a frame that egress passed for this reason was a rule's, with bytes that could have been
/// compressed.
fn has_payload(reason: &str) -> bool {
    let reason = PassReason::ALL.iter().find(|of| of.name() == reason);
    !matches!(
        reason,
        None | Some(
            PassReason::NotIp
                | PassReason::NoRule
                | PassReason::Malformed
                | PassReason::TcpFlags
                | PassReason::NoPayload
                | PassReason::NoValue
                | PassReason::NotCompressed
                | PassReason::ForeignMark
        )
    )
}

fn most_frequent(untouched: &BTreeMap<String, u64>) -> String {
    let with_payload = untouched.iter().filter(|(reason, _)| has_payload(reason));
    with_payload.max_by_key(|(_, count)| **count).map_or_else(String::new, |(reason, _)| reason.clone())
}

/// The meaning of a reason for an operator; the guide has all of them.
fn meaning(reason: &str) -> &'static str {
    match reason {
        "not-negotiated" => {
            ": the far end did not advertise that it restores; is gradwire-xdp running there?"
        }
        "tagged-late" => ": tag sockets before connect and listen",
        "alignment-unknown" => ": connections that were open before it started",
        "bypassed" | "resent" => ": the far end does not restore, or the path loses much",
        "not-shorter" => {
            ": the data does not compress under this bound; is it gradients, and is the scale right?"
        }
        "not-values" => {
            ": headers, integers or random bytes are among the values; do not tag such connections"
        }
        "udp-off" => ": UDP needs handshake = \"off\"",
        _ => "",
    }
}

/// The loss of values by compression, in a sentence.
fn losses(sampled: &Sampled) -> String {
    let (Some(lost), Some(zeroed)) = (sampled.norm_lost(), sampled.share_zeroed()) else {
        return "Of the frames that were looked at, all values were zero before".to_owned();
    };
    let losses = format!(
        "{:.1} % of the norm is lost, and {:.1} % of the values became zero ({} frames looked at)",
        percent_lost(lost),
        100.0 * zeroed,
        sampled.frames
    );
    if lost > MUCH {
        format!(
            "THE BOUND IS TOO WIDE for these values: {losses}. `gradwire check --scale auto` says which would do"
        )
    } else {
        losses
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    fn checked(change: impl FnOnce(&mut Snapshot)) -> Usefulness {
        let mut snapshot = example();
        for queue in &mut snapshot.queues {
            queue.egress = Outcomes::default();
            queue.flows.clear();
        }
        snapshot.rules[0].traffic.frames = 0;
        change(&mut snapshot);
        Usefulness::of(&snapshot)
    }

    #[test]
    fn each_state_has_its_verdict_and_remedy() {
        let untouched = |reason: &'static str, count| {
            move |now: &mut Snapshot| {
                now.rules[0].traffic.frames = count;
                now.queues[1].egress.untouched.insert(reason.to_owned(), count);
            }
        };
        for (found, name, words) in [
            (checked(|now| now.rules.clear()), "no-rule", "no rule"),
            (checked(|_| {}), "untagged", "before connect and listen"),
            (checked(|now| now.queues[0].kept.host.unknown = 3), "unseen", "open before it started"),
            (checked(untouched("no-payload", 9_000)), "receives", "only receives"),
            (
                checked(untouched("not-negotiated", 9_000)),
                "little",
                "0.0 % of frames with a payload. Most others: not-negotiated: the far",
            ),
            (
                checked(|now| now.queues[0].kept.host.tagged_late = 2),
                "little",
                "tagged-late: tag sockets before",
            ),
            (
                Usefulness::of(&example()),
                "compresses",
                "98.0 % of frames with a payload, to 2.50 times fewer bytes. 10.0 % of the norm is lost, and 25.0 % of the values \
                 became zero (2 frames",
            ),
        ] {
            assert_eq!(found.name(), name, "{found:?}");
            assert!(found.text().contains(words), "{}", found.text());
        }
    }

    #[test]
    fn acknowledgements_beside_payload_do_not_make_it_little() {
        let found = checked(|now| {
            now.queues[0].egress.changed.insert("compressed".to_owned(), 100);
            now.queues[0].egress.untouched.insert("no-payload".to_owned(), 100_000);
        });
        assert_eq!(found.name(), "compresses");
    }

    #[test]
    fn a_bound_that_takes_most_of_the_norm_is_named() {
        for (squares_kept, name, words) in [
            (0.24, "norm-lost", "TOO WIDE for these values: 51.0 % of the norm is lost"),
            (0.26, "compresses", "49.0 % of the norm is lost"),
        ] {
            let found = checked(|now| {
                now.queues[0].egress.changed.insert("compressed".to_owned(), 100);
                now.rules[0].sampled =
                    Sampled { frames: 1, values: 10, squares: 1.0, squares_kept, ..Sampled::NONE };
            });
            assert_eq!(found.name(), name);
            assert!(found.text().contains(words), "{}", found.text());
        }
        let zeros = checked(|now| {
            now.queues[0].egress.changed.insert("compressed".to_owned(), 100);
            now.rules[0].sampled = Sampled { frames: 1, values: 10, ..Sampled::NONE };
        });
        assert!(
            zeros.name() == "compresses" && zeros.text().contains("all values were zero"),
            "{}",
            zeros.text()
        );
    }

    #[test]
    fn every_reason_either_has_payload_or_not() {
        assert_eq!(PassReason::ALL.iter().filter(|of| !has_payload(of.name())).count(), 8);
        assert!(!has_payload("unheard-of"));
    }
}
