//! Packets that an aggregator refuses or ignores, also of its parent.

use gradwire::aggregate::{Aggregator, IDLE_MS, Outcome, Parent, SILENT_MS, Settings, To};

use super::*;

/// The addresses of workers: ten and their number.
pub(super) const US_AT: u8 = 10;
pub(super) const OTHER_AT: u8 = 11;
/// The parent's address.
const PARENT: u8 = 200;
pub(super) const EACH: To<u8> = To::Each { job: US.job };

pub(super) type TestAggregator = Aggregator<u8, 2, 8, 2>;
/// The outcome of a datagram, and the aggregator's answers.
pub(super) type Reaction = (Outcome, Vec<(To<u8>, Vec<u8>)>);

pub(super) fn aggregator(parent: Option<Parent<u8>>) -> Box<TestAggregator> {
    let settings = Settings { kernel: Kernel::PORTABLE, limits: LIMITS, group: None, parent, secret: [3, 5] };
    Box::new(TestAggregator::new(settings))
}

/// A hello is said again with the cookie that it is answered with.
pub(super) fn receive(aggregator: &mut TestAggregator, from: u8, packet: &[u8], now: u64) -> Reaction {
    match receive_once(aggregator, from, packet, now) {
        (Outcome::Challenged, sent) => receive_once(aggregator, from, &with_cookie(packet, &sent[0].1), now),
        reaction => reaction,
    }
}

pub(super) fn receive_once(aggregator: &mut TestAggregator, from: u8, packet: &[u8], now: u64) -> Reaction {
    let outcome = aggregator.process(packet, from, Millis(now));
    let mut out = [0; 1500];
    let mut sent = Vec::new();
    while let Some(emitted) = aggregator.emit(&mut out) {
        sent.push((emitted.to, out[..emitted.len].to_vec()));
    }
    (outcome, sent)
}

pub(super) fn outcome(aggregator: &mut TestAggregator, from: u8, packet: &[u8]) -> Outcome {
    receive(aggregator, from, packet, 0).0
}

/// Says hello for a job of one worker.
fn join_alone(aggregator: &mut TestAggregator, alone: WorkerSettings) {
    assert_eq!(outcome(aggregator, US_AT, &hello(alone)), Outcome::Started);
}

#[test]
fn a_hello_that_disagrees_in_one_respect_is_refused() {
    let mut aggregator = aggregator(None);
    assert_eq!(outcome(&mut aggregator, US_AT, &hello(US)), Outcome::Started);
    for (other, from, reason, outcome) in [
        (WorkerSettings { children: 3, ..US }, US_AT, Refusal::Differs, Outcome::Differs),
        (WorkerSettings { total: 5, ..US }, US_AT, Refusal::Differs, Outcome::Differs),
        (
            WorkerSettings { limits: Limits { blocks: 1, ..LIMITS }, ..US },
            US_AT,
            Refusal::Differs,
            Outcome::Differs,
        ),
        (
            WorkerSettings { limits: Limits { window: 2, ..LIMITS }, ..US },
            US_AT,
            Refusal::Differs,
            Outcome::Differs,
        ),
        (WorkerSettings { total: 1, ..US }, US_AT, Refusal::Workers, Outcome::Workers),
        (WorkerSettings { key: 43, ..US }, US_AT, Refusal::Key, Outcome::Key),
        (WorkerSettings { epoch: 99, ..US }, US_AT, Refusal::OldEpoch, Outcome::OldEpoch),
        (US, OTHER_AT, Refusal::Taken, Outcome::Taken),
    ] {
        let head = Head { job: US.job, epoch: other.epoch, seq: 0 };
        let refusal = packet(head, Body::Refuse { reason, epoch: US.epoch });
        assert_eq!(
            receive(&mut aggregator, from, &hello(other), 0),
            (outcome, vec![(To::One(from), refusal)])
        );
    }
    // Shorter packets are no disagreement: they hold for all from now on.
    let short = Limits { mtu: 1400, ..LIMITS };
    for limits in [short, LIMITS] {
        let sent = vec![(To::One(US_AT), welcome(short, US.key))];
        assert_eq!(
            receive(&mut aggregator, US_AT, &hello(WorkerSettings { limits, ..US }), 0),
            (Outcome::Joined, sent)
        );
    }
}

