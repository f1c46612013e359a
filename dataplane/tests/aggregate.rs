//! Aggregation: an aggregator and its workers, packet by packet.

use gradwire::aggregate::{Aggregator, Event, Outcome, Poll, Settings, To, Worker};
use gradwire::engine::Millis;
use gradwire::kernels::Kernel;
use gradwire::sums::{Summable, limit, value_of};
use gradwire::wire::chunk::{Blocks, Body, Head, Limits, MAX_PACKET_LEN, NO_COOKIE, Packet, Part};

use crate::common::aggregation::{
    bit_plane, code_of, exact_sum, le_bytes, size_class, sum_of, with_cookie, worker_settings,
};

type EthernetAggregator = Aggregator<u8, 2, 32, 16>;

/// Hands an aggregator a datagram; a hello again with the cookie that it is answered with.
fn process<const JOBS: usize, const SLOTS: usize, const BLOCKS: usize>(
    aggregator: &mut Aggregator<u8, JOBS, SLOTS, BLOCKS>,
    packet: &[u8],
    from: u8,
) -> Outcome {
    let outcome = aggregator.process(packet, from, Millis(0));
    if outcome != Outcome::Challenged {
        return outcome;
    }
    let mut answer = [0; MAX_PACKET_LEN];
    let len = aggregator.emit(&mut answer).unwrap().len;
    aggregator.process(&with_cookie(packet, &answer[..len]), from, Millis(0))
}

fn aggregator() -> Box<EthernetAggregator> {
    Box::new(EthernetAggregator::new(Settings {
        kernel: Kernel::detect(),
        limits: Limits::MOST,
        group: None,
        parent: None,
        secret: [3, 5],
    }))
}

/// Delivers all that is there to deliver, in order, until every worker is done.
fn settle(
    aggregator: &mut EthernetAggregator,
    children: &mut [Worker<16>],
    inputs: &[Vec<u8>],
    outputs: &mut [Vec<u8>],
    now: Millis,
) {
    let mut out = [0; MAX_PACKET_LEN];
    loop {
        let mut sent = false;
        for number in 0..children.len() {
            let Poll::Send(len) = children[number].poll(&inputs[number], now, &mut out) else { continue };
            sent = true;
            let _ = aggregator.process(&out[..len], number as u8, now);
            let mut packet = [0; MAX_PACKET_LEN];
            while let Some(emitted) = aggregator.emit(&mut packet) {
                let to: Vec<u8> = match emitted.to {
                    To::One(one) => vec![one],
                    To::Each { job } => aggregator.children(job).collect(),
                    To::Group(_) => (0..children.len() as u8).collect(),
                };
                for to in to.into_iter().map(usize::from) {
                    let event = children[to].handle(&packet[..emitted.len], &mut outputs[to], now);
                    assert!(!matches!(event, Event::Ignored(_)), "{event:?}");
                }
            }
        }
        if !sent {
            return;
        }
    }
}

#[test]
fn four_workers_get_the_exact_sum() {
    // The next operation may have another codec.
    let profiles = [bit_plane(-10), size_class(10, 3, 0), size_class(8, 8, -2), bit_plane(-14)];
    let mut aggregator = aggregator();
    let mut children: Vec<Worker<16>> =
        (0..4).map(|n| Worker::new(worker_settings(n, 4), Kernel::detect())).collect();
    let values = 100_000;
    let inputs: Vec<Vec<u8>> = (0..4)
        .map(|n| le_bytes((0..values).map(|i| ((i * 7919 + n * 104_729) % 4001) as f32 / 4001.0 - 0.5)))
        .collect();
    let none = vec![vec![]; 4];
    settle(&mut aggregator, &mut children, &none, &mut vec![vec![]; 4], Millis(0));
    for (done, profile) in (1..).zip(profiles) {
        let mut outputs = vec![vec![0xaa; 4 * values]; 4];
        for worker in &mut children {
            assert!(worker.start(values, profile));
        }
        settle(&mut aggregator, &mut children, &inputs, &mut outputs, Millis(done));
        let expected = exact_sum(&inputs, profile);
        for (worker, output) in children.iter().zip(&outputs) {
            assert!(worker.is_done() && worker.holds(48) && !worker.holds(49));
            assert!(*output == expected);
        }
        assert_eq!(aggregator.count(Outcome::Completed), done * values.div_ceil(2048) as u64);
    }
}

