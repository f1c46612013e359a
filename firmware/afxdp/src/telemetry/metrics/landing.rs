//! The page at `/`: for somebody who opens the endpoint in a browser.

use std::fmt::Write as _;

use crate::telemetry::{AggregatorSnapshot, Snapshot, Usefulness};

/// Renders the version, the savings, and the addresses of the metrics. One page, which loads
/// nothing.
pub(super) fn render(snapshot: &Snapshot) -> String {
    let mut rows = Rows::default();
    let mut row = |name: &str, what: &str| rows.add(name, what);
    let answering = snapshot.queues.iter().filter(|queue| queue.answered).count();
    row("version", &snapshot.version);
    row("towards the host", &snapshot.ports.host.name);
    row("towards the wire", &snapshot.ports.network.name);
    row("runs for", &format!("{} s", snapshot.uptime_ms / 1_000));
    row("queues that answer", &format!("{answering} of {}", snapshot.queues.len()));
    for rule in &snapshot.rules {
        let what = format!("codec {}, bound 2^{}", rule.codec, i16::from(rule.scale) - rule.bound);
        row(&format!("rule {:#04x}", rule.tos), &what);
    }
    row("verdict", &Usefulness::of(snapshot).text());
    rows.page()
}

/// Likewise, of an aggregator.
pub(super) fn render_aggregator(aggregator: &AggregatorSnapshot) -> String {
    let mut rows = Rows::default();
    let mut row = |name: &str, what: &str| rows.add(name, what);
    row("version", &aggregator.version);
    row("aggregator", &format!("{} on {}", aggregator.address, aggregator.interface.name));
    row("runs for", &format!("{} s", aggregator.uptime_ms / 1_000));
    row("answers", if aggregator.answered { "yes" } else { "no" });
    row("jobs", &aggregator.jobs.len().to_string());
    row("chunks summed", &aggregator.chunks_summed().to_string());
    rows.page()
}

/// Text, line by line.
#[derive(Default)]
struct Rows(String);

impl Rows {
    fn add(&mut self, name: &str, what: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "<tr><th>{name}<td>{}", escape(what));
    }

    fn page(&self) -> String {
        format!(
            "<!DOCTYPE html>\n<html lang=en><meta charset=utf-8><title>gradwire-xdp</title>\n\
             <h1>gradwire-xdp</h1>\n<p><a href=\"/metrics\">Metrics for Prometheus</a></p>\n<table>\n{}</table>\n</html>\n",
            self.0
        )
    }
}

/// An interface's name may hold anything but a slash and blanks.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::tests::example;

    #[test]
    fn the_page_says_what_runs_and_what_it_saved() {
        let page = render(&example());
        for words in ["<td>veth0", "<td>eth0", "<td>1 of 2", "codec 2, bound 2^-10", "2.50 times fewer bytes"]
        {
            assert!(page.contains(words), "{words}\n{page}");
        }
    }

    #[test]
    fn a_name_is_no_markup() {
        let mut snapshot = example();
        snapshot.ports.host.name = "<b>&".to_owned();
        assert!(render(&snapshot).contains("<td>&lt;b&gt;&amp;\n"));
    }
}
