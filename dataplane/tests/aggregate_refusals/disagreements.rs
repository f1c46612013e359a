//! Packets that contradict what their sender, or others, said before. None of them changes
//! anything, and no sum lacks a worker.

use std::collections::VecDeque;

use gradwire::aggregate::{Aggregator, Failure, Outcome, Parent, Poll, SILENT_MS, Settings, To, Worker};
use gradwire::sums::limit;

use super::aggregator::{EACH, OTHER_AT, Reaction, TestAggregator, US_AT, aggregator, outcome, receive};
use super::*;

/// The address of the aggregator of all racks; those of racks follow.
const ROOT: u8 = 200;

fn differs(seq: u32, to: u8) -> Reaction {
    (Outcome::OtherChunk, vec![(To::One(to), refuse(seq, Refusal::Differs))])
}

/// A rack's partial sum.
fn partial(seq: u32, child: u8, workers: u8, (block, sum): (usize, i32)) -> Vec<u8> {
    let mut section = [0; 1024];
    let len = Kernel::PORTABLE.encode_sums(&[sum; 128], &mut section).unwrap();
    let part = Chunk::block(block).part(&section[..len]);
    say(seq, Body::Partial { child, workers, part })
}

fn join(aggregator: &mut TestAggregator, of: WorkerSettings, from: u8, is_aggregator: bool) {
    let mut packet = hello(of);
    packet[25] = is_aggregator.into();
    assert!(matches!(outcome(aggregator, from, &packet), Outcome::Started | Outcome::Joined));
}

/// An aggregator for these two.
fn with_two(two: WorkerSettings, are_aggregators: [bool; 2]) -> Box<TestAggregator> {
    let mut aggregator = aggregator(None);
    for (child, (from, is_aggregator)) in (0..).zip([US_AT, OTHER_AT].into_iter().zip(are_aggregators)) {
        join(&mut aggregator, WorkerSettings { child, ..two }, from, is_aggregator);
    }
    aggregator
}

#[test]
fn a_result_says_n_only_if_n_workers_are_in_it() {
    for total in [2, 3, 4, 255] {
        let mut aggregator = with_two(WorkerSettings { total, ..US }, [false; 2]);
        assert_eq!(outcome(&mut aggregator, US_AT, &contribute(0, 0, WHOLE)), Outcome::Added);
        let reaction = receive(&mut aggregator, OTHER_AT, &contribute(0, 1, WHOLE), 0);
        if total != 2 {
            // The others' workers would be missing.
            assert_eq!(reaction, differs(0, OTHER_AT), "{total}");
            let waiting = say(0, Body::Waiting { children: 2 });
            let reaction = receive(&mut aggregator, US_AT, &query(0, true), 50);
            assert_eq!(reaction, (Outcome::Waiting, vec![(To::One(US_AT), waiting)]), "{total}");
            continue;
        }
        assert_eq!((reaction.0, reaction.1[0].0), (Outcome::Completed, EACH));
        let Body::Result { workers, .. } = Packet::parse(&reaction.1[0].1).unwrap().body else { panic!() };
        assert_eq!(workers, 2);
    }
    // A rack of three, and a worker.
    for (of_rack, expected) in [(2, Outcome::OtherChunk), (3, Outcome::Completed), (4, Outcome::OtherChunk)] {
        let mut aggregator = with_two(US, [true, false]);
        for block in [0, 1] {
            assert_eq!(outcome(&mut aggregator, US_AT, &partial(0, 0, of_rack, (block, 3))), Outcome::Added);
        }
        assert_eq!(outcome(&mut aggregator, OTHER_AT, &contribute(0, 1, WHOLE)), expected, "{of_rack}");
    }
}