/// Its number, too: a job's number has 16 bits, and two jobs may have the same one.
#[test]
fn a_number_that_was_silent_is_free_for_another_key() {
    let mut aggregator = aggregator(None);
    join_alone(&mut aggregator, US);
    let other = hello(WorkerSettings { key: US.key + 1, epoch: US.epoch - 1, ..US });
    assert_eq!(receive(&mut aggregator, OTHER_AT, &other, IDLE_MS - 1).0, Outcome::Key);
    assert_eq!(receive(&mut aggregator, OTHER_AT, &other, IDLE_MS).0, Outcome::Started);
    assert_eq!(receive(&mut aggregator, US_AT, &hello(US), IDLE_MS).0, Outcome::Key);
    assert_eq!(aggregator.jobs().collect::<Vec<_>>(), [(US.job, 1)]);
}

/// Whatever its number and key are.
#[test]
fn a_job_that_was_silent_gives_its_place_to_another() {
    let mut aggregator = aggregator(None);
    for job in [0, 1] {
        join_alone(&mut aggregator, WorkerSettings { job, ..US });
    }
    let third = hello(WorkerSettings { job: 2, key: 43, ..US });
    // Job 1 says hello once more.
    assert_eq!(
        receive(&mut aggregator, US_AT, &hello(WorkerSettings { job: 1, ..US }), 1).0,
        Outcome::Joined
    );
    assert_eq!(receive(&mut aggregator, OTHER_AT, &third, IDLE_MS - 1).0, Outcome::Full);
    assert_eq!(receive(&mut aggregator, OTHER_AT, &third, IDLE_MS).0, Outcome::Started);
    assert_eq!(aggregator.jobs().map(|(job, _)| job).collect::<Vec<_>>(), [2, 1]);
}

/// A place has every eighth chunk, and the next one if the chunk half way is done.
#[test]
fn a_chunk_that_no_worker_can_have_come_to_is_refused() {
    let mut aggregator = aggregator(None);
    join_alone(&mut aggregator, WorkerSettings { children: 1, total: 1, ..US });
    let mut check = |seq: u32, contribution: Outcome, question: Outcome| {
        assert_eq!(receive(&mut aggregator, US_AT, &query(seq, false), 0).0, question, "query {seq}");
        assert_eq!(receive(&mut aggregator, US_AT, &contribute(seq, 0, WHOLE), 0).0, contribution, "{seq}");
    };
    let before = |seq: u32| 0u32.wrapping_sub(seq);
    for seq in [4, 7, 8, 16, 1 << 30] {
        check(seq, Outcome::Ahead, Outcome::OutOfStep);
    }
    // What would have been there before the first chunk.
    for seq in [before(8), before(16)] {
        check(seq, Outcome::Old, Outcome::OutOfStep);
    }
    for seq in [0, 4, 8] {
        check(seq + 8, Outcome::Ahead, Outcome::OutOfStep);
        check(seq, Outcome::Completed, Outcome::Missing);
        check(seq, Outcome::Old, Outcome::Held);
    }
    check(0, Outcome::Old, Outcome::OutOfStep);
}

#[test]
fn parts_of_a_chunk_have_its_values_and_its_bound() {
    let mut aggregator = aggregator(None);
    assert_eq!(outcome(&mut aggregator, US_AT, &hello(TWO)), Outcome::Started);
    assert_eq!(
        outcome(&mut aggregator, OTHER_AT, &hello(WorkerSettings { child: 1, ..TWO })),
        Outcome::Joined
    );
    assert_eq!(outcome(&mut aggregator, US_AT, &contribute(0, 0, Chunk::block(0))), Outcome::Added);
    for (from, child) in [(US_AT, 0), (OTHER_AT, 1)] {
        for other in OTHERS {
            let last = Chunk { first: 1, count: 1, ..other };
            assert_eq!(outcome(&mut aggregator, from, &contribute(0, child, last)), Outcome::OtherChunk);
        }
    }
    assert_eq!(outcome(&mut aggregator, US_AT, &contribute(0, 0, WHOLE)), Outcome::Added);
    assert_eq!(outcome(&mut aggregator, OTHER_AT, &contribute(0, 1, WHOLE)), Outcome::Completed);
}