/// Of a worker's and an aggregator's limits, each of the smaller ones holds for both.
#[test]
fn the_smaller_limits_hold() {
    let small = Limits { blocks: 8, window: 4, mtu: 1400 };
    let mixed = Limits { mtu: Limits::MOST.mtu, ..small };
    for (aggregator, worker, agreed) in [
        (small, Limits::MOST, small),
        (Limits::MOST, small, small),
        (mixed, small, small),
        (small, mixed, small),
    ] {
        let settings = Settings {
            kernel: Kernel::detect(),
            limits: aggregator,
            group: None,
            parent: None,
            secret: [3, 5],
        };
        let mut aggregator = Box::new(EthernetAggregator::new(settings));
        let worker_settings = gradwire::aggregate::WorkerSettings { limits: worker, ..worker_settings(0, 1) };
        let mut children = [Worker::<16>::new(worker_settings, Kernel::detect())];
        settle(&mut aggregator, &mut children, &[vec![]], &mut [vec![]], Millis(0));
        assert_eq!(children[0].limits(), Some(agreed));
    }
}

/// A window takes two slots a chunk: an aggregator agrees to no more than it has room for.
#[test]
fn a_window_has_two_slots_for_each_chunk() {
    let settings = Settings {
        kernel: Kernel::detect(),
        limits: Limits::MOST,
        group: None,
        parent: None,
        secret: [3, 5],
    };
    let mut aggregator = Aggregator::<u8, 1, 8, 16>::new(settings);
    let mut worker = Worker::<16>::new(worker_settings(0, 1), Kernel::detect());
    let (mut hello, mut welcome) = ([0; 64], [0; 64]);
    for outcome in [Outcome::Challenged, Outcome::Started] {
        let Poll::Send(len) = worker.poll(&[], Millis(0), &mut hello) else { panic!() };
        assert_eq!(aggregator.process(&hello[..len], 0, Millis(0)), outcome);
        let len = aggregator.emit(&mut welcome).unwrap().len;
        worker.handle(&welcome[..len], &mut [], Millis(0));
    }
    assert_eq!(worker.limits(), Some(Limits { window: 4, ..Limits::MOST }));
}

/// One bit of the kind makes a partial sum of one child a contribution, and the reverse; the
/// sections of either would be read as other values.
#[test]
fn a_worker_sends_what_it_joined_to_send() {
    let limits = Limits::MOST;
    let mut aggregator = aggregator();
    let mut send = |child: u8, seq: u32, body: Body<'_>| {
        let mut out = [0; 64];
        let len = Packet { head: Head { job: 1, epoch: 1, seq }, body }.write(&mut out).unwrap();
        process(&mut aggregator, &out[..len], child)
    };
    let hello = |child, is_aggregator| Body::Hello {
        child,
        children: 2,
        total: 2,
        is_aggregator,
        limits,
        key: 7,
        cookie: NO_COOKIE,
    };
    assert_eq!(send(0, 0, hello(0, true)), Outcome::Started);
    assert_eq!(send(1, 0, hello(1, false)), Outcome::Joined);
    // Nobody becomes the other within an epoch.
    assert_eq!(send(0, 0, hello(0, false)), Outcome::Differs);
    assert_eq!(send(1, 0, hello(1, true)), Outcome::Differs);
    let mut section = [0; 16];
    let len = Kernel::detect().encode_sums(&[3], &mut section).unwrap();
    let part = Part {
        blocks: Blocks::new(1, 0, 1).unwrap(),
        peak: 0,
        profile: bit_plane(-10),
        sections: &section[..len],
    };
    assert_eq!(send(0, 0, Body::Contribute { child: 0, part }), Outcome::OtherKind);
    assert_eq!(send(1, 0, Body::Partial { child: 1, workers: 1, part }), Outcome::OtherKind);
    assert_eq!(send(0, 0, Body::Partial { child: 0, workers: 1, part }), Outcome::Added);
    assert_eq!(send(1, 0, Body::Contribute { child: 1, part }), Outcome::Completed);
    // A later epoch may have it otherwise.
    let mut out = [0; 64];
    let later = Packet { head: Head { job: 1, epoch: 2, seq: 0 }, body: hello(0, false) };
    let len = later.write(&mut out).unwrap();
    assert_eq!(process(&mut aggregator, &out[..len], 0), Outcome::Started);
}

