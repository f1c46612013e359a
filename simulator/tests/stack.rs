//! HiPress' stack: what holds of it whatever comes out.

use gradwire_collectives::{Choice, Coding, CollectivePlan, GraphPlan, Order, Strategy};
use gradwire_simulator::stack::{Stack, Step};
use gradwire_simulator::{Mechanism, Model, Packets, Picos, SECOND, Scenario, seconds};

/// TernGrad with 2 bits.
fn terngrad() -> Coding {
    "strategy = \"ring\"\ncodec = \"terngrad:2\"".parse::<CollectivePlan>().unwrap().coding()
}

fn stack(strategy: Strategy, bandwidth: u64) -> Stack {
    let model = Model::published("resnet101").unwrap();
    let mut scenario = Scenario {
        workers: 4,
        per_message: SECOND / 100_000,
        ..Scenario::new(model, Mechanism::Graph(strategy))
    };
    scenario.links.bandwidth = bandwidth;
    scenario.wire.packets = Some(Packets::of_mtu(1500));
    let rates = [3.5e9, 10.9e9];
    Stack { scenario, strategy, coding: terngrad(), rates, small: 1024, batch: false, threshold: 0.1 }
}

const STRATEGIES: [Strategy; 2] = [Strategy::Ring, Strategy::Servers(None)];

#[test]
fn the_figures_of_each_step_go_together() {
    for strategy in STRATEGIES {
        for bandwidth in [1_000_000_000, 25_000_000_000] {
            let stack = stack(strategy, bandwidth);
            let rows = Step::ALL.map(|step| stack.row(step).unwrap());
            let compute = seconds(stack.scenario.compute());
            for row in &rows {
                assert!(row.efficiency > 0.0 && row.efficiency <= 1.0, "{row:?}");
                assert!(row.communication > 0.0 && row.communication <= 1.0, "{row:?}");
                assert!((row.efficiency * row.iteration_s - compute).abs() < 1e-9, "{row:?}");
                let sent = 8.0 * row.sent_bytes as f64 / bandwidth as f64;
                assert!(row.communication * row.iteration_s >= sent * (1.0 - 1e-9), "{row:?}");
                // The plan is what was run, also after somebody read its file.
                let plan: CollectivePlan = row.plan.parse().unwrap();
                assert_eq!(plan, stack.plan(row.step).unwrap().into());
            }
            let [none, codec, pipelining, bulk, selection] = &rows;
            let tensors = stack.scenario.model.parameters.len();
            let large = stack.scenario.model.parameters.iter().filter(|row| row.values >= 1024).count();
            assert!(large < tensors);
            assert_eq!((none.compressed, codec.compressed, pipelining.compressed), (0, tensors, tensors));
            assert_eq!((none.exchanges, codec.exchanges, pipelining.exchanges), (tensors, tensors, tensors));
            assert_eq!((bulk.compressed, bulk.exchanges, selection.exchanges), (large, large + 1, large + 1));
            assert!(selection.compressed <= large);
            let batch = Stack { batch: true, ..stack.clone() }.row(Step::Bulk).unwrap();
            assert_eq!((batch.compressed, batch.exchanges), (tensors, large + 1));
            assert!(batch.sent_bytes < bulk.sent_bytes && batch.sent_bytes < pipelining.sent_bytes);
            // A tensor of one partition has no order.
            assert_eq!(codec.iteration_s, codec.uncoordinated_s);
            // 2 bits of 32, and headers.
            let shrunk = none.sent_bytes as f64 / pipelining.sent_bytes as f64;
            assert!((9.0..16.0).contains(&shrunk), "{shrunk}");
        }
    }
}

/// A batch saves messages. It goes as `f32` and last, which messages that cost nothing do not pay
/// for.
#[test]
fn bulk_pays_if_messages_cost_enough() {
    for (per_message, pays) in [(0, false), (SECOND / 10_000, true)] {
        let mut stack = stack(Strategy::Servers(None), 1_000_000_000);
        stack.scenario.per_message = per_message;
        let time = |step| stack.row(step).unwrap().iteration_s;
        assert_eq!(time(Step::Bulk) < time(Step::Pipelining), pays, "{per_message} ps a message");
    }
}

#[test]
fn a_codec_that_never_pays_is_not_selected() {
    let slow = Stack { rates: [1e6, 1e6], ..stack(Strategy::Servers(None), 25_000_000_000) };
    let row = slow.row(Step::Selection).unwrap();
    assert_eq!(row.compressed, 0);
    // Each of them is in the plan, since all others would be compressed.
    assert_eq!(slow.plan(Step::Selection).unwrap().rows.len() + 1, row.exchanges);
    let free = Stack { rates: [f64::INFINITY; 2], ..stack(Strategy::Servers(None), 1_000_000_000) };
    let (bulk, selection) = (free.row(Step::Bulk).unwrap(), free.row(Step::Selection).unwrap());
    assert_eq!((selection.compressed, selection.exchanges), (bulk.compressed, bulk.exchanges));
}

#[test]
fn the_planner_knows_two_strategies() {
    for strategy in [Strategy::HalvingDoubling, Strategy::Servers(Some(2)), Strategy::AllGather] {
        assert!(stack(strategy, 1_000_000_000).row(Step::Selection).is_err(), "{strategy}");
        assert!(stack(strategy, 1_000_000_000).row(Step::Pipelining).is_ok(), "{strategy}");
    }
}

/// One tensor of so many values, exchanged as `f32` in so many partitions.
fn partitioned(strategy: Strategy, values: usize, partitions: usize) -> Picos {
    let csv = format!("name,values\np,{values}\n");
    let model = Model::from_csv("one", csv.as_bytes()).unwrap();
    let others = Choice { coding: Coding::exact(), strategy, partitions: Some(partitions) };
    let plan =
        GraphPlan { others, small: 0, order: Order::Turns, ..GraphPlan::of(Coding::exact(), strategy) };
    let scenario = Scenario {
        workers: 4,
        plan: Some(plan.into()),
        per_message: SECOND / 100_000,
        ..Scenario::new(model, Mechanism::Graph(strategy))
    };
    scenario.run().unwrap().iteration
}

/// K > N: ceil(K/N) batches of N partitions, one after the other. Workers begin the next one before
/// the last is done, so it takes less than that, but more than one batch.
#[test]
fn more_partitions_than_workers_cost_at_most_their_batches() {
    const PART: usize = 400_000;
    for strategy in STRATEGIES {
        let batch = partitioned(strategy, 4 * PART, 4);
        for (partitions, batches) in [(5, 2), (8, 2), (9, 3), (16, 4)] {
            let all = partitioned(strategy, partitions * PART, partitions);
            assert!(all > batch && all <= batches * batch, "{strategy}, {partitions}: {all} ps, {batch} ps");
        }
    }
}

#[test]
fn plans_that_do_not_fit_are_refused() {
    let fits = stack(Strategy::Ring, 1_000_000_000).scenario;
    let plan = |text: &str| Some(text.parse::<CollectivePlan>().unwrap());
    for (scenario, says) in [
        (
            Scenario { plan: plan("strategy = \"servers:5\"\ncodec = \"f32\""), ..fits.clone() },
            "expected 1 to 4",
        ),
        (Scenario { plan: plan("strategy = \"in-network:10.0.0.9\""), ..fits.clone() }, "mechanism ina"),
        (
            Scenario {
                plan: plan("strategy = \"ring\"\ncodec = \"f32\""),
                mechanism: Mechanism::RING,
                ..fits.clone()
            },
            "only graphs",
        ),
    ] {
        let error = scenario.run().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
