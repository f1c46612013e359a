//! A shim's snapshot as text, for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gradwire::flow::Negotiation;
use gradwire::verdict::TaggedTraffic;

use super::table::Table;
use crate::telemetry::{
    Bound, Outcomes, PortStatus, QueueStatus, RuleStatus, Snapshot, Usefulness, percent_lost,
};

/// A shim as text; with an earlier snapshot of it, counts have rates per second beside them.
pub(super) fn render(now: &Snapshot, before: Option<&Snapshot>) -> String {
    // A shim that was started again counts anew.
    let before = before.filter(|before| before.pid == now.pid && before.uptime_ms < now.uptime_ms);
    let rate = Rate(before.map(|before| (now.uptime_ms - before.uptime_ms) as f64 / 1e3));
    let mut text = head(now);
    let _ = writeln!(text, "{}\n", Usefulness::of(now).text());
    text += &rules(now, before, rate);
    text += &outcomes(now, before, rate);
    text += &queues(&now.queues);
    text += &flows(&now.queues);
    text
}

/// Seconds between two snapshots, if there are two.
#[derive(Clone, Copy)]
struct Rate(Option<f64>);

impl Rate {
    /// The growth of a count in a second.
    fn of(self, now: u64, before: Option<u64>) -> Option<f64> {
        Some(now.wrapping_sub(before?) as f64 / self.0?)
    }
}

/// An interface.
pub(super) fn port(port: &PortStatus) -> String {
    let xdp = port.xdp.name();
    let bind = match port.bind {
        Bound::Copy => "copy",
        Bound::ZeroCopy => "zero copy",
    };
    format!("{} (MTU {}, {xdp}, {bind})", port.name, port.mtu)
}

fn head(now: &Snapshot) -> String {
    let config = now
        .config
        .as_ref()
        .map_or_else(|| "no configuration file".to_owned(), |file| file.display().to_string());
    format!(
        "{} <-> {}\nprocess {}, version {}, up {}, kernel {}, {config}, {} reloads\n\n",
        port(&now.ports.host),
        port(&now.ports.network),
        now.pid,
        now.version,
        duration(now.uptime_ms / 1_000),
        now.kernel,
        now.reloads,
    )
}

fn rules(now: &Snapshot, before: Option<&Snapshot>, rate: Rate) -> String {
    let mut table = Table::new(&[
        "rule",
        "codec",
        "bound",
        "framing",
        ">frames",
        ">bytes",
        ">compressed",
        ">saved",
        ">Gbit/s",
        ">on the wire",
        ">norm lost %",
        ">zeroed %",
    ]);
    for (place, rule) in now.rules.iter().enumerate() {
        let TaggedTraffic { frames, bytes, compressed, saved } = rule.traffic;
        // Rules may have been reloaded in between.
        let key = |rule: &RuleStatus| (rule.tos, rule.mask, rule.codec, rule.bound);
        let same = |old: &&RuleStatus| key(old) == key(rule);
        let old = before.and_then(|before| before.rules.get(place)).filter(same).map(|old| old.traffic);
        let gbit = |now: u64, old: Option<u64>| {
            rate.of(now, old).map_or_else(String::new, |bytes| format!("{:.3}", bytes * 8.0 / 1e9))
        };
        table.row([
            format!("{:#04x}/{:#04x}", rule.tos, rule.mask),
            rule.codec.to_string(),
            format!("2^{}", i16::from(rule.scale) - rule.bound),
            rule.framing.clone(),
            number(frames),
            number(bytes),
            number(compressed),
            number(saved),
            gbit(bytes, old.map(|old| old.bytes)),
            gbit(bytes.wrapping_sub(saved), old.map(|old| old.bytes.wrapping_sub(old.saved))),
            percent(rule.sampled.norm_lost().map(percent_lost)),
            percent(rule.sampled.share_zeroed().map(|share| 100.0 * share)),
        ]);
    }
    table.render()
}

fn percent(percent: Option<f64>) -> String {
    percent.map_or_else(String::new, |percent| format!("{percent:.1}"))
}

fn sum(snapshot: &Snapshot, direction: fn(&QueueStatus) -> &Outcomes) -> Outcomes {
    let mut sum = Outcomes::default();
    snapshot.queues.iter().for_each(|queue| sum.add(direction(queue)));
    sum
}

/// The outcomes of frames, over all queues; what never happened is left out.
fn outcomes(now: &Snapshot, before: Option<&Snapshot>, rate: Rate) -> String {
    type Direction = fn(&QueueStatus) -> &Outcomes;
    type Verdict = fn(&Outcomes) -> &BTreeMap<String, u64>;
    let directions: [(&str, Direction); 2] = [("egress", |q| &q.egress), ("ingress", |q| &q.ingress)];
    let verdicts: [(&str, Verdict); 3] =
        [("changed", |o| &o.changed), ("untouched", |o| &o.untouched), ("dropped", |o| &o.dropped)];
    let mut table = Table::new(&["direction", "verdict", "reason", ">frames", ">a second"]);
    for (direction, of) in directions {
        let (counts, old) = (sum(now, of), before.map(|before| sum(before, of)));
        for (verdict, reasons) in verdicts {
            for (reason, count) in reasons(&counts) {
                let old = old.as_ref().map(|old| reasons(old).get(reason).copied().unwrap_or(0));
                let rate = rate.of(*count, old).map_or_else(String::new, |rate| format!("{rate:.0}"));
                if *count != 0 {
                    table.row([
                        direction.to_owned(),
                        verdict.to_owned(),
                        reason.clone(),
                        number(*count),
                        rate,
                    ]);
                }
            }
        }
    }
    table.render()
}

