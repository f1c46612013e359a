//! The planner against published decisions, and the cost models against each other and the
//! simulator.

use gradwire_simulator::planner::casync::{Costs, Strategy, best, compressed, original};
use gradwire_simulator::planner::collectives::{
    Linear, butterfly, parameter_server, ring, worker_aggregator,
};
use gradwire_simulator::planner::cost_profile::{CodecCosts, CostProfile};
use gradwire_simulator::planner::curve::Curve;
use gradwire_simulator::planner::in_network::{Bottleneck, InNetwork};
use gradwire_simulator::planner::pipe_sgd::{
    Stages, ideal_pipeline, pipeline, pipelined_gradients, scaling_efficiency, sequential_gradients,
    synchronous,
};
use gradwire_simulator::planner::{Planner, Reason, table7};
use gradwire_simulator::{AggregatorRate, Mechanism, Model, Scenario, seconds};
use proptest::{prop_assert, proptest};

/// Constants with which every decision of HiPress' Table 7 comes out, of a codec with a bound.
fn table7() -> CostProfile {
    let mut profile = table7::costs();
    profile.codecs[0].bound = Some(14);
    profile
}

fn planner(profile: &CostProfile, strategy: Strategy, ranks: u32) -> Planner<'_> {
    Planner { profile, strategy, ranks, bound: 10, in_nic: false, threshold: 0.0 }
}

#[test]
fn the_twelve_decisions_of_table_7() {
    let profile = table7();
    let mut decisions = Vec::new();
    for megabytes in [4, 16, 392] {
        for strategy in [Strategy::PsColocated, Strategy::Ring] {
            for ranks in [4, 16] {
                let decision = planner(&profile, strategy, ranks).decide("g", megabytes << 20);
                // All are yes but a ring of 16 with 4 MB.
                let expected = !(megabytes == 4 && strategy == Strategy::Ring && ranks == 16);
                assert_eq!(
                    decision.compress, expected,
                    "{megabytes} MB, {strategy:?}, {ranks} ranks: {decision:?}"
                );
                decisions.push(decision);
            }
        }
    }
    assert_eq!(decisions.len(), 12);
    let no = decisions.iter().find(|decision| !decision.compress).unwrap();
    assert_eq!(no.reason, Some(Reason::CodecCostsMore));
    assert!(
        (no.plain_s * 1e6 - 1086.0).abs() < 1.0 && (no.compressed_s.unwrap() * 1e6 - 1314.0).abs() < 1.0,
        "{no:?}"
    );
}

#[test]
fn a_saving_below_the_threshold_is_refused_and_says_so() {
    let mut profile = table7();
    profile.codecs[0].encode = Curve::affine(0.0, f64::INFINITY);
    profile.codecs[0].decode = Curve::affine(0.0, f64::INFINITY);
    profile.codecs[0].ratio = 1.05;
    let decide =
        |threshold| Planner { threshold, ..planner(&profile, Strategy::Ring, 8) }.decide("g", 1 << 30);
    assert!(decide(0.0).compress);
    assert_eq!(decide(0.1).reason, Some(Reason::BelowThreshold));
    profile.codecs[0].bound = Some(6);
    assert_eq!(planner(&profile, Strategy::Ring, 8).decide("g", 1 << 30).reason, Some(Reason::NoCodec));
    assert_eq!(planner(&profile, Strategy::Ring, 1).decide("g", 1 << 30).reason, Some(Reason::OneRank));
}

#[test]
fn a_plan_is_no_slower_than_f32_at_any_number_of_ranks() {
    let profile = table7();
    let model = Model::published("resnet101").unwrap();
    for strategy in [Strategy::Ring, Strategy::Ps, Strategy::PsColocated] {
        for ranks in [1, 2, 3, 5, 7, 13, 64] {
            let plan = planner(&profile, strategy, ranks).plan(&model);
            assert!(plan.iteration_s <= plan.iteration_f32_s && plan.gain_f32 >= 1.0, "{strategy:?} {ranks}");
            assert_eq!(plan.tensors.len(), model.parameters.len());
            assert!(!plan.pays || plan.iteration_s < plan.iteration_16bit_s);
        }
    }
}

