//! Simulator speed: events a second of one core.
//!
//! Targets: 5 million events a second, 1000 workers x 190 parameters under half a second, and a
//! cost linear in workers x parameters. Run on a quiet core with
//! `cargo bench -p gradwire-simulator`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gradwire_simulator::{Mechanism, Model, Scenario};

fn scenario(model: &str, mechanism: Mechanism, workers: u32) -> Scenario {
    Scenario { workers, ..Scenario::new(Model::published(model).unwrap(), mechanism) }
}

fn simulator(c: &mut Criterion) {
    let mut group = c.benchmark_group("simulator");
    group.sample_size(10);
    let mut bench = |name: &str, scenario: &Scenario| {
        group.throughput(Throughput::Elements(scenario.run().unwrap().events));
        let workers = BenchmarkId::new(name, scenario.workers);
        group.bench_with_input(workers, scenario, |b, scenario| b.iter(|| black_box(scenario).run()));
    };
    // Inception-v3 has 190 parameters; the three sizes show that the cost is linear.
    for workers in [250, 500, 1000] {
        bench("inceptionv3/ps", &scenario("inceptionv3", Mechanism::BASELINE, workers));
    }
    bench("inceptionv3/mc+agg", &scenario("inceptionv3", Mechanism::BOTH, 1000));
    bench("inceptionv3/ring", &scenario("inceptionv3", Mechanism::RING, 1000));
    bench("resnet200/ps", &scenario("resnet200", Mechanism::BASELINE, 1000));
    group.finish();
}

criterion_group!(benches, simulator);
criterion_main!(benches);