/// A worker believes nobody else's count either.
#[test]
fn a_worker_takes_no_result_of_fewer_workers() {
    use gradwire::aggregate::{Event, Ignored};
    let mut worker = Worker::<4>::new(US, Kernel::PORTABLE);
    let (mut output, mut out) = (vec![0; 1024], [0; 1500]);
    assert_eq!(worker.handle(&welcome(LIMITS, US.key), &mut [], Millis(0)), Event::Joined { group: None });
    assert!(worker.start(256, WHOLE.profile()));
    assert!(matches!(worker.poll(&[], Millis(0), &mut out), Poll::Send(_)));
    let of = |workers| say(0, Body::Result { workers, part: WHOLE.part(&WHOLE.sections()) });
    for workers in [1, 3, 5, 255] {
        let event = worker.handle(&of(workers), &mut output, Millis(0));
        assert_eq!(event, Event::Ignored(Ignored::OtherChunk), "{workers}");
    }
    assert_eq!(worker.handle(&of(4), &mut output, Millis(0)), Event::Chunk { chunk: 0, peak: 127 });
}

/// As large as two workers' sums may be, in the name of one. The limit is that of each child,
/// whatever a packet says.
#[test]
fn a_worker_cannot_overflow_a_sum() {
    let most = limit(2);
    let mut aggregator = with_two(TWO, [true; 2]);
    for (from, child) in [(US_AT, 0), (OTHER_AT, 1)] {
        assert_eq!(outcome(&mut aggregator, from, &partial(0, child, 1, (0, most))), Outcome::Added);
        let lie = partial(0, child, 2, (1, 2 * most));
        assert_eq!(receive(&mut aggregator, from, &lie, 0), differs(0, from));
        // Nor in another chunk of the epoch.
        assert_eq!(receive(&mut aggregator, from, &partial(1, child, 2, (0, 2 * most)), 0), differs(1, from));
    }
    assert_eq!(outcome(&mut aggregator, US_AT, &partial(0, 0, 1, (1, most))), Outcome::Added);
    let (outcome, sent) = receive(&mut aggregator, OTHER_AT, &partial(0, 1, 1, (1, most)), 0);
    assert_eq!(outcome, Outcome::Completed);
    let mut seen = 0;
    for (_, packet) in sent {
        let Body::Result { part, .. } = Packet::parse(&packet).unwrap().body else { panic!() };
        let mut rest = part.sections;
        for _ in part.blocks.each() {
            let mut sums = [0; 128];
            rest = &rest[WHOLE.profile().decode_result(rest, &mut sums).unwrap()..];
            // Below 2^31 - 1: the sum of two of the largest.
            assert!(sums.iter().all(|sum| i64::from(*sum) == 2 * i64::from(most)));
            seen += 1;
        }
    }
    assert_eq!(seen, 2);
}

/// Neither what is damaged, nor what another worker, or another rack, would have the chunk be.
#[test]
fn a_refused_contribution_changes_nothing() {
    let damaged = |seq, chunk: Chunk| [&contribute(seq, 0, chunk)[..], &[0]].concat();
    // The chunk that a free place begins with, and one whose place holds a result that may be asked
    // for.
    for seq in [0, 8] {
        let mut aggregator = with_two(TWO, [false; 2]);
        for before in (0..seq).step_by(4) {
            assert_eq!(outcome(&mut aggregator, US_AT, &contribute(before, 0, WHOLE)), Outcome::Added);
            assert_eq!(outcome(&mut aggregator, OTHER_AT, &contribute(before, 1, WHOLE)), Outcome::Completed);
        }
        for other in OTHERS {
            if other.values > 256 {
                assert_eq!(
                    receive(&mut aggregator, US_AT, &contribute(seq, 0, other), 50),
                    differs(seq, US_AT)
                );
            } else {
                assert_eq!(
                    receive(&mut aggregator, US_AT, &damaged(seq, other), 50),
                    (Outcome::Sections, vec![])
                );
            }
            let missing = say(seq, Body::Missing { blocks: u16::MAX });
            let expected = (Outcome::Missing, vec![(To::One(US_AT), missing)]);
            assert_eq!(receive(&mut aggregator, US_AT, &query(seq, false), 50), expected);
        }
        if seq == 8 {
            assert_eq!(receive(&mut aggregator, US_AT, &query(0, true), 50).0, Outcome::Repeated);
        }
        assert_eq!(outcome(&mut aggregator, US_AT, &contribute(seq, 0, WHOLE)), Outcome::Added);
        for other in OTHERS {
            assert_eq!(
                receive(&mut aggregator, OTHER_AT, &contribute(seq, 1, other), 50),
                differs(seq, OTHER_AT)
            );
        }
        let (outcome, sent) = receive(&mut aggregator, OTHER_AT, &contribute(seq, 1, WHOLE), 50);
        assert_eq!((outcome, sent.len(), sent[0].0), (Outcome::Completed, 1, EACH));
    }
}

