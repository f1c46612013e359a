//! An aggregator's snapshot in Prometheus' text exposition format.

use super::exposition::Page;
use crate::telemetry::{AggregatorSnapshot, RingStats};

/// All of a snapshot's numbers; those of jobs are summed up, because over time jobs have any
/// number.
pub(super) fn render(aggregator: &AggregatorSnapshot) -> String {
    let mut page = Page::new(&[("interface", &aggregator.interface.name)]);
    page.family("gradwire_aggregator_info", "gauge", "What runs; always 1.");
    page.sample(
        &[("version", &aggregator.version), ("kernel", &aggregator.kernel), ("address", &aggregator.address)],
        1,
    );
    page.family("gradwire_aggregator_uptime_seconds", "gauge", "How long the aggregator has run.");
    page.sample(&[], aggregator.uptime_ms / 1_000);
    page.family(
        "gradwire_aggregator_answers",
        "gauge",
        "1 if the aggregator's thread answers, 0 if it hangs.",
    );
    page.sample(&[], u64::from(aggregator.answered));
    page.family("gradwire_aggregator_jobs", "gauge", "Jobs that have a place.");
    page.sample(&[], aggregator.jobs.len());
    page.family(
        "gradwire_aggregator_children",
        "gauge",
        "Children, workers or lower aggregators, that have joined them.",
    );
    page.sample(&[], aggregator.jobs.iter().map(|job| job.children).sum::<usize>());
    page.family(
        "gradwire_aggregator_frames_total",
        "counter",
        "Frames that the aggregator got, by what they were.",
    );
    for (what, count) in &aggregator.frames {
        page.sample(&[("what", what)], *count);
    }
    page.family("gradwire_aggregator_datagrams_total", "counter", "Datagrams among them, by what they did.");
    for (what, count) in &aggregator.datagrams {
        page.sample(&[("what", what)], *count);
    }
    page.family("gradwire_aggregator_chunks_total", "counter", "Chunks summed.");
    page.sample(&[], aggregator.chunks_summed());
    page.family("gradwire_aggregator_sent_frames_total", "counter", "Frames that the aggregator sent.");
    page.sample(&[], aggregator.sent);
    page.family("gradwire_aggregator_lost_frames_total", "counter", "Frames for which there was no room.");
    page.sample(&[], aggregator.lost);
    let help = "Frames for the aggregator that the XDP program left to the kernel.";
    page.family("gradwire_aggregator_kept_frames_total", "counter", help);
    for (reason, count) in [("stale", aggregator.kept.stale), ("too-long", aggregator.kept.too_long)] {
        page.sample(&[("reason", &reason)], count);
    }
    page.family(
        "gradwire_aggregator_socket_total",
        "counter",
        "Statistics of its AF_XDP sockets (XDP_STATISTICS).",
    );
    for (name, count) in RingStats::named(&aggregator.rings) {
        page.sample(&[("statistic", &name)], count);
    }
    page.text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::exposition::tests::samples;
    use crate::telemetry::tests::aggregator_example;

    #[test]
    fn every_count_of_an_aggregator_is_there_once() {
        let page = render(&aggregator_example());
        let samples = samples(&page);
        let expected = [
            ("gradwire_aggregator_answers{interface=\"eth0\"}", 1),
            ("gradwire_aggregator_jobs{interface=\"eth0\"}", 1),
            ("gradwire_aggregator_children{interface=\"eth0\"}", 4),
            ("gradwire_aggregator_frames_total{interface=\"eth0\",what=\"arp\"}", 4),
            ("gradwire_aggregator_datagrams_total{interface=\"eth0\",what=\"completed\"}", 9),
            ("gradwire_aggregator_chunks_total{interface=\"eth0\"}", 9),
            ("gradwire_aggregator_sent_frames_total{interface=\"eth0\"}", 36),
            ("gradwire_aggregator_lost_frames_total{interface=\"eth0\"}", 2),
            ("gradwire_aggregator_kept_frames_total{interface=\"eth0\",reason=\"stale\"}", 3),
            ("gradwire_aggregator_socket_total{interface=\"eth0\",statistic=\"rx-ring-full\"}", 5),
            (
                "gradwire_aggregator_info{interface=\"eth0\",version=\"0.1.0\",kernel=\"portable\",address=\"10.0.0.9:59255\"}",
                1,
            ),
        ];
        for (series, value) in expected {
            assert_eq!(samples.get(series), Some(&f64::from(value)), "{series}\n{page}");
        }
    }
}
