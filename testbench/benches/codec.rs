//! Kernels by direction, split and input shape, in bytes of raw gradient a second.
//!
//! `cargo bench --bench codec -- avx2/decode` runs a part. Here and not in the dataplane, whose tests also run on targets
//! if neither criterion nor the testbench is worth building.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gradwire::codec::{Params, Split};
use gradwire::kernels::Kernel;
use gradwire_testbench::bench::shapes;
use gradwire_testbench::bench::{PASS_LEN, Payloads, Work};

fn codec(criterion: &mut Criterion) {
    for kernel in Kernel::available() {
        for (direction, work) in [("encode", Work::Encode(kernel)), ("decode", Work::Decode(kernel))] {
            for (split_name, split) in [("dense", Split::Dense), ("paper", Split::Paper)] {
                let mut group =
                    criterion.benchmark_group(format!("{}/{direction}/{split_name}", kernel.name()));
                group.throughput(Throughput::Bytes(PASS_LEN as u64));
                let params = Params::new(10, split, 0).expect("a valid bound");
                for shape in shapes::ALL {
                    let mut payloads = Payloads::new(&shape, params);
                    group.bench_function(shape.name, |bencher| bencher.iter(|| payloads.pass(work)));
                }
                group.finish();
            }
        }
    }
}

/// What memory allows: the same payloads, copied.
fn memcpy(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("memcpy");
    group.throughput(Throughput::Bytes(PASS_LEN as u64));
    let mut payloads = Payloads::new(&shapes::RECORDED_SHAPE, Params::DEFAULT);
    group.bench_function("recorded", |bencher| bencher.iter(|| payloads.pass(Work::Memcpy)));
    group.finish();
}

criterion_group!(benches, memcpy, codec);
criterion_main!(benches);
