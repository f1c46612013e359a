//! Verifies both roles of aggregation, datagram by datagram: an aggregator by the integers that it
//! was given, a worker by the results that it was sent.
//!
//! The input of a fuzzer is a list of steps, as `arbitrary` reads them. Some are any bytes.

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::{Arbitrary, Unstructured};
use gradwire::aggregate::{
    Aggregator, Event, Failure, Ignored, Outcome, Poll, Settings, To, Worker, WorkerSettings,
};
use gradwire::codec::Params;
use gradwire::codec::bit_plane::{Bound, sums};
use gradwire::engine::Millis;
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire::sums::{NOT_A_NUMBER, Summable, Units, limit, units, value_of};
use gradwire::wire::chunk::{
    BLOCK_VALUES, Blocks, Body, Cookie, HEADER_LEN, Head, Limits, MAX_CHILDREN, MAX_PACKET_LEN,
    MAX_SECTION_LEN, MIN_MTU, NO_COOKIE, Packet, Part, Refusal, values_of_block,
};

/// Small: windows of two chunks of two blocks.
const LIMITS: Limits = Limits { blocks: 2, window: 2, mtu: MIN_MTU };
const CHUNK: usize = 2 * BLOCK_VALUES;
const JOB: u16 = 1;
const KEY: u64 = 9;
const MAX_STEPS: usize = 120;

/// Values of a block that a few bytes stand for: some zero, some raw, one that is no number now and
/// then.
fn values(seed: u16, count: usize) -> Vec<u8> {
    let value = |i: usize| {
        let mixed = (i as u32 + 1).wrapping_mul(u32::from(seed) << 8 | 0x51).wrapping_mul(0x9e37_79b1);
        match (seed % 61, mixed >> 29) {
            (_, 0..3) => 0,
            (0, 3) => f32::NAN.to_bits(),
            (1, 3) => 1e30f32.to_bits(),
            (_, 3) => (mixed & 0x8000_0000) | 0x4800_0000 | (mixed & 0x00ff_ffff),
            _ => (mixed & 0x8000_0000) | 0x3c00_0000 | (mixed & 0x02ff_ffff),
        }
    };
    (0..count).flat_map(|i| value(i).to_le_bytes()).collect()
}

/// The usual profile of a chunk or of an operation with this number, or another one; that of odd
/// numbers is codec 1's.
fn any_profile(number: usize, choice: u8) -> Summable {
    let profile = match (number % 2, choice) {
        (0, ..240) | (1, 248..) => Profile::BitPlane(Bound::new(-10).expect("in range")),
        (0, ..248) => Profile::BitPlane(Bound::new(-9).expect("in range")),
        _ => Profile::SizeClass(Params::DEFAULT),
    };
    profile.try_into().expect("a small byte offset")
}

/// A datagram, beside any bytes.
#[derive(Debug, Arbitrary)]
enum Step {
    Hello {
        from: u8,
        child: u8,
        epoch: u8,
        children: u8,
        total: u8,
        key: u8,
    },
    Contribute {
        from: u8,
        child: u8,
        epoch: u8,
        seq: u8,
        seed: u16,
        first: u8,
        blocks: u8,
        size: u8,
        profile: u8,
    },
    Query {
        from: u8,
        child: u8,
        epoch: u8,
        seq: u8,
    },
    Bytes {
        from: u8,
        bytes: Vec<u8>,
    },
    Time {
        ms: u8,
    },
}

fn steps<'a, T: Arbitrary<'a>>(bytes: &'a [u8]) -> Vec<T> {
    let mut input = Unstructured::new(bytes);
    let mut steps = Vec::new();
    while !input.is_empty() && steps.len() < MAX_STEPS {
        steps.extend(T::arbitrary(&mut input));
    }
    steps
}