/// Compute of an hour hides every exchange, so nothing is gained; without compute, all of it is.
#[test]
fn a_plan_pays_only_where_the_exchange_counts() {
    let profile = table7();
    let planner = Planner { threshold: 0.1, ..planner(&profile, Strategy::Ring, 4) };
    let model = Model::published("vgg16").unwrap();
    let bound = planner.plan(&model.clone().timed(3600.0, 3600.0));
    assert!(!bound.pays && bound.tensors.iter().any(|tensor| tensor.compress));
    assert!(planner.plan(&model.timed(0.0, 0.0)).pays);
}

/// Eq. 1 and Table 3 of CaSync at K = N are the ring of the linear model without summing.
#[test]
fn casync_and_the_linear_model_agree_on_the_ring() {
    for ranks in [2, 3, 8, 50] {
        let machine = Linear { alpha: 1e-5, beta: 1e-10, gamma: 0.0 };
        let casync = original(&Curve::affine(1e-5, 1e10), Strategy::Ring, ranks, 1e7, ranks);
        assert!((casync / ring(machine, ranks, 1e7) - 1.0).abs() < 1e-9);
    }
}

/// The factors of Table 3 with unit costs: 2N sends, K+1 encodings, N+1 decodings.
#[test]
fn casync_counts_operations_as_table_3() {
    let unit = || Curve::affine(1.0, f64::INFINITY);
    let costs = Costs { send: unit(), encode: unit(), decode: unit(), rate: 0.5 };
    assert_eq!(compressed(&costs, Strategy::Ps, 5, 1.0, 3), [10.0, 4.0, 6.0]);
    assert_eq!(compressed(&costs, Strategy::PsColocated, 5, 1.0, 3), [8.0, 3.0, 5.0]);
    assert_eq!(compressed(&costs, Strategy::Ring, 5, 1.0, 3), [8.0, 5.0, 5.0]);
    assert_eq!(best(4, |k| f64::from((k as i32 - 3).abs())).partitions, 3);
}

/// Our reading of K > N: a batch of the last partitions costs as much as any other, however few
/// they are.
#[test]
fn more_partitions_than_ranks_are_batches() {
    let unit = || Curve::affine(1.0, f64::INFINITY);
    let costs = Costs { send: unit(), encode: unit(), decode: unit(), rate: 0.5 };
    for (partitions, batches) in [(4, 1.0), (5, 2.0), (8, 2.0), (9, 3.0)] {
        assert_eq!(original(&costs.send, Strategy::Ring, 4, 1.0, partitions), 6.0 * batches);
        let ring = compressed(&costs, Strategy::Ring, 4, 1.0, partitions);
        assert_eq!(ring, [6.0 * batches, 4.0 * batches, 4.0 * batches]);
        let servers = compressed(&costs, Strategy::PsColocated, 4, 1.0, partitions);
        assert_eq!(servers, [6.0 * batches, 4.0 * batches, 4.0 * batches]);
    }
    // Bytes are what they were, as long as the last batch is full.
    let bytes = Curve::affine(0.0, 1.0);
    let time = |partitions| original(&bytes, Strategy::Ring, 4, 480.0, partitions);
    assert_eq!((time(4), time(8), time(5)), (720.0, 720.0, 1152.0));
}

/// One parameter, no latency, no compute: closed form and simulator are the same.
#[test]
fn the_simulator_agrees_with_the_closed_forms() {
    let bits = 32 * 6400;
    let machine = Linear { alpha: 0.0, beta: 8.0 / 25e9, gamma: 0.0 };
    let n = bits as f64 / 8.0;
    for workers in [2, 4, 8, 16, 64] {
        let simulate = |mechanism| {
            let model = Model::from_csv("one", &b"name,values,forward_flops\np,6400,0\n"[..]).unwrap();
            seconds(Scenario { workers, ..Scenario::new(model, mechanism) }.run().unwrap().iteration)
        };
        for (mechanism, expected) in [
            (Mechanism::RING, ring(machine, workers, n)),
            (Mechanism::Butterfly, butterfly(machine, workers, n)),
        ] {
            assert!((simulate(mechanism) / expected - 1.0).abs() < 1e-9, "{mechanism} {workers}");
        }
    }
    // A server's two directions follow each other only if compute or many parameters part them.
    let vgg = Model::published("vgg16").unwrap();
    let n = vgg.bits() as f64 / 8.0;
    let ours = seconds(Scenario::new(vgg, Mechanism::BASELINE).run().unwrap().iteration);
    assert!((ours / parameter_server(machine, 32, n) - 1.0).abs() < 0.005);
}

