//! Aggregation over networks that lose, copy, delay and cut packets, with aggregators that die or
//! forget and workers that come late: every worker gets the exact sum, or all agree to fall back,
//! within a bounded time.

use std::collections::{BTreeMap, BTreeSet};

use gradwire::aggregate::{
    Aggregator, Event, Failure, Outcome, Parent, Poll, Settings, To, Worker, WorkerSettings,
};
use gradwire::engine::Millis;
use gradwire::kernels::Kernel;
use gradwire::sums::Summable;
use gradwire::wire::chunk::{Limits, MAX_PACKET_LEN, MIN_MTU};
use proptest::prelude::*;

use crate::common::aggregation::{bit_plane, exact_sum, le_bytes, size_class, whole_units};

/// A sender or a receiver: workers by number, aggregators from here on.
type Address = u16;
const FIRST_AGGREGATOR: Address = 1000;
/// Small, so that windows turn over often: four chunks of two blocks.
type TestAggregator = Aggregator<Address, 2, 8, 2>;
const LIMITS: Limits = Limits { blocks: 2, window: 4, mtu: 1500 };
const CHUNK: usize = 256;
/// An operation takes no longer, whatever happens.
const LONGEST_MS: u64 = 120_000;

#[derive(Clone, Debug)]
struct Scenario {
    seed: u64,
    children: u8,
    /// Two aggregators of racks below a third one.
    racks: bool,
    values: usize,
    operations: usize,
    /// Of 100 packets, so many are lost, sent twice, cut.
    loss: u64,
    copies: u64,
    cuts: u64,
    /// Packets take 1 ms to this.
    latest: u64,
    mtu: u16,
    /// When an aggregator forgets all, and when it stops to answer, and for how long.
    reboot: Option<u64>,
    death: Option<(u64, u64)>,
    /// A worker that stands still from some time on, for so long.
    straggler: Option<(u64, u64)>,
    /// Packets of earlier epochs, other jobs, and nonsense, of 100.
    foreign: u64,
    /// One value is too large for its unit; another is NaN.
    large_values: bool,
    /// The profiles of the operations, in turn.
    profiles: [Summable; 2],
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let network = (
        prop_oneof![Just(0), 1u64..=20],
        prop_oneof![Just(0), 1u64..=20],
        prop_oneof![Just(0), 1u64..=5],
        1u64..30,
        prop_oneof![Just(1500), Just(MIN_MTU)],
    );
    let trouble = (
        prop::option::weighted(0.3, 1u64..300),
        prop::option::weighted(0.3, (1u64..300, 1u64..600)),
        prop::option::weighted(0.3, (1u64..200, 1u64..1000)),
        prop_oneof![Just(0), 1u64..=20],
        prop::bool::weighted(0.3),
    );
    let profile = || prop_oneof![Just(bit_plane(-10)), Just(size_class(10, 3, 0)), Just(size_class(8, 8, 1))];
    let size =
        (any::<u64>(), prop_oneof![4 => 2u8..=8, 1 => 9u8..=64], any::<bool>(), 1usize..4000, 1usize..4);
    (size, network, trouble, [profile(), profile()]).prop_map(
        |(
            (seed, children, racks, values, operations),
            (loss, copies, cuts, latest, mtu),
            (reboot, death, straggler, foreign, large_values),
            profiles,
        )| {
            Scenario {
                seed,
                children,
                racks,
                values,
                operations,
                loss,
                copies,
                cuts,
                latest,
                mtu,
                reboot,
                death,
                straggler,
                foreign,
                large_values,
                profiles,
            }
        },
    )
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 20
    }

    fn happens(&mut self, of_100: u64) -> bool {
        self.next() % 100 < of_100
    }
}

struct Network {
    scenario: Scenario,
    random: Random,
    now: u64,
    /// By the time of delivery, then the order of sending.
    packets: BTreeMap<(u64, u64), (Address, Address, Vec<u8>)>,
    sent: u64,
    aggregators: Vec<Box<TestAggregator>>,
    children: Vec<Worker<8>>,
    /// Packets of earlier epochs.
    old: Vec<(Address, Address, Vec<u8>)>,
    epoch: u32,
    fallbacks: usize,
}

impl Network {
    fn new(scenario: Scenario) -> Self {
        let racks = if scenario.racks { 3 } else { 1 };
        let aggregators = (0..racks).map(|number| Self::aggregator(&scenario, number)).collect();
        let mut network = Self {
            random: Random(scenario.seed),
            now: 1,
            packets: BTreeMap::new(),
            sent: 0,
            aggregators,
            children: Vec::new(),
            old: Vec::new(),
            epoch: scenario.seed as u32,
            fallbacks: 0,
            scenario,
        };
        network.start_epoch();
        network
    }