/// A datagram with the sections of a chunk's blocks behind its header.
fn datagram(head: Head, body: impl Fn(Part<'_>) -> Body<'_>, part: Part<'_>) -> Vec<u8> {
    let mut out = vec![0; HEADER_LEN + part.sections.len()];
    let len = Packet { head, body: body(part) }.write(&mut out).expect("room");
    out.truncate(len);
    out
}

/// Any bytes as a block of values, as a result and as a section of sums: every kernel reads them,
/// and writes the sums, as the definition does.
///
/// # Panics
/// A kernel differs from the definition.
pub fn block(bytes: &[u8], count: usize, profile: Summable) {
    let count = count.clamp(1, BLOCK_VALUES);
    let limit = limit(MAX_CHILDREN as u8);
    // Unlike fills, so that a number that was not written shows.
    let (mut units, mut got) = (vec![1; count], vec![2; count]);
    let expected = profile.decode_units(bytes, &mut units, limit);
    for kernel in Kernel::available() {
        assert_eq!(kernel.decode_units(bytes, &mut got, profile, limit), expected, "{}", kernel.name());
        assert!(expected.is_none() || got == units, "{}: units", kernel.name());
        if let Some(adder) = kernel.adder(profile, limit) {
            let codes = adder.codes(bytes, count);
            assert_eq!(codes.is_some(), expected == Some(bytes.len()), "{}: codes", kernel.name());
            let codes =
                expected.map(|len| adder.codes(&bytes[..len], count).expect("as the definition has it"));
            if let Some(mut codes) = codes {
                let mut block = [0; BLOCK_VALUES];
                block[..count].copy_from_slice(&units);
                let (mut sums, mut straight) = ([3; BLOCK_VALUES], [3; BLOCK_VALUES]);
                assert_eq!(
                    codes.add(&mut straight),
                    kernel.add(&block, &mut sums),
                    "{}: unsummable",
                    kernel.name()
                );
                assert_eq!(straight, sums, "{}: added", kernel.name());
            }
        }
    }
    let expected = profile.decode_result(bytes, &mut units);
    let mut result = vec![0; MAX_SECTION_LEN];
    let len = expected.map(|_| profile.encode_result(&units, &mut result).expect("room for the longest"));
    for kernel in Kernel::available() {
        assert_eq!(kernel.decode_result(bytes, &mut got, profile), expected, "{}", kernel.name());
        if let Some(len) = len {
            assert!(got == units, "{}: a result", kernel.name());
            let mut out = vec![0x55; MAX_SECTION_LEN];
            assert_eq!(kernel.encode_result(&got, &mut out, profile), Some(len), "{}", kernel.name());
            assert_eq!(out[..len], result[..len], "{}", kernel.name());
        }
    }
    let expected = sums::decode(bytes, &mut units);
    let mut section = vec![0; MAX_SECTION_LEN];
    let len = expected.map(|_| sums::encode(&units, &mut section).expect("room for the longest"));
    for kernel in Kernel::available() {
        assert_eq!(kernel.decode_sums(bytes, &mut got), expected, "{}", kernel.name());
        if let Some(len) = len {
            assert!(got == units, "{}: sums", kernel.name());
            let mut out = vec![0x55; MAX_SECTION_LEN];
            assert_eq!(kernel.encode_sums(&got, &mut out), Some(len), "{}", kernel.name());
            assert_eq!(out[..len], section[..len], "{}", kernel.name());
        }
    }
}

/// The contributions that the aggregator has taken: each worker's blocks of a chunk, in units; None
/// is no number.
#[derive(Default)]
struct Taken {
    blocks: BTreeMap<(u8, usize), Vec<Option<i64>>>,
    is_over: bool,
}

/// Any datagrams from anybody: results are the sums of what was taken, each worker's blocks once;
/// what is refused changes nothing.
///
/// # Panics
/// A result is wrong, comes too early or to a stranger, or an answer is longer than it may be.
pub fn aggregate(bytes: &[u8]) {
    // The kernel for small cores has a way of its own to add codes of codec 1.
    let kernel = if bytes.len().is_multiple_of(2) { Kernel::SCALAR32 } else { Kernel::detect() };
    let settings = Settings { kernel, limits: LIMITS, group: None, parent: None, secret: [3, 5] };
    let mut aggregator = Aggregator::<u8, 1, 4, 2>::new(settings);
    let mut now = 0;
    let (mut epoch, mut children, mut total) = (None, 0u8, 0u8);
    // By child: its address, and whether it is an aggregator.
    let mut joined: BTreeMap<u8, (u8, bool)> = BTreeMap::new();
    let mut chunks: BTreeMap<u32, Taken> = BTreeMap::new();
    // What each address was last told to repeat.
    let mut cookies: BTreeMap<u8, Cookie> = BTreeMap::new();
    for step in steps::<Step>(bytes) {
        // Mostly what a worker would send: from its own address, in the running epoch.
        let sender = |from: u8, child: u8| if from < 224 { child } else { from % 6 };
        let running = |choice: u8| if choice < 224 { epoch.unwrap_or(0) } else { u32::from(choice % 4) };
        let (from, packet) = match step {
            Step::Time { ms } => {
                now += u64::from(ms);
                continue;
            }
            Step::Bytes { from, bytes } => (from % 6, bytes),
            Step::Hello { from, child, epoch, children, total, key } => {
                let children = if children < 224 { 3 } else { children % 4 + 1 };
                let child = child % children;
                let body = Body::Hello {
                    child,
                    children,
                    total: if total < 224 { children } else { total % 6 + 1 },
                    limits: LIMITS,
                    is_aggregator: (224..232).contains(&key),
                    key: if key < 240 { KEY } else { 0 },
                    cookie: NO_COOKIE,
                };
                let mut out = vec![0; 64];
                let head = Head { job: JOB, epoch: running(epoch), seq: 0 };
                let len = Packet { head, body }.write(&mut out).expect("room");
                let from = sender(from, child);
                // Mostly it is answered first, as a worker is that says hello for the first time.
                if key % 8 != 7 {
                    assert_eq!(aggregator.process(&out[..len], from, Millis(now)), Outcome::Challenged);
                    let mut answer = [0; MAX_PACKET_LEN];
                    let sent = aggregator.emit(&mut answer).expect("a cookie");
                    assert_eq!((sent.to, sent.len), (To::One(from), len), "as long as the hello");
                    cookies.insert(from, *answer[14..].first_chunk().expect("a welcome"));
                }
                out[14..20].copy_from_slice(cookies.get(&from).unwrap_or(&NO_COOKIE));
                (from, out[..len].to_vec())
            }
            Step::Query { from, child, epoch, seq } => {
                let mut out = vec![0; HEADER_LEN];
                let head = Head { job: JOB, epoch: running(epoch), seq: u32::from(seq) / 32 };
                let packet =
                    Packet { head, body: Body::Query { child: child % 4, is_overtaken: child >= 128 } };
                packet.write(&mut out).expect("room");
                (sender(from, child % 4), out)
            }
            Step::Contribute { from, child, epoch, seq, seed, first, blocks, size, profile } => {
                let profile = any_profile(usize::from(seq) / 32, profile);
                let count = if size < 224 { CHUNK } else { 100 };
                let (first, count_blocks) = (usize::from(first) / 128, usize::from(blocks) / 128 + 1);
                let Some(blocks) = Blocks::new(count, first, count_blocks) else { continue };
                let mut sections = vec![0; MAX_PACKET_LEN];
                let mut at = 0;
                for (block, count) in blocks.each() {
                    let values = values(seed ^ block as u16, count);
                    at += profile.profile().encode_payload(&values, &mut sections[at..]).expect("room");
                }
                let part = Part { blocks, peak: 1, profile, sections: &sections[..at] };
                let head = Head { job: JOB, epoch: running(epoch), seq: u32::from(seq) / 32 };
                (
                    sender(from, child % 4),
                    datagram(head, |part| Body::Contribute { child: child % 4, part }, part),
                )
            }
        };
        let outcome = aggregator.process(&packet, from, Millis(now));
        // What the oracle knows of the packet, it has from the reader that golden files hold to
        // FORMAT.md.
        let parsed = Packet::parse(&packet);
        match (outcome, parsed) {
            (
                Outcome::Started | Outcome::Joined,
                Ok(Packet {
                    head,
                    body: Body::Hello { child, children: of, total: all, is_aggregator, key, .. },
                }),
            ) => {
                if head.job != JOB || key != KEY {
                    // Too little time passes for a job to lose its place: this one came first.
                    assert!(epoch.is_none(), "a running job was taken by another, or by another key");
                    return;
                }
                if outcome == Outcome::Started {
                    assert!(epoch.is_none_or(|epoch: u32| head.epoch > epoch), "an epoch that was");
                    (epoch, children, total) = (Some(head.epoch), of, all);
                    joined.clear();
                    chunks.clear();
                }
                assert_eq!((epoch, children, total), (Some(head.epoch), of, all));
                let first = *joined.entry(child).or_insert((from, is_aggregator));
                assert_eq!(first, (from, is_aggregator), "another address, or another child");
            }
            (
                Outcome::Added | Outcome::Completed,
                Ok(Packet { head, body: Body::Contribute { child, part } }),
            ) => {
                assert_eq!(epoch, Some(head.epoch));
                assert_eq!(joined.get(&child), Some(&(from, false)));
                take(chunks.entry(head.seq).or_default(), child, &part, total);
            }
            (Outcome::Added | Outcome::Completed, Ok(Packet { body: Body::Partial { child, .. }, .. })) => {
                assert_eq!(joined.get(&child), Some(&(from, true)));
                return;
            }
            (Outcome::Started | Outcome::Joined | Outcome::Added | Outcome::Completed, other) => {
                panic!("{outcome:?} of {other:?}")
            }
            _ => {}
        }
        let mut out = [0; MAX_PACKET_LEN];
        let mut emitted = 0;
        while let Some(sent) = aggregator.emit(&mut out) {
            emitted += 1;
            let is_worker = joined.values().any(|(address, _)| *address == from);
            assert!(is_worker || (emitted == 1 && sent.len <= packet.len()), "more than a stranger sent");
            assert!(emitted <= LIMITS.blocks, "too many answers");
            assert!(sent.len <= LIMITS.packet_len());
            let packet = Packet::parse(&out[..sent.len]).expect("a packet");
            if let To::One(to) = sent.to {
                assert_eq!(to, from, "an answer to somebody else");
            }
            match packet.body {
                Body::Result { workers, part } => {
                    assert_eq!(workers, children, "a result without all workers");
                    assert!(joined.values().any(|(address, _)| *address == from), "a result to a stranger");
                    assert_eq!(workers, total);
                    verify_result(&chunks[&packet.head.seq], &part, children);
                }
                Body::Rescale { .. } => assert!(chunks[&packet.head.seq].is_over),
                _ => assert!(sent.len <= HEADER_LEN + 16, "a long answer"),
            }
        }
    }
}

/// Puts down what a contribution adds: blocks that were not taken from this child before.
fn take(taken: &mut Taken, child: u8, part: &Part<'_>, total: u8) {
    let mut rest = part.sections;
    for (block, count) in part.blocks.each() {
        let mut values = vec![0; 4 * count];
        rest = &rest[part.profile.profile().decode_payload(rest, &mut values).expect("it was taken")..];
        taken.blocks.entry((child, block)).or_insert_with(|| {
            let value = |bytes: &[u8; 4]| match units(
                u32::from_le_bytes(*bytes),
                part.profile.unit(),
                limit(total),
            ) {
                Units::Whole(units) => Some(units.into()),
                Units::NotANumber => None,
                Units::Over(_) => {
                    taken.is_over = true;
                    Some(0)
                }
            };
            values.as_chunks().0.iter().map(value).collect()
        });
    }
    assert!(rest.is_empty());
}

fn verify_result(taken: &Taken, part: &Part<'_>, children: u8) {
    assert!(!taken.is_over, "a result in place of a rescale");
    let mut rest = part.sections;
    for (block, count) in part.blocks.each() {
        let mut got = vec![0; count];
        rest = &rest[part.profile.decode_result(rest, &mut got).expect("a result")..];
        for (lane, got) in got.into_iter().enumerate() {
            let of = |child: u8| taken.blocks.get(&(child, block)).expect("it waits for all")[lane];
            let expected = (0..children).map(of).sum::<Option<i64>>().unwrap_or(NOT_A_NUMBER.into());
            let expected = i32::try_from(expected).expect("within the limit of each");
            let worth = part.profile.restored(expected);
            assert_eq!(value_of(got, part.profile.unit()), worth, "block {block}, lane {lane}");
        }
    }
    assert!(rest.is_empty());
}

/// A packet for a worker, or an action of it.
#[derive(Debug, Arbitrary)]
enum Turn {
    Result { epoch: u8, seq: u8, seed: u16, first: u8, blocks: u8, size: u8, profile: u8 },
    Rescale { seq: u8 },
    Waiting { seq: u8 },
    Missing { seq: u8, blocks: u16 },
    Refuse { epoch: u8, seq: u8, reason: u8 },
    Welcome { key: u8, window: u8 },
    Start { values: u16 },
    Poll { times: u8 },
    Time { ms: u8 },
    Bytes { bytes: Vec<u8> },
}

/// Any datagrams to a worker: its output is what the first result of each block says, it
/// contributes what it was given and no more than a window ahead, and it fails for good.
///
/// # Panics
/// One of these is not so.
pub fn worker(bytes: &[u8]) {
    let worker_settings =
        WorkerSettings { job: JOB, epoch: 7, child: 1, children: 3, total: 3, limits: LIMITS, key: KEY };
    let mut worker = Worker::<2>::new(worker_settings, Kernel::detect());
    // That of the operation under way.
    let mut profile = any_profile(0, 0);
    let (mut now, mut first, mut count) = (0u64, 0u32, 0usize);
    let (mut input, mut output, mut expected) = (Vec::new(), Vec::new(), Vec::<u8>::new());
    let mut done = BTreeSet::new();
    let mut blocks_had = BTreeSet::new();
    let mut failed: Option<Failure> = None;
    for turn in steps::<Turn>(bytes) {
        let head = |seq: u8| Head { job: JOB, epoch: 7, seq: first.wrapping_add(u32::from(seq) / 16) };
        let mut short = [0; 64];
        let mut small = |head: Head, body: Body<'_>| {
            let len = Packet { head, body }.write(&mut short).expect("room");
            short[..len].to_vec()
        };
        let packet = match turn {
            Turn::Time { ms } => {
                now += u64::from(ms);
                continue;
            }
            Turn::Start { values: size } => {
                let size = usize::from(size) % (6 * CHUNK) + 1;
                let may = failed.is_none() && worker.limits().is_some() && worker.is_done();
                assert_eq!(worker.start(size, any_profile(size, 0)), may);
                if may {
                    profile = any_profile(size, 0);
                    first = first.wrapping_add(count.div_ceil(CHUNK) as u32);
                    count = size;
                    input = values(size as u16, size);
                    (output, expected) = (vec![0x55; 4 * size], vec![0x55; 4 * size]);
                    done.clear();
                    blocks_had.clear();
                }
                continue;
            }
            Turn::Poll { times } => {
                let mut out = [0; MAX_PACKET_LEN];
                for _ in 0..times % 8 {
                    match worker.poll(&input, Millis(now), &mut out) {
                        Poll::Send(len) => {
                            assert!(failed.is_none());
                            verify_sent(&out[..len], &input, first, &done);
                        }
                        Poll::Wait(until) => assert!(until > Millis(now)),
                        Poll::Done => assert!(done.len() == count.div_ceil(CHUNK)),
                        Poll::Failed(failure) => assert_eq!(*failed.get_or_insert(failure), failure),
                    }
                }
                continue;
            }
            Turn::Bytes { bytes } => bytes,
            Turn::Welcome { key, window } => {
                let limits = Limits { window: if window < 240 { 2 } else { 4 }, ..LIMITS };
                let cookie = if window % 32 == 31 { [window; 6] } else { NO_COOKIE };
                let key = if key < 240 { KEY } else { 1 };
                small(Head { seq: 0, ..head(0) }, Body::Welcome { limits, group: [0; 4], key, cookie })
            }
            Turn::Rescale { seq } => small(head(seq), Body::Rescale { peak: 200 }),
            Turn::Waiting { seq } => small(head(seq), Body::Waiting { children: 4 }),
            Turn::Missing { seq, blocks } => small(head(seq), Body::Missing { blocks }),
            Turn::Refuse { epoch, seq, reason } => {
                let reason = Refusal::ALL[usize::from(reason) % Refusal::ALL.len()];
                let epoch = if epoch < 240 { 6 } else { 7 };
                small(Head { epoch, ..head(seq) }, Body::Refuse { reason, epoch: 0 })
            }
            Turn::Result { epoch, seq, seed, first: from, blocks, size, profile: other } => {
                let size = if size < 224 {
                    (count.saturating_sub(CHUNK * usize::from(seq / 16))).min(CHUNK)
                } else {
                    usize::from(size)
                };
                let (from, of) = (usize::from(from) / 128, usize::from(blocks) / 128 + 1);
                let Some(blocks) = Blocks::new(size, from, of) else { continue };
                let profile = any_profile(count, other);
                let mut sections = vec![0; MAX_PACKET_LEN];
                let mut at = 0;
                for (block, count) in blocks.each() {
                    let words = values(seed ^ block as u16, count);
                    let sums: Vec<i32> = words
                        .as_chunks()
                        .0
                        .iter()
                        .map(|word| i32::from_le_bytes(*word) >> (seed % 32))
                        .collect();
                    at += profile.encode_result(&sums, &mut sections[at..]).expect("room");
                }
                let part = Part { blocks, peak: 3, profile, sections: &sections[..at] };
                let head = Head { epoch: if epoch < 240 { 7 } else { 8 }, ..head(seq) };
                datagram(head, |part| Body::Result { workers: 3, part }, part)
            }
        };
        let event = worker.handle(&packet, &mut output, Millis(now));
        let parsed = Packet::parse(&packet);
        match event {
            Event::Chunk { .. } | Event::Progress => {
                let Ok(Packet { head, body: Body::Result { part, .. } }) = parsed else {
                    panic!("{event:?} of {parsed:?}")
                };
                let chunk = head.seq.wrapping_sub(first) as usize;
                let mut rest = part.sections;
                for (block, count) in part.blocks.each() {
                    let mut sums = vec![0; count];
                    rest = &rest[profile.decode_result(rest, &mut sums).expect("it was taken")..];
                    if blocks_had.insert((chunk, block)) {
                        let at = 4 * (CHUNK * chunk + BLOCK_VALUES * block);
                        for (to, sum) in expected[at..].as_chunks_mut().0.iter_mut().zip(sums) {
                            *to = value_of(sum, profile.unit()).to_le_bytes();
                        }
                    }
                }
                let of = (count - CHUNK * chunk).min(CHUNK);
                let whole = (0..2)
                    .all(|block| values_of_block(of, block) == 0 || blocks_had.contains(&(chunk, block)));
                assert_eq!(matches!(event, Event::Chunk { .. }), whole);
                if whole {
                    assert!(done.insert(chunk), "a chunk is done twice");
                }
            }
            Event::Rescale { chunk, .. } => assert!(done.insert(chunk), "a chunk is done twice"),
            Event::Refused => {
                let Ok(Packet { body: Body::Refuse { reason, epoch }, .. }) = parsed else {
                    panic!("{parsed:?}")
                };
                failed.get_or_insert(Failure::Refused { reason, epoch });
            }
            Event::Ignored(Ignored::Malformed) => assert!(parsed.is_err()),
            _ => {}
        }
        assert_eq!(output, expected, "{event:?}");
        for chunk in 0..count.div_ceil(CHUNK) + 1 {
            assert_eq!(worker.holds(chunk), done.contains(&chunk), "{chunk}");
        }
    }
}