/// A copy of a job's result goes to the workers of that job.
#[test]
fn a_jobs_workers_are_its_own() {
    let mut aggregator = aggregator();
    for job in [1, 2] {
        let head = Head { job, epoch: 1, seq: 0 };
        let (limits, key) = (Limits::MOST, 7);
        let body = Body::Hello {
            child: 0,
            children: 1,
            total: 1,
            is_aggregator: false,
            limits,
            key,
            cookie: NO_COOKIE,
        };
        let mut out = [0; 64];
        let len = Packet { head, body }.write(&mut out).unwrap();
        assert_eq!(process(&mut aggregator, &out[..len], 10 * job as u8), Outcome::Started);
    }
    let children = |job| aggregator.children(job).collect::<Vec<_>>();
    assert_eq!([1, 2, 3].map(children), [vec![10], vec![20], vec![]]);
}

/// Packets may be cut anew when they are sent again, so that some of their blocks are new and some
/// are not. Each counts once, whichever comes first, and nothing is left of what a slot held
/// before.
#[test]
fn a_block_counts_once_however_packets_are_cut() {
    const VALUES: usize = 300;
    // By the order of sending: child, first block, blocks.
    let cuts = [(0, 1, 1), (0, 0, 3), (1, 0, 2), (1, 1, 2)];
    let value = |seq: u32, child: u8, at: usize| {
        ((at * 7919 + usize::from(child) * 104_729 + seq as usize * 31) % 4001) as f32 / 2001.0 - 1.0
    };
    for (kernel, profile) in Kernel::available()
        .flat_map(|kernel| [bit_plane(-10), size_class(10, 3, 0)].map(|profile| (kernel, profile)))
    {
        let limits = Limits { window: 1, ..Limits::MOST };
        let mut aggregator = Box::new(Aggregator::<u8, 1, 2, 3>::new(Settings {
            kernel,
            limits,
            group: None,
            parent: None,
            secret: [3, 5],
        }));
        let limits = Limits { blocks: 3, ..limits };
        let mut out = [0; MAX_PACKET_LEN];
        for child in 0..2 {
            let body = Body::Hello {
                child,
                children: 2,
                total: 2,
                is_aggregator: false,
                limits,
                key: 7,
                cookie: NO_COOKIE,
            };
            let len = Packet { head: Head { job: 1, epoch: 1, seq: 0 }, body }.write(&mut out).unwrap();
            let _ = process(&mut aggregator, &out[..len], child);
            let _ = aggregator.emit(&mut out);
        }
        for seq in 0..5 {
            let head = Head { job: 1, epoch: 1, seq };
            for (child, first, count) in cuts {
                let blocks = Blocks::new(VALUES, first, count).unwrap();
                let code = |(block, count): (usize, usize)| {
                    code_of((0..count).map(|at| value(seq, child, 128 * block + at).to_bits()), profile)
                };
                let sections: Vec<u8> = blocks.each().flat_map(code).collect();
                let part = Part { blocks, peak: 0, profile, sections: &sections };
                let packet = Packet { head, body: Body::Contribute { child, part } };
                let len = packet.write(&mut out).unwrap();
                let is_last = (child, first) == (1, 1);
                let expected = if is_last { Outcome::Completed } else { Outcome::Added };
                assert_eq!(aggregator.process(&out[..len], child, Millis(0)), expected, "{}", kernel.name());
            }
            let mut seen = 0;
            while let Some(sent) = aggregator.emit(&mut out) {
                let Ok(Packet { body: Body::Result { part, .. }, .. }) = Packet::parse(&out[..sent.len])
                else {
                    panic!("a result")
                };
                let mut rest = part.sections;
                for (block, count) in part.blocks.each() {
                    let mut sums = vec![0; count];
                    rest = &rest[profile.decode_result(rest, &mut sums).unwrap()..];
                    for (at, sum) in sums.into_iter().enumerate() {
                        let values = (0..2).map(|child| value(seq, child, 128 * block + at).to_bits());
                        assert_eq!(
                            value_of(sum, profile.unit()),
                            sum_of(values, profile),
                            "{}",
                            kernel.name()
                        );
                        seen += 1;
                    }
                }
            }
            assert_eq!(seen, VALUES);
        }
    }
}