    /// Number 0 is the top.
    fn aggregator(scenario: &Scenario, number: usize) -> Box<TestAggregator> {
        let parent =
            (number > 0).then(|| Parent { address: FIRST_AGGREGATOR, child: number as u8 - 1, children: 2 });
        let limits = Limits { mtu: scenario.mtu, ..LIMITS };
        let kernel = Self::kernel(scenario, number);
        Box::new(TestAggregator::new(Settings {
            kernel,
            limits,
            group: None,
            parent,
            secret: [scenario.seed, number as u64],
        }))
    }

    /// Workers and aggregators are of many kinds, small cores among them.
    fn kernel(scenario: &Scenario, number: usize) -> Kernel {
        let kernels: Vec<Kernel> = Kernel::available().collect();
        kernels[(scenario.seed as usize).wrapping_add(number) % kernels.len()]
    }

    /// The aggregator of a worker, the worker's number there, and how many that one has.
    fn place(&self, worker: usize) -> (Address, u8, u8) {
        let all = usize::from(self.scenario.children);
        if !self.scenario.racks {
            return (FIRST_AGGREGATOR, worker as u8, all as u8);
        }
        let first = all.div_ceil(2);
        if worker < first {
            (FIRST_AGGREGATOR + 1, worker as u8, first as u8)
        } else {
            (FIRST_AGGREGATOR + 2, (worker - first) as u8, (all - first) as u8)
        }
    }

    fn start_epoch(&mut self) {
        self.old = self.packets.values().take(200).cloned().collect();
        self.epoch = self.epoch.wrapping_add(1);
        let total = self.scenario.children;
        self.children = (0..usize::from(total))
            .map(|number| {
                let (_, child, children) = self.place(number);
                let worker_settings = WorkerSettings {
                    job: 3,
                    epoch: self.epoch,
                    child,
                    children,
                    total,
                    limits: LIMITS,
                    key: 42,
                };
                Worker::new(worker_settings, Self::kernel(&self.scenario, number))
            })
            .collect();
    }

    fn send(&mut self, from: Address, to: Address, packet: &[u8]) {
        for _ in 0..1 + usize::from(self.random.happens(self.scenario.copies)) {
            if self.random.happens(self.scenario.loss) {
                continue;
            }
            let mut packet = packet.to_vec();
            // A flipped bit, the checksum of UDP finds; nothing but the packet's own fields shows
            // that it was cut.
            if self.random.happens(self.scenario.cuts) {
                let len = self.random.next() as usize % packet.len();
                packet.truncate(len);
            }
            self.put(from, to, packet);
        }
        if self.random.happens(self.scenario.foreign) {
            self.send_foreign(from, to, packet);
        }
    }

    /// A packet of an earlier epoch, of another epoch or job, or nonsense.
    fn send_foreign(&mut self, from: Address, to: Address, packet: &[u8]) {
        let choice = self.random.next();
        let mut packet = packet.to_vec();
        match choice % 4 {
            0 if !self.old.is_empty() => {
                let (from, to, old) = self.old[(choice >> 8) as usize % self.old.len()].clone();
                return self.put(from, to, old);
            }
            // The job, the version and the kind; the epoch, to an earlier one.
            1 => packet[(choice >> 8) as usize % 4] ^= 1 << (choice >> 16 & 7),
            2 => {
                let earlier = self.epoch.wrapping_sub(1 + (choice >> 8 & 3) as u32);
                packet[4..8].copy_from_slice(&earlier.to_be_bytes());
            }
            _ => packet.iter_mut().for_each(|byte| *byte = self.random.next() as u8),
        }
        self.put(from, to, packet);
    }

    fn put(&mut self, from: Address, to: Address, packet: Vec<u8>) {
        self.sent += 1;
        let at = self.now + 1 + self.random.next() % self.scenario.latest;
        self.packets.insert((at, self.sent), (from, to, packet));
    }