/// Each queue with what went wrong outside its engines.
fn queues(queues: &[QueueStatus]) -> String {
    let mut table = Table::new(&[
        ">queue",
        "answers",
        ">flows",
        ">agreed",
        "lost, left to the bridge, or refused by the sockets",
    ]);
    for queue in queues {
        let mut notes = String::new();
        for (port, losses, kept, rings) in [
            ("host", queue.losses.host, queue.kept.host, queue.rings.host),
            ("network", queue.losses.network, queue.kept.network, queue.rings.network),
        ] {
            let counts = losses.named().into_iter().chain(kept.named()).chain(rings.named());
            // A driver that finds nothing to send is no fault, and happens all the time.
            let notable = |(name, count): &(&str, u64)| *count != 0 && *name != "tx-ring-empty";
            for (name, count) in counts.filter(notable) {
                let comma = if notes.is_empty() { "" } else { ", " };
                let _ = write!(notes, "{comma}{port} {name} {}", number(count));
            }
        }
        let answers = if queue.answered { "yes" } else { "NO" };
        let agreed = queue.flows_known.get(Negotiation::Negotiated.name()).copied().unwrap_or(0);
        let known = queue.flows_known.values().sum();
        table.row([queue.queue.to_string(), answers.to_owned(), number(known), number(agreed), notes]);
    }
    table.render()
}

fn flows(queues: &[QueueStatus]) -> String {
    let mut table = Table::new(&[
        "flow",
        ">queue",
        "phase",
        "handshake",
        "trust",
        ">segments",
        ">bytes",
        ">compressed",
        ">saved",
    ]);
    for queue in queues {
        for flow in &queue.flows {
            let TaggedTraffic { frames, bytes, compressed, saved } = flow.traffic;
            table.row([
                flow.flow.clone(),
                queue.queue.to_string(),
                flow.phase.clone(),
                flow.handshake.clone(),
                flow.trust.clone(),
                number(frames),
                number(bytes),
                number(compressed),
                number(saved),
            ]);
        }
    }
    table.render()
}

/// With a comma every three digits.
pub(in crate::commands) fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place != 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(super) fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60 % 60, seconds / 3_600 % 24, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::tests::example;

    /// The cells of the first line that starts with `start`.
    fn cells<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
        let line = text.lines().find(|line| line.trim_start().starts_with(start));
        line.unwrap_or_else(|| panic!("no {start} in\n{text}")).split_whitespace().collect()
    }

    #[test]
    fn a_report_has_every_part() {
        let mut snapshot = example();
        snapshot.queues[0].rings.host.tx_ring_empty = 1;
        let text = render(&snapshot, None);
        assert!(
            text.starts_with("veth0 (MTU 1500, native, copy) <-> eth0 (MTU 1500, native, copy)\n"),
            "{text}"
        );
        assert!(text.contains("up 1 d 1 h, kernel portable, /etc/xdp.toml, 0 reloads\n"), "{text}");
        assert!(
            text.contains("\ncompresses 98.0 % of frames with a payload, to 2.50 times fewer bytes."),
            "{text}"
        );
        assert_eq!(
            cells(&text, "0x28/0xfc"),
            ["0x28/0xfc", "2", "2^-10", "routed", "120", "171,000", "100", "90,000", "10.0", "25.0"]
        );
        // 50 and 100 of the two queues.
        assert_eq!(cells(&text, "egress"), ["egress", "changed", "compressed", "150"]);
        assert_eq!(cells(&text, "ingress"), ["ingress", "dropped", "l4-checksum", "14"]);
        assert!(!text.contains("not-shorter"), "what never happened: {text}");
        assert_eq!(
            cells(&text, "0  yes")[2..].join(" "),
            "9 9 host no-queue 2, host stale 5, network rx-ring-full 4"
        );
        assert_eq!(cells(&text, "1  NO")[1], "NO");
        let flow = cells(&text, "10.0.0.1:40002");
        assert_eq!(flow[3..], ["1", "open", "negotiated", "trusted", "60", "80,000", "50", "90,000"]);
    }

    /// Rounding may make values longer, and then `-0.3` would say that less than nothing is lost.
    #[test]
    fn a_norm_that_grew_is_not_lost() {
        let mut snapshot = example();
        for factor in [1.006, 1.0 + 1e-9, 1.0] {
            let sampled = &mut snapshot.rules[0].sampled;
            sampled.squares_kept = factor * sampled.squares;
            let text = render(&snapshot, None);
            assert_eq!(cells(&text, "0x28/0xfc")[8], "0.0", "{text}");
            assert!(text.contains("\ncompresses") && text.contains(" 0.0 % of the norm is lost"), "{text}");
        }
    }

    #[test]
    fn rates_are_per_second() {
        let before = example();
        let mut now = example();
        now.uptime_ms += 2_000;
        now.rules[0].traffic.bytes += 500_000_000;
        now.rules[0].traffic.saved += 400_000_000;
        *now.queues[1].egress.changed.get_mut("compressed").unwrap() += 300;
        let text = render(&now, Some(&before));
        assert_eq!(cells(&text, "0x28/0xfc")[8..], ["2.000", "0.400", "10.0", "25.0"]);
        assert_eq!(cells(&text, "egress"), ["egress", "changed", "compressed", "450", "150"]);
        // One that was started again has no rates yet.
        now.pid += 1;
        assert_eq!(cells(&render(&now, Some(&before)), "0x28/0xfc").len(), 10);
    }

    #[test]
    fn numbers_and_durations_are_for_people() {
        let numbers = [0, 999, 1_000, 1_234_567].map(number);
        assert_eq!(numbers, ["0", "999", "1,000", "1,234,567"]);
        let durations = [59, 60, 3_599, 3_600, 86_400].map(duration);
        assert_eq!(durations, ["59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "1 d 0 h"]);
    }
}
