//! Services of an aggregator over TCP, on a wire and with a time that the test makes up.
#![cfg(feature = "management")]

use std::collections::{HashSet, VecDeque};

use gradwire::aggregate::{Arrival, Outcome};
use gradwire::engine::Millis;
use gradwire::forward::{Buffer, Device, Port};
use softcore::aggregation::{IP, MAC, SoftAggregator, settings};
use softcore::board::{Faults, Nics};
use softcore::tcp::{CONSOLE_PORT, METRICS_PORT, Management, Memory, NO_PLACES};

#[path = "emulated/frames.rs"]
#[allow(dead_code, reason = "not each of them is needed in each test that has this file")]
mod frames;
#[path = "emulated/random.rs"]
mod random;

use frames::{ACK, FIN, Peer, RST, SYN};
use random::Random;

struct Frame(Vec<u8>, usize);

impl Buffer for Frame {
    fn frame(&self) -> &[u8] {
        &self.0[..self.1]
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn set_len(&mut self, len: usize) {
        self.1 = len;
    }
}

/// A NIC that sends at once, with a bounded number of buffers.
struct Wire {
    free: usize,
    sent: VecDeque<Vec<u8>>,
}

const BUFFERS: usize = 20;

impl Device for Wire {
    type Port = Port;
    type Buffer = Frame;

    fn receive(&mut self, _: Port) -> Option<Frame> {
        None
    }

    fn transmit(&mut self, to: Port, frame: Frame) -> Result<(), Frame> {
        assert_eq!(to, Port::Network);
        self.sent.push_back(frame.frame().to_vec());
        self.release(frame);
        Ok(())
    }

    fn take(&mut self) -> Option<Frame> {
        self.free = self.free.checked_sub(1)?;
        Some(Frame(vec![0; 1526], 0))
    }

    fn release(&mut self, _: Frame) {
        self.free += 1;
    }

    fn kick(&mut self, _: Port) {}
}

impl Nics for Wire {
    fn service(&mut self) {}

    fn link(&self, _: Port) -> bool {
        true
    }

    fn faults(&self, _: Port) -> Faults {
        Faults { runts: 3, ..Faults::default() }
    }

    fn clear_faults(&mut self) {}
}

struct Host {
    wire: Wire,
    management: Management<Frame>,
    aggregator: Box<SoftAggregator>,
    now: u64,
}

impl Host {
    fn new() -> Self {
        let (memory, places) = (Box::leak(Box::new(Memory::NEW)), Box::leak(Box::new(NO_PLACES)));
        Self {
            wire: Wire { free: BUFFERS, sent: VecDeque::new() },
            management: Management::new(memory, places, 0x5eed, 2),
            aggregator: Box::new(SoftAggregator::new(MAC, IP, settings(7))),
            now: 1000,
        }
    }

    /// Hands a frame over without a turn; whether it was kept.
    fn give(&mut self, frame: &[u8]) -> bool {
        let mut buffer = self.wire.take().unwrap();
        buffer.room()[..frame.len()].copy_from_slice(frame);
        buffer.set_len(frame.len());
        let back = self.management.receive(buffer, &mut self.wire);
        let is_kept = back.is_none();
        back.into_iter().for_each(|frame| self.wire.release(frame));
        is_kept
    }

    /// Turns until there is nothing more to do at once.
    fn settle(&mut self) {
        for _ in 0..1000 {
            if !self.management.step(&mut self.wire, &self.aggregator, Millis(self.now)) {
                return;
            }
        }
        panic!("1000 turns are not enough");
    }

    fn pass(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 10 {
            self.now += 10;
            self.settle();
        }
    }

    fn send(&mut self, peer: &mut Peer, flags: u8, payload: &[u8]) {
        assert!(self.give(&peer.segment(flags, payload)));
        self.settle();
    }

    /// All that was sent to a peer: every flag, and the bytes.
    fn receive(&mut self, peer: &mut Peer) -> (u8, String) {
        let (mut flags, mut bytes) = (0, Vec::new());
        while let Some(frame) = self.wire.sent.pop_front() {
            if let Some((more, payload)) = peer.take(&frame) {
                flags |= more;
                bytes.extend(payload);
            }
        }
        (flags, String::from_utf8(bytes).unwrap())
    }

    fn connect(&mut self, peer: &mut Peer) {
        self.send(peer, SYN, b"");
        assert_eq!(self.receive(peer), (SYN | ACK, String::new()));
        self.send(peer, ACK, b"");
    }