/// An aggregator of a rack, whose two workers have joined.
fn rack() -> Box<TestAggregator> {
    let mut aggregator = aggregator(Some(Parent { address: PARENT, child: 3, children: 5 }));
    assert_eq!(outcome(&mut aggregator, US_AT, &hello(US)), Outcome::AskedParent);
    let longer = Limits { blocks: 3, ..LIMITS };
    let more = Limits { window: 8, ..LIMITS };
    for (limits, key, expected) in [
        (LIMITS, US.key + 1, Outcome::Key),
        (longer, US.key, Outcome::Differs),
        (more, US.key, Outcome::Differs),
    ] {
        assert_eq!(outcome(&mut aggregator, PARENT, &welcome(limits, key)), expected);
        assert_eq!(outcome(&mut aggregator, US_AT, &hello(US)), Outcome::AskedParent);
    }
    // A cookie that is new is repeated at once; else, and if it changes, only with a worker's next
    // hello.
    for (cookie, is_at_once) in [([7; 6], true), ([7; 6], false), ([9; 6], false)] {
        let challenge = say(0, Body::Welcome { limits: LIMITS, group: [0; 4], key: US.key, cookie });
        let WorkerSettings { job, epoch, total, limits, key, .. } = US;
        let body = Body::Hello { child: 3, children: 5, total, is_aggregator: true, limits, key, cookie };
        let asked = vec![(To::One(PARENT), packet(Head { job, epoch, seq: 0 }, body))];
        let sent = if is_at_once { asked.clone() } else { vec![] };
        assert_eq!(receive(&mut aggregator, PARENT, &challenge, 0), (Outcome::FromParent, sent));
        assert_eq!(receive(&mut aggregator, US_AT, &hello(US), 0), (Outcome::AskedParent, asked));
    }
    assert_eq!(outcome(&mut aggregator, PARENT, &welcome(LIMITS, US.key)), Outcome::FromParent);
    for (from, child) in [(US_AT, 0), (OTHER_AT, 1)] {
        assert_eq!(outcome(&mut aggregator, from, &hello(WorkerSettings { child, ..US })), Outcome::Joined);
    }
    aggregator
}

/// Both workers contribute, and the sum goes up.
fn sum_up(aggregator: &mut TestAggregator, seq: u32) {
    assert_eq!(outcome(aggregator, US_AT, &contribute(seq, 0, WHOLE)), Outcome::Added);
    let (outcome, sent) = receive(aggregator, OTHER_AT, &contribute(seq, 1, WHOLE), 0);
    assert_eq!((outcome, sent.len(), sent[0].0), (Outcome::Completed, 1, To::One(PARENT)));
}

/// All answers of the parent about a chunk.
fn answers(seq: u32) -> [Vec<u8>; 4] {
    let missing = say(seq, Body::Missing { blocks: 3 });
    let rescale = say(seq, Body::Rescale { peak: 200 });
    [missing, result(seq, WHOLE), rescale, refuse(seq, Refusal::OutOfStep)]
}

#[test]
fn an_answer_of_the_parent_counts_only_for_a_chunk_that_waits_for_it() {
    let mut aggregator = rack();
    let ignores = |aggregator: &mut TestAggregator, seq: u32| {
        for answer in answers(seq) {
            assert_eq!(receive(aggregator, PARENT, &answer, 0), (Outcome::Old, vec![]), "{seq} {answer:?}");
        }
    };
    // Nobody has contributed, one has, both have; then other chunks of the same place.
    ignores(&mut aggregator, 0);
    assert_eq!(outcome(&mut aggregator, US_AT, &contribute(0, 0, Chunk::block(0))), Outcome::Added);
    ignores(&mut aggregator, 0);
    sum_up(&mut aggregator, 0);
    ignores(&mut aggregator, 8);
    ignores(&mut aggregator, 0u32.wrapping_sub(8));
    // Only the parent is believed, and only if it speaks of the same values.
    for answer in answers(0) {
        assert_eq!(receive(&mut aggregator, US_AT, &answer, 0), (Outcome::Misplaced, vec![]));
    }
    for other in OTHERS {
        assert_eq!(receive(&mut aggregator, PARENT, &result(0, other), 0), (Outcome::OtherChunk, vec![]));
    }
    let longer = [&result(0, WHOLE)[..], &[0]].concat();
    assert_eq!(receive(&mut aggregator, PARENT, &longer, 0), (Outcome::Sections, vec![]));
    // It lacks a block, which goes up again.
    let (outcome, sent) = receive(&mut aggregator, PARENT, &say(0, Body::Missing { blocks: 2 }), 0);
    assert_eq!((outcome, sent.len(), sent[0].0), (Outcome::FromParent, 1, To::One(PARENT)));
    let Body::Partial { child: 3, workers: 2, part } = Packet::parse(&sent[0].1).unwrap().body else {
        panic!()
    };
    assert_eq!(part.blocks, Blocks::new(256, 1, 1).unwrap());
    // The result comes in two packets, and goes on when it is whole.
    assert_eq!(
        receive(&mut aggregator, PARENT, &result(0, Chunk::block(1)), 0),
        (Outcome::FromParent, vec![])
    );
    let whole = result(0, WHOLE);
    let sent = vec![(EACH, whole.clone())];
    assert_eq!(receive(&mut aggregator, PARENT, &result(0, Chunk::block(0)), 0), (Outcome::FromParent, sent));
    ignores(&mut aggregator, 0);
    let sent = vec![(To::One(US_AT), whole)];
    assert_eq!(receive(&mut aggregator, US_AT, &query(0, true), 0), (Outcome::Repeated, sent));
}

