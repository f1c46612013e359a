//! The simulator against closed forms, which share nothing with it, and against itself.

use gradwire_simulator::{
    Assignment, ComputeTimes, Excess, Jitter, Links, Mechanism, Model, Parameter, Picos, Racks, SECOND,
    Scenario, SimError, VALUE_BITS, Wire, seconds, transmission,
};
use proptest::prelude::*;

/// Parameters of these sizes in bits.
fn model(bits: &[u64]) -> Model {
    let parameter = |(at, &bits): (usize, &u64)| Parameter {
        name: format!("p{at}"),
        values: bits / VALUE_BITS,
        forward_flops: 0,
        bits,
    };
    Model {
        name: "test".into(),
        parameters: bits.iter().enumerate().map(parameter).collect(),
        variables: Vec::new(),
        forward: 0.0,
        backward: 0.0,
    }
}

fn all() -> impl Iterator<Item = Mechanism> {
    Mechanism::NAMES.into_iter().map(|(name, mechanism)| match mechanism {
        Mechanism::HierarchicalAggregators { .. } => "hier-agg:2".parse().unwrap(),
        _ if name.parse::<Mechanism>().unwrap() == mechanism => mechanism,
        _ => unreachable!("{name} does not parse to what it stands for"),
    })
}

/// The toy example: gradients of three operations, 3 s of compute and 3 s of network each, from two
/// workers, the second of which begins `late`. Parameters take no time: they shrink to a bit, which
/// takes 1 ps.
fn toy(mechanism: Mechanism, late: Picos) -> Picos {
    let bits = 3 * SECOND;
    let mut scenario = Scenario::new(model(&[bits; 3]), mechanism);
    scenario.compute_times = vec![ComputeTimes { forward: vec![0; 3], backward: vec![3 * SECOND; 3] }];
    scenario.links.bandwidth = SECOND;
    scenario.workers = 2;
    scenario.cut_through = true;
    scenario.late = vec![(1, late)];
    scenario.wire.compression = Some("in-nic:1/1/1e13".parse().unwrap());
    time(&scenario)
}

/// One parameter, zero compute; its time on a link is `D`.
fn single(mechanism: Mechanism, workers: u32) -> Scenario {
    let mut scenario = Scenario::new(model(&[D / 100]), mechanism);
    scenario.links.bandwidth = 10_000_000_000;
    scenario.workers = workers;
    scenario
}

/// A multiple of every number of workers tried.
const D: Picos = 64 * 27 * 25 * 7 * 1_000_000;

fn time(scenario: &Scenario) -> Picos {
    scenario.run().unwrap().iteration
}

#[test]
fn one_parameter_takes_what_the_closed_forms_say() {
    for workers in [2_u32, 4, 8, 16, 32, 64] {
        let w = Picos::from(workers);
        let rounds = Picos::from(workers.ilog2());
        for (mechanism, expected) in [
            (Mechanism::AGGREGATION, (w + 2) * D),
            (Mechanism::MULTICAST, (w + 1) * D),
            (Mechanism::BOTH, 3 * D),
            (Mechanism::RING, 2 * (w - 1) * D / w),
            ("ring+mc".parse().unwrap(), 2 * (w - 1) * D / w),
            ("ring-whole".parse().unwrap(), 2 * (w - 1) * D),
            (Mechanism::Butterfly, rounds * D),
            ("ps-rr".parse().unwrap(), (w + 1) * D),
            (Mechanism::BLOCK, (w + 1) * D),
            // Down: W/2 copies to the groups, then 2 in the last of them; up: 1 to its aggregator,
            // 1 to the root.
            ("hier-agg:2".parse().unwrap(), (w / 2 + 4) * D),
        ] {
            assert_eq!(time(&single(mechanism, workers)), expected, "{mechanism}, {workers} workers");
        }
    }
}

#[test]
fn cut_through_aggregation_saves_one_transmission() {
    let scenario = Scenario { cut_through: true, ..single(Mechanism::BOTH, 8) };
    assert_eq!(time(&scenario), 2 * D);
}

