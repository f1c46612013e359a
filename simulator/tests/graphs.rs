//! The collectives' graphs on the cost model, against the published mechanisms and closed forms.

use gradwire_simulator::{Jitter, Mechanism, Model, SECOND, Scenario, VALUE_BITS, seconds, transmission};

fn run(model: &Model, mechanism: &str, workers: u32) -> gradwire_simulator::Results {
    let mechanism: Mechanism = mechanism.parse().unwrap();
    let scenario = Scenario { workers, full: true, ..Scenario::new(model.clone(), mechanism) };
    scenario.run().unwrap()
}

#[test]
fn graphs_agree_with_the_mechanisms_that_they_are() {
    for name in ["vgg16", "resnet200"] {
        let model = Model::published(name).unwrap().calibrated().table2_size();
        for (graph, published) in [("graph:ring", "ring"), ("graph:butterfly", "butterfly")] {
            for workers in [4, 8, 32] {
                let (ours, theirs) = (run(&model, graph, workers), run(&model, published, workers));
                let off = ours.iteration as f64 / theirs.iteration as f64 - 1.0;
                assert!(off.abs() < 0.01, "{name}, {graph}, {workers} workers: {:.2} % off", 100.0 * off);
                let sent = |results: &gradwire_simulator::Results| results.sent.iter().sum::<u64>() as f64;
                assert!((sent(&ours) / sent(&theirs) - 1.0).abs() < 0.001, "{name}, {graph}");
            }
        }
    }
}

/// Why the ring and the butterfly stay beside their graphs: among workers that are alike one stands
/// for all. A graph simulates each rank, and so never comes to the 1024 ranks of docs/simulator.md.
#[test]
fn in_no_graph_one_worker_stands_for_all() {
    let model = Model::published("vgg16").unwrap();
    for name in ["ring", "butterfly"] {
        let events = |mechanism: &str| {
            let mechanism = mechanism.parse().unwrap();
            let scenario = Scenario { workers: 128, ..Scenario::new(model.clone(), mechanism) };
            scenario.check().unwrap().events
        };
        assert!(events(&format!("graph:{name}")) >= 100 * events(name), "{name}");
    }
}

#[test]
fn partitioned_servers_and_halving_send_what_a_ring_does() {
    let model = Model::published("vgg16").unwrap();
    let sent = |mechanism| run(&model, mechanism, 8).sent.into_iter().max().unwrap() as f64;
    let ring = sent("graph:ring");
    for mechanism in ["graph:servers", "graph:halving-doubling"] {
        assert!((sent(mechanism) / ring - 1.0).abs() < 0.001, "{mechanism}");
    }
    // One server sends seven tensors, and gets as many.
    assert!((sent("graph:servers:1") / ring - 4.0).abs() < 0.01);
}

/// Heads change with the partitions, so rings in groups and between them take what one ring of all
/// takes: 2 (W - 1) / W of the parameter's time on a link.
#[test]
fn hierarchies_of_rings_take_what_a_ring_does() {
    for workers in [2_u64, 6, 8, 12, 24] {
        for group in [1, 2, 3, 4, 8].into_iter().filter(|group| workers % group == 0) {
            let csv = format!("name,values\np,{}\n", 1000 * workers);
            let model = Model::from_csv("one", csv.as_bytes()).unwrap();
            let results = run(&model, &format!("graph:hierarchy:{group}"), workers as u32);
            let bits = 2 * (workers - 1) * 1000 * VALUE_BITS;
            assert_eq!(results.iteration, transmission(bits, 25_000_000_000), "{workers}, groups of {group}");
            assert_eq!((&results.sent, &results.received), (&vec![bits; workers as usize], &results.sent));
        }
    }
}

