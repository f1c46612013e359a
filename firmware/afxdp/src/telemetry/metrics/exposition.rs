//! A snapshot in Prometheus' text exposition format 0.0.4.

use std::fmt::{self, Display, Write as _};

use crate::telemetry::{
    KeptStats, LossStats, Outcomes, PerPort, RingStats, RuleStatus, Snapshot, Usefulness,
};

/// All of a snapshot's numbers. Flows are left out: over time their number has no bound, which
/// Prometheus bears badly.
#[must_use]
pub fn render(snapshot: &Snapshot) -> String {
    let PerPort { host, network } = &snapshot.ports;
    let mut page = Page::new(&[("host", &host.name), ("network", &network.name)]);
    page.family("gradwire_info", "gauge", "What runs; always 1.");
    page.sample(&[("version", &snapshot.version), ("kernel", &snapshot.kernel)], 1);
    page.family(
        "gradwire_verdict",
        "gauge",
        "What its counts come to, as `gradwire-xdp status` says it; always 1.",
    );
    page.sample(&[("verdict", &Usefulness::of(snapshot).name())], 1);
    page.family("gradwire_uptime_seconds", "gauge", "How long the shim has run.");
    page.sample(&[], snapshot.uptime_ms / 1_000);
    page.family("gradwire_reloads_total", "counter", "How often other rules were taken over.");
    page.sample(&[], snapshot.reloads);
    page.rules(&snapshot.rules);

    page.family("gradwire_queue_answers", "gauge", "1 where the queue's thread answers, 0 where it hangs.");
    for queue in &snapshot.queues {
        page.sample(&[("queue", &queue.queue)], u64::from(queue.answered));
    }
    let help =
        "1 where frames were taken and none left for a second: the bridge gets those that would leave there.";
    page.family("gradwire_port_stalled", "gauge", help);
    for queue in &snapshot.queues {
        for (port, stalled) in queue.stalled.named() {
            page.sample(&[("queue", &queue.queue), ("port", &port)], u64::from(stalled.is_some()));
        }
    }
    let help = "TCP connections that have a place in the flow table, by what their SYNs advertised.";
    page.family("gradwire_flows", "gauge", help);
    for queue in &snapshot.queues {
        for (handshake, flows) in &queue.flows_known {
            page.sample(&[("queue", &queue.queue), ("handshake", handshake)], *flows);
        }
    }
    page.family("gradwire_frames_total", "counter", "Frames that an engine got, by what became of them.");
    for queue in &snapshot.queues {
        page.outcomes(queue.queue, "egress", &queue.egress);
        page.outcomes(queue.queue, "ingress", &queue.ingress);
    }
    let help = "Frames to the wire that a rule matched and that have something to compress: no bare ACKs.";
    page.family("gradwire_payload_frames_total", "counter", help);
    for queue in &snapshot.queues {
        let (compressed, untouched) = queue.from_host().payload_frames();
        for (result, count) in [("compressed", compressed), ("untouched", untouched)] {
            page.sample(&[("queue", &queue.queue), ("result", &result)], count);
        }
    }
    let help = "Bytes of changed frames, as they came (in) and as they left (out).";
    page.family("gradwire_changed_bytes_total", "counter", help);
    for queue in &snapshot.queues {
        for (direction, outcomes) in [("egress", &queue.egress), ("ingress", &queue.ingress)] {
            for (side, bytes) in [("in", outcomes.changed_bytes_in), ("out", outcomes.changed_bytes_out)] {
                let of: [Label<'_>; 3] =
                    [("queue", &queue.queue), ("direction", &direction), ("side", &side)];
                page.sample(&of, bytes);
            }
        }
    }
    page.family(
        "gradwire_lost_frames_total",
        "counter",
        "Frames lost outside the engines, by receiving port.",
    );
    for queue in &snapshot.queues {
        page.per_port(queue.queue, "reason", &queue.losses, LossStats::named);
    }
    let help = "Frames that the XDP program left in the kernel's path though their type of service matches.";
    page.family("gradwire_kept_frames_total", "counter", help);
    for queue in &snapshot.queues {
        page.per_port(queue.queue, "reason", &queue.kept, KeptStats::named);
    }
    page.family("gradwire_socket_total", "counter", "Statistics of the AF_XDP sockets.");
    for queue in &snapshot.queues {
        page.per_port(queue.queue, "statistic", &queue.rings, RingStats::named);
    }
    page.text
}

pub(super) type Label<'a> = (&'a str, &'a dyn Display);

/// A page that grows by families of metrics.
pub(super) struct Page {
    pub(super) text: String,
    /// Labels of every sample: a Prometheus server that reads several shims tells them apart by
    /// their ports.
    whose: String,
    /// The family that samples belong to.
    name: &'static str,
}

impl Page {
    pub(super) fn new(whose: &[Label<'_>]) -> Self {
        let labels = whose.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value)));
        Self { text: String::new(), whose: labels.collect::<Vec<_>>().join(","), name: "" }
    }

    pub(super) fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    pub(super) fn sample(&mut self, labels: &[Label<'_>], value: impl Display) {
        let labels = labels.iter().fold(self.whose.clone(), |labels, (name, value)| {
            format!("{labels},{name}=\"{}\"", escape(value))
        });
        let name = self.name;
        self.line(format_args!("{name}{{{labels}}} {value}"));
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        let _ = writeln!(self.text, "{line}");
    }

    fn rules(&mut self, rules: &[RuleStatus]) {
        type Count = fn(&RuleStatus) -> u64;
        let families: [(&str, &str, Count); 8] = [
            ("gradwire_rule_frames_total", "Frames to the wire that matched a rule.", |of| of.traffic.frames),
            ("gradwire_rule_bytes_total", "Their bytes before compression.", |of| of.traffic.bytes),
            ("gradwire_rule_compressed_frames_total", "Those that left compressed.", |of| {
                of.traffic.compressed
            }),
            ("gradwire_rule_saved_bytes_total", "Bytes by which those got shorter.", |of| of.traffic.saved),
            ("gradwire_sampled_frames_total", "Compressed frames whose values were compared.", |of| {
                of.sampled.frames
            }),
            ("gradwire_sampled_values_total", "Their values.", |of| of.sampled.values),
            ("gradwire_sampled_zeroed_values_total", "Those that became zero.", |of| of.sampled.zeroed),
            ("gradwire_sampled_non_finite_values_total", "Infinities and NaN among them.", |of| {
                of.sampled.non_finite
            }),
        ];
        for (name, help, count) in families {
            self.family(name, "counter", help);
            for (place, rule) in rules.iter().enumerate() {
                self.of_rule(place, rule, None, count(rule));
            }
        }
        let help =
            "Sum of their squares, before (in) and after (out) compression: norm lost is 1 - sqrt(out / in).";
        self.family("gradwire_sampled_squares_total", "counter", help);
        for (place, rule) in rules.iter().enumerate() {
            for (side, squares) in [("in", rule.sampled.squares), ("out", rule.sampled.squares_kept)] {
                self.of_rule(place, rule, Some(side), squares);
            }
        }
    }

    fn of_rule(&mut self, place: usize, rule: &RuleStatus, side: Option<&str>, value: impl Display) {
        let (tos, codec) = (format!("{:#04x}", rule.tos), rule.codec);
        let mut labels: Vec<Label<'_>> = vec![("rule", &place), ("tos", &tos), ("codec", &codec)];
        labels.extend(side.as_ref().map(|side| ("side", side as &dyn Display)));
        self.sample(&labels, value);
    }

    fn outcomes(&mut self, queue: u32, direction: &str, outcomes: &Outcomes) {
        let verdicts = [
            ("changed", &outcomes.changed),
            ("untouched", &outcomes.untouched),
            ("dropped", &outcomes.dropped),
        ];
        for (verdict, counts) in verdicts {
            for (reason, count) in counts {
                let of: [Label<'_>; 4] =
                    [("queue", &queue), ("direction", &direction), ("verdict", &verdict), ("reason", reason)];
                self.sample(&of, *count);
            }
        }
    }

    fn per_port<T, const N: usize>(
        &mut self,
        queue: u32,
        label: &str,
        stats: &PerPort<T>,
        named: impl Fn(&T) -> [(&'static str, u64); N],
    ) {
        for (port, stats) in stats.named() {
            for (name, count) in named(stats) {
                self.sample(&[("queue", &queue), ("port", &port), (label, &name)], count);
            }
        }
    }
}

/// A label's value: backslash, quote and newline are escaped. An interface's name may hold quotes.
fn escape(value: &dyn Display) -> String {
    value.to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use crate::telemetry::tests::example;

    /// A reader of the exposition format: samples by name and labels, each under its family's type.
    pub(in crate::telemetry::metrics) fn samples(page: &str) -> HashMap<String, f64> {
        let mut families = HashSet::new();
        let mut family = String::new();
        let mut samples = HashMap::new();
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                assert!(families.insert(name.to_owned()), "family twice: {line}");
                name.clone_into(&mut family);
            } else if !line.starts_with("# HELP ") {
                let (series, value) = line.rsplit_once(' ').unwrap();
                assert_eq!(series.split('{').next(), Some(family.as_str()), "{line}");
                let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
                assert!(samples.insert(series.to_owned(), value).is_none(), "series twice: {line}");
            }
        }
        assert!(page.ends_with('\n'));
        samples
    }

    #[test]
    fn every_count_of_a_snapshot_is_there_once() {
        let page = render(&example());
        let samples = samples(&page);
        let expected = [
            ("gradwire_verdict{host=\"veth0\",network=\"eth0\",verdict=\"compresses\"}", 1),
            ("gradwire_uptime_seconds{host=\"veth0\",network=\"eth0\"}", 90_061),
            ("gradwire_queue_answers{host=\"veth0\",network=\"eth0\",queue=\"0\"}", 1),
            ("gradwire_queue_answers{host=\"veth0\",network=\"eth0\",queue=\"1\"}", 0),
            ("gradwire_flows{host=\"veth0\",network=\"eth0\",queue=\"1\",handshake=\"negotiated\"}", 9),
            ("gradwire_port_stalled{host=\"veth0\",network=\"eth0\",queue=\"1\",port=\"network\"}", 1),
            ("gradwire_port_stalled{host=\"veth0\",network=\"eth0\",queue=\"1\",port=\"host\"}", 0),
            ("gradwire_port_stalled{host=\"veth0\",network=\"eth0\",queue=\"0\",port=\"network\"}", 0),
            (
                "gradwire_rule_saved_bytes_total{host=\"veth0\",network=\"eth0\",rule=\"0\",tos=\"0x28\",codec=\"2\"}",
                90_000,
            ),
            (
                "gradwire_sampled_zeroed_values_total{host=\"veth0\",network=\"eth0\",rule=\"0\",tos=\"0x28\",codec=\"2\"}",
                50,
            ),
            (
                "gradwire_sampled_squares_total{host=\"veth0\",network=\"eth0\",rule=\"0\",tos=\"0x28\",codec=\"2\",side=\"in\"}",
                4,
            ),
            (
                "gradwire_frames_total{host=\"veth0\",network=\"eth0\",queue=\"1\",direction=\"egress\",verdict=\"changed\",reason=\"compressed\"}",
                100,
            ),
            (
                "gradwire_frames_total{host=\"veth0\",network=\"eth0\",queue=\"0\",direction=\"ingress\",verdict=\"dropped\",reason=\"l4-checksum\"}",
                7,
            ),
            (
                "gradwire_changed_bytes_total{host=\"veth0\",network=\"eth0\",queue=\"0\",direction=\"egress\",side=\"out\"}",
                30_000,
            ),
            (
                "gradwire_lost_frames_total{host=\"veth0\",network=\"eth0\",queue=\"0\",port=\"host\",reason=\"no-queue\"}",
                2,
            ),
            (
                "gradwire_kept_frames_total{host=\"veth0\",network=\"eth0\",queue=\"0\",port=\"host\",reason=\"stale\"}",
                5,
            ),
            (
                "gradwire_socket_total{host=\"veth0\",network=\"eth0\",queue=\"0\",port=\"network\",statistic=\"rx-ring-full\"}",
                4,
            ),
            ("gradwire_info{host=\"veth0\",network=\"eth0\",version=\"0.1.0\",kernel=\"portable\"}", 1),
        ];
        for (series, value) in expected {
            assert_eq!(samples.get(series), Some(&f64::from(value)), "{series}\n{page}");
        }
    }

    #[test]
    fn names_cannot_break_out_of_a_label() {
        let mut snapshot = example();
        snapshot.ports.host.name = "a\"b\\c".to_owned();
        assert!(render(&snapshot).contains(r#"{host="a\"b\\c","#));
    }

    /// A host that receives sends bare ACKs, and one that compresses nothing sends payloads: the
    /// two look alike in the rule's frames, and not here.
    #[test]
    fn bare_acknowledgements_are_no_payload() {
        let mut snapshot = example();
        let egress = &mut snapshot.queues[1].egress;
        egress.untouched.values_mut().for_each(|count| *count = 0);
        egress.untouched.insert("no-payload".to_owned(), 1000);
        egress.changed.insert("compressed".to_owned(), 0);
        let payload = |snapshot: &Snapshot, result: &str| {
            let of = format!(
                "gradwire_payload_frames_total{{host=\"veth0\",network=\"eth0\",queue=\"1\",result=\"{result}\"}}"
            );
            samples(&render(snapshot))[&of]
        };
        assert_eq!((payload(&snapshot, "compressed"), payload(&snapshot, "untouched")), (0.0, 0.0));
        // What the far end's silence costs is payload.
        snapshot.queues[1].egress.untouched.insert("not-negotiated".to_owned(), 7);
        snapshot.queues[1].egress.untouched.insert("bypassed".to_owned(), 2);
        assert_eq!(payload(&snapshot, "untouched"), 9.0);
        // Also where the XDP program knew of it.
        snapshot.queues[1].kept.host.not_negotiated = 3;
        snapshot.queues[1].kept.host.unknown = 100;
        snapshot.queues[1].kept.network.not_negotiated = 100;
        assert_eq!(payload(&snapshot, "untouched"), 12.0);
        assert_eq!(payload(&example(), "compressed"), 100.0);
    }
}