    /// All that the aggregator has to say to a peer that acknowledges it piece by piece, and
    /// whether it ends the connection then.
    fn receive_text(&mut self, peer: &mut Peer) -> (String, bool) {
        let mut text = String::new();
        loop {
            self.settle();
            let (flags, more) = self.receive(peer);
            assert_eq!(flags & RST, 0, "{text}{more}");
            text += &more;
            if flags & FIN != 0 {
                self.send(peer, FIN | ACK, b"");
                return (text, true);
            }
            if more.is_empty() {
                return (text, false);
            }
            self.send(peer, ACK, b"");
        }
    }

    fn read_to_end(&mut self, peer: &mut Peer) -> String {
        let (text, is_end) = self.receive_text(peer);
        assert!(is_end, "{text}");
        text
    }

    /// The console's answer to a line.
    fn ask(&mut self, console: &mut Peer, line: &[u8]) -> String {
        self.send(console, ACK, line);
        self.receive_text(console).0
    }

    fn metrics(&mut self, number: u8, port: u16) -> String {
        let mut peer = Peer::new(number, port, METRICS_PORT);
        self.connect(&mut peer);
        self.send(&mut peer, ACK, b"GET /metrics HTTP/1.0\r\nAccept: */*\r\n\r\n");
        self.read_to_end(&mut peer)
    }
}

fn sample(page: &str, name: &str, what: &str) -> u64 {
    let series = format!("gradwire_aggregator_{name}{{interface=\"network\",what=\"{what}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&series));
    line.unwrap_or_else(|| panic!("{series}: {page}")).parse().unwrap()
}

/// More often than there are places, and without time to wait in.
#[test]
fn metrics_are_fetched_again_and_again() {
    let mut host = Host::new();
    for port in 5000..5020 {
        let answer = host.metrics(1, port);
        let (head, page) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
        assert!(page.contains("\ngradwire_aggregator_panics_total{interface=\"network\"} 2\n"), "{page}");
        assert_eq!(sample(page, "faults_total", "runt"), 3);
        assert!(page.ends_with('\n'));
    }
    assert_eq!(host.wire.free, BUFFERS);
}

/// Each name is printed once, before its samples, each series is there once, and no line is cut.
/// Whatever the shim's aggregator counts too has that one's name, type and meaning.
#[test]
fn the_page_is_in_prometheus_format_with_the_shims_names() {
    let shim = include_str!("../../afxdp/src/telemetry/metrics/aggregator.rs");
    // However rustfmt breaks the calls.
    let shim = shim.split_whitespace().collect::<String>().replace(",)", ")");
    let answer = Host::new().metrics(1, 5000);
    let (_, page) = answer.split_once("\r\n\r\n").unwrap();
    let (mut names, mut series, mut shared) = (HashSet::new(), HashSet::new(), 0);
    let mut lines = page.lines();
    let mut name = "";
    while let Some(line) = lines.next() {
        if let Some(printed) = line.strip_prefix("# HELP ") {
            let help;
            (name, help) = printed.split_once(' ').unwrap();
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap();
            assert!(names.insert(name) && ["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            if shim.contains(&format!("\"{name}\"")) {
                let family: String = format!("page.family(\"{name}\",\"{kind}\",\"{help}\")");
                assert!(shim.contains(&family.replace(' ', "")), "{family}");
                shared += 1;
            }
            continue;
        }
        let (printed, value) = line.rsplit_once(' ').unwrap();
        assert!(
            printed.starts_with(&format!("{name}{{interface=\"network\"")) && printed.ends_with("\"}"),
            "{line}"
        );
        assert!(series.insert(printed) && value.parse::<u64>().is_ok(), "{line}");
    }
    assert_eq!((names.len(), shared), (12, 8));
    // Eight have one sample; faults and TCP have five.
    assert_eq!(series.len(), 8 + Arrival::ALL.len() + Outcome::ALL.len() + 5 + 5, "{page}");
}

#[test]
fn requests_that_are_none_are_answered_so() {
    let mut host = Host::new();
    let long = "x".repeat(400);
    for (number, (request, status)) in [
        ("GET /metrics?x=1 HTTP/1.1\n\n".into(), "200"),
        ("GET /other HTTP/1.1\r\n\r\n".into(), "404"),
        (format!("GET /{long} HTTP/1.1\r\n\r\n"), "400"),
        ("PUT /metrics HTTP/1.1\r\n\r\n".into(), "405"),
        ("\r\n".into(), "400"),
        ("\x16\x03\x01 hello\r\n\r\n".into(), "400"),
        ("GET /metrics\r\n\r\n".into(), "400"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut peer = Peer::new(1, 6000 + number as u16, METRICS_PORT);
        host.connect(&mut peer);
        // In two pieces.
        let (one, two): (&str, &str) = request.split_at(1);
        host.send(&mut peer, ACK, one.as_bytes());
        host.send(&mut peer, ACK, two.as_bytes());
        let answer = host.read_to_end(&mut peer);
        assert!(answer.starts_with(&format!("HTTP/1.0 {status} ")), "{request:?}: {answer}");
    }
}

/// Headers without an end are answered as soon as they are too many.
#[test]
fn an_endless_request_ends() {
    let mut host = Host::new();
    let mut peer = Peer::new(1, 6000, METRICS_PORT);
    host.connect(&mut peer);
    for _ in 0..40 {
        assert_eq!(host.ask(&mut peer, &[b'a'; 100]), "");
    }
    host.send(&mut peer, ACK, &[b'a'; 100]);
    assert!(host.read_to_end(&mut peer).starts_with("HTTP/1.0 400 "));
}

#[test]
fn the_console_answers_line_by_line() {
    let mut host = Host::new();
    let mut peer = Peer::new(2, 7000, CONSOLE_PORT);
    host.connect(&mut peer);
    assert!(
        host.receive_text(&mut peer).0.ends_with("aggregator 10.0.0.9: help lists commands\r\ngradwire> ")
    );
    // Two lines at once: the second waits for the first one's answer.
    assert_eq!(host.ask(&mut peer, b"jobs now\r\nhe"), "'now' is too much\r\ngradwire> ");
    let printed = host.ask(&mut peer, b"lp\njobs\n");
    assert!(printed.starts_with("counters  "), "{printed}");
    assert!(printed.ends_with("end the connection\r\ngradwire> gradwire> "), "{printed}");
    // The longest word that a line has room for.
    assert_eq!(host.ask(&mut peer, &[b'x'; 300]), "");
    let printed = format!("no command '{}': help lists them\r\ngradwire> ", "x".repeat(160));
    assert_eq!(host.ask(&mut peer, b"\n"), printed);
    // One that says no more is answered and left.
    host.send(&mut peer, FIN | ACK, b"jobs\n");
    assert_eq!(host.read_to_end(&mut peer), "gradwire> ");
}

#[test]
fn a_flood_of_syns_leaves_places() {
    let mut host = Host::new();
    for round in 0..100 {
        for port in [METRICS_PORT, CONSOLE_PORT] {
            let mut forged = Peer::new(round, 9000, port);
            host.send(&mut forged, SYN, b"");
        }
    }
    host.wire.sent.clear();
    let page = host.metrics(101, 5000);
    assert_eq!(sample(&page, "tcp_total", "displaced"), 100 - 3 + 100 - 2 + 1);
    let mut peer = Peer::new(102, 7000, CONSOLE_PORT);
    host.connect(&mut peer);
    assert!(host.receive_text(&mut peer).0.contains("help lists commands"));
    assert_eq!(host.wire.free, BUFFERS);
}

#[test]
fn silent_clients_lose_their_places() {
    let mut host = Host::new();
    let mut silent: Vec<_> = (0..3).map(|port| Peer::new(1, 5000 + port, METRICS_PORT)).collect();
    for peer in &mut silent {
        host.connect(peer);
    }
    // Whoever has connected is left alone until its time is over.
    let mut late = Peer::new(3, 5000, METRICS_PORT);
    host.send(&mut late, SYN, b"");
    assert_eq!(host.receive(&mut late).0, RST | ACK);
    host.pass(4_900);
    host.send(&mut late, SYN, b"");
    assert_eq!(host.receive(&mut late).0, RST | ACK);
    host.pass(200);
    assert_eq!(sample(&host.metrics(4, 5000), "tcp_total", "cut-off"), 3);
}

/// It asks, and gives no window for the answer.
#[test]
fn a_client_that_does_not_read_loses_its_place() {
    let mut host = Host::new();
    let mut metrics = Peer { window: 0, ..Peer::new(1, 5000, METRICS_PORT) };
    let mut console = Peer { window: 0, ..Peer::new(1, 5001, CONSOLE_PORT) };
    host.connect(&mut metrics);
    host.send(&mut metrics, ACK, b"GET /metrics HTTP/1.0\r\n\r\n");
    host.connect(&mut console);
    for _ in 0..100 {
        // What finds no room is not taken.
        host.send(&mut console, ACK, b"counters\n");
        console.next -= 9;
    }
    host.pass(5_100);
    assert_eq!(sample(&host.metrics(4, 5000), "tcp_total", "cut-off"), 1);
    host.pass(60_000);
    assert_eq!(sample(&host.metrics(4, 5001), "tcp_total", "cut-off"), 2);
}

/// A console that is used stays, one that is not used goes.
#[test]
fn a_console_waits_a_minute_for_a_line() {
    let mut host = Host::new();
    let mut peer = Peer::new(1, 5000, CONSOLE_PORT);
    host.connect(&mut peer);
    host.receive_text(&mut peer);
    for _ in 0..3 {
        host.pass(59_000);
        assert_eq!(host.ask(&mut peer, b"jobs\n"), "gradwire> ");
    }
    host.pass(60_100);
    assert_eq!(host.receive(&mut peer).0 & RST, RST);
}

/// Segments wait in a bounded number, and a turn takes one of them.
#[test]
fn a_turn_is_bounded() {
    let mut host = Host::new();
    let mut peer = Peer::new(1, 5000, 80);
    let kept = (0..18).filter(|_| host.give(&peer.segment(SYN, b""))).count();
    // Kept or dropped, the aggregator does not see them.
    assert_eq!(kept, 18);
    for turn in 1..=8 {
        let is_busy = host.management.step(&mut host.wire, &host.aggregator, Millis(host.now));
        assert_eq!((is_busy, host.wire.sent.len()), (turn < 8, turn));
    }
    assert_eq!(host.receive(&mut peer).0, RST | ACK);
    let page = host.metrics(1, 5000);
    assert_eq!(sample(&page, "tcp_total", "no-queue"), 10);
    assert_eq!(host.wire.free, BUFFERS);
}

/// Frames of the aggregator's are given back.
#[test]
fn frames_that_are_not_tcp_are_the_aggregators() {
    let mut host = Host::new();
    for frame in [frames::packet(1, 17, &[0; 30]), frames::packet(1, 1, &[0; 30]), vec![0xff; 60]] {
        assert!(!host.give(&frame));
    }
}

/// A NIC without buffers costs answers, which TCP sends again.
#[test]
fn without_buffers_nothing_is_sent_and_nothing_breaks() {
    let mut host = Host::new();
    let mut peer = Peer::new(1, 5000, METRICS_PORT);
    host.connect(&mut peer);
    assert!(host.give(&peer.segment(ACK, b"GET /metrics HTTP/1.0\r\n\r\n")));
    let all = std::mem::take(&mut host.wire.free);
    host.settle();
    assert!(host.wire.sent.is_empty());
    host.wire.free += all;
    peer.next -= 25;
    host.send(&mut peer, ACK, b"GET /metrics HTTP/1.0\r\n\r\n");
    assert_eq!(sample(&host.read_to_end(&mut peer), "tcp_total", "no-room"), 1);
    assert_eq!(host.wire.free, BUFFERS);
}

/// Segments of peers that say anything at any time, and segments that nobody sends, panic nothing
/// and keep no buffer.
#[test]
fn hostile_segments_leave_the_services_alive() {
    let mut random = Random(0x5eed);
    let mut host = Host::new();
    let mut peers: Vec<Peer> = (0..8)
        .map(|number| Peer::new(number, 5000, if number % 2 == 0 { METRICS_PORT } else { CONSOLE_PORT }))
        .collect();
    for _ in 0..20_000 {
        let at = random.below(peers.len());
        let peer = &mut peers[at];
        if random.below(20) == 0 {
            *peer = Peer::new(peer.number, random.next() as u16, peer.ports[1]);
        }
        if random.below(10) == 0 {
            peer.window = [0, 1, 100, 8000, u16::MAX][random.below(5)];
        }
        let before = *peer;
        if random.below(8) == 0 {
            peer.next = peer.next.wrapping_add(random.below(4000) as u32).wrapping_sub(2000);
        }
        if random.below(8) == 0 {
            peer.expected = peer.expected.wrapping_add(random.below(4000) as u32).wrapping_sub(2000);
        }
        let flags = match random.below(10) {
            0..2 => SYN,
            2 => FIN | ACK,
            3 => random.next() as u8,
            _ => ACK,
        };
        let payload: &[u8] = match random.below(6) {
            0 => b"GET /metrics HTTP/1.0\r\n\r\n",
            1 => b"jobs\n",
            2 => b"counters\nquit\n",
            3 => &[0xa5; 600][..random.below(600)],
            _ => b"",
        };
        let mut segment = peer.segment(flags, payload);
        if random.below(6) == 0 {
            for _ in 0..=random.below(4) {
                let at = 14 + random.below(segment.len() - 14);
                segment[at] = random.next() as u8;
            }
            // It was lost, so the peer sends the same again.
            *peer = before;
        }
        if host.wire.free > 0 {
            host.give(&segment);
        }
        for _ in 0..random.below(4) {
            host.management.step(&mut host.wire, &host.aggregator, Millis(host.now));
        }
        if random.below(3) == 0 {
            host.now += random.below(3000) as u64;
        }
        while let Some(frame) = host.wire.sent.pop_front() {
            for peer in &mut peers {
                peer.take(&frame);
            }
        }
    }
    host.pass(120_000);
    host.wire.sent.clear();
    host.metrics(101, 5000);
    assert_eq!(host.wire.free, BUFFERS);
}
