//! The Prometheus endpoint: `GET /metrics` over HTTP/1.1, in the text exposition format 0.0.4. Clients are bounded in
//! number, length and time: it is read by a scraper every few seconds, and must not become a way in.

use std::fmt::{self, Display, Write as _};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use gradwire::verdict::Traffic;

use crate::ops::server::{self, Request, Terms};
use crate::ops::telemetry::{KeptStats, LossStats, Outcomes, PerPort, RingStats, RuleStatus, Snapshot};

const TERMS: Terms = Terms { name: "metrics endpoint", max_request: 4_096, time: Duration::from_secs(5) };

/// A bound endpoint.
#[derive(Debug)]
pub struct Endpoint(TcpListener);

impl Endpoint {
    /// Binds it. To be done before privileges are dropped: the port may be a low one.
    ///
    /// # Errors
    /// The address is in use, or not this host's.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        TcpListener::bind(address).map(Self)
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The operating system refused.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Answers in a thread of its own for as long as the process lives.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn serve(self, snapshot: impl Fn() -> Snapshot + Send + 'static) -> io::Result<()> {
        let Self(listener) = self;
        listener.set_nonblocking(true)?;
        let accept = |listener: &TcpListener| listener.accept().map(|(client, _)| client);
        let judge = move |request: &[u8]| judge(request, &snapshot);
        thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || server::serve(&listener, accept, TERMS, judge))?;
        Ok(())
    }
}

/// A request ends with the empty line behind its head.
fn judge(request: &[u8], snapshot: &impl Fn() -> Snapshot) -> Request {
    if !request.windows(4).any(|end| end == b"\r\n\r\n") {
        return Request::Incomplete;
    }
    let head = String::from_utf8_lossy(request);
    let line = head.lines().next().unwrap_or_default();
    let (status, body) = match line.split(' ').collect::<Vec<_>>()[..] {
        ["GET" | "HEAD", path, version] if version.starts_with("HTTP/1.") => match path.split('?').next() {
            Some("/metrics") => ("200 OK", render(&snapshot())),
            _ => ("404 Not Found", "see /metrics\n".to_owned()),
        },
        [_, _, version] if version.starts_with("HTTP/1.") => {
            ("405 Method Not Allowed\r\nAllow: GET, HEAD", "only GET\n".to_owned())
        }
        _ => ("400 Bad Request", "expected GET /metrics HTTP/1.1\n".to_owned()),
    };
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    if !line.starts_with("HEAD ") {
        answer += &body;
    }
    Request::Answer(answer.into_bytes())
}

/// All of a snapshot's numbers. Flows are left out: over time their number has no bound, which Prometheus bears badly.
#[must_use]
pub fn render(snapshot: &Snapshot) -> String {
    let mut page = Page::default();
    let PerPort { host, network } = &snapshot.ports;
    page.family("gradwire_info", "gauge", "What runs; always 1.");
    let what: [Label<'_>; 4] = [
        ("version", &snapshot.version),
        ("kernel", &snapshot.kernel),
        ("host", &host.name),
        ("network", &network.name),
    ];
    page.sample(&what, 1);
    page.family("gradwire_uptime_seconds", "gauge", "How long the shim has run.");
    page.sample(&[], snapshot.uptime_ms / 1_000);
    page.family("gradwire_reloads_total", "counter", "How often other rules were taken over.");
    page.sample(&[], snapshot.reloads);
    page.rules(&snapshot.rules);

    page.family("gradwire_queue_answers", "gauge", "1 where the queue's thread answers, 0 where it hangs.");
    for queue in &snapshot.queues {
        page.sample(&[("queue", &queue.queue)], u64::from(queue.answered));
    }
    let help = "TCP connections that have a place in the flow table, by what their SYNs said.";
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
    page.family("gradwire_socket_total", "counter", "Statistics of the AF_XDP sockets (XDP_STATISTICS).");
    for queue in &snapshot.queues {
        page.per_port(queue.queue, "statistic", &queue.rings, RingStats::named);
    }
    page.text
}

type Label<'a> = (&'a str, &'a dyn Display);

/// A page that grows by families of metrics.
#[derive(Default)]
struct Page {
    text: String,
    /// The family that samples belong to.
    name: &'static str,
}

