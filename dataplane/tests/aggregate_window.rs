//! A worker's window and timer.

use gradwire::Millis;
use gradwire::aggregate::{Aggregator, Event, Outcome, Poll, Settings, Worker, WorkerSettings};
use gradwire::codec::bit_plane::Bound;
use gradwire::kernels::Kernel;
use gradwire::wire::chunk::{Body, Head, Limits, Packet};

use crate::common::aggregation::worker_settings;

const LIMITS: Limits = Limits { blocks: 1, window: 4, mtu: 1500 };

/// An aggregator for one job.
fn aggregator<A: Copy + Eq + std::hash::Hash>() -> Box<Aggregator<A, 1, 8, 1>> {
    let settings =
        Settings { kernel: Kernel::PORTABLE, limits: LIMITS, group: None, parent: None, secret: [3, 5] };
    Box::new(Aggregator::new(settings))
}

/// A worker of a job with so many, with this window.
fn worker(child: u8, children: u8, window: u8) -> Worker<4> {
    let limits = Limits { window, ..LIMITS };
    Worker::new(WorkerSettings { limits, ..worker_settings(child, children) }, Kernel::PORTABLE)
}

/// Window 4, eight chunks of one block. The contributions of chunks 5, 6 and 7 are always lost, and
/// that of chunk 0 once. The window shrinks to 2 or 1, with three chunks under way. Chunk 4 is the
/// one that everybody would wait for next.
#[test]
fn a_shrunken_window_does_not_hold_back_the_first_chunk() {
    let mut worker = worker(0, 1, 4);
    let mut aggregator = aggregator();
    let (mut packet, mut answer) = ([0; 1500], [0; 1500]);
    let (input, mut output) = (vec![0; 8 * 128 * 4], vec![0; 8 * 128 * 4]);
    let bound = Bound::from_exponents(-10, 0).unwrap();
    let (mut now, mut sent, mut shrunk) = (0, Vec::new(), false);
    loop {
        let len = match worker.poll(&input, Millis(now), &mut packet) {
            Poll::Send(len) => len,
            Poll::Wait(Millis(at)) => {
                let first = sent.iter().filter(|seq| **seq == 0).count();
                assert!(first < 2, "chunk 0 has its result, and chunk 4 is held back: {sent:?}");
                now = at;
                continue;
            }
            Poll::Done => {
                assert!(worker.start(8 * 128, bound));
                continue;
            }
            Poll::Failed(failure) => panic!("{failure:?}"),
        };
        let Packet { head, body } = Packet::parse(&packet[..len]).unwrap();
        if let Body::Contribute { .. } = body {
            let again = sent.contains(&head.seq);
            sent.push(head.seq);
            if head.seq == 4 {
                assert!(shrunk, "{sent:?}");
                return;
            }
            if [5, 6, 7].contains(&head.seq) || (head.seq == 0 && !again) {
                continue;
            }
        }
        aggregator.process(&packet[..len], (), Millis(now));
        while let Some(emitted) = aggregator.emit(&mut answer) {
            shrunk |= worker.handle(&answer[..emitted.len], &mut output, Millis(now)) == Event::Missing;
        }
    }
}

