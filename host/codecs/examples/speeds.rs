//! Speeds of codecs, beside `memcpy` in the same run: `cargo run --release -p gradwire-codecs
//! --example speeds [CODEC...]`.
//!
//! A round times each piece of work once, one after the other, so what disturbs the machine
//! disturbs all of them. The table has the best of many rounds, in GB/s of gradient and as a part
//! of `memcpy`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use gradwire_codecs::ops::Random;
use gradwire_codecs::{Chosen, Codec, Registry};

/// In cache, and not.
const SIZES: [usize; 2] = [225_000, 1_000_000];
const ROUNDS: usize = 40;

struct Work {
    codec: Chosen,
    gradient: Vec<f32>,
    acc: Vec<f32>,
    state: Vec<f32>,
    message: Vec<u8>,
    len: usize,
    sum: Vec<f32>,
    best: [Duration; 2],
}

impl Work {
    fn new(name: &str, n: usize) -> Self {
        let codec = Registry::BUILT_IN.codec(name).unwrap_or_else(|error| panic!("{error}"));
        Self {
            codec,
            gradient: gradient(n),
            acc: vec![0.0; n],
            state: vec![0.0; codec.state_len(n)],
            message: vec![0; codec.bound(n)],
            len: 0,
            sum: vec![0.0; n],
            best: [Duration::MAX; 2],
        }
    }

    fn round(&mut self, seed: u64) {
        let Self { codec, gradient, acc, state, message, sum, .. } = self;
        codec.give(gradient, acc, state);
        let start = Instant::now();
        self.len = codec.encode(black_box(acc), state, seed, message);
        self.best[0] = self.best[0].min(start.elapsed());
        let start = Instant::now();
        codec.merge(black_box(&message[..self.len]), sum).expect("a message");
        self.best[1] = self.best[1].min(start.elapsed());
    }
}

/// Values as gradients have them: most are small.
fn gradient(n: usize) -> Vec<f32> {
    let random = Random::new(7);
    (0..n).map(|i| (random.unit(i) - 0.5).powi(3) * (0.1 + random.unit(i + n)) * 0.01).collect()
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<&str> = if asked.is_empty() {
        Registry::EXAMPLES.to_vec()
    } else {
        asked.iter().map(String::as_str).collect()
    };
    println!(
        "| codec | values | bits a value | encode GB/s | of memcpy | merge GB/s | of memcpy |\n|---|---|---|---|---|---|---|"
    );
    for n in SIZES {
        let mut work: Vec<Work> = names.iter().map(|name| Work::new(name, n)).collect();
        let (from, mut to) = (gradient(n), vec![0.0; n]);
        let mut memcpy = Duration::MAX;
        for round in 0..ROUNDS {
            for _ in 0..3 {
                let start = Instant::now();
                to.copy_from_slice(black_box(&from));
                black_box(&mut to);
                memcpy = memcpy.min(start.elapsed());
            }
            // Twice in a row: the second time, what fits into the cache is there.
            for work in &mut work {
                work.round(round as u64);
                work.round(round as u64);
            }
        }
        let speed = |time: Duration| 4e-9 * n as f64 / time.as_secs_f64();
        println!("| `memcpy` | {n} | 32 | {:.1} | 1.00 | | |", speed(memcpy));
        for Work { codec, len, best: [encode, merge], .. } in work {
            let part = |time: Duration| memcpy.as_secs_f64() / time.as_secs_f64();
            let bits = 8.0 * len as f64 / n as f64;
            println!(
                "| `{codec}` | {n} | {bits:.2} | {:.1} | {:.2} | {:.1} | {:.2} |",
                speed(encode),
                part(encode),
                speed(merge),
                part(merge)
            );
        }
    }
}