#[test]
fn the_papers_toy_example_takes_21_12_21_and_15_seconds() {
    for (mechanism, late, expected) in [
        ("ps-rr".parse().unwrap(), 0, 21),
        (Mechanism::BOTH, 0, 12),
        ("ps-rr".parse().unwrap(), 3 * SECOND, 21),
        (Mechanism::BOTH, 3 * SECOND, 15),
    ] {
        let ours = seconds(toy(mechanism, late));
        assert!((ours - f64::from(expected)).abs() < 1e-9, "{mechanism}, {late} late: {ours} s");
    }
}

/// VGG-16's time is dominated by its size and by fc6, which makes closed forms of it.
#[test]
fn vgg16_takes_what_its_closed_forms_say() {
    let vgg = Model::published("vgg16").unwrap();
    let size = vgg.bits() as f64 / 25e9;
    let fc6 = 41472.0 * 4096.0 * 32.0 / 25e9;
    let w = 32.0;
    for (mechanism, expected, tolerance) in [
        (Mechanism::BASELINE, 2.0 * w * size, 0.005),
        (Mechanism::AGGREGATION, w * size + size + fc6, 0.005),
        (Mechanism::MULTICAST, w * size + size, 0.005),
        (Mechanism::BOTH, 2.0 * size + fc6, 0.005),
        (Mechanism::RING, vgg.forward + 2.0 * (w - 1.0) / w * size, 0.005),
        (Mechanism::Butterfly, vgg.forward + 5.0 * size, 0.005),
    ] {
        let ours = seconds(time(&Scenario::new(vgg.clone(), mechanism)));
        assert!((ours / expected - 1.0).abs() < tolerance, "{mechanism}: {ours} s, closed form {expected} s");
    }
}

#[test]
fn one_worker_for_all_is_the_same_as_all_of_them() {
    for name in ["ring", "ring+mc", "butterfly"] {
        for workers in [2, 4, 8] {
            for model in ["vgg16", "resnet101"] {
                let model = Model::published(model).unwrap();
                let one = Scenario { workers, ..Scenario::new(model, name.parse().unwrap()) };
                let full = Scenario { full: true, ..one.clone() };
                let (one, full) = (one.run().unwrap(), full.run().unwrap());
                assert_eq!(one.iteration, full.iteration, "{name}, {workers} workers");
                assert!(full.sent.iter().all(|&sent| sent == one.sent[0]));
            }
        }
    }
}

/// Pipe-SGD Eq. 4 in its steady state, with one parameter: the longer of compute and exchange,
/// whatever the width is, from 2 on.
#[test]
fn a_pipeline_takes_the_longer_of_compute_and_exchange() {
    for compute in [D / 4, D, 2 * D, 5 * D] {
        let mut scenario = single(Mechanism::RING, 4);
        scenario.compute_times = vec![ComputeTimes { forward: vec![compute], backward: vec![0] }];
        let exchange = 2 * 3 * D / 4;
        assert_eq!(time(&scenario), compute + exchange, "without a pipeline");
        scenario.barrier = false;
        assert_eq!(time(&scenario), compute + exchange, "one parameter leaves nothing to overlap");
        for width in [2, 3, 4, 9] {
            scenario.staleness = width - 1;
            assert_eq!(time(&scenario), compute.max(exchange), "{compute}, width {width}");
        }
    }
}