/// Workers and aggregators without a network between them: each millisecond, everything arrives.
struct Hall {
    aggregators: Vec<(u8, Box<Aggregator<u8, 1, 8, 2>>)>,
    /// Workers, and where their aggregators are.
    children: Vec<(Worker<4>, u8)>,
    outputs: Vec<Vec<u8>>,
    damages: fn(&mut Vec<u8>),
    now: u64,
}

impl Hall {
    /// An aggregator of all.
    fn new() -> Self {
        Self::with(LIMITS)
    }

    fn with(limits: Limits) -> Self {
        let aggregators = vec![(ROOT, aggregator_of(None, limits))];
        Self { aggregators, children: Vec::new(), outputs: Vec::new(), damages: |_| (), now: 1 }
    }

    /// An aggregator below it, with so many workers.
    fn rack(&mut self, workers: u8, racks: u8, total: u8) {
        let (child, at) = (self.aggregators.len() as u8 - 1, ROOT + self.aggregators.len() as u8);
        self.aggregators
            .push((at, aggregator_of(Some(Parent { address: ROOT, child, children: racks }), LIMITS)));
        for child in 0..workers {
            self.worker(WorkerSettings { child, children: workers, total, ..US }, at);
        }
    }

    fn worker(&mut self, worker_settings: WorkerSettings, at: u8) {
        self.children.push((Worker::new(worker_settings, Kernel::PORTABLE), at));
    }

    /// Has workers sum 1000 values, each with its bound, for ten minutes at most. By worker: when
    /// it was done or failed.
    fn sum(&mut self, bound: impl Fn(usize) -> i8) -> Vec<Option<(u64, Option<Failure>)>> {
        let input = [1f32.to_le_bytes(); 1000].concat();
        self.outputs = vec![vec![0; input.len()]; self.children.len()];
        let mut ends = vec![None; self.children.len()];
        let mut started = vec![false; self.children.len()];
        let mut out = [0; 1500];
        let begin = self.now;
        while self.now < begin + 600_000 && ends.iter().any(Option::is_none) {
            let mut packets = VecDeque::new();
            for (number, (worker, at)) in self.children.iter_mut().enumerate() {
                loop {
                    if !started[number] {
                        started[number] = worker.start(1000, Bound::new(bound(number)).unwrap());
                    }
                    match worker.poll(&input, Millis(self.now), &mut out) {
                        Poll::Send(len) => {
                            let mut packet = out[..len].to_vec();
                            (self.damages)(&mut packet);
                            packets.push_back((number as u8, *at, packet));
                        }
                        Poll::Done if started[number] => {
                            ends[number].get_or_insert((self.now - begin, None));
                            break;
                        }
                        Poll::Failed(failure) => {
                            ends[number].get_or_insert((self.now - begin, Some(failure)));
                            break;
                        }
                        Poll::Done | Poll::Wait(_) => break,
                    }
                }
            }
            while let Some((from, to, packet)) = packets.pop_front() {
                if let Some((worker, _)) = self.children.get_mut(usize::from(to)) {
                    worker.handle(&packet, &mut self.outputs[usize::from(to)], Millis(self.now));
                    continue;
                }
                let (_, aggregator) = self.aggregators.iter_mut().find(|(at, _)| *at == to).unwrap();
                let _ = aggregator.process(&packet, from, Millis(self.now));
                while let Some(emitted) = aggregator.emit(&mut out) {
                    let to_all: Vec<u8> = match emitted.to {
                        To::One(one) => vec![one],
                        To::Each { job } => aggregator.children(job).collect(),
                        To::Group(_) => unreachable!("no group"),
                    };
                    packets.extend(to_all.into_iter().map(|one| (to, one, out[..emitted.len].to_vec())));
                }
            }
            // Callers tell each other that one has failed; here, some time passes first.
            if ends.iter().flatten().any(|(at, end)| end.is_some() && self.now - begin > at + SILENT_MS) {
                break;
            }
            self.now += 1;
        }
        ends
    }
}