impl Page {
    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn sample(&mut self, labels: &[Label<'_>], value: u64) {
        let labels: Vec<_> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let name = self.name;
        self.line(format_args!("{name}{labels} {value}"));
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        let _ = writeln!(self.text, "{line}");
    }

    fn rules(&mut self, rules: &[RuleStatus]) {
        type Count = fn(&Traffic) -> u64;
        let families: [(&str, &str, Count); 4] = [
            ("gradwire_rule_frames_total", "Frames to the wire that matched a rule.", |of| of.frames),
            ("gradwire_rule_bytes_total", "Their bytes before compression.", |of| of.bytes),
            ("gradwire_rule_compressed_frames_total", "Those that left compressed.", |of| of.compressed),
            ("gradwire_rule_saved_bytes_total", "Bytes by which those got shorter.", |of| of.saved),
        ];
        for (name, help, count) in families {
            self.family(name, "counter", help);
            for (place, rule) in rules.iter().enumerate() {
                self.sample(
                    &[
                        ("rule", &place),
                        ("tos", &format!("{:#04x}", rule.tos)),
                        ("codec", &rule.codec.to_string()),
                    ],
                    count(&rule.traffic),
                );
            }
        }
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
        for (port, stats) in [("host", &stats.host), ("network", &stats.network)] {
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
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::ops::server::MAX_CLIENTS;
    use crate::ops::telemetry::tests::example;

    /// A reader of the exposition format: samples by name and labels, each under its family's type.
    fn samples(page: &str) -> HashMap<String, u64> {
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
            ("gradwire_uptime_seconds", 90_061),
            ("gradwire_queue_answers{queue=\"0\"}", 1),
            ("gradwire_queue_answers{queue=\"1\"}", 0),
            ("gradwire_flows{queue=\"1\",handshake=\"agreed\"}", 9),
            ("gradwire_rule_saved_bytes_total{rule=\"0\",tos=\"0x28\",codec=\"2\"}", 90_000),
            (
                "gradwire_frames_total{queue=\"1\",direction=\"egress\",verdict=\"changed\",reason=\"compressed\"}",
                100,
            ),
            (
                "gradwire_frames_total{queue=\"0\",direction=\"ingress\",verdict=\"dropped\",reason=\"l4-checksum\"}",
                7,
            ),
            ("gradwire_changed_bytes_total{queue=\"0\",direction=\"egress\",side=\"out\"}", 30_000),
            ("gradwire_lost_frames_total{queue=\"0\",port=\"host\",reason=\"no-queue\"}", 2),
            ("gradwire_kept_frames_total{queue=\"0\",port=\"host\",reason=\"stale\"}", 5),
            ("gradwire_socket_total{queue=\"0\",port=\"network\",statistic=\"rx-ring-full\"}", 4),
            ("gradwire_info{version=\"0.1.0\",kernel=\"portable\",host=\"veth0\",network=\"eth0\"}", 1),
        ];
        for (series, value) in expected {
            assert_eq!(samples.get(series), Some(&value), "{series}\n{page}");
        }
    }

    #[test]
    fn names_cannot_break_out_of_a_label() {
        let mut snapshot = example();
        snapshot.ports.host.name = "a\"b\\c".to_owned();
        assert!(render(&snapshot).contains(r#"host="a\"b\\c","#));
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_scraper_gets_the_page_and_others_a_reason() {
        let endpoint = Endpoint::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = endpoint.address().unwrap();
        endpoint.serve(example).unwrap();

        let answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        assert_eq!(body, render(&example()));

        let head_only = ask(address, b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n");
        assert!(head_only.starts_with("HTTP/1.1 200 OK") && head_only.ends_with("\r\n\r\n"), "{head_only}");
        assert!(ask(address, b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask(address, b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(ask(address, b"\x16\x03\x01 hello\r\n\r\n").starts_with("HTTP/1.1 400 "));

        // One that never ends is cut off.
        let mut endless = TcpStream::connect(address).unwrap();
        endless.write_all(&vec![b'a'; TERMS.max_request + 1]).unwrap();
        // The end, or a reset if something was not read.
        assert!(matches!(endless.read(&mut [0; 1]), Ok(0) | Err(_)));
    }

    /// More than are served at once, all of them older than the scraper, and all still connected when it is answered.
    #[test]
    fn idle_clients_keep_nobody_out() {
        let endpoint = Endpoint::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = endpoint.address().unwrap();
        endpoint.serve(example).unwrap();
        let connect = |_| TcpStream::connect(address).unwrap();
        let mut idle = (0..MAX_CLIENTS + 4).map(connect).collect::<Vec<_>>();
        assert!(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        let is_open = |client: &TcpStream| {
            client.set_nonblocking(true).unwrap();
            matches!(client.peek(&mut [0; 1]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        };
        // Had the endpoint got rid of them first, this would say nothing.
        assert!(idle.iter().filter(|client| is_open(client)).count() >= MAX_CLIENTS / 2);
        // The youngest of them may still ask.
        let mut youngest = idle.pop().unwrap();
        youngest.set_nonblocking(false).unwrap();
        youngest.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        youngest.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}
