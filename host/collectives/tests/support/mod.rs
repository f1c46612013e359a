//! Ranks on loopback; and a simulated network, where messages arrive in any order, after any time,
//! and the same seed gives the same run.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::time::Duration;

use gradwire_codecs::Codec;
use gradwire_collectives::graph::{Message, Rank};
use gradwire_collectives::{
    Bytes, Codecs, CollectivePlan, Layout, Link, Listening, Options, Part, Residuals, Step, Strategy, Token,
    Values,
};

/// Those of a new job, with more time than any machine needs: no test waits for it.
pub(crate) fn options(tagged: bool) -> Options {
    Options {
        timeout: Duration::from_secs(120),
        tagged: tagged.then_some(1),
        ..Options::new(Token::random().unwrap())
    }
}

/// Runs `work` at each rank, all of them threads that listen at `at`, and returns what each made of
/// it. A machine without IPv6, such as many containers, has 127.0.0.1 alone.
pub(crate) fn ranks<T: Send>(
    count: usize,
    at: &str,
    options: &Options,
    work: impl Fn(Link) -> T + Sync,
) -> Vec<T> {
    let at = if std::net::TcpListener::bind(at).is_ok() { at } else { "127.0.0.1:0" };
    let bind = || Listening::bind(at.parse().unwrap(), options.clone()).unwrap();
    let listening: Vec<Listening> = (0..count).map(|_| bind()).collect();
    let root = listening[0].address().unwrap();
    std::thread::scope(|scope| {
        let work = &work;
        let join = |(rank, listening): (usize, Listening)| {
            scope.spawn(move || work(listening.join(rank, count, root).unwrap()))
        };
        let threads: Vec<_> = listening.into_iter().enumerate().map(join).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The bits that each of three ranks gets by this plan, in two exchanges of so many values.
pub(crate) fn exchanged(options: &Options, plan: &str, values: usize) -> Vec<Vec<u32>> {
    let (layout, plan) = (Layout::new([("a", values)]).unwrap(), plan.parse::<CollectivePlan>().unwrap());
    ranks(3, "127.0.0.1:0", options, |mut link| {
        let mut residuals = Residuals::new();
        let round = |round: u64| {
            let mut buffer = Random(link.rank() as u64 + 10 * round).values(values);
            link.exchange(&mut buffer, &layout, &plan, &mut residuals).unwrap();
            buffer.into_iter().map(f32::to_bits)
        };
        (0..2).flat_map(round).collect()
    })
}

/// What `attempt` makes of a timeout. After an error it gets more, up to 128 s: on a busy machine,
/// ranks may not have met within less.
pub(crate) fn in_time<T>(attempt: impl Fn(Duration) -> Result<T, String>) -> T {
    for seconds in [2, 4, 8, 16, 32, 64, 128] {
        match attempt(Duration::from_secs(seconds)) {
            Ok(made) => return made,
            Err(told) => eprintln!("{seconds} s: {told}"),
        }
    }
    panic!("not within 128 s");
}

/// Numbers that look random: Steele and others' SplitMix64 (OOPSLA 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Of some magnitudes, and of both signs.
    pub(crate) fn value(&mut self) -> f32 {
        let unit = (self.next() >> 40) as f32 / (1 << 24) as f32 - 0.5;
        unit * [1.0, 1e-3, 30.0][self.below(3)]
    }

    pub(crate) fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.value()).collect()
    }
}

/// All ranks of a job, and their residuals from one exchange to the next.
pub(crate) struct Ranks {
    pub(crate) strategy: Strategy,
    pub(crate) partitions: usize,
    pub(crate) residuals: Vec<Vec<f32>>,
    pub(crate) dropped: Vec<Vec<f32>>,
}

/// The place of a tensor's partition.
pub(crate) fn range(values: usize, partitions: usize, partition: usize) -> std::ops::Range<usize> {
    values * partition / partitions..values * (partition + 1) / partitions
}

impl Ranks {
    pub(crate) fn new(strategy: Strategy, ranks: usize, partitions: usize, values: usize) -> Self {
        let zeros = vec![vec![0.0; values]; ranks];
        Self { strategy, partitions, residuals: zeros.clone(), dropped: zeros }
    }

    /// One exchange: each rank's result. The codec keeps no state.
    pub(crate) fn exchange(&mut self, codec: &dyn Codec, gradients: &[Vec<f32>], seed: u64) -> Vec<Vec<f32>> {
        let ranks = gradients.len();
        let values = gradients[0].len();
        let mut random = Random(seed);
        let mut results = gradients.to_vec();
        let mut parts: Vec<Vec<Part>> = Vec::new();
        for (me, gradient) in gradients.iter().enumerate() {
            codec.give(gradient, &mut self.residuals[me], &mut []);
            let graph = |partition| self.strategy.graph(ranks, me, partition).unwrap();
            parts.push((0..self.partitions).map(|partition| Part::new(graph(partition), false)).collect());
        }
        let mut wire: Vec<(usize, Rank, Rank, Message, Bytes)> = Vec::new();
        loop {
            // Either some rank does something, or some message arrives; which one is chance.
            let start = random.below(ranks * self.partitions);
            let able = (0..ranks * self.partitions).map(|i| (start + i) % (ranks * self.partitions));
            let able = able
                .map(|i| (i / self.partitions, i % self.partitions))
                .find(|&(me, p)| parts[me][p].is_ready());
            if let Some((me, p)) = able.filter(|_| wire.is_empty() || random.below(3) > 0) {
                let at = range(values, self.partitions, p);
                let mut slices = Values {
                    sum: &mut self.residuals[me][at.clone()],
                    state: &mut [],
                    result: &mut results[me][at.clone()],
                    dropped: Some(&mut self.dropped[me][at]),
                };
                let step = parts[me][p].step(Codecs::both(codec), &mut slices, seed + p as u64).unwrap();
                if let Some(Step::Send(to, message, bytes)) = step {
                    wire.push((p, me, to, message, bytes));
                }
            } else if !wire.is_empty() {
                let (p, from, to, message, bytes) = wire.swap_remove(random.below(wire.len()));
                assert!(parts[to][p].arrived(from, message, bytes), "a message that nobody waits for");
            } else {
                break;
            }
        }
        assert!(parts.iter().flatten().all(Part::is_done), "ranks wait for each other");
        results
    }
}

/// The sum of one value over the ranks, and the sum of its magnitudes, in `f64`.
pub(crate) fn sum(vectors: &[Vec<f32>], at: usize) -> (f64, f64) {
    vectors.iter().fold((0.0, 0.0), |(sum, size), vector| {
        (sum + f64::from(vector[at]), size + f64::from(vector[at]).abs())
    })
}

/// The most that sums in `f32` of terms with this magnitude in all may be from the sum in `f64`.
pub(crate) fn rounding(ranks: usize, size: f64) -> f64 {
    (ranks + 3) as f64 * f64::from(f32::EPSILON) * size + 1e-38
}
