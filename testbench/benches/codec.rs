//! Kernels by direction, split and input distribution, in bytes of raw gradient a second.
//!
//! `cargo bench --bench codec -- avx2/decode` runs a part. Here and not in the dataplane, whose
//! tests also run on targets if neither criterion nor the testbench is worth building.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gradwire::codec::bit_plane::Bound;
use gradwire::codec::{Params, Split};
use gradwire::kernels::Kernel;
use gradwire::profile::Profile;
use gradwire_testbench::bench::distributions;
use gradwire_testbench::bench::{BlockWork, Blocks, PASS_LEN, Payloads, Work};

/// Codec 1 with both splits, and codec 2, with the same bound.
fn profiles() -> [(&'static str, Profile); 3] {
    let classes = |split| Params::new(10, split, 0).expect("a valid bound").into();
    let bit_plane = Bound::new(-10).expect("a valid bound").into();
    [("dense", classes(Split::Dense)), ("paper", classes(Split::Paper)), ("bit-plane", bit_plane)]
}

fn codec(criterion: &mut Criterion) {
    for kernel in Kernel::available() {
        for (direction, work) in [("encode", Work::Encode(kernel)), ("decode", Work::Decode(kernel))] {
            for (profile_name, profile) in profiles() {
                let mut group =
                    criterion.benchmark_group(format!("{}/{direction}/{profile_name}", kernel.name()));
                group.throughput(Throughput::Bytes(PASS_LEN as u64));
                for distribution in distributions::ALL {
                    let mut payloads = Payloads::new(&distribution, profile);
                    group.bench_function(distribution.name, |bencher| bencher.iter(|| payloads.pass(work)));
                }
                group.finish();
            }
        }
    }
}

/// The work of an aggregator on blocks: add them to sums, and encode sums.
fn sums(criterion: &mut Criterion) {
    let bound = Bound::new(-10).expect("a valid bound");
    for kernel in Kernel::available() {
        for (name, work) in BlockWork::all(kernel) {
            let mut group = criterion.benchmark_group(format!("{}/{name}/bit-plane", kernel.name()));
            group.throughput(Throughput::Bytes(PASS_LEN as u64));
            for distribution in distributions::SUMMED {
                let mut blocks = Blocks::new(&distribution, bound.into());
                group.bench_function(distribution.name, |bencher| bencher.iter(|| blocks.pass(work)));
            }
            group.finish();
        }
    }
}

/// The bandwidth of memory: the same payloads, copied.
fn memcpy(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("memcpy");
    group.throughput(Throughput::Bytes(PASS_LEN as u64));
    let mut payloads = Payloads::new(&distributions::RECORDED_VALUES, Params::DEFAULT);
    group.bench_function("recorded", |bencher| bencher.iter(|| payloads.pass(Work::Memcpy)));
    group.finish();
}

criterion_group!(benches, memcpy, codec, sums);
criterion_main!(benches);