/// CaSync's Eq. 2 with K = N is a ring whose hosts encode and decode, as long as decoding keeps up
/// with the link. If it does not, each worker's N-1 distributed chunks queue for it, of which Eq. 2
/// counts one.
#[test]
fn the_simulator_agrees_with_casync() {
    let (encode, ratio) = (4e9, 8.0);
    let bits = 32 * 640_000;
    for (ranks, full, decode) in [
        (2, false, 30e9),
        (4, false, 30e9),
        (8, false, 30e9),
        (8, true, 30e9),
        (64, false, 30e9),
        (8, false, 2e9),
    ] {
        let model = Model::from_csv("one", &b"name,values,forward_flops\np,640000,0\n"[..]).unwrap();
        let mut scenario = Scenario { workers: ranks, full, ..Scenario::new(model, Mechanism::RING) };
        scenario.wire.compression =
            Some(format!("on-host:{ratio}@{},{}", encode / 1e9, decode / 1e9).parse().unwrap());
        let ours = seconds(scenario.run().unwrap().iteration);
        let costs = Costs {
            send: Curve::affine(0.0, 25e9 / 8.0),
            encode: Curve::affine(0.0, encode),
            // The simulator's rate is of raw values, T_dec is of compressed bytes.
            decode: Curve::affine(0.0, decode / ratio),
            rate: 1.0 / ratio,
        };
        let expected: f64 =
            compressed(&costs, Strategy::Ring, ranks, f64::from(bits) / 8.0, ranks).iter().sum();
        if decode / ratio > 25e9 / 8.0 {
            assert!((ours / expected - 1.0).abs() < 1e-6, "{ranks} ranks: {ours} s and {expected} s");
        } else {
            assert!(ours > expected, "{ranks} ranks: {ours} s and {expected} s");
        }
    }
}

/// The published claims, at 10 Gbit/s and 20 GB/s of summing: WA nearly linear, INC nearly
/// constant.
#[test]
fn inceptionns_two_exchanges_scale_as_it_says() {
    let machine = Linear { alpha: 0.0, beta: 8.0 / 10e9, gamma: 1.0 / 20e9 };
    let (wa, inc) = (|p| worker_aggregator(machine, p, 1e8), |p| ring(machine, p, 1e8));
    assert!((wa(8) / inc(8) - 6.3).abs() < 0.05);
    assert!((wa(8) / wa(4) - 1.85).abs() < 0.01);
    assert!((inc(8) / inc(4) - 1.17).abs() < 0.01);
    assert!(inc(1000) < 1e8 * (2.0 * machine.beta + machine.gamma));
}

proptest! {
    #[test]
    fn more_partitions_than_ranks_never_pay(
        (fixed, rate) in (0.0..1e-3, 1e6..1e11),
        (encode, decode) in (1e6..1e11, 1e6..1e11),
        (ranks, bytes, shrunk) in (1_u32..40, 1.0..1e9, 0.001..1.0),
        more in 1_u32..100,
    ) {
        let costs = Costs {
            send: Curve::affine(fixed, rate),
            encode: Curve::affine(fixed, encode),
            decode: Curve::affine(fixed, decode),
            rate: shrunk,
        };
        for strategy in [Strategy::Ring, Strategy::PsColocated] {
            let sum = |k| compressed(&costs, strategy, ranks, bytes, k).iter().sum::<f64>();
            prop_assert!(sum(ranks + more) >= sum(ranks) * (1.0 - 1e-9));
            let plain = |k| original(&costs.send, strategy, ranks, bytes, k);
            prop_assert!(plain(ranks + more) >= plain(ranks) * (1.0 - 1e-9));
        }
    }

    #[test]
    fn pipe_sgds_equations_keep_their_identities(
        (update, forward, backward) in (0.0..1.0, 0.001..1.0, 0.0..1.0),
        comm in 0.001..3.0,
        (p, n) in (2_u32..64, 1.0..1e9),
        segments in 1.0..100.0,
        (alpha, beta, gamma, sync) in (0.0..1e-3, 1e-10..1e-8, 0.0..1e-9, 0.0..1e-3),
    ) {
        let stages = Stages { update, forward, backward };
        let (whole, pipe) = (synchronous(10.0, stages, comm), pipeline(10.0, stages, comm));
        prop_assert!(pipe <= whole && whole <= 2.0 * pipe * (1.0 + 1e-12));
        prop_assert!((ideal_pipeline(10.0, 2.0, stages, comm) - whole / 2.0).abs() < 1e-9);
        prop_assert!((synchronous(1.0, stages, stages.compute()) / pipeline(1.0, stages, stages.compute()) - 2.0).abs() < 1e-12);
        let efficiency = scaling_efficiency(stages, comm);
        let expected = if comm <= stages.compute() { 1.0 } else { stages.compute() / comm };
        prop_assert!((efficiency - expected).abs() < 1e-12);
        let machine = Linear { alpha, beta, gamma };
        let five = sequential_gradients(1.0, stages, machine, p, n, sync);
        let six = pipelined_gradients(1.0, stages, machine, p, n, sync, (segments, 0.0));
        prop_assert!(five <= six * (1.0 + 1e-12));
        let same = pipelined_gradients(1.0, stages, machine, p, n, sync, (1.0, 0.0));
        prop_assert!((five / same - 1.0).abs() < 1e-12);
    }
}