/// One server of three workers: two messages arrive, one after the other, and are decoded. The sum
/// is encoded once, and then leaves twice.
#[test]
fn no_copy_of_a_sum_leaves_before_the_sum_is_encoded() {
    let model = Model::from_csv("one", &b"name,values,forward_flops\np,1000000,0\n"[..]).unwrap();
    let mut scenario = Scenario { workers: 3, ..Scenario::new(model, "graph:servers:1".parse().unwrap()) };
    scenario.links.bandwidth = 8_000_000_000;
    // 4 MB: 4 ms to encode, 1 ms on a link, 1 ms to decode.
    scenario.wire.compression = Some("on-host:4@1,4".parse().unwrap());
    let ours = 1e3 * seconds(scenario.run().unwrap().iteration);
    assert!((ours - (4.0 + 2.0 * 1.0 + 1.0 + 4.0 + 2.0 * 1.0 + 1.0)).abs() < 1e-6, "{ours} ms");
}

/// The same without a codec: 4 ms on a link, and 1 ms for each message at both ends.
#[test]
fn each_message_takes_both_of_its_hosts() {
    let model = Model::from_csv("one", &b"name,values,forward_flops\np,1000000,0\n"[..]).unwrap();
    let mut scenario = Scenario { workers: 3, ..Scenario::new(model, "graph:servers:1".parse().unwrap()) };
    scenario.links.bandwidth = 8_000_000_000;
    scenario.per_message = SECOND / 1000;
    let results = scenario.run().unwrap();
    let ours = 1e3 * seconds(results.iteration);
    assert!((ours - (1.0 + 2.0 * 4.0 + 1.0 + 1.0 + 2.0 * 4.0 + 1.0)).abs() < 1e-6, "{ours} ms");
    assert!(results.events <= scenario.check().unwrap().events);
}

#[test]
fn rings_stay_flat_in_ranks_and_one_server_does_not() {
    let model = Model::published("vgg16").unwrap();
    let time = |mechanism, workers| run(&model, mechanism, workers).iteration as f64;
    assert!(time("graph:ring", 8) < 1.25 * time("graph:ring", 4));
    assert!(time("graph:servers:1", 8) > 1.5 * time("graph:servers:1", 4));
}

#[test]
fn every_strategy_comes_to_an_end_and_impossible_ones_are_refused() {
    let model = Model::published("resnet200").unwrap();
    for strategy in [
        "servers",
        "servers:3",
        "hierarchy:2",
        "hierarchy:3:servers",
        "butterfly",
        "halving-doubling",
        "all-gather",
    ] {
        for workers in [1, 3, 6] {
            let scenario = Scenario {
                workers,
                barrier: false,
                ..Scenario::new(model.clone(), format!("graph:{strategy}").parse().unwrap())
            };
            assert_eq!(
                scenario.run().is_ok(),
                strategy_fits(strategy, workers),
                "{strategy}, {workers} workers"
            );
            assert_eq!(scenario.mechanism.to_string(), format!("graph:{strategy}"));
        }
    }
    assert!("graph:star".parse::<Mechanism>().is_err());
}

/// In a pipeline, ranks are iterations apart, each in a run of its own.
#[test]
fn every_strategy_comes_to_an_end_in_a_pipeline() {
    let model = Model::published("vgg16").unwrap();
    for strategy in ["ring", "servers", "hierarchy:2", "butterfly", "halving-doubling", "all-gather"] {
        for staleness in [1, 2, 4] {
            let mechanism = format!("graph:{strategy}").parse().unwrap();
            let mut scenario = Scenario {
                workers: 8,
                barrier: false,
                staleness,
                jitter: Jitter { amount: 3.0, seed: 1 },
                ..Scenario::new(model.clone(), mechanism)
            };
            scenario.links.exceptions = vec![(5, 5_000_000_000)];
            let results = scenario.run().unwrap();
            assert!(results.events <= scenario.check().unwrap().events, "{strategy}, {staleness}");
        }
    }
}

/// Are there so many servers, or ranks of a group?
fn strategy_fits(strategy: &str, workers: u32) -> bool {
    let number = strategy.split(':').nth(1).map_or(1, |number| number.parse().unwrap());
    number <= workers
}