/// The time of an iteration of two workers that exchange a parameter in `D`, as recurrences: a
/// worker computes once it has the sum of `width` iterations before, its link sends in turn, and it
/// has a sum once it has both gradients. Paces are drawn by SplitMix64 (Steele et al., OOPSLA
/// 2014).
fn two_jittered_workers(width: usize, compute: Picos, jitter: Jitter) -> Picos {
    let pace = |worker: u64, iteration: usize| {
        let z = jitter.seed ^ (worker << 32 | iteration as u64);
        let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let draw = (z ^ (z >> 31)) >> 32;
        let factor = (1 << 32) + (jitter.amount * draw as f64) as u128;
        ((u128::from(compute) * factor) >> 32) as Picos
    };
    let (mut computed, mut sent) = ([0; 2], [0; 2]);
    let mut sums: Vec<[Picos; 2]> = Vec::new();
    for iteration in 0..4 * width {
        let begun = iteration.checked_sub(width).map_or([0; 2], |before| sums[before]);
        for worker in 0..2 {
            computed[worker] = computed[worker].max(begun[worker]) + pace(worker as u64, iteration);
            sent[worker] = sent[worker].max(computed[worker]) + D;
        }
        sums.push([computed[0].max(sent[1]), computed[1].max(sent[0])]);
    }
    let end = |iteration: usize| *sums[iteration].iter().max().unwrap();
    (end(4 * width - 1) - end(2 * width - 1)) / (2 * width) as Picos
}

/// A wider pipeline lets workers drift apart further, so that slow passes of one worker hide behind
/// those of another: what Eq. 4 leaves out.
#[test]
fn a_wider_pipeline_gains_if_compute_times_vary() {
    let seeds = 100;
    let mean = |width: u32, amount: f64| {
        let of_seed = |seed| {
            let jitter = Jitter { amount, seed };
            let mut scenario = Scenario { barrier: false, jitter, ..single(Mechanism::Butterfly, 2) };
            scenario.staleness = width - 1;
            scenario.compute_times = vec![ComputeTimes { forward: vec![D], backward: vec![0] }];
            let ours = time(&scenario);
            assert_eq!(ours, two_jittered_workers(width as usize, D, jitter), "width {width}, seed {seed}");
            ours
        };
        (0..seeds).map(of_seed).sum::<Picos>() / seeds
    };
    let [two, three, four] = [2, 3, 4].map(|width| mean(width, 0.2));
    assert!(four < three && three < two, "{two}, {three}, {four}");
    assert_eq!([2, 3, 4].map(|width| mean(width, 0.0)), [D; 3]);
}

/// Workers that each compute for `compute`, and exchange one parameter with asynchronous servers.
fn asynchronous(workers: u32, servers: u32, compute: Vec<Picos>) -> Scenario {
    let times = |compute| ComputeTimes { forward: vec![compute], backward: vec![0] };
    let mechanism = Mechanism::ASYNCHRONOUS.with_servers(servers, Assignment::Even);
    Scenario { compute_times: compute.into_iter().map(times).collect(), ..single(mechanism, workers) }
}

/// A worker's gradient goes up and the parameter comes back, in `2 D` besides its compute, until
/// the server's port, which carries one of each worker, takes longer.
#[test]
fn asynchronous_workers_take_their_own_time_or_the_servers() {
    for workers in [1, 2, 4, 16] {
        for compute in [0, D, 3 * D, 10 * D] {
            let port = Picos::from(workers) * D;
            let ours = time(&asynchronous(workers, 1, vec![compute]));
            assert_eq!(ours, (compute + 2 * D).max(port), "{workers} workers, compute {compute}");
        }
    }
    // Two servers share the values, and so the time of a port.
    assert_eq!(time(&asynchronous(16, 2, vec![0])), 8 * D);
}

/// The time in which four workers make four updates, of which one computes ten times as long: each
/// makes its own at its own pace. The window's ends cut one update of the slow worker.
#[test]
fn a_slow_worker_does_not_slow_asynchronous_ones() {
    let (fast, slow) = (10 * D, 100 * D);
    let scenario = asynchronous(4, 1, vec![fast, fast, fast, slow]);
    let rate = |compute: Picos| 1.0 / (compute + 2 * D) as f64;
    let expected = 4.0 / (3.0 * rate(fast) + rate(slow));
    let results = scenario.run().unwrap();
    let off = results.iteration as f64 / expected - 1.0;
    assert!(off.abs() < 1.0 / 60.0, "{off}");
    // What the workers sent says how many updates each made.
    let updates: Vec<u64> = results.sent[..4].iter().map(|bits| bits / (D / 100)).collect();
    let (most, last) = (updates[0], updates[3]);
    assert!(updates[..3].iter().all(|&made| most - made <= 1), "{updates:?}");
    // The slow worker has begun as many as fit into that time.
    assert_eq!(last, (most * 12).div_ceil(102), "{updates:?}");
    // Synchronous workers all wait for the slow one.
    let synchronous = Scenario { mechanism: "ps-rr".parse().unwrap(), barrier: false, ..scenario };
    assert!(time(&synchronous) >= slow + 2 * D);
}

