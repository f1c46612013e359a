//! Attacks on a running job that SECURITY.md rules out, packet by packet. The fuzzer's oracle of
//! aggregators knows one key.

use gradwire::aggregate::{Aggregator, IDLE_MS, Outcome, Settings, To};
use gradwire::engine::Millis;
use gradwire::kernels::Kernel;
use gradwire::wire::chunk::{Body, Head, Limits, MAX_PACKET_LEN, NO_COOKIE, Packet};

use super::with_cookie;

const KEY: u64 = 7;
/// Of two places.
type TestAggregator = Aggregator<u8, 2, 32, 16>;

fn aggregator() -> Box<TestAggregator> {
    Box::new(TestAggregator::new(Settings {
        kernel: Kernel::detect(),
        limits: Limits::MOST,
        group: None,
        parent: None,
        secret: [3, 5],
    }))
}

/// The aggregator's outcome for this hello of a job of two; its answers go nowhere but to where the
/// hello came from.
fn hello(
    aggregator: &mut TestAggregator,
    (from, child): (u8, u8),
    (job, epoch): (u16, u32),
    key: u64,
    now: u64,
) -> Outcome {
    let limits = Limits::MOST;
    let body =
        Body::Hello { child, children: 2, total: 2, is_aggregator: false, limits, key, cookie: NO_COOKIE };
    let mut out = [0; MAX_PACKET_LEN];
    let len = Packet { head: Head { job, epoch, seq: 0 }, body }.write(&mut out).unwrap();
    let mut hello = out[..len].to_vec();
    loop {
        let outcome = aggregator.process(&hello, from, Millis(now));
        while let Some(answer) = aggregator.emit(&mut out) {
            assert!(matches!(answer.to, To::One(to) if to == from));
            if outcome == Outcome::Challenged {
                hello = with_cookie(&hello, &out[..answer.len]);
            }
        }
        if outcome != Outcome::Challenged {
            return outcome;
        }
    }
}

#[test]
fn without_the_key_nobody_joins_or_resets_a_job() {
    let mut aggregator = aggregator();
    assert_eq!(hello(&mut aggregator, (0, 0), (1, 5), KEY, 0), Outcome::Started);
    for epoch in [4, 5, 6, 1000] {
        assert_eq!(hello(&mut aggregator, (9, 1), (1, epoch), KEY + 1, 0), Outcome::Key);
    }
    // The epoch still runs, and has its place for the other worker.
    assert_eq!(hello(&mut aggregator, (1, 1), (1, 5), KEY, 0), Outcome::Joined);
    assert_eq!(hello(&mut aggregator, (1, 1), (1, 4), KEY, 0), Outcome::OldEpoch);
}

#[test]
fn a_workers_place_is_its_addresses() {
    let mut aggregator = aggregator();
    assert_eq!(hello(&mut aggregator, (0, 0), (1, 5), KEY, 0), Outcome::Started);
    assert_eq!(hello(&mut aggregator, (9, 0), (1, 5), KEY, 0), Outcome::Taken);
    let query = Packet {
        head: Head { job: 1, epoch: 5, seq: 0 },
        body: Body::Query { child: 0, is_overtaken: false },
    };
    let mut out = [0; MAX_PACKET_LEN];
    let len = query.write(&mut out).unwrap();
    assert_eq!(aggregator.process(&out[..len], 9, Millis(0)), Outcome::Taken);
    assert_eq!(aggregator.process(&out[..len], 0, Millis(0)), Outcome::Missing);
}

#[test]
fn a_place_in_use_is_not_given_away_within_a_minute() {
    const { assert!(IDLE_MS >= 60_000) };
    let mut aggregator = aggregator();
    for job in [1, 2] {
        assert_eq!(hello(&mut aggregator, (0, 0), (job, 1), KEY, 0), Outcome::Started);
    }
    assert_eq!(hello(&mut aggregator, (9, 0), (3, 1), KEY, IDLE_MS - 1), Outcome::Full);
    assert_eq!(hello(&mut aggregator, (9, 0), (3, 1), KEY, IDLE_MS), Outcome::Started);
}