#[test]
fn a_chunk_without_a_result_stays_without_one() {
    let mut aggregator = rack();
    sum_up(&mut aggregator, 0);
    let rescale = say(0, Body::Rescale { peak: 200 });
    assert_eq!(
        receive(&mut aggregator, PARENT, &rescale, 0),
        (Outcome::FromParent, vec![(EACH, rescale.clone())])
    );
    assert_eq!(receive(&mut aggregator, PARENT, &result(0, WHOLE), 0), (Outcome::Old, vec![]));
    let sent = vec![(To::One(US_AT), rescale)];
    assert_eq!(receive(&mut aggregator, US_AT, &query(0, true), 0), (Outcome::Repeated, sent));
}

/// If the parent has lost the job, or never took it, this one refuses it: whoever asks next falls
/// back, until there is a later epoch.
#[test]
fn a_refusal_from_the_parent_ends_the_job() {
    for reason in Refusal::ALL {
        for seq in [0, 3] {
            let mut aggregator = rack();
            sum_up(&mut aggregator, 0);
            // A late answer about another chunk says nothing.
            let is_late = *reason == Refusal::OutOfStep && seq != 0;
            let expected = if is_late { Outcome::Old } else { Outcome::RefusedByParent };
            assert_eq!(
                receive(&mut aggregator, PARENT, &refuse(seq, *reason), 0),
                (expected, vec![]),
                "{reason}"
            );
            if is_late {
                assert_eq!(outcome(&mut aggregator, US_AT, &query(0, false)), Outcome::Waiting, "{reason}");
                continue;
            }
            for (seq, packet) in [(0, query(0, false)), (1, contribute(1, 0, WHOLE)), (0, hello(US))] {
                let refused = vec![(To::One(US_AT), refuse(seq, Refusal::Parent))];
                assert_eq!(
                    receive(&mut aggregator, US_AT, &packet, 0),
                    (Outcome::RefusedByParent, refused),
                    "{reason}"
                );
            }
            let later = hello(WorkerSettings { epoch: US.epoch + 1, ..US });
            assert_eq!(outcome(&mut aggregator, US_AT, &later), Outcome::AskedParent);
        }
    }
}

#[test]
fn a_parent_that_is_silent_counts_as_one_that_refuses() {
    let mut aggregator = rack();
    sum_up(&mut aggregator, 0);
    let waiting = say(0, Body::Waiting { children: 0 });
    let asked = say(0, Body::Query { child: 3, is_overtaken: false });
    let passed_on = (Outcome::Waiting, vec![(To::One(US_AT), waiting.clone()), (To::One(PARENT), asked)]);
    let refused = (Outcome::RefusedByParent, vec![(To::One(US_AT), refuse(0, Refusal::Parent))]);
    // Any word from it starts the time anew.
    for begin in [0, 1000] {
        assert_eq!(receive(&mut aggregator, PARENT, &waiting, begin), (Outcome::FromParent, vec![]));
        for later in [0, SILENT_MS - 1] {
            assert_eq!(receive(&mut aggregator, US_AT, &query(0, false), begin + later), passed_on);
        }
        assert_eq!(receive(&mut aggregator, US_AT, &query(0, false), begin + SILENT_MS), refused);
    }
}
