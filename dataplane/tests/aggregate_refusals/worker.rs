//! Packets that a worker refuses or ignores.

use gradwire::aggregate::{Event, Failure, Ignored, Poll, SILENT_MS, Worker};

use super::*;

/// A worker with two chunks to sum.
struct Station {
    worker: Worker<4>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Station {
    /// It has said hello.
    fn new() -> Self {
        let bytes = vec![0; 2 * 256 * 4];
        let mut station =
            Self { worker: Worker::new(US, Kernel::PORTABLE), input: bytes.clone(), output: bytes };
        assert_eq!(station.poll(0), Ok(hello(US)));
        station
    }

    /// It has contributed both chunks at 0.
    fn summing() -> Self {
        let mut station = Self::new();
        assert_eq!(station.receive(&welcome(LIMITS, US.key), 0), Event::Joined { group: None });
        assert!(station.worker.start(2 * 256, WHOLE.profile()));
        for seq in [0, 1] {
            let sent = station.poll(0).unwrap();
            let Packet { head, body: Body::Contribute { .. } } = Packet::parse(&sent).unwrap() else {
                panic!()
            };
            assert_eq!(head.seq, seq);
        }
        station
    }

    /// Its next packet, or its other wish.
    fn poll(&mut self, now: u64) -> Result<Vec<u8>, Poll> {
        let mut out = [0; 1500];
        match self.worker.poll(&self.input, Millis(now), &mut out) {
            Poll::Send(len) => Ok(out[..len].to_vec()),
            other => Err(other),
        }
    }

    fn receive(&mut self, packet: &[u8], now: u64) -> Event {
        self.worker.handle(packet, &mut self.output, Millis(now))
    }
}

#[test]
fn a_worker_takes_a_welcome_with_its_key_and_no_more_than_it_can_have() {
    let mut station = Station::new();
    let ignored = Event::Ignored(Ignored::Welcome);
    for (limits, key) in [
        (LIMITS, US.key + 1),
        (Limits { blocks: 3, ..LIMITS }, US.key),
        (Limits { window: 8, ..LIMITS }, US.key),
        (Limits { mtu: 1501, ..LIMITS }, US.key),
    ] {
        assert_eq!(station.receive(&welcome(limits, key), 0), ignored, "{limits:?}");
        assert_eq!(station.worker.limits(), None);
    }
    // The first one holds, but for shorter packets.
    let first = Limits { blocks: 1, window: 2, mtu: 1400 };
    for (limits, event, mtu) in [
        (first, Event::Joined { group: None }, 1400),
        (first, Event::Joined { group: None }, 1400),
        (Limits { mtu: 1300, ..first }, Event::Joined { group: None }, 1300),
        (first, Event::Joined { group: None }, 1300),
        (Limits { blocks: 2, ..first }, ignored, 1300),
        (Limits { window: 1, ..first }, ignored, 1300),
    ] {
        assert_eq!(station.receive(&welcome(limits, US.key), 0), event, "{limits:?}");
        assert_eq!(station.worker.limits(), Some(Limits { mtu, ..first }));
    }
}

/// Sent again five times and missing still: nobody will take it. Each time, there is something to
/// count only if the blocks were sent.
#[test]
fn a_worker_sends_the_same_blocks_again_five_times() {
    let mut station = Station::summing();
    let missing = |blocks| say(0, Body::Missing { blocks });
    // As many others before, as the aggregator gets one block, say.
    for blocks in [3, 3, 2, 2, 2, 2, 2] {
        for _ in 0..10 {
            assert_eq!(station.receive(&missing(blocks), 1), Event::Missing);
        }
        let sent = station.poll(1).unwrap();
        let Body::Contribute { part, .. } = Packet::parse(&sent).unwrap().body else { panic!() };
        assert_eq!(part.blocks.mask(), blocks);
        assert_eq!(station.poll(1), Err(Poll::Wait(Millis(50))));
    }
    assert_eq!(station.receive(&missing(2), 2), Event::Missing);
    assert_eq!(station.poll(2), Err(Poll::Failed(Failure::Dropped)));
}

fn challenge(cookie: [u8; 6]) -> Vec<u8> {
    say(0, Body::Welcome { limits: LIMITS, group: [0; 4], key: US.key, cookie })
}

#[test]
fn a_worker_repeats_the_cookie_that_it_is_sent() {
    let mut station = Station::new();
    assert_eq!(station.poll(0), Err(Poll::Wait(Millis(20))));
    let with = |cookie| with_cookie(&hello(US), &challenge(cookie));
    // At once if the cookie is new, and then as often as any hello.
    for (now, cookie) in [(1, [1; 6]), (5, [0, 0, 0, 0, 0, 1])] {
        assert_eq!(station.receive(&challenge(cookie), now), Event::Challenged);
        assert_eq!(station.poll(now), Ok(with(cookie)));
        assert_eq!(station.receive(&challenge(cookie), now), Event::Challenged);
        assert_eq!(station.poll(now), Err(Poll::Wait(Millis(now + 20))));
    }
    assert_eq!(station.poll(25), Ok(with([0, 0, 0, 0, 0, 1])));
    // Whoever does not know the key is no aggregator of ours; and who has joined has shown enough.
    let other = say(0, Body::Welcome { limits: LIMITS, group: [0; 4], key: US.key + 1, cookie: [2; 6] });
    assert_eq!(station.receive(&other, 26), Event::Ignored(Ignored::Welcome));
    assert_eq!(station.receive(&welcome(LIMITS, US.key), 26), Event::Joined { group: None });
    assert_eq!(station.receive(&challenge([3; 6]), 26), Event::Ignored(Ignored::Welcome));
}

/// As behind an address translator that gives each packet another port.
#[test]
fn a_worker_that_is_challenged_for_ever_falls_back() {
    let mut station = Station::new();
    let end = (1..).find(|now| {
        station.receive(&challenge([*now as u8 | 1, (*now >> 8) as u8, 0, 0, 0, *now as u8]), *now);
        match station.poll(*now) {
            Err(Poll::Failed(failure)) => {
                assert_eq!(failure, Failure::Silent);
                true
            }
            _ => false,
        }
    });
    assert_eq!(end, Some(SILENT_MS));
}

/// Two chunks and four places: the others have nothing to send, or to ask.
#[test]
fn a_worker_sends_nothing_behind_its_operations_end() {
    let mut station = Station::summing();
    assert_eq!(station.poll(0), Err(Poll::Wait(Millis(50))));
    for seq in [0, 1] {
        assert_eq!(station.receive(&result(seq, WHOLE), 1), Event::Chunk { chunk: seq as usize, peak: 127 });
    }
    assert_eq!(station.poll(1), Err(Poll::Done));
}

#[test]
fn a_refusal_ends_a_workers_epoch_unless_it_is_late() {
    for reason in Refusal::ALL {
        let failed = Err(Poll::Failed(Failure::Refused { reason: *reason, epoch: US.epoch }));
        let mut station = Station::summing();
        if *reason == Refusal::OutOfStep {
            assert_eq!(station.receive(&refuse(2, *reason), 1), Event::Ignored(Ignored::NotUnderWay));
            assert_eq!(station.poll(1), Err(Poll::Wait(Millis(50))));
            assert_eq!(station.receive(&refuse(1, *reason), 1), Event::Refused);
        } else {
            assert_eq!(station.receive(&refuse(2, *reason), 1), Event::Refused, "{reason}");
        }
        assert_eq!(station.poll(1), failed);
    }
    // Also of its hello.
    let mut station = Station::new();
    assert_eq!(station.receive(&refuse(0, Refusal::Full), 1), Event::Refused);
}

/// An ignored datagram is counted and changes nothing. It shows that the aggregator lives only if
/// it is an answer to this epoch.
#[test]
fn a_worker_counts_what_it_ignores() {
    let [shorter, longer, coarser] = OTHERS.map(|other| result(0, other));
    let cut = result(0, WHOLE)[..21].to_vec();
    let head = Head { job: US.job, epoch: US.epoch, seq: 0 };
    let waiting = Body::Waiting { children: 1 };
    for (packet, reason, lives) in [
        (vec![], Ignored::Malformed, false),
        (query(0, false), Ignored::Misplaced, false),
        (packet(Head { job: 8, ..head }, waiting), Ignored::OtherJob, false),
        (packet(Head { epoch: 101, ..head }, waiting), Ignored::OtherEpoch, false),
        (welcome(LIMITS, US.key + 1), Ignored::Welcome, false),
        (shorter, Ignored::OtherChunk, false),
        (longer, Ignored::OtherChunk, false),
        (coarser, Ignored::OtherChunk, false),
        (cut, Ignored::Sections, false),
        (say(2, waiting), Ignored::NotUnderWay, true),
        (result(0, Chunk::block(0)), Ignored::Duplicate, true),
    ] {
        let mut station = Station::summing();
        assert_eq!(station.receive(&result(0, Chunk::block(0)), 0), Event::Progress);
        assert_eq!(station.poll(50), Ok(query(0, false)));
        let output = station.output.clone();
        assert_eq!(station.receive(&packet, 100), Event::Ignored(reason));
        for other in Ignored::ALL {
            assert_eq!(station.worker.ignored(*other), u64::from(*other == reason), "{other} {reason}");
        }
        assert!(station.output == output);
        let polled = station.poll(50 + SILENT_MS);
        assert_eq!(polled == Err(Poll::Failed(Failure::Silent)), !lives, "{reason}");
    }
}