/// A slow worker's link bounds the ring; racks without oversubscription do not.
#[test]
fn slow_links_and_narrow_uplinks_cost_what_they_should() {
    let mut slow = single(Mechanism::RING, 4);
    slow.links.exceptions = vec![(2, 1_000_000_000)];
    // Every chunk passes worker 2's links; its six sends of D/4 take ten times as long.
    let ring = time(&slow);
    assert!(ring >= 10 * 6 * D / 4, "{ring}");
    let fast = time(&single(Mechanism::BOTH, 8));
    for (oversubscription, factor) in [(1.0, 1), (4.0, 1), (8.0, 2)] {
        let mut racked = single(Mechanism::BOTH, 8);
        racked.links.racks = Some(Racks { size: 4, oversubscription });
        let racked = time(&racked);
        // Upwards, four copies share an uplink of 4 / oversubscription links. The multicast passes
        // once.
        if oversubscription == 1.0 {
            assert_eq!(racked, fast);
        } else {
            assert!(racked >= factor * fast && racked > fast, "{oversubscription}: {racked} and {fast}");
        }
    }
}

#[test]
fn latency_adds_once_for_each_hop() {
    let latency = 1_000_000;
    for (mechanism, hops) in [(Mechanism::RING, 14), (Mechanism::Butterfly, 3), (Mechanism::MULTICAST, 2)] {
        let without = time(&single(mechanism, 8));
        let mut scenario = single(mechanism, 8);
        scenario.links.latency = latency;
        assert_eq!(time(&scenario), without + hops * latency, "{mechanism}");
    }
}

/// Bytes that a host sends are bytes that others receive: nothing is lost, nothing is made up.
#[test]
fn bytes_are_conserved() {
    let bits = [64 * 32, 640 * 32, 32 * 32, 5 * 64 * 32];
    let size: u64 = bits.iter().sum();
    let workers = 8;
    let w = u64::from(workers);
    for mechanism in all() {
        let scenario = Scenario { workers, ..Scenario::new(model(&bits), mechanism) };
        let outcome = Scenario { full: true, ..scenario.clone() }.run().unwrap();
        let each = |bits: &[u64]| bits[..workers as usize].to_vec();
        let (sent, received) = (each(&outcome.sent), each(&outcome.received));
        let rest = |bits: &[u64]| bits[workers as usize..].iter().sum::<u64>();
        let (served, gathered) = (rest(&outcome.sent), rest(&outcome.received));
        match mechanism {
            // All gradients, and a parameter for each and in the beginning.
            Mechanism::ASYNCHRONOUS => {
                let updates = u64::from(scenario.iterations()) * w;
                assert_eq!(
                    (sent.iter().sum(), received.iter().sum()),
                    (updates * size, (updates + w) * size)
                );
                assert_eq!((served, gathered), ((updates + w) * size, updates * size));
            }
            Mechanism::Ps { multicast, aggregation, .. } => {
                assert_eq!((sent, received), (vec![size; 8], vec![size; 8]), "{mechanism}");
                assert_eq!(served, if multicast { size } else { w * size });
                assert_eq!(gathered, if aggregation { size } else { w * size });
            }
            Mechanism::Ring { messages: true, multicast: false } => {
                assert_eq!((sent, received), (vec![2 * 7 * size / 8; 8], vec![2 * 7 * size / 8; 8]));
            }
            Mechanism::Ring { messages: true, multicast: true } => {
                assert_eq!((sent, received), (vec![size; 8], vec![2 * 7 * size / 8; 8]));
            }
            Mechanism::Ring { messages: false, .. } => {
                assert_eq!(sent.iter().sum::<u64>(), 2 * 7 * size);
                assert_eq!(received.iter().sum::<u64>(), 2 * 7 * size);
            }
            Mechanism::Graph(_) => unreachable!("tests/graphs.rs checks these"),
            Mechanism::Butterfly => assert_eq!((sent, received), (vec![3 * size; 8], vec![3 * size; 8])),
            Mechanism::InNetwork { .. } => assert_eq!((sent, received), (vec![size; 8], vec![size; 8])),
            Mechanism::HierarchicalAggregators { .. } => {
                assert_eq!((sent, received), (vec![size; 8], vec![size; 8]));
                assert_eq!((served, gathered), ((4 + 8 + 4) * size, (4 + 8 + 4) * size));
            }
        }
    }
}

