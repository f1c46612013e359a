//! Each codec's two directions beside `memcpy`, in bytes of gradient a second, for 225,000 values:
//! what a second-level cache holds.
//!
//! `cargo bench -p gradwire-codecs -- 3lc` runs a part. `examples/speeds.rs` prints a table of the
//! best of many interleaved rounds, which stands more on a machine with neighbours.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use gradwire_codecs::ops::Random;
use gradwire_codecs::{Codec, Registry};

const VALUES: usize = 225_000;

fn codecs(criterion: &mut Criterion) {
    let random = Random::new(7);
    let gradient: Vec<f32> = (0..VALUES).map(|i| (random.unit(i) - 0.5).powi(3) * 0.01).collect();
    let mut group = criterion.benchmark_group("codecs");
    group.throughput(Throughput::Bytes(4 * VALUES as u64));
    let mut copy = gradient.clone();
    group.bench_function("memcpy", |bencher| bencher.iter(|| copy.copy_from_slice(black_box(&gradient))));
    for name in Registry::EXAMPLES {
        let codec = Registry::BUILT_IN.codec(name).expect("a codec of this crate");
        let mut state = vec![0.0; codec.state_len(VALUES)];
        let mut out = vec![0; codec.bound(VALUES)];
        let len = codec.encode(&mut gradient.clone(), &mut state, 0, &mut out);
        let message = out[..len].to_vec();
        group.bench_function(format!("{name}/encode"), |bencher| {
            let work = |acc: &mut Vec<f32>| codec.encode(acc, &mut state, 1, &mut out);
            bencher.iter_batched_ref(|| gradient.clone(), work, BatchSize::LargeInput);
        });
        let mut sum = vec![0.0; VALUES];
        group.bench_function(format!("{name}/merge"), |bencher| {
            bencher.iter(|| codec.merge(black_box(&message), &mut sum).expect("a message"));
        });
    }
    group.finish();
}

criterion_group!(benches, codecs);
criterion_main!(benches);