/// Codec of ratio 4 that takes no time, links of 1 GB/s, four ranks of which each has 40 MB: 10
/// million values.
fn ten_million(values_a_second: u64, cores: u32, forward: f64) -> (f64, InNetwork) {
    let no_time = Curve::affine(0.0, f64::INFINITY);
    // At this bound a sum of four has 5.57 / 6.49 of the gradient's ratio.
    let codec = |name: &str| CodecCosts {
        name: name.into(),
        bound: Some(10),
        lost: 0.0,
        ratio: 4.0,
        encode: no_time.clone(),
        decode: no_time.clone(),
    };
    let profile = CostProfile {
        send: Curve::affine(0.0, 1e9),
        compute: None,
        codecs: vec![codec("bounded:10"), codec("wire:2:10")],
    };
    let model =
        Model::from_csv("m", &b"name,values,forward_flops\np,10000000,0\n"[..]).unwrap().timed(forward, 0.0);
    let planner = Planner { threshold: 0.1, ..planner(&profile, Strategy::Ring, 4) };
    let plan = planner.plan(&model);
    let aggregator = AggregatorRate { rate: values_a_second, cores };
    (plan.iteration_s, planner.in_network(&model, &plan, aggregator).unwrap())
}

/// By hand: the ring sends six quarters of 10 MB, 15 ms. The aggregator's way down takes 10 MB *
/// 6.49 / 5.57, 11.65 ms.
#[test]
fn an_aggregator_pays_where_links_bound_and_not_where_it_or_compute_does() {
    let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 2e-3, "{a} is not {b}");
    let (planned, fast) = ten_million(1_000_000_000_000, 1, 0.0);
    close(planned, 15e-3);
    close(fast.iteration_s, 10e-3 * 6.49 / 5.57);
    assert!(fast.pays && fast.bottleneck == Bottleneck::Link && fast.cores == 1, "{fast:?}");
    // 40 million values at 500 million a second: 80 ms, and seven cores are as fast as the link.
    let (_, slow) = ten_million(500_000_000, 1, 0.0);
    close(slow.iteration_s, 80e-3);
    assert!(!slow.pays && slow.bottleneck == Bottleneck::Aggregator && slow.cores == 7, "{slow:?}");
    let (_, seven) = ten_million(500_000_000, 7, 0.0);
    assert!(seven.pays && seven.bottleneck == Bottleneck::Link, "{seven:?}");
    let (_, compute) = ten_million(1_000_000_000_000, 1, 1.0);
    assert!(!compute.pays && compute.bottleneck == Bottleneck::Compute, "{compute:?}");
}

#[test]
fn one_rank_has_nothing_to_sum_and_no_codec_no_chunks() {
    let mut profile = table7();
    profile.codecs[0].name = "wire:1:14".into();
    let model = Model::published("resnet101").unwrap();
    for (ranks, bound) in [(1, 14), (4, 6)] {
        profile.codecs[0].bound = Some(bound);
        let planner = planner(&profile, Strategy::Ring, ranks);
        assert_eq!(planner.in_network(&model, &planner.plan(&model), AggregatorRate::default()), None);
    }
}