/// A rack's sums may be as large as what all its workers may add, and no larger.
#[test]
fn a_partial_sum_beyond_its_workers_limits_is_refused() {
    let most = limit(2);
    for (sum, outcome) in [
        (most, Outcome::Added),
        (-most, Outcome::Added),
        (most + 1, Outcome::Sections),
        (-most - 1, Outcome::Sections),
    ] {
        let mut aggregator = aggregator();
        let mut send = |body: Body<'_>| {
            let mut out = [0; 64];
            let len = Packet { head: Head { job: 1, epoch: 1, seq: 0 }, body }.write(&mut out).unwrap();
            process(&mut aggregator, &out[..len], 0)
        };
        let limits = Limits::MOST;
        let hello = Body::Hello {
            child: 0,
            children: 2,
            total: 2,
            is_aggregator: true,
            limits,
            key: 7,
            cookie: NO_COOKIE,
        };
        assert_eq!(send(hello), Outcome::Started);
        let mut section = [0; 16];
        let len = Kernel::detect().encode_sums(&[sum], &mut section).unwrap();
        let blocks = Blocks::new(1, 0, 1).unwrap();
        let part = Part { blocks, peak: 0, profile: bit_plane(-10), sections: &section[..len] };
        assert_eq!(send(Body::Partial { child: 0, workers: 1, part }), outcome, "{sum}");
    }
}
/// The first contribution says how a chunk is coded; what is coded otherwise is dropped, as another
/// bound is.
#[test]
fn a_chunk_has_one_profile() {
    let limits = Limits::MOST;
    let profiles =
        [size_class(10, 3, 0), size_class(10, 4, 0), size_class(10, 3, 1), bit_plane(-10), bit_plane(-9)];
    for first in profiles {
        let mut aggregator = aggregator();
        let mut send = |child: u8, body: Body<'_>| {
            let mut out = [0; 64];
            let len = Packet { head: Head { job: 1, epoch: 1, seq: 0 }, body }.write(&mut out).unwrap();
            process(&mut aggregator, &out[..len], child)
        };
        for child in 0..2 {
            let hello = Body::Hello {
                child,
                children: 2,
                total: 2,
                is_aggregator: false,
                limits,
                key: 7,
                cookie: NO_COOKIE,
            };
            let _ = send(child, hello);
        }
        // A value that is zero, with either codec.
        let contribute = |child, profile, sections| {
            let part = Part { blocks: Blocks::new(1, 0, 1).unwrap(), peak: 0, profile, sections };
            Body::Contribute { child, part }
        };
        let zero = |profile: Summable| if profile.profile().codec() == 1 { &[0u8, 0][..] } else { &[0] };
        assert_eq!(send(0, contribute(0, first, zero(first))), Outcome::Added);
        for other in profiles.into_iter().filter(|other| *other != first) {
            assert_eq!(send(1, contribute(1, other, zero(other))), Outcome::OtherChunk);
        }
        assert_eq!(send(1, contribute(1, first, &[9; 9])), Outcome::Sections);
        assert_eq!(send(1, contribute(1, first, zero(first))), Outcome::Completed);
        assert_eq!(aggregator.count(Outcome::OtherChunk), 4);
    }
}
