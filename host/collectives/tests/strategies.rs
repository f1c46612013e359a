//! Every strategy over a network that reorders and delays, against sums in `f64`.

mod support;

use gradwire_codecs::{Chosen, Raw, Registry};
use gradwire_collectives::Strategy;
use proptest::prelude::*;
use support::{Random, Ranks, rounding, sum};

fn strategies(ranks: usize) -> Vec<Strategy> {
    Strategy::EXAMPLES.into_iter().filter(|strategy| strategy.check(ranks).is_ok()).collect()
}

fn codec(name: &'static str) -> Chosen {
    Registry::BUILT_IN.codec(name).unwrap()
}

fn assert_equal_bits(results: &[Vec<f32>], what: &dyn std::fmt::Display) {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    for result in results {
        assert_eq!(bits(result), bits(&results[0]), "{what}: replicas differ");
    }
}

#[test]
fn two_to_64_ranks_get_the_sum() {
    for ranks in (2..=20).chain([31, 32, 33, 47, 64]) {
        for strategy in strategies(ranks) {
            let partitions = if ranks < 33 { ranks } else { 5 };
            let values = 2 * partitions + 1;
            let mut random = Random(ranks as u64);
            let gradients: Vec<Vec<f32>> = (0..ranks).map(|_| random.values(values)).collect();
            let mut all = Ranks::new(strategy, ranks, partitions, values);
            let results = all.exchange(&Raw, &gradients, 7);
            assert_equal_bits(&results, &strategy);
            for (at, &result) in results[0].iter().enumerate() {
                let (sum, size) = sum(&gradients, at);
                let off = (f64::from(result) - sum).abs();
                assert!(off <= rounding(ranks, size), "{strategy}, {ranks} ranks: {result} for {sum}");
            }
            assert!(
                all.residuals.iter().flatten().all(|&residuals| residuals == 0.0),
                "{strategy}: f32 loses nothing"
            );
        }
    }
}

#[test]
fn servers_add_in_the_order_of_the_ranks_whoever_owns_a_partition() {
    let mut random = Random(3);
    let gradients: Vec<Vec<f32>> = (0..7).map(|_| random.values(40)).collect();
    let in_order: Vec<f32> =
        (0..40).map(|at| gradients.iter().fold(0.0, |sum, gradient| sum + gradient[at])).collect();
    for (servers, partitions) in [(None, 7), (None, 3), (Some(1), 1), (Some(1), 4), (Some(3), 10)] {
        let mut all = Ranks::new(Strategy::Servers(servers), 7, partitions, 40);
        assert_eq!(all.exchange(&Raw, &gradients, 5)[6], in_order);
    }
}

#[test]
fn no_order_of_arrival_changes_a_bit() {
    for strategy in strategies(9) {
        let mut random = Random(11);
        let gradients: Vec<Vec<f32>> = (0..9).map(|_| random.values(50)).collect();
        let name = if strategy.one_encodes() { "q8:16" } else { "f32" };
        let exchange = |seed| {
            let mut all = Ranks::new(strategy, 9, 9, 50);
            // The codec's own numbers stay the same; only the network's change.
            (all.exchange(&codec(name), &gradients, seed), all.residuals)
        };
        let first = exchange(1);
        for seed in 2..12 {
            assert!(exchange(seed) == first, "{strategy}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn given_is_delivered_plus_the_residual(
        ranks in 1usize..10,
        partitions in 1usize..12,
        values in 0usize..200,
        strategy in 0usize..Strategy::EXAMPLES.len(),
        name in prop::sample::select(vec!["f32", "f16", "q8", "q8:16", "q4", "q4:15", "3lc:1", "3lc:1.75:32", "onebit:8", "tbq:0.01", "bounded:6", "graddrop:90"]),
        seed: u64,
    ) {
        let strategy = Strategy::EXAMPLES[strategy];
        prop_assume!(strategy.check(ranks).is_ok() && (strategy.one_encodes() || name == "f32"));
        let (codec, mut random) = (codec(name), Random(seed));
        let mut all = Ranks::new(strategy, ranks, partitions, values);
        for round in 0..4 {
            let before = all.residuals.clone();
            let gradients: Vec<Vec<f32>> = (0..ranks).map(|_| random.values(values)).collect();
            let results = all.exchange(&codec, &gradients, seed ^ round);
            assert_equal_bits(&results, &strategy);
            for (at, &delivered) in results[0].iter().enumerate() {
                let (given, a) = sum(&gradients, at);
                let (held_before, b) = sum(&before, at);
                let (held_after, c) = sum(&all.residuals, at);
                let delivered = f64::from(delivered);
                let off = (given + held_before - delivered - held_after).abs();
                // A ring's sums pass through many messages, and each rounds what it says and the
                // residual.
                let size = a + b + c + delivered.abs();
                prop_assert!(off <= 4.0 * rounding(ranks, size), "{strategy} {codec} round {round}: off by {off} of {size}");
            }
        }
    }
}
