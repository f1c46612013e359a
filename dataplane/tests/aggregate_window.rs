//! A member's window and timer.

mod common;

use common::aggregation::membership;
use gradwire::Millis;
use gradwire::aggregate::{Aggregator, Event, Member, Membership, Outcome, Poll, Settings};
use gradwire::codec::planar::Bound;
use gradwire::kernels::Kernel;
use gradwire::wire::chunk::{Body, Head, Limits, Packet};

const LIMITS: Limits = Limits { blocks: 1, window: 4, mtu: 1500 };

/// A node for one job.
fn node<A: Copy + Eq + std::hash::Hash>() -> Box<Aggregator<A, 1, 8, 1>> {
    let settings =
        Settings { kernel: Kernel::PORTABLE, limits: LIMITS, group: None, above: None, secret: [3, 5] };
    Box::new(Aggregator::new(settings))
}

/// A member of a job with so many, with this window.
fn member(worker: u8, members: u8, window: u8) -> Member<4> {
    let limits = Limits { window, ..LIMITS };
    Member::new(Membership { limits, ..membership(worker, members) }, Kernel::PORTABLE)
}

/// Window 4, eight chunks of one block. The contributions of chunks 5, 6 and 7 are always lost, and that of chunk 0 once. The window
/// shrinks to 2 or 1, with three chunks under way. Chunk 4 is the one that everybody would wait for next.
#[test]
fn a_shrunken_window_does_not_hold_back_the_first_chunk() {
    let mut member = member(0, 1, 4);
    let mut node = node();
    let (mut packet, mut answer) = ([0; 1500], [0; 1500]);
    let (input, mut output) = (vec![0; 8 * 128 * 4], vec![0; 8 * 128 * 4]);
    let bound = Bound::from_exponents(-10, 0).unwrap();
    let (mut now, mut sent, mut shrunk) = (0, Vec::new(), false);
    loop {
        let len = match member.poll(&input, Millis(now), &mut packet) {
            Poll::Send(len) => len,
            Poll::Wait(Millis(at)) => {
                let first = sent.iter().filter(|seq| **seq == 0).count();
                assert!(first < 2, "chunk 0 has its result, and chunk 4 is held back: {sent:?}");
                now = at;
                continue;
            }
            Poll::Done => {
                assert!(member.start(8 * 128, bound));
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
        node.process(&packet[..len], (), Millis(now));
        while let Some(emitted) = node.emit(&mut answer) {
            shrunk |= member.handle(&answer[..emitted.len], &mut output, Millis(now)) == Event::Missing;
        }
    }
}

/// A member at a node, eight chunks of one block.
struct Pair {
    member: Member<4>,
    node: Box<Aggregator<u8, 1, 8, 1>>,
    /// What the node said and the member has not heard.
    said: Vec<Vec<u8>>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Pair {
    /// Of a job with so many members, with window 4; this one has begun its sum.
    fn of(members: u8) -> Self {
        Self::with(members, 4)
    }

    fn with(members: u8, window: u8) -> Self {
        let mut pair = Self {
            member: member(0, members, window),
            node: node(),
            said: Vec::new(),
            input: vec![0; 8 * 128 * 4],
            output: vec![0; 8 * 128 * 4],
        };
        // The second hello has the cookie.
        pair.turn(0, true);
        pair.turn(0, true);
        assert!(pair.member.start(8 * 128, Bound::from_exponents(-10, 0).unwrap()));
        pair
    }

    /// The member sends all that it has to send, and then hears what the node said, if `delivered`. The chunks that it contributed, and
    /// until when it waits.
    fn turn(&mut self, now: u64, delivered: bool) -> (Vec<u32>, u64) {
        let done = self.send(now);
        if delivered {
            self.hear(now);
        } else {
            self.said.clear();
        }
        done
    }

    /// The member sends all that it has to send. The chunks that it contributed, and until when it waits.
    fn send(&mut self, now: u64) -> (Vec<u32>, u64) {
        let (mut packet, mut sent) = ([0; 1500], Vec::new());
        let until = loop {
            let len = match self.member.poll(&self.input, Millis(now), &mut packet) {
                Poll::Send(len) => len,
                Poll::Wait(Millis(at)) => break at,
                Poll::Done => break u64::MAX,
                Poll::Failed(failure) => panic!("{failure:?}"),
            };
            let Packet { head, body } = Packet::parse(&packet[..len]).unwrap();
            if matches!(body, Body::Contribute { .. }) {
                sent.push(head.seq);
            }
            self.node_hears(&packet[..len], 0, now);
        };
        (sent, until)
    }

    fn node_hears(&mut self, packet: &[u8], from: u8, now: u64) {
        let mut answer = [0; 1500];
        self.node.process(packet, from, Millis(now));
        while let Some(emitted) = self.node.emit(&mut answer) {
            self.said.push(answer[..emitted.len].to_vec());
        }
    }

    fn hear(&mut self, now: u64) {
        for answer in self.said.drain(..) {
            self.member.handle(&answer, &mut self.output, Millis(now));
        }
    }

    /// All the rest, at one time: no timer helps.
    fn finish(&mut self, now: u64) {
        while !self.member.is_done() {
            self.hear(now);
            self.send(now);
        }
    }
}

/// A result that nobody had to ask for says how long one takes; the first question waits 50 ms, later ones less.
#[test]
fn an_unasked_result_measures_the_time_that_one_takes() {
    let mut pair = Pair::of(1);
    let (mut packet, mut sent) = ([0; 1500], 0);
    let first = loop {
        match pair.member.poll(&pair.input, Millis(0), &mut packet) {
            Poll::Send(len) => {
                sent += 1;
                pair.node_hears(&packet[..len], 0, 0);
            }
            Poll::Wait(Millis(at)) => break at,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((sent, first), (4, 50));
    pair.hear(4);
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
    assert!(!pair.member.start(128, bound));
    pair.finish(0);
    assert!(pair.member.start(128, bound));
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
    assert_eq!(pair.said.len(), 4);
    // Two may be under way, then three: the two results of a window of two have come.
    for sent in [&[][..], &[4], &[5], &[6]] {
        let result = pair.said.remove(0);
        assert!(matches!(pair.member.handle(&result, &mut pair.output, Millis(until)), Event::Chunk { .. }));
        let said = pair.said.len();
        assert_eq!(pair.send(until).0, sent);
        pair.said.truncate(said);
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
    pair.said = vec![missing.to_vec(), pair.said.swap_remove(2)];
    pair.hear(1);
    let (sent, until) = pair.send(1);
    assert_eq!((&sent[..], until), (&[0][..], 50));
    // Chunks 1 and 3 were sent first.
    for (now, chunk) in [(50, 1), (50, 3), (51, 0)] {
        let mut packet = [0; 1500];
        let Poll::Send(len) = pair.member.poll(&pair.input, Millis(now), &mut packet) else { panic!() };
        let Packet { head, body } = Packet::parse(&packet[..len]).unwrap();
        assert_eq!((head.seq, body), (chunk, Body::Query { worker: 0, is_overtaken: false }));
    }
}

/// RFC 6298 §2 in `f64`, times 10 ms to 50 ms. Each chunk has its result after so many milliseconds.
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
        pair.hear(now);
    }
}

/// The timer doubles with each question that nobody answers, up to 50 ms.
#[test]
fn the_timer_doubles_with_each_question() {
    let mut pair = Pair::with(1, 1);
    pair.send(0);
    pair.hear(5);
    // RFC 6298 §2.2: 5 ms, and four times half of that.
    for (asked, next) in [(5, 20), (20, 50), (50, 100), (100, 150)] {
        assert_eq!(pair.turn(asked, false).1, next);
    }
}

/// The first result is lost. The second after it says so: the member asks at once, and the node sends again what it has just sent to
/// all. Nobody waits for a timer.
#[test]
fn a_result_that_later_ones_overtook_is_asked_for_at_once() {
    let mut pair = Pair::of(1);
    assert_eq!(pair.send(0), (vec![0, 1, 2, 3], 50));
    pair.said.remove(0);
    for (contributed, repeated) in [(5, 0), (6, 1)] {
        let result = pair.said.remove(0);
        assert!(matches!(pair.member.handle(&result, &mut pair.output, Millis(1)), Event::Chunk { .. }));
        assert_eq!(pair.send(1).0, [contributed]);
        assert_eq!(pair.node.count(Outcome::Repeated), repeated);
    }
    pair.finish(1);
    assert_eq!((pair.node.count(Outcome::Repeated), pair.node.count(Outcome::Held)), (1, 0));
}

/// The contribution to the first chunk is lost. The second result of a later one says so.
#[test]
fn a_contribution_that_was_lost_is_missed_at_once() {
    let mut pair = Pair::of(1);
    let mut packet = [0; 1500];
    let Poll::Send(_) = pair.member.poll(&pair.input, Millis(0), &mut packet) else { panic!() };
    assert_eq!(pair.send(0), (vec![1, 2, 3], 50));
    pair.finish(1);
    assert_eq!((pair.node.count(Outcome::Missing), pair.node.count(Outcome::Completed)), (1, 8));
}

/// A question may have crossed the result, unless later results have come. Nobody has a member flooded with what it asked for.
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
        Packet { head, body: Body::Query { worker: 0, is_overtaken } }.write(&mut query).unwrap();
        assert_eq!(pair.node.process(&query, 0, Millis(now)), outcome, "after {now} ms");
    }
}

/// The node answered that it waits for another member: nothing was lost, and the window stays.
#[test]
fn the_window_stays_if_another_member_was_late() {
    let mut pair = Pair::of(2);
    let mut late = member(1, 2, 4);
    let (mut packet, mut output) = ([0; 1500], vec![0; 8 * 128 * 4]);
    let (sent, until) = pair.turn(0, true);
    assert_eq!((&sent[..], until), (&[0, 1, 2, 3][..], 50));
    assert_eq!(pair.turn(until, true).0, [], "it asks, and hears who is late");
    // The late one says hello, and contributes its first four chunks; both hear all that the node says.
    for now in [60, 61] {
        while let Poll::Send(len) = late.poll(&pair.input, Millis(now), &mut packet) {
            pair.node_hears(&packet[..len], 1, now);
            for answer in &pair.said {
                late.handle(answer, &mut output, Millis(now));
            }
            pair.hear(now);
        }
        if now == 60 {
            assert!(late.start(8 * 128, Bound::from_exponents(-10, 0).unwrap()));
        }
    }
    assert_eq!(pair.turn(62, false).0, [4, 5, 6, 7]);
}
