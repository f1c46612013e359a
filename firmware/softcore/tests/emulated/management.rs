//! The image of an aggregator that also serves metrics and a console over TCP, to clients of this
//! machine's own stack: QEMU relays their connections. Sums stay exact whatever clients do, and a
//! panic costs a restart.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use gradwire::forward::Port;
use gradwire_testbench::softcore::machine::{Machine, Options, PATIENCE};
use softcore::aggregation::IP;
use softcore::tcp::{CONSOLE_PORT, METRICS_PORT};

use super::frames::{ACK, Peer, SYN};
use super::hostile::Memory;
use super::image;
use super::random::Random;
use super::workers::{CHUNKS, sum};

const PROMPT: &str = "gradwire> ";

/// An aggregator, and where this machine's programs find its two ports.
struct Aggregator {
    machine: Machine,
    metrics: SocketAddrV4,
    console: SocketAddrV4,
}

impl Aggregator {
    fn start(options: &Options) -> Self {
        let mut machine = Machine::start(options).unwrap();
        let [metrics, console] =
            [METRICS_PORT, CONSOLE_PORT].map(|port| machine.forward(SocketAddrV4::new(IP, port)).unwrap());
        Self { machine, metrics, console }
    }

    /// All samples by their series.
    fn metrics(&self) -> BTreeMap<String, u64> {
        let answer =
            get(self.metrics, "GET /metrics HTTP/1.1\r\nHost: aggregator\r\nAccept: text/plain\r\n\r\n");
        let (head, page) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
        assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        samples
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(series, value)| (series.to_owned(), value.parse().unwrap()))
            .collect()
    }
}

/// The image, and a network for clients.
fn options(variant: &str) -> Options {
    Options { clients: true, ..Options::new(image(variant, "management")) }
}