/// Checks that a worker sends what is right: contributions are what the definition makes of its
/// values.
fn verify_sent(packet: &[u8], input: &[u8], first: u32, done: &BTreeSet<usize>) {
    let packet = Packet::parse(packet).expect("a packet");
    match packet.body {
        Body::Contribute { child, part } => {
            assert_eq!(child, 1);
            let chunk = packet.head.seq.wrapping_sub(first) as usize;
            assert!(!done.contains(&chunk), "contributes to what is done");
            assert!(chunk < 2 || done.contains(&(chunk - 2)), "more than a window ahead");
            let mut expected = vec![0; MAX_PACKET_LEN];
            let mut at = 0;
            for (block, count) in part.blocks.each() {
                let from = 4 * (CHUNK * chunk + BLOCK_VALUES * block);
                let input = &input[from..from + 4 * count];
                at += part.profile.profile().encode_payload(input, &mut expected[at..]).expect("room");
            }
            assert_eq!(part.sections, &expected[..at]);
        }
        Body::Query { child, is_overtaken } => {
            assert_eq!(child, 1);
            let chunk = packet.head.seq.wrapping_sub(first) as usize;
            assert!(!is_overtaken || done.iter().any(|ahead| *ahead >= chunk + 2), "nothing overtook it");
        }
        Body::Hello { child, children, total, key, .. } => {
            assert_eq!((child, children, total, key), (1, 3, 3, KEY));
        }
        other => panic!("a worker sends {other:?}"),
    }
}