    fn deliver(
        &mut self,
        from: Address,
        to: Address,
        packet: &[u8],
        outputs: &mut [Vec<u8>],
        rescaled: &mut [BTreeSet<usize>],
    ) {
        let now = Millis(self.now);
        if to < FIRST_AGGREGATOR {
            let worker = usize::from(to);
            // Callers look at where a datagram comes from.
            if self.children.len() > worker && from == self.place(worker).0 {
                let event = self.children[worker].handle(packet, &mut outputs[worker], now);
                if let Event::Rescale { chunk, .. } = event {
                    rescaled[worker].insert(chunk);
                }
            }
            return;
        }
        let is_dead = self.scenario.death.is_some_and(|(at, len)| (at..at + len).contains(&self.now));
        if is_dead {
            return;
        }
        let number = usize::from(to - FIRST_AGGREGATOR);
        let outcome = self.aggregators[number].process(packet, from, now);
        let mut out = [0; MAX_PACKET_LEN];
        let (mut emitted, mut answered) = (0, 0);
        while let Some(packet) = self.aggregators[number].emit(&mut out) {
            let targets: Vec<Address> = match packet.to {
                To::One(one) => {
                    answered += if one == from { packet.len } else { 0 };
                    vec![one]
                }
                To::Each { job } => self.aggregators[number].children(job).collect(),
                To::Group(_) => unreachable!("no group"),
            };
            emitted += 1;
            assert!(emitted <= 2, "{outcome:?}");
            assert!(packet.len <= usize::from(self.scenario.mtu) - 28);
            for target in targets {
                self.send(to, target, &out[..packet.len]);
            }
        }
        let has_joined = self.aggregators[number].children(3).any(|worker| worker == from);
        let is_from_parent = outcome == Outcome::FromParent;
        assert!(
            has_joined || is_from_parent || answered <= packet.len(),
            "{answered} bytes to a stranger: {outcome:?}"
        );
        assert!(emitted == 0 || !matches!(outcome, Outcome::Malformed | Outcome::Stranger | Outcome::Old));
    }

    /// Sums once; every output, and the chunks that had a value over the limit.
    fn sum(&mut self, inputs: &[Vec<u8>], profile: Summable) -> (Vec<Vec<u8>>, BTreeSet<usize>) {
        let values = inputs[0].len() / 4;
        let mut outputs = vec![vec![0xaa; 4 * values]; inputs.len()];
        let mut rescaled = vec![BTreeSet::new(); inputs.len()];
        let mut started = vec![false; inputs.len()];
        let begun = self.now;
        let mut out = [0; MAX_PACKET_LEN];
        let failure = 'time: loop {
            assert!(self.now - begun < LONGEST_MS, "it hangs");
            if self.scenario.reboot == Some(self.now) {
                let number = self.random.next() as usize % self.aggregators.len();
                self.aggregators[number] = Self::aggregator(&self.scenario, number);
            }
            while let Some(entry) = self.packets.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (from, to, packet) = entry.remove();
                self.deliver(from, to, &packet, &mut outputs, &mut rescaled);
            }
            let mut done = 0;
            for number in 0..inputs.len() {
                let stands =
                    self.scenario.straggler.is_some_and(|(at, len)| (at..at + len).contains(&self.now));
                if number == 0 && stands {
                    continue;
                }
                loop {
                    if !started[number] {
                        started[number] = self.children[number].start(values, profile);
                    }
                    match self.children[number].poll(&inputs[number], Millis(self.now), &mut out) {
                        Poll::Send(len) => self.send(number as Address, self.place(number).0, &out[..len]),
                        Poll::Wait(until) => {
                            assert!(until > Millis(self.now), "a wait for nothing");
                            break;
                        }
                        Poll::Done if !started[number] => {}
                        Poll::Done => {
                            done += 1;
                            break;
                        }
                        Poll::Failed(failure) => break 'time Some(failure),
                    }
                }
            }
            if done == inputs.len() {
                break None;
            }
            self.now += 1;
        };
        let chunks = values.div_ceil(CHUNK);
        if let Some(failure) = failure {
            assert!(
                matches!(failure, Failure::Silent | Failure::Dropped | Failure::Refused { .. }),
                "a worker has a reason to give up"
            );
            self.fall_back(inputs, profile, &mut outputs, &mut rescaled, chunks, &started);
        }
        assert!(rescaled.iter().all(|chunks| *chunks == rescaled[0]), "who rescales differs");
        (outputs, rescaled[0].clone())
    }

    /// The fallback of all workers: what anybody has is copied, the rest is summed elsewhere, and a
    /// later epoch begins.
    fn fall_back(
        &mut self,
        inputs: &[Vec<u8>],
        profile: Summable,
        outputs: &mut [Vec<u8>],
        rescaled: &mut [BTreeSet<usize>],
        chunks: usize,
        started: &[bool],
    ) {
        self.fallbacks += 1;
        let sums = exact_sum(inputs, profile);
        for chunk in 0..chunks {
            let range = 4 * CHUNK * chunk..(4 * CHUNK * (chunk + 1)).min(sums.len());
            let holder =
                (0..inputs.len()).find(|number| started[*number] && self.children[*number].holds(chunk));
            let is_rescaled = match holder {
                Some(holder) => rescaled[holder].contains(&chunk),
                None => has_over(inputs, range.clone(), profile),
            };
            let from = holder.map_or_else(
                || sums[range.clone()].to_vec(),
                |holder| outputs[holder][range.clone()].to_vec(),
            );
            for number in 0..inputs.len() {
                outputs[number][range.clone()].copy_from_slice(&from);
                if is_rescaled {
                    rescaled[number].insert(chunk);
                }
            }
        }
        self.start_epoch();
    }
}

