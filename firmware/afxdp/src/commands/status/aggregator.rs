//! An aggregator's snapshot as text, for people.

use std::collections::BTreeMap;

use super::report::{duration, number, port};
use super::table::Table;
use crate::telemetry::AggregatorSnapshot;

/// An aggregator as text: where it is, its jobs, and what came and what became of it. Counts of
/// nothing are left out.
pub(super) fn render(aggregator: &AggregatorSnapshot) -> String {
    let head = format!(
        "aggregator {} on {}\nprocess {}, version {}, up {}, kernel {}\n{} chunks summed for {} jobs, {} frames sent, {} without room\n\n",
        aggregator.address,
        port(&aggregator.interface),
        aggregator.pid,
        aggregator.version,
        duration(aggregator.uptime_ms / 1_000),
        aggregator.kernel,
        number(aggregator.chunks_summed()),
        aggregator.jobs.len(),
        number(aggregator.sent),
        number(aggregator.lost),
    );
    let mut jobs = Table::new(&["job", ">workers"]);
    for job in &aggregator.jobs {
        jobs.row([job.job.to_string(), job.children.to_string()]);
    }
    let kept = [("stale", aggregator.kept.stale), ("too-long", aggregator.kept.too_long)];
    let kept = kept.map(|(name, count)| (name.to_owned(), count)).into();
    let rings = aggregator.rings.named().map(|(name, count)| (name.to_owned(), count)).into();
    let tables = [
        counts("frames", &aggregator.frames),
        counts("datagrams", &aggregator.datagrams),
        counts("left to the kernel", &kept),
        counts("sockets", &rings),
    ];
    head + &jobs.render() + &tables.concat()
}

fn counts(of: &'static str, counts: &BTreeMap<String, u64>) -> String {
    let mut table = Table::new(&[of, ">count"]);
    for (name, count) in counts.iter().filter(|(_, count)| **count > 0) {
        table.row([name.clone(), number(*count)]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::tests::aggregator_example;

    #[test]
    fn the_text_has_the_aggregators_address_and_its_sums() {
        let text = render(&aggregator_example());
        for words in
            ["aggregator 10.0.0.9:59255 on eth0", "9 chunks summed for 1 jobs", "rx-ring-full", "completed"]
        {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("malformed"), "{text}");
    }
}