fn aggregator_of(parent: Option<Parent<u8>>, limits: Limits) -> Box<Aggregator<u8, 1, 8, 2>> {
    let settings = Settings { kernel: Kernel::PORTABLE, limits, group: None, parent, secret: [3, 5] };
    Box::new(Aggregator::new(settings))
}

/// Racks of three and of four, and a job of eight: nobody gets the mean of seven, or of its rack,
/// for that of all.
#[test]
fn a_root_misses_a_worker_that_no_rack_has() {
    for total in [7, 8] {
        let mut hall = Hall::new();
        hall.rack(3, 2, total);
        hall.rack(4, 2, total);
        let ends = hall.sum(|_| -10);
        if total == 7 {
            assert!(ends.iter().all(|end| matches!(end, Some((_, None)))), "{ends:?}");
            continue;
        }
        assert!(!ends.iter().any(|end| matches!(end, Some((_, None)))), "a sum without a child: {ends:?}");
        let refused = |end: &&Option<(u64, Option<Failure>)>| matches!(end, Some((at, Some(Failure::Refused { reason: Refusal::Parent, .. }))) if *at <= SILENT_MS);
        // Those of the rack that was last.
        assert!(ends.iter().filter(refused).count() >= 3, "{ends:?}");
    }
}

/// Those of the root, too: workers of its racks get no welcome before that of the root.
#[test]
fn the_smallest_limits_of_a_hierarchy_hold() {
    for limits in [
        Limits { blocks: 1, ..LIMITS },
        Limits { window: 1, ..LIMITS },
        Limits { blocks: 1, window: 2, mtu: 800 },
    ] {
        let mut hall = Hall::with(limits);
        hall.rack(3, 2, 5);
        hall.rack(2, 2, 5);
        let ends = hall.sum(|_| -10);
        assert!(ends.iter().all(|end| matches!(end, Some((_, None)))), "{limits:?}: {ends:?}");
        // 1 is restored as an odd number of units (docs/aggregation-protocol.md section 2).
        let expected = (5.0 * 1025.0 / 1024f32).to_le_bytes();
        for ((worker, _), output) in hall.children.iter().zip(&hall.outputs) {
            assert_eq!(worker.limits(), Some(limits));
            assert!(output.as_chunks().0.iter().all(|value| *value == expected));
        }
    }
}

/// They fail with the reason, and no later than if the aggregator were silent.
#[test]
fn workers_that_disagree_do_not_wait_for_ever() {
    for other in [-11, -9] {
        let mut hall = Hall::new();
        for child in 0..2 {
            hall.worker(WorkerSettings { child, ..TWO }, ROOT);
        }
        let ends = hall.sum(|number| if number == 0 { -10 } else { other });
        let refused = ends.iter().flatten().find_map(|(at, end)| Some((*at, (*end)?)));
        let (at, failure) = refused.expect("one of them fails");
        assert_eq!(failure, Failure::Refused { reason: Refusal::Differs, epoch: US.epoch });
        assert!(at <= SILENT_MS, "{ends:?}");
    }
}

/// A worker's packets are damaged each time, as by an aggregator of another version. It asks, is
/// told what is missing, and sends that again.
#[test]
fn a_worker_that_is_never_understood_gives_up() {
    let mut hall = Hall::new();
    hall.worker(WorkerSettings { children: 1, total: 1, ..US }, ROOT);
    hall.damages = |packet| {
        if matches!(Packet::parse(packet), Ok(Packet { body: Body::Contribute { .. }, .. })) {
            packet.push(0);
        }
    };
    let ends = hall.sum(|_| -10);
    let [Some((at, Some(failure)))] = ends[..] else { panic!("{ends:?}") };
    assert_eq!(failure, Failure::Dropped);
    // Six answers, to questions none of which waits longer than 50 ms.
    assert!(at <= 7 * 50, "{at}");
}
