//! Claims of docs/simulator.md about its plots hold for the plots.

use gradwire_simulator::{ComputeTimes, Mechanism, Model, Scenario, seconds};
use gradwire_testbench::cmd::simulate::published::figures::ALL;
use gradwire_testbench::report::plot::Chart;

fn chart(name: &str) -> Chart {
    ALL.iter().find(|figure| figure.0 == name).unwrap().1().unwrap()
}

/// (x, y) of a line, from left to right.
fn line(chart: &Chart, name: &str) -> Vec<(f64, f64)> {
    chart.series.iter().find(|series| series.name == name).unwrap().points.clone()
}

/// The value of a line at `x`.
fn at(chart: &Chart, name: &str, x: f64) -> f64 {
    line(chart, name).iter().find(|point| point.0 == x).unwrap().1
}

/// Whether every value is larger than the one before it.
fn grows(line: &[(f64, f64)]) -> bool {
    line.windows(2).all(|pair| pair[0].1 < pair[1].1)
}

/// Seconds that a pass forward and backward takes, with the times of the plots.
fn compute(model: &str) -> f64 {
    seconds(ComputeTimes::of(&Model::published(model).unwrap().calibrated()).total())
}

#[test]
fn servers_help_the_resnets_up_to_four_and_vgg16_hardly() {
    let chart = chart("servers");
    let gain = |model, from, to| at(&chart, model, from) / at(&chart, model, to);
    assert!(gain("vgg16", 1.0, 8.0) < 1.2);
    for resnet in ["resnet101", "resnet200"] {
        assert!(gain(resnet, 1.0, 4.0) > 2.5 && gain(resnet, 4.0, 8.0) < 1.02, "{resnet}");
    }
    for (model, share) in [("vgg16", 0.85), ("resnet200", 0.32)] {
        for servers in [4, 8] {
            let shares = Model::published(model).unwrap().round_robin_shares(servers);
            assert!(shares.into_iter().fold(0.0, f64::max) > share, "{model} on {servers} servers");
        }
    }
}

#[test]
fn relief_of_one_direction_stays_below_twice_as_fast() {
    let (workers, layers) = (chart("fig7-workers-resnet200"), chart("fig9-network-heavy"));
    for chart in [&workers, &layers] {
        for single in ["multicast", "aggregation"] {
            assert!(line(chart, single).iter().all(|point| point.1 < 2.0), "{single}, {}", chart.title);
        }
    }
    for double in ["both", "ring", "butterfly"] {
        assert!(grows(&line(&workers, double)), "{double}");
        assert!(at(&workers, double, 128.0) > 20.0, "{double}");
        assert!(at(&layers, double, 125.0) > at(&layers, "multicast", 125.0), "{double}");
    }
    let fading = chart("fig10-compute-heavy");
    for series in &fading.series {
        assert!(series.points.windows(2).all(|pair| pair[1].1 < pair[0].1), "{}", series.name);
    }
}

#[test]
fn the_network_bounds_vgg16_and_compute_the_best_on_resnet200() {
    for series in chart("fig5-bandwidth-vgg16").series {
        assert!(series.points.iter().all(|point| point.1 > 1.4 * compute("vgg16")), "{}", series.name);
    }
    let resnet = chart("fig4-bandwidth-resnet200");
    for best in ["both", "ring"] {
        for &(gigabits, time) in &line(&resnet, best) {
            let bound_by_compute = time < 1.001 * compute("resnet200");
            assert_eq!(bound_by_compute, gigabits >= 10.0, "{best} at {gigabits} Gbit/s: {time} s");
        }
    }
}

#[test]
fn faster_processors_tell_mechanisms_apart() {
    let chart = chart("fig12-compute-resnet200");
    for series in &chart.series {
        assert!(grows(&series.points), "{}", series.name);
    }
    let apart = |speed| at(&chart, "both", speed) / at(&chart, "butterfly", speed);
    assert!(apart(1.0) < 1.01 && apart(4.0) > 2.0);
}

#[test]
fn the_ring_is_never_slower_than_multicast_and_aggregation() {
    for series in chart("ring-by-workers").series {
        assert!(series.points.iter().all(|point| point.1 > 0.999), "{}", series.name);
    }
}

#[test]
fn smaller_messages_help_vgg16_alone() {
    for series in chart("message-size").series {
        let (cut, whole) = (series.points[0].1, series.points.last().unwrap().1);
        let helped = cut < 0.9 * whole;
        assert_eq!(helped, series.name == "vgg16", "{}: {cut} s and {whole} s", series.name);
        assert!(helped || cut > 0.999 * whole, "{}: {cut} s and {whole} s", series.name);
    }
}

#[test]
fn without_a_barrier_vgg16_loses_and_a_pipeline_gains() {
    let chart = chart("barrier");
    for &(gigabits, time) in &line(&chart, "both, no barrier") {
        let part = time / at(&chart, "both", gigabits);
        assert!(if gigabits > 5.0 { part > 1.02 } else { part > 0.98 && part < 1.0 }, "{gigabits}: {part}");
    }
    for &(gigabits, time) in &line(&chart, "ring, pipelined") {
        // Synchronous, the ring's time is the forward pass and the exchange: what the pipeline lays
        // side by side.
        let whole = at(&chart, "ring", gigabits);
        let longer = compute("vgg16").max(whole - Model::published("vgg16").unwrap().forward);
        assert!((time / longer - 1.0).abs() < 0.01, "{gigabits} Gbit/s: {time} s, the longer {longer} s");
    }
}

#[test]
fn compression_gains_where_the_page_says() {
    let chart = chart("compression");
    let gain = |name: &str| line(&chart, name);
    let (nic, host, half) = (gain("ring, in the NIC"), gain("ring, host at 2 GB/s"), gain("ring, 16 bits"));
    assert!(host[0].1 >= nic[0].1, "the slowest link: {:?} and {:?}", host[0], nic[0]);
    assert!(host.windows(2).all(|pair| pair[1].1 < pair[0].1) && host.last().unwrap().1 < 1.0);
    assert!(nic.iter().zip(&half).all(|(nic, half)| nic.1 > half.1));
    let (nic, half) = (gain("servers, in the NIC"), gain("servers, 16 bits"));
    assert!(nic.iter().zip(&half).all(|(nic, half)| nic.1 < half.1));
}

/// "2.5 MB in turn", "three of the four models".
#[test]
fn numbers_of_the_page_are_those_of_the_code() {
    let events = |bits| {
        let mut model = Model::from_csv("one", &b"name,values,forward_flops\np,1,0\n"[..]).unwrap();
        model.parameters[0].bits = bits;
        Scenario::new(model, Mechanism::BASELINE).run().unwrap().events
    };
    assert_eq!(events(8), events(8 * 2_500_000));
    assert!(events(8) < events(8 * 2_500_000 + 1));
    let calibrated = Model::names().filter(|name| {
        let model = Model::published(name).unwrap();
        model.clone().calibrated().backward != model.backward
    });
    assert_eq!((calibrated.count(), Model::names().count()), (3, 4));
}