/// Whether a worker has a finite value that is too large.
fn has_over(inputs: &[Vec<u8>], range: std::ops::Range<usize>, profile: Summable) -> bool {
    let limit = f64::from((i32::MAX - 1) / inputs.len() as i32);
    inputs.iter().any(|input| {
        input[range.clone()].as_chunks::<4>().0.iter().any(|value| {
            let units = whole_units(u32::from_le_bytes(*value), profile);
            units.is_some_and(|units| units.abs() > limit)
        })
    })
}

fn run(scenario: &Scenario) -> usize {
    let mut network = Network::new(scenario.clone());
    for operation in 0..scenario.operations {
        let profile = scenario.profiles[operation % 2];
        let mut random = Random(scenario.seed ^ operation as u64);
        let mut inputs: Vec<Vec<u8>> = (0..scenario.children)
            .map(|_| {
                let scale = 2f64.powi(-((random.next() % 12) as i32));
                le_bytes((0..scenario.values).map(|_| {
                    let value = (random.next() % 20001) as f64 / 10000.0 - 1.0;
                    if random.happens(40) { 0.0 } else { (value * scale) as f32 }
                }))
            })
            .collect();
        if scenario.large_values {
            let mut set = |value: f32| {
                let worker = random.next() as usize % inputs.len();
                let at = random.next() as usize % scenario.values;
                inputs[worker][4 * at..4 * at + 4].copy_from_slice(&value.to_le_bytes());
            };
            set(f32::NAN);
            set(f32::INFINITY);
            set(-1e30);
        }
        let (outputs, rescaled) = network.sum(&inputs, profile);
        let expected = exact_sum(&inputs, profile);
        for chunk in 0..scenario.values.div_ceil(CHUNK) {
            let range = 4 * CHUNK * chunk..(4 * CHUNK * (chunk + 1)).min(expected.len());
            assert_eq!(rescaled.contains(&chunk), has_over(&inputs, range.clone(), profile), "chunk {chunk}");
            for output in outputs.iter().filter(|_| !rescaled.contains(&chunk)) {
                assert!(
                    output[range.clone()] == expected[range.clone()],
                    "operation {operation}, chunk {chunk}"
                );
            }
        }
    }
    network.fallbacks
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_worker_gets_the_exact_sum_or_all_fall_back(scenario in scenario()) {
        run(&scenario);
    }
}

/// Four workers of one aggregator, and a network that does nothing to packets.
fn quiet() -> Scenario {
    Scenario {
        seed: 0,
        children: 4,
        racks: false,
        values: 3000,
        operations: 1,
        loss: 0,
        copies: 0,
        cuts: 0,
        latest: 2,
        mtu: 1500,
        reboot: None,
        death: None,
        straggler: None,
        foreign: 0,
        large_values: false,
        profiles: [bit_plane(-10), size_class(10, 3, 0)],
    }
}

/// Without trouble, nobody falls back; nor because of a straggler, loss of 1 %, or other people's
/// packets.
#[test]
fn nobody_falls_back_without_need() {
    for seed in 0..40 {
        let scenario = Scenario {
            seed,
            racks: seed % 2 == 1,
            operations: 6,
            loss: seed % 3 / 2,
            copies: 1,
            latest: 3,
            // All have joined by then.
            straggler: Some((70, 2000)),
            ..quiet()
        };
        assert_eq!(run(&scenario), 0, "{seed}");
    }
}

/// Loss shrinks windows, each worker's at another time. One that has no room left waits for chunks
/// that another, without room either, has not started: the first chunk has to go on whatever the
/// window is.
#[test]
fn small_windows_do_not_wait_for_each_other() {
    for seed in 0..60 {
        run(&Scenario { seed, values: 2817, loss: 10, latest: 12, ..quiet() });
    }
}

/// One bit of the kind makes a rack's sum of one child that worker's values. Nobody else's packets
/// can end a job either.
#[test]
fn sums_of_one_worker_are_not_taken_for_values() {
    for seed in 0..60 {
        assert_eq!(run(&Scenario { seed, children: 2, racks: true, foreign: 20, ..quiet() }), 0, "{seed}");
    }
}

/// An aggregator that forgets all costs one fallback, and serves the next epoch.
#[test]
fn a_reboot_costs_one_fallback() {
    for seed in 0..20 {
        let scenario =
            Scenario { seed, children: 3, values: 4000, operations: 6, reboot: Some(12), ..quiet() };
        assert_eq!(run(&scenario), 1, "{seed}");
    }
}
