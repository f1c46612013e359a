//! The result of a test: for people, as JSON, and as an exit code.

use std::fmt::Write as _;

use serde::Serialize;

use super::protocol::{Arrived, Plan};
use super::shims::OnTheWire;
use super::verify::Wrong;
use crate::telemetry::percent_lost;

/// The result of one end of a test that came to its end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct TestReport {
    /// The other end.
    peer: String,
    tos: u8,
    connections: u16,
    /// None: no bit may change.
    bound: Option<f64>,
    /// Whether every value arrived, and none is wrong or lost most of its norm: exit code 0.
    pub(super) good: bool,
    values: u64,
    /// Values that are not bit for bit what was sent: something compressed them on the way.
    changed: u64,
    zeroed: u64,
    wrong: u64,
    first_wrong: Option<Wrong>,
    missing_bytes: i64,
    largest_error: f64,
    /// As a part of the bound.
    error_of_bound: Option<f64>,
    /// The share of the values' Euclidean norm that did not arrive.
    norm_lost: f64,
    seconds: f64,
    /// Of values, as the application sees them.
    gbit_per_second: f64,
    /// The account of this machine's shims; the sender's only, and only if it may ask them.
    wire: Option<OnTheWire>,
    /// The factor by which fewer bytes went over the wire, by their account.
    ratio: Option<f64>,
}

impl TestReport {
    pub(super) fn new(peer: String, plan: &Plan, arrived: &Arrived, wire: Option<OnTheWire>) -> Self {
        let tally = &arrived.tally;
        let norm_lost = if tally.squares_sent > 0.0 {
            1.0 - (tally.squares_got / tally.squares_sent).sqrt()
        } else {
            0.0
        };
        let complete = arrived.missing == 0 && tally.values > 0;
        Self {
            peer,
            tos: plan.tos,
            connections: plan.connections,
            bound: plan.bound,
            good: complete && tally.wrong == 0 && norm_lost <= MOST_LOST,
            values: tally.values,
            changed: tally.changed,
            zeroed: tally.zeroed,
            wrong: tally.wrong,
            first_wrong: tally.first_wrong,
            missing_bytes: arrived.missing,
            largest_error: tally.largest_error,
            error_of_bound: plan.bound.map(|bound| tally.largest_error / bound),
            norm_lost,
            seconds: arrived.seconds,
            gbit_per_second: tally.bytes as f64 * 8.0 / arrived.seconds.max(1e-9) / 1e9,
            ratio: wire.as_ref().map(OnTheWire::ratio),
            wire,
        }
    }

    /// Bytes of values that arrived.
    pub(super) const fn bytes(&self) -> u64 {
        4 * self.values
    }

    pub(super) const fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Whether something compressed values on the way.
    pub(super) const fn is_compressed(&self) -> bool {
        self.changed > 0
    }

    /// The shims of this machine that list its connections; none if they cannot be asked.
    pub(super) fn shims(&self) -> Option<&[String]> {
        self.wire.as_ref().map(|wire| wire.shims.as_slice())
    }

    /// A few lines, the verdict last.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, what: String| {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{name:<12} {what}");
        };
        line(
            "peer",
            format!("{}, connections {}, type of service {:#04x}", self.peer, self.connections, self.tos),
        );
        let share = |count: u64| 100.0 * count as f64 / self.values.max(1) as f64;
        line(
            "values",
            format!(
                "{}, of them changed {:.1} %, turned to zero {:.1} %",
                self.values,
                share(self.changed),
                share(self.zeroed)
            ),
        );
        let largest = match (self.bound, self.error_of_bound) {
            (Some(bound), Some(part)) => format!("{part:.4} of the bound, {}", show_bound(bound)),
            _ => format!("{:e}; no bit may change", self.largest_error),
        };
        line("largest error", largest);
        line("norm lost", format!("{:.1} %", percent_lost(self.norm_lost)));
        line("throughput", format!("{:.3} Gbit/s of values in {:.2} s", self.gbit_per_second, self.seconds));
        if let Some(wire) = &self.wire {
            line(
                "on the wire",
                format!(
                    "{:.2} times fewer bytes: saved {} of {}; {} of {} segments compressed",
                    wire.ratio(),
                    wire.saved,
                    wire.bytes,
                    wire.compressed,
                    wire.segments
                ),
            );
        }
        text + "\n" + &self.verdict() + "\n"
    }

    /// The verdict, and advice.
    pub(super) fn verdict(&self) -> String {
        if let Some(wrong) = self.first_wrong {
            let Wrong { connection, place, sent, got } = wrong;
            let remedy = match self.bound {
                None => "without --exact, values may change within a bound, as a shim does",
                Some(_) => {
                    "compare --bound with the rule's bound in `gradwire-xdp status`; if it is right, stop sending tagged \
                     traffic on this path: something damages it"
                }
            };
            return format!(
                "WRONG: {} of {} values. The first is value {place} of connection {connection}: {} became {}.\n{remedy}",
                self.wrong,
                self.values,
                f32::from_bits(sent),
                f32::from_bits(got)
            );
        }
        if self.missing_bytes != 0 || self.values == 0 {
            return format!(
                "INCOMPLETE: {} values arrived, and {} bytes are missing. A connection ended early: see the logs of both \
                 hosts' shims",
                self.values, self.missing_bytes
            );
        }
        if self.norm_lost > MOST_LOST {
            return format!(
                "USELESS: every value is within the bound, but {:.1} % of the norm is lost: the values are too small for \
                 it.\nGive the rule a larger `bound` (10 means 2^-10); `gradwire check --scale auto FILE` says which would do",
                100.0 * self.norm_lost
            );
        }
        if self.changed > 0 {
            return "GOOD: every value is within the bound, and the path compresses".to_owned();
        }
        format!(
            "GOOD, but nothing was compressed: every value arrived as it was sent.{}",
            self.why_untouched()
        )
    }

    /// Why nothing was compressed, as far as this end can know.
    fn why_untouched(&self) -> String {
        let because = match &self.wire {
            _ if self.bound.is_none() => return String::new(),
            None => {
                "No shim here lists these connections: is one on their way? `gradwire-xdp status` on the sending host \
                 says what became of them"
            }
            Some(wire) if wire.handshake == "advertised" || wire.handshake == "none" => {
                "The far end did not advertise that it restores (`not-negotiated`): start gradwire-xdp on that host, on the way of \
                 these frames, or look for a box that takes options out of SYNs"
            }
            Some(_) => "`gradwire-xdp status` on the sending host gives the reasons, by their names",
        };
        format!("\n{because}")
    }
}