fn mechanism() -> impl Strategy<Value = Mechanism> {
    proptest::sample::select(all().collect::<Vec<_>>())
}

prop_compose! {
    fn scenario()(
        sizes in prop::collection::vec(1_u64..200_000, 1..12),
        flops in prop::collection::vec(0_u64..1000, 12),
        mechanism in mechanism(),
        servers in 1_u32..4,
        even: bool,
        workers in prop::sample::select(vec![2_u32, 4, 8]),
        bandwidth in 1_000_000_u64..1_000_000_000,
        compute in (0.0..0.01, 0.0..0.01),
        latency in 0_u64..1_000_000_000,
        cut_through: bool,
        amount in 0.0..0.5,
        seed: u64,
        message in prop::option::of(10_000_u64..1_000_000),
        racks in prop::option::of((1_u32..5, 1.0..8.0)),
        (barrier, staleness) in (any::<bool>(), 0_u32..5),
        codec in prop::sample::select(vec!["", "16bit", "in-nic:4", "on-host:4/3@1,2"]),
    ) -> Scenario {
        let mut model = model(&sizes.iter().map(|values| values * VALUE_BITS).collect::<Vec<_>>());
        for (parameter, flops) in model.parameters.iter_mut().zip(flops) {
            parameter.forward_flops = flops;
        }
        let model = model.timed(compute.0, compute.1);
        let assignment = if even { Assignment::Even } else { Assignment::RoundRobin };
        let racks = racks.map(|(size, oversubscription)| Racks { size, oversubscription });
        Scenario {
            workers,
            links: Links { bandwidth, exceptions: vec![(0, bandwidth / 2)], latency, racks },
            message,
            cut_through,
            barrier,
            staleness: if barrier || mechanism.is_asynchronous() { 0 } else { staleness },
            jitter: Jitter { amount, seed },
            wire: Wire { compression: codec.parse().ok(), packets: None },
            ..Scenario::new(model, mechanism.with_servers(servers, assignment))
        }
    }
}

/// Nothing is allocated for a run that is too large; the error names what makes it so.
#[test]
fn runs_that_are_too_large_are_refused_with_their_cause() {
    let vgg = |mechanism| Scenario::new(Model::published("vgg16").unwrap(), mechanism);
    let ring_mc = "ring+mc".parse().unwrap();
    for (scenario, cause) in [
        (Scenario { message: Some(8), ..vgg(Mechanism::BASELINE) }, Excess::Message),
        (vgg(Mechanism::BASELINE.with_servers(u32::MAX, Assignment::Even)), Excess::Servers),
        (vgg(Mechanism::BASELINE.with_servers(u32::MAX, Assignment::RoundRobin)), Excess::Servers),
        (Scenario { workers: 100_000, full: true, ..vgg(Mechanism::RING) }, Excess::Full),
        (Scenario { workers: 1 << 31, full: true, ..vgg(Mechanism::Butterfly) }, Excess::Full),
        (Scenario { workers: 40_000, full: true, ..vgg(ring_mc) }, Excess::Full),
        (Scenario { workers: u32::MAX, ..vgg("hier-agg:1".parse().unwrap()) }, Excess::Workers),
        (
            Scenario { workers: 1, ..Scenario::new(model(&vec![32 << 44; 100_000]), Mechanism::BASELINE) },
            Excess::Parameters,
        ),
    ] {
        let scenario = Scenario { links: Links { bandwidth: 1 << 60, ..scenario.links }, ..scenario };
        match scenario.run() {
            Err(SimError::TooLarge { excess, .. }) => assert_eq!(excess, cause, "{}", scenario.mechanism),
            other => panic!("{}, {cause:?}: {other:?}", scenario.mechanism),
        }
    }
}

