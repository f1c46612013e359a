//! A node's snapshot in Prometheus' text exposition format.

use super::exposition::Page;
use crate::ops::telemetry::{NodeSnapshot, RingStats};

/// All of a snapshot's numbers; those of jobs are summed up, because over time jobs have any number.
pub(super) fn render(node: &NodeSnapshot) -> String {
    let mut page = Page::new(&[("interface", &node.interface.name)]);
    page.family("gradwire_node_info", "gauge", "What runs; always 1.");
    page.sample(&[("version", &node.version), ("kernel", &node.kernel), ("address", &node.address)], 1);
    page.family("gradwire_node_uptime_seconds", "gauge", "How long the node has run.");
    page.sample(&[], node.uptime_ms / 1_000);
    page.family("gradwire_node_answers", "gauge", "1 if the node's thread answers, 0 if it hangs.");
    page.sample(&[], u64::from(node.answered));
    page.family("gradwire_node_jobs", "gauge", "Jobs that have a place.");
    page.sample(&[], node.jobs.len());
    page.family("gradwire_node_members", "gauge", "Members that have joined them.");
    page.sample(&[], node.jobs.iter().map(|job| job.members).sum::<usize>());
    page.family("gradwire_node_frames_total", "counter", "Frames that the node got, by what they were.");
    for (what, count) in &node.frames {
        page.sample(&[("what", what)], *count);
    }
    page.family("gradwire_node_datagrams_total", "counter", "Datagrams among them, by what they did.");
    for (what, count) in &node.datagrams {
        page.sample(&[("what", what)], *count);
    }
    page.family("gradwire_node_chunks_total", "counter", "Chunks summed.");
    page.sample(&[], node.chunks_summed());
    page.family("gradwire_node_sent_frames_total", "counter", "Frames that the node sent.");
    page.sample(&[], node.sent);
    page.family("gradwire_node_lost_frames_total", "counter", "Frames for which there was no room.");
    page.sample(&[], node.lost);
    let help = "Frames for the node that the XDP program left to the kernel.";
    page.family("gradwire_node_kept_frames_total", "counter", help);
    for (reason, count) in [("stale", node.kept.stale), ("too-long", node.kept.too_long)] {
        page.sample(&[("reason", &reason)], count);
    }
    page.family(
        "gradwire_node_socket_total",
        "counter",
        "Statistics of its AF_XDP sockets (XDP_STATISTICS).",
    );
    for (name, count) in RingStats::named(&node.rings) {
        page.sample(&[("statistic", &name)], count);
    }
    page.text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::metrics::exposition::tests::samples;
    use crate::ops::telemetry::tests::node_example;

    #[test]
    fn every_count_of_a_node_is_there_once() {
        let page = render(&node_example());
        let samples = samples(&page);
        let expected = [
            ("gradwire_node_answers{interface=\"eth0\"}", 1),
            ("gradwire_node_jobs{interface=\"eth0\"}", 1),
            ("gradwire_node_members{interface=\"eth0\"}", 4),
            ("gradwire_node_frames_total{interface=\"eth0\",what=\"arp\"}", 4),
            ("gradwire_node_datagrams_total{interface=\"eth0\",what=\"completed\"}", 9),
            ("gradwire_node_chunks_total{interface=\"eth0\"}", 9),
            ("gradwire_node_sent_frames_total{interface=\"eth0\"}", 36),
            ("gradwire_node_lost_frames_total{interface=\"eth0\"}", 2),
            ("gradwire_node_kept_frames_total{interface=\"eth0\",reason=\"stale\"}", 3),
            ("gradwire_node_socket_total{interface=\"eth0\",statistic=\"rx-ring-full\"}", 5),
            (
                "gradwire_node_info{interface=\"eth0\",version=\"0.1.0\",kernel=\"portable\",address=\"10.0.0.9:59255\"}",
                1,
            ),
        ];
        for (series, value) in expected {
            assert_eq!(samples.get(series), Some(&f64::from(value)), "{series}\n{page}");
        }
    }
}