fn connect(to: SocketAddrV4) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn get(from: SocketAddrV4, request: &str) -> String {
    let mut stream = connect(from);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The output of a console until it waits for a command.
fn until_prompt(console: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(PROMPT.as_bytes()) {
        let mut byte = [0];
        assert_eq!(console.read(&mut byte).unwrap(), 1, "{:?}", String::from_utf8_lossy(&text));
        text.extend(byte);
    }
    String::from_utf8(text).unwrap().trim_end_matches(PROMPT).to_owned()
}

fn ask(console: &mut TcpStream, command: &str) -> String {
    console.write_all(format!("{command}\n").as_bytes()).unwrap();
    until_prompt(console)
}

fn what(family: &str, what: &str) -> String {
    format!("gradwire_aggregator_{family}{{interface=\"network\",what=\"{what}\"}}")
}

fn one(family: &str) -> String {
    format!("gradwire_aggregator_{family}{{interface=\"network\"}}")
}

#[test]
fn clients_get_metrics_and_a_console_and_workers_exact_sums() {
    let mut aggregator = Aggregator::start(&options("build"));
    let mut console = connect(aggregator.console);
    assert!(until_prompt(&mut console).ends_with("aggregator 10.0.0.9: help lists commands\r\n"));
    let mut silent = connect(aggregator.metrics);
    silent.write_all(b"GET /metr").unwrap();
    // A client fetches metrics once in the middle.
    let (metrics, mut turns) = (aggregator.metrics, 0);
    sum(&mut aggregator.machine, 1, |_| {
        turns += 1;
        if turns == 20 {
            assert!(
                get(metrics, "GET /metrics HTTP/1.0\r\n\r\n").contains("\ngradwire_aggregator_children{")
            );
        }
    });
    assert!(turns > 20);

    let samples = aggregator.metrics();
    for (series, value) in [
        (one("chunks_total"), CHUNKS),
        (what("datagrams_total", "completed"), CHUNKS),
        (one("jobs"), 1),
        (one("children"), 4),
        (one("link"), 1),
        (one("panics_total"), 0),
    ] {
        assert_eq!(samples.get(&series), Some(&value), "{series} {samples:#?}");
    }
    // What the serial line shows is what metrics say. ARP is the network's own affair, and may go
    // on.
    let counters = aggregator.machine.counters().unwrap();
    assert!(counters.iter().any(|(name, _)| name.starts_with("datagram ")));
    for (name, count) in &counters {
        let (of, name) = name.split_once(' ').unwrap();
        if of == "datagram" {
            assert_eq!(samples.get(&what("datagrams_total", name)), Some(count), "{name}");
        }
    }
    // And what the console over TCP says.
    let printed = ask(&mut console, "counters");
    for (name, count) in counters.iter().filter(|(name, _)| name.starts_with("datagram ")) {
        assert!(printed.contains(&format!("{name} {count}\r\n")), "{printed}");
    }
    assert_eq!(ask(&mut console, "jobs"), "job 7 children 4\r\n");
    assert_eq!(ask(&mut console, "rules"), "no command 'rules': help lists them\r\n");
    assert_eq!(ask(&mut console, "jobs now"), "'now' is too much\r\n");
    assert_eq!(ask(&mut console, "help").lines().count(), 3);
    console.write_all(b"quit\r\n").unwrap();
    assert_eq!(console.read(&mut [0; 1]).unwrap(), 0);

    assert!(get(aggregator.metrics, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 404 "));
    assert!(get(aggregator.metrics, "POST /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 405 "));
}

/// The flags of the next segment to a peer on the wire; none if nothing comes within `patience`.
fn answer(aggregator: &mut Machine, peer: &mut Peer, patience: Duration) -> Option<u8> {
    while let Some(frame) = aggregator.receive(Port::Network, patience).unwrap() {
        if let Some((flags, _)) = peer.take(&frame) {
            return Some(flags);
        }
    }
    None
}

/// Waits until the aggregator has taken all segments that were sent. Until then a forged SYN may
/// displace a client whose acknowledgement is still on its way.
fn take_all(aggregator: &mut Machine) {
    let mut last = Peer::new(29, 5000, CONSOLE_PORT);
    let syn = last.segment(SYN, b"");
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        // The queue may be full: then a SYN is lost, and sent again as hosts do.
        aggregator.send(Port::Network, &syn).unwrap();
        if let Some(flags) = answer(aggregator, &mut last, Duration::from_secs(5)) {
            assert_eq!(flags, SYN | ACK);
            return;
        }
    }
    panic!("no answer behind all segments");
}

/// Clients that are half open, silent, or do not read, and segments that are none: workers get
/// their sums, and another client its metrics.
#[test]
fn hostile_clients_cost_themselves_their_places() {
    let options = options("build");
    let mut aggregator = Aggregator::start(&options);
    let memory = Memory::of(&mut aggregator.machine, &options);
    for (number, request) in [(20, ""), (21, "GET /metrics HTTP/1.0\r\n\r\n")] {
        let mut peer = Peer { window: 0, ..Peer::new(number, 5000, METRICS_PORT) };
        aggregator.machine.send(Port::Network, &peer.segment(SYN, b"")).unwrap();
        assert_eq!(answer(&mut aggregator.machine, &mut peer, PATIENCE), Some(SYN | ACK));
        aggregator.machine.send(Port::Network, &peer.segment(ACK, request.as_bytes())).unwrap();
    }
    let mut random = Random(0x5eed);
    let mut flood = |machine: &mut Machine| {
        for port in [METRICS_PORT, CONSOLE_PORT] {
            let mut forged = Peer::new(30 + random.below(100) as u8, random.next() as u16, port);
            machine.send(Port::Network, &forged.segment(SYN, b"")).unwrap();
            // Headers that are damaged, and flags and options that nobody sends.
            let mut damaged = forged.segment(random.next() as u8, &vec![0xa5; random.below(100)]);
            for _ in 0..random.below(4) {
                let at = 14 + random.below(damaged.len() - 14);
                damaged[at] = random.next() as u8;
            }
            machine.send(Port::Network, &damaged).unwrap();
        }
    };
    for epoch in 1..=20 {
        sum(&mut aggregator.machine, epoch, &mut flood);
    }
    take_all(&mut aggregator.machine);
    let samples = aggregator.metrics();
    assert_eq!(samples[&what("datagrams_total", "completed")], 20 * CHUNKS);
    assert_eq!(samples[&one("panics_total")], 0);
    assert!(samples[&what("tcp_total", "displaced")] > 100, "{samples:#?}");
    assert!(until_prompt(&mut connect(aggregator.console)).contains("help lists commands"));
    memory.is_unharmed(&mut aggregator.machine);
}

/// In this image, the console's `panic` is one.
#[test]
fn a_panic_is_counted_and_costs_a_restart() {
    let mut aggregator = Aggregator::start(&options("planted"));
    for (panics, epoch) in (1..).zip([7, 9]) {
        sum(&mut aggregator.machine, epoch, |_| {});
        let mut console = connect(aggregator.console);
        until_prompt(&mut console);
        console.write_all(b"panic\n").unwrap();
        let printed = aggregator.machine.prompt().unwrap();
        assert!(printed.contains("gradwire: panic at src/tcp/console.rs:"), "{printed:?}");
        let samples = aggregator.metrics();
        assert_eq!((samples[&one("panics_total")], samples[&one("jobs")]), (panics, 0));
    }
    sum(&mut aggregator.machine, 10, |_| {});
}
