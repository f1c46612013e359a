//! A node's snapshot as text, for people.

use std::collections::BTreeMap;

use super::report::{duration, number, port};
use super::table::Table;
use crate::ops::telemetry::NodeSnapshot;

/// A node as text: where it is, its jobs, and what came and what became of it. Counts of nothing are left out.
pub(super) fn render(node: &NodeSnapshot) -> String {
    let head = format!(
        "node {} on {}\nprocess {}, version {}, up {}, kernel {}\n{} chunks summed for {} jobs, {} frames sent, {} without room\n\n",
        node.address,
        port(&node.interface),
        node.pid,
        node.version,
        duration(node.uptime_ms / 1_000),
        node.kernel,
        number(node.chunks_summed()),
        node.jobs.len(),
        number(node.sent),
        number(node.lost),
    );
    let mut jobs = Table::new(&["job", ">members"]);
    for job in &node.jobs {
        jobs.row([job.job.to_string(), job.members.to_string()]);
    }
    let kept = [("stale", node.kept.stale), ("too-long", node.kept.too_long)];
    let kept = kept.map(|(name, count)| (name.to_owned(), count)).into();
    let rings = node.rings.named().map(|(name, count)| (name.to_owned(), count)).into();
    let tables = [
        counts("frames", &node.frames),
        counts("datagrams", &node.datagrams),
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
    use crate::ops::telemetry::tests::node_example;

    #[test]
    fn it_says_where_the_node_is_and_what_it_summed() {
        let text = render(&node_example());
        for words in
            ["node 10.0.0.9:59255 on eth0", "9 chunks summed for 1 jobs", "rx-ring-full", "completed"]
        {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("malformed"), "{text}");
    }
}