/// If more of the norm is lost, the values are of no use.
const MOST_LOST: f64 = 0.5;

/// A power of two as one.
pub(super) fn show_bound(bound: f64) -> String {
    let exponent = bound.log2();
    if exponent.fract() == 0.0 { format!("2^{exponent}") } else { bound.to_string() }
}

#[cfg(test)]
mod tests {
    use super::super::verify::StreamTally;
    use super::*;

    fn plan() -> Plan {
        Plan {
            gradwire_test: 1,
            seed: 1,
            connections: 2,
            tos: 0x28,
            bound: Some(1.0 / 1024.0),
            file_bytes: None,
            more: false,
        }
    }

    fn arrived(change: impl FnOnce(&mut Arrived)) -> Arrived {
        let tally = StreamTally {
            values: 1000,
            bytes: 4000,
            changed: 600,
            largest_error: 0.75 / 1024.0,
            squares_sent: 4.0,
            squares_got: 3.96,
            ..StreamTally::default()
        };
        let mut arrived = Arrived { tally, missing: 0, seconds: 2.0, cpu_seconds: None };
        change(&mut arrived);
        arrived
    }

    fn report(change: impl FnOnce(&mut Arrived), wire: Option<OnTheWire>) -> TestReport {
        TestReport::new("10.0.0.2:5280".to_owned(), &plan(), &arrived(change), wire)
    }

    #[test]
    fn each_verdict_names_its_cause_and_code() {
        let wrong = Wrong { connection: 1, place: 7, sent: 0, got: 1.5f32.to_bits() };
        let asked = OnTheWire { handshake: "advertised".to_owned(), ..OnTheWire::default() };
        for (found, good, words) in [
            (report(|_| {}, None), true, "GOOD: every value is within the bound, and the path compresses"),
            (report(|of| of.tally.changed = 0, None), true, "No shim here lists"),
            (report(|of| of.tally.changed = 0, Some(asked)), true, "did not advertise that it restores"),
            (report(|of| of.tally.squares_got = 0.9, None), false, "USELESS"),
            (report(|of| of.missing = 4, None), false, "4 bytes are missing"),
            (report(|of| of.tally = StreamTally::default(), None), false, "INCOMPLETE: 0 values"),
            (
                report(|of| (of.tally.wrong, of.tally.first_wrong) = (1, Some(wrong)), None),
                false,
                "value 7 of connection 1: 0 became 1.5",
            ),
        ] {
            assert_eq!(found.good, good, "{}", found.verdict());
            assert!(found.verdict().contains(words), "{}", found.verdict());
        }
    }

    #[test]
    fn a_norm_that_grew_is_not_lost() {
        // One of 4 that became 4 and a third of a percent, and one that lost less than a digit
        // shows.
        for got in [4.03, 4.0 + 1e-9, 4.0, 3.9999] {
            let text = report(|of| of.tally.squares_got = got, None).text();
            assert!(text.contains("\nnorm lost    0.0 %\n"), "{text}");
        }
        // A program gets the figure as it is.
        let json = serde_json::to_value(report(|of| of.tally.squares_got = 4.41, None)).unwrap();
        assert!((json["norm_lost"].as_f64().unwrap() + 0.05).abs() < 1e-12, "{json}");
    }

    #[test]
    fn figures_are_those_of_the_tally() {
        let wire = OnTheWire {
            bytes: 8000,
            saved: 6000,
            connections: 2,
            segments: 10,
            compressed: 9,
            ..OnTheWire::default()
        };
        let report = report(|_| {}, Some(wire));
        let text = report.text();
        for words in
            ["changed 60.0 %", "0.7500 of the bound, 2^-10", "0.5 %", "4.00 times fewer", "9 of 10 segments"]
        {
            assert!(text.contains(words), "{words}\n{text}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["error_of_bound"], 0.75);
        assert_eq!(json["wire"]["saved"], 6000);
        assert_eq!(json["ratio"], 4.0);
        assert_eq!(json["gbit_per_second"], 4000.0 * 8.0 / 2.0 / 1e9);
    }
}