/// Progress can be shown: a long run tells again and again how far it is.
#[test]
fn a_long_run_can_be_watched() {
    let scenario = Scenario {
        workers: 500,
        ..Scenario::new(Model::published("resnet101").unwrap(), Mechanism::BASELINE)
    };
    let mut seen = Vec::new();
    let watched = scenario.run_watched(|events| seen.push(events)).unwrap();
    assert!(seen.len() > 2 && seen.is_sorted(), "{seen:?}");
    assert!(*seen.last().unwrap() <= watched.events);
    assert_eq!(watched, scenario.run().unwrap());
}

/// The time of a model, by the FLOPs of its rows: in proportion, or evenly if there are none.
#[test]
fn compute_times_are_divided_by_flops_and_never_dropped() {
    for (flops, forward, backward) in [
        (&[0, 0, 0, 0][..], &[3, 3, 3, 3][..], &[6, 6, 6, 6][..]),
        (&[5], &[12], &[24]),
        (&[0, 7, 0], &[0, 12, 0], &[0, 24, 0]),
        // The backward pass is timed from the last row's gradient on.
        (&[1, 2, 3], &[2, 4, 6], &[8, 16, 0]),
    ] {
        let mut model = model(&vec![32; flops.len()]).timed(12.0, 24.0);
        for (parameter, &flops) in model.parameters.iter_mut().zip(flops) {
            parameter.forward_flops = flops;
        }
        let in_seconds = |times: &[Picos]| times.iter().map(|&time| time / SECOND).collect::<Vec<_>>();
        let times = ComputeTimes::of(&model);
        assert_eq!((&*in_seconds(&times.forward), &*in_seconds(&times.backward)), (forward, backward));
    }
}

proptest! {
    #[test]
    fn every_scenario_ends_and_ends_alike_each_time(scenario in scenario()) {
        let outcome = scenario.run().unwrap();
        prop_assert_eq!(&outcome, &scenario.run().unwrap());
        prop_assert!(outcome.events > 0);
        prop_assert!(outcome.events <= scenario.check().unwrap().events);
    }

    /// No scenario beats what its busiest link and its compute need.
    #[test]
    fn nothing_is_faster_than_its_links(scenario in scenario()) {
        let outcome = scenario.run().unwrap();
        if scenario.iterations() == 1 {
            let busiest = outcome.sent.iter().chain(&outcome.received).max().unwrap();
            prop_assert!(outcome.iteration >= transmission(*busiest, scenario.links.bandwidth));
            prop_assert!(outcome.iteration >= scenario.compute());
        }
    }

    /// Up to a barrier. Without one, the time between iterations is a difference of times, both of
    /// which shrink.
    #[test]
    fn more_bandwidth_is_never_slower(mut scenario in scenario(), more in 1.0..10.0) {
        prop_assume!(!scenario.mechanism.is_asynchronous());
        (scenario.barrier, scenario.staleness) = (true, 0);
        let mut faster = scenario.clone();
        let raise = |rate: u64| (rate as f64 * more) as u64;
        faster.links.bandwidth = raise(faster.links.bandwidth);
        for exception in &mut faster.links.exceptions {
            exception.1 = raise(exception.1);
        }
        let (before, after) = (time(&scenario), time(&faster));
        prop_assert!(after <= before, "{} became {}", before, after);
    }
}