/// The network's codecs are for cards, the host's for hosts.
#[test]
fn each_place_has_its_codecs() {
    let mut profile = table7();
    let one = profile.codecs.remove(0);
    let all =
        [("wire:2:10", Some(10), 9.0), ("wire:2:8", Some(8), 10.0), ("q8", None, 4.0), ("q4", None, 8.0)];
    for (name, bound, ratio) in all {
        profile.codecs.push(CodecCosts { name: name.into(), bound, ratio, ..one.clone() });
    }
    let decided = |in_nic, bound| {
        let planner = Planner { in_nic, bound, ..planner(&profile, Strategy::Ring, 4) };
        planner.decide("g", 400 << 20)
    };
    // The one with the highest ratio, since all take as long.
    for (in_nic, bound, expected) in
        [(true, 10, "wire:2:10"), (true, 8, "wire:2:8"), (false, 8, "q4"), (false, 14, "q4")]
    {
        assert_eq!(decided(in_nic, bound).codec.as_deref(), Some(expected), "{in_nic} {bound}");
    }
    assert_eq!(decided(true, 12).reason, Some(Reason::NoCodec));
}

/// By hand, for four ranks, 10 us and 1 ns a byte to send, 2 us and 0.25 ns a byte to encode, 1 us
/// and 1 ns a compressed byte to decode, and a quarter of the bytes.
///
/// A ring of K parts of m bytes takes 6 (10 us + m/K ns) as it is. With the codec it takes
/// 6 (10 us + m/4K ns) + 4 (2 us + 0.25 m/K ns) + 4 (1 us + 0.25 m/K ns)
/// = 72 us + 3.5 m/K ns; with colocated servers, whose owners encode K parts one after the other,
/// 64 us + 2 K us + (2.5 + 0.25 K) m/K ns. K = 4 is best on the ring. On servers, (2 K us +
/// 2.5 m/K ns) is least where K^2 = 1.25e-3 m: between 2 and 3 for 4000 bytes, beyond 4 for
/// 400,000.
#[test]
fn decisions_are_those_of_equations_1_and_2_by_hand() {
    let codec = CodecCosts {
        name: "q8".into(),
        bound: None,
        lost: 0.0,
        ratio: 4.0,
        encode: Curve::affine(2e-6, 4e9),
        decode: Curve::affine(1e-6, 1e9),
    };
    let profile = CostProfile { send: Curve::affine(10e-6, 1e9), compute: None, codecs: vec![codec] };
    let (small, large) = (4_000, 400_000);
    for (strategy, bytes, plain_us, coded_us, partitions) in [
        // 60 + 6 and 72 + 3.5 us: the codec costs more.
        (Strategy::Ring, small, 66.0, 75.5, 4),
        // 60 + 600 and 72 + 350 us.
        (Strategy::Ring, large, 660.0, 422.0, 4),
        // 64 + 2 K + (2.5 + 0.25 K) 4/K us: 77, 74, 74.33 and 75.5.
        (Strategy::PsColocated, small, 66.0, 74.0, 4),
        // 64 + 8 + 350 us.
        (Strategy::PsColocated, large, 660.0, 422.0, 4),
    ] {
        let decision = planner(&profile, strategy, 4).decide("g", bytes);
        let close =
            |s: f64, us: f64| assert!((s * 1e6 - us).abs() < 1e-6, "{strategy:?} {bytes}: {decision:?}");
        close(decision.plain_s, plain_us);
        close(decision.compressed_s.unwrap(), coded_us);
        assert_eq!(
            (decision.compress, decision.partitions),
            (coded_us < plain_us, partitions),
            "{decision:?}"
        );
    }
}

/// A codec with a momentum needs all tensors: others would learn without it.
#[test]
fn a_momentum_is_for_all_tensors_or_none() {
    let mut profile = table7();
    profile.codecs[0].name = "dgc:1:0.9".into();
    let planner = planner(&profile, Strategy::PsColocated, 4);
    let model = Model::from_csv("two", &b"name,values\na,2000\nb,9000000\n"[..]).unwrap();
    let classes = planner.classes(&model, 1000);
    let codecs: Vec<Option<&str>> = classes.iter().map(|class| class.codec.as_deref()).collect();
    assert_eq!((codecs[0], codecs.last()), (None, Some(&Some("dgc:1:0.9"))), "{classes:?}");
    let refused = planner.graph_plan(&classes, 1000).unwrap_err().to_string();
    assert!(refused.contains("dgc:1:0.9 has a momentum"), "{refused}");
    // Only large ones.
    let all = planner.graph_plan(&classes[classes.len() - 1..], 1000).unwrap();
    assert!(all.rows.is_empty() && all.others.coding.to_string() == "dgc:1:0.9");
}