/// A worker at an aggregator, eight chunks of one block.
struct Pair {
    worker: Worker<4>,
    aggregator: Box<Aggregator<u8, 1, 8, 1>>,
    /// Packets of the aggregator that the worker has not received.
    sent: Vec<Vec<u8>>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Pair {
    /// Of a job with so many workers, with window 4; this one has begun its sum.
    fn of(children: u8) -> Self {
        Self::with(children, 4)
    }

    fn with(children: u8, window: u8) -> Self {
        let mut pair = Self {
            worker: worker(0, children, window),
            aggregator: aggregator(),
            sent: Vec::new(),
            input: vec![0; 8 * 128 * 4],
            output: vec![0; 8 * 128 * 4],
        };
        // The second hello has the cookie.
        pair.turn(0, true);
        pair.turn(0, true);
        assert!(pair.worker.start(8 * 128, Bound::from_exponents(-10, 0).unwrap()));
        pair
    }

    /// The worker sends all that it has to send, and then receives what the aggregator sent, if
    /// `delivered`. The chunks that it contributed, and until when it waits.
    fn turn(&mut self, now: u64, delivered: bool) -> (Vec<u32>, u64) {
        let done = self.send(now);
        if delivered {
            self.receive(now);
        } else {
            self.sent.clear();
        }
        done
    }

    /// The worker sends all that it has to send. The chunks that it contributed, and until when it
    /// waits.
    fn send(&mut self, now: u64) -> (Vec<u32>, u64) {
        let (mut packet, mut sent) = ([0; 1500], Vec::new());
        let until = loop {
            let len = match self.worker.poll(&self.input, Millis(now), &mut packet) {
                Poll::Send(len) => len,
                Poll::Wait(Millis(at)) => break at,
                Poll::Done => break u64::MAX,
                Poll::Failed(failure) => panic!("{failure:?}"),
            };
            let Packet { head, body } = Packet::parse(&packet[..len]).unwrap();
            if matches!(body, Body::Contribute { .. }) {
                sent.push(head.seq);
            }
            self.aggregator_receives(&packet[..len], 0, now);
        };
        (sent, until)
    }

    fn aggregator_receives(&mut self, packet: &[u8], from: u8, now: u64) {
        let mut answer = [0; 1500];
        self.aggregator.process(packet, from, Millis(now));
        while let Some(emitted) = self.aggregator.emit(&mut answer) {
            self.sent.push(answer[..emitted.len].to_vec());
        }
    }

    fn receive(&mut self, now: u64) {
        for answer in self.sent.drain(..) {
            self.worker.handle(&answer, &mut self.output, Millis(now));
        }
    }

    /// All the rest, at one time: no timer helps.
    fn finish(&mut self, now: u64) {
        while !self.worker.is_done() {
            self.receive(now);
            self.send(now);
        }
    }
}

/// A result that nobody had to ask for says how long one takes; the first question waits 50 ms,
/// later ones less.
#[test]
fn an_unasked_result_measures_the_time_that_one_takes() {
    let mut pair = Pair::of(1);
    let (mut packet, mut sent) = ([0; 1500], 0);
    let first = loop {
        match pair.worker.poll(&pair.input, Millis(0), &mut packet) {
            Poll::Send(len) => {
                sent += 1;
                pair.aggregator_receives(&packet[..len], 0, 0);
            }
            Poll::Wait(Millis(at)) => break at,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((sent, first), (4, 50));
    pair.receive(4);
    let (sent, until) = pair.turn(4, false);
    assert_eq!(sent, [4, 5, 6, 7]);
    // RFC 6298 §2 with samples of 4 ms: no more than 4 and 8.
    assert!((14..=16).contains(&until), "{until}");
}

/// Operations follow each other: a second one begins when the first is done.
#[test]
fn an_operation_waits_for_the_one_before() {
    let bound = Bound::from_exponents(-10, 0).unwrap();
    let mut pair = Pair::of(1);
    assert!(!pair.worker.start(128, bound));
    pair.finish(0);
    assert!(pair.worker.start(128, bound));
}

/// Results were lost: the window halves once, and grows by one with as many results as it holds.
#[test]
fn the_window_shrinks_if_results_were_lost() {
    let mut pair = Pair::of(1);
    let (sent, until) = pair.turn(0, false);
    assert_eq!((&sent[..], until), (&[0, 1, 2, 3][..], 50));
    let (sent, _) = pair.turn(until, true);
    assert_eq!(sent, []);
    assert_eq!(pair.turn(until, false).0, [4, 5, 6]);
}

/// Nor again for the other losses of the same window. The results come one by one, after questions.
#[test]
fn the_window_shrinks_once_for_all_losses_of_a_window() {
    let mut pair = Pair::of(1);
    let (_, until) = pair.turn(0, false);
    assert_eq!(pair.send(until).0, []);
    assert_eq!(pair.sent.len(), 4);
    // Two may be under way, then three: the two results of a window of two have come.
    for sent in [&[][..], &[4], &[5], &[6]] {
        let result = pair.sent.remove(0);
        assert!(matches!(pair.worker.handle(&result, &mut pair.output, Millis(until)), Event::Chunk { .. }));
        let pending = pair.sent.len();
        assert_eq!(pair.send(until).0, sent);
        pair.sent.truncate(pending);
    }
}

/// A result of a later chunk says nothing of one that is to be sent again.
#[test]
fn a_chunk_that_is_sent_again_is_not_overtaken() {
    let mut pair = Pair::of(1);
    pair.send(0);
    let mut missing = [0; 22];
    let head = Head { job: 7, epoch: 0xffff_fff0, seq: 0 };
    Packet { head, body: Body::Missing { blocks: 1 } }.write(&mut missing).unwrap();
    pair.sent = vec![missing.to_vec(), pair.sent.swap_remove(2)];
    pair.receive(1);
    let (sent, until) = pair.send(1);
    assert_eq!((&sent[..], until), (&[0][..], 50));
    // Chunks 1 and 3 were sent first.
    for (now, chunk) in [(50, 1), (50, 3), (51, 0)] {
        let mut packet = [0; 1500];
        let Poll::Send(len) = pair.worker.poll(&pair.input, Millis(now), &mut packet) else { panic!() };
        let Packet { head, body } = Packet::parse(&packet[..len]).unwrap();
        assert_eq!((head.seq, body), (chunk, Body::Query { child: 0, is_overtaken: false }));
    }
}

/// RFC 6298 §2 in `f64`, times 10 ms to 50 ms. Each chunk has its result after so many
/// milliseconds.
#[test]
fn the_timer_is_that_of_rfc_6298() {
    let mut pair = Pair::with(1, 1);
    let (mut now, mut known) = (0, None);
    for (chunk, sample) in [12u32, 12, 12, 20, 16, 16, 30, 24].into_iter().enumerate() {
        let expected = known
            .map_or(50.0, |(smooth, variation): (f64, f64)| (smooth + 4.0 * variation).clamp(10.0, 50.0));
        let (sent, until) = pair.send(now);
        assert_eq!(sent, [chunk as u32]);
        let timeout = (until - now) as f64;
        // Whole milliseconds.
        assert!((timeout - expected).abs() < 2.0, "chunk {chunk}: {timeout}, expected {expected}");
        let result = f64::from(sample);
        known = Some(known.map_or((result, result / 2.0), |(smooth, variation)| {
            (smooth + (result - smooth) / 8.0, variation + ((smooth - result).abs() - variation) / 4.0)
        }));
        now += u64::from(sample);
        pair.receive(now);
    }
}

/// The timer doubles with each question that nobody answers, up to 50 ms.
#[test]
fn the_timer_doubles_with_each_question() {
    let mut pair = Pair::with(1, 1);
    pair.send(0);
    pair.receive(5);
    // RFC 6298 §2.2: 5 ms, and four times half of that.
    for (asked, next) in [(5, 20), (20, 50), (50, 100), (100, 150)] {
        assert_eq!(pair.turn(asked, false).1, next);
    }
}

/// The first result is lost. The second after it says so: the worker asks at once, and the
/// aggregator sends again what it has just sent to all. Nobody waits for a timer.
#[test]
fn a_result_that_later_ones_overtook_is_asked_for_at_once() {
    let mut pair = Pair::of(1);
    assert_eq!(pair.send(0), (vec![0, 1, 2, 3], 50));
    pair.sent.remove(0);
    for (contributed, repeated) in [(5, 0), (6, 1)] {
        let result = pair.sent.remove(0);
        assert!(matches!(pair.worker.handle(&result, &mut pair.output, Millis(1)), Event::Chunk { .. }));
        assert_eq!(pair.send(1).0, [contributed]);
        assert_eq!(pair.aggregator.count(Outcome::Repeated), repeated);
    }
    pair.finish(1);
    assert_eq!((pair.aggregator.count(Outcome::Repeated), pair.aggregator.count(Outcome::Held)), (1, 0));
}

/// The contribution to the first chunk is lost. The second result of a later one says so.
#[test]
fn a_contribution_that_was_lost_is_missed_at_once() {
    let mut pair = Pair::of(1);
    let mut packet = [0; 1500];
    let Poll::Send(_) = pair.worker.poll(&pair.input, Millis(0), &mut packet) else { panic!() };
    assert_eq!(pair.send(0), (vec![1, 2, 3], 50));
    pair.finish(1);
    assert_eq!((pair.aggregator.count(Outcome::Missing), pair.aggregator.count(Outcome::Completed)), (1, 8));
}

/// A question may have crossed the result, unless later results have come. Nobody has a worker
/// flooded with what it asked for.
#[test]
fn a_result_that_may_be_on_its_way_is_not_sent_again() {
    let mut pair = Pair::of(1);
    pair.turn(0, true);
    for (now, is_overtaken, outcome) in [
        (9, false, Outcome::Held),
        (9, true, Outcome::Repeated),
        (10, false, Outcome::Held),
        (19, true, Outcome::Held),
        (20, false, Outcome::Repeated),
        (29, true, Outcome::Held),
        (39, true, Outcome::Held),
        (40, true, Outcome::Repeated),
        (59, true, Outcome::Held),
        (75, true, Outcome::Repeated),
        (95, true, Outcome::Repeated),
        (104, true, Outcome::Held),
    ] {
        let head = Head { job: 7, epoch: 0xffff_fff0, seq: 3 };
        let mut query = [0; 20];
        Packet { head, body: Body::Query { child: 0, is_overtaken } }.write(&mut query).unwrap();
        assert_eq!(pair.aggregator.process(&query, 0, Millis(now)), outcome, "after {now} ms");
    }
}

/// The aggregator answered that it waits for another worker: nothing was lost, and the window
/// stays.
#[test]
fn the_window_stays_if_another_worker_was_late() {
    let mut pair = Pair::of(2);
    let mut late = worker(1, 2, 4);
    let (mut packet, mut output) = ([0; 1500], vec![0; 8 * 128 * 4]);
    let (sent, until) = pair.turn(0, true);
    assert_eq!((&sent[..], until), (&[0, 1, 2, 3][..], 50));
    assert_eq!(pair.turn(until, true).0, [], "it asks, and hears who is late");
    // The late one says hello, and contributes its first four chunks; both receive all that the
    // aggregator sends.
    for now in [60, 61] {
        while let Poll::Send(len) = late.poll(&pair.input, Millis(now), &mut packet) {
            pair.aggregator_receives(&packet[..len], 1, now);
            for answer in &pair.sent {
                late.handle(answer, &mut output, Millis(now));
            }
            pair.receive(now);
        }
        if now == 60 {
            assert!(late.start(8 * 128, Bound::from_exponents(-10, 0).unwrap()));
        }
    }
    assert_eq!(pair.turn(62, false).0, [4, 5, 6, 7]);
}
