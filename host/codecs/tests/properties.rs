//! Promises of every codec, for tensors that chance makes.

use gradwire_codecs::{Chosen, Codec, Registry};
use proptest::prelude::*;

/// Every codec, with the arguments that matter.
const NAMES: &[&str] = &[
    "f32",
    "f16",
    "trunc:16",
    "trunc:22",
    "trunc:24",
    "q8",
    "q8:256",
    "q8:7",
    "q4",
    "q4:256",
    "q4:7",
    "q4:1",
    "3lc:1",
    "3lc:1.5:64",
    "3lc:1.75:1024",
    "3lc:1.9",
    "3lc:1:7",
    "onebit",
    "onebit:256",
    "onebit:7",
    "tbq:0.001",
    "tbq:1",
    "terngrad",
    "terngrad:4",
    "terngrad:8",
    "dgc:0.1",
    "dgc:1",
    "dgc:5:0.9",
    "dgc:100",
    "graddrop:99",
    "graddrop:50",
    "low-rank:1",
    "low-rank:4",
    "low-rank:32",
    "low-rank:2:10",
    "bounded:1",
    "bounded:6",
    "bounded:13",
    "ternary",
    "ternary:256",
    "ternary:7",
];

fn codec(name: &str) -> Chosen {
    Registry::BUILT_IN.codec(name).unwrap_or_else(|error| panic!("{error}"))
}

fn codecs() -> impl Strategy<Value = Chosen> {
    prop::sample::select(NAMES).prop_map(codec)
}

/// Values of gradients: around one magnitude, many zeros, or any finite magnitude up to 2^100.
fn tensor() -> impl Strategy<Value = Vec<f32>> {
    let any = any::<u32>().prop_map(|bits| {
        let value = f32::from_bits(bits);
        if value.abs() <= 2f32.powi(100) { value } else { 0.0 }
    });
    let near = (-1.0f32..1.0, -20..4i32).prop_map(|(value, exponent)| value * 2f32.powi(exponent));
    let sparse = prop_oneof![9 => Just(0.0f32), 1 => -1.0f32..1.0];
    let len = prop_oneof![0..4usize, 0..400usize, 600..2600usize];
    prop_oneof![
        (len.clone()).prop_flat_map(move |len| prop::collection::vec(near.clone(), len)),
        (len.clone()).prop_flat_map(move |len| prop::collection::vec(sparse.clone(), len)),
        len.prop_flat_map(move |len| prop::collection::vec(any.clone(), len)),
    ]
}

/// One message of `acc`, which is left with what it lost.
fn send(codec: &Chosen, acc: &mut [f32], state: &mut [f32], seed: u64) -> Vec<u8> {
    let mut out = vec![0xaa; codec.bound(acc.len())];
    let len = codec.encode(acc, state, seed, &mut out);
    assert!(len <= out.len(), "{codec}: a message of {len} bytes, and bound says {}", out.len());
    out.truncate(len);
    out
}

fn receive(codec: &Chosen, message: &[u8], n: usize) -> Vec<f32> {
    let mut sum = vec![0.0; n];
    assert_eq!(codec.merge(message, &mut sum), Ok(message.len()), "{codec}");
    sum
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #[test]
    fn given_is_delivered_plus_the_residual(codec in codecs(), tensors in prop::collection::vec(tensor(), 1..4), seed: u64) {
        let n = tensors.iter().map(Vec::len).min().unwrap();
        let (mut acc, mut state) = (vec![0.0f32; n], vec![0.0; codec.state_len(n)]);
        for gradient in &tensors {
            // Without momentum; that has a test of its own.
            for (residual, new) in acc.iter_mut().zip(gradient) {
                *residual += new;
            }
            let given = acc.clone();
            let message = send(&codec, &mut acc, &mut state, seed);
            let delivered = receive(&codec, &message, n);
            // Low rank sums up along a row, onebit over a block: there rounding is that of the
            // largest value.
            let largest = given.iter().fold(0.0f64, |most, value| most.max(f64::from(value.abs())));
            for i in 0..n {
                let (given, sum) = (f64::from(given[i]), f64::from(delivered[i]) + f64::from(acc[i]));
                let tolerance = 4.0 * f64::from(f32::EPSILON) * (given.abs() + f64::from(delivered[i].abs()) + largest / 64.0) + 2e-45;
                prop_assert!((given - sum).abs() <= tolerance, "{codec}, value {i} of {n}: {given} became {sum}");
            }
        }
    }

    #[test]
    fn same_values_state_and_seed_make_the_same_bytes(codec in codecs(), tensor in tensor(), seed: u64) {
        let once = || {
            let (mut acc, mut state) = (tensor.clone(), vec![0.0; codec.state_len(tensor.len())]);
            let first = send(&codec, &mut acc, &mut state, seed);
            let second = send(&codec, &mut acc, &mut state, seed + 1);
            (first, second, bits(&acc), bits(&state))
        };
        prop_assert_eq!(once(), once());
    }

    #[test]
    fn values_that_are_not_finite_arrive_and_leave_no_residual(
        codec in codecs(), mut tensor in tensor(), at: prop::sample::Index, more in 0..1200usize, seed: u64,
        bad in prop::sample::select(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY][..]),
    ) {
        if tensor.is_empty() {
            return Ok(());
        }
        let n = tensor.len();
        // One of them, or many, which are more than some messages have room for.
        let (first, after) = (at.index(n), (at.index(n) + 1 + more / 2 * (more % 2)).min(n));
        tensor[first..after].fill(bad);
        // An overflow reaches the codec's state, too.
        let (gradient, mut state) = (tensor.clone(), vec![0.0; codec.state_len(n)]);
        tensor.fill(0.0);
        codec.give(&gradient, &mut tensor, &mut state);
        let at = first;
        let message = send(&codec, &mut tensor, &mut state, seed);
        let delivered = receive(&codec, &message, n);
        prop_assert!(!delivered[at].is_finite(), "{codec}, value {at} of {n}: {bad} became {}", delivered[at]);
        prop_assert!(tensor.iter().chain(&state).all(|residual| residual.is_finite()), "{codec}: residual");
        // The next message is none the worse for it.
        let message = send(&codec, &mut tensor, &mut state, seed);
        prop_assert!(receive(&codec, &message, n).iter().all(|value| value.is_finite()), "{codec}: the next message");
    }

    #[test]
    fn malformed_messages_are_refused_whole(codec in codecs(), mut bytes: Vec<u8>, tensor in tensor(), cut: prop::sample::Index) {
        let n = tensor.len();
        let sum: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let mut after = sum.clone();
        match codec.merge(&bytes, &mut after) {
            Ok(len) => prop_assert!(len <= bytes.len().min(codec.bound(n))),
            Err(_) => prop_assert_eq!(bits(&sum), bits(&after)),
        }
        // A message that lost its end is none.
        let mut state = vec![0.0; codec.state_len(n)];
        bytes = send(&codec, &mut tensor.clone(), &mut state, 0);
        if !bytes.is_empty() {
            after.copy_from_slice(&sum);
            prop_assert!(codec.merge(&bytes[..cut.index(bytes.len())], &mut after).is_err(), "{codec}: cut short");
            prop_assert_eq!(bits(&sum), bits(&after));
            // With one bit of it changed, it is another message or none.
            let bit = cut.index(8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
            if codec.merge(&bytes, &mut after).is_err() {
                prop_assert_eq!(bits(&sum), bits(&after));
            }
        }
    }

    #[test]
    fn bytes_behind_a_message_do_not_matter(codec in codecs(), mut tensor in tensor(), more: Vec<u8>) {
        let n = tensor.len();
        let mut message = send(&codec, &mut tensor, &mut vec![0.0; codec.state_len(n)], 1);
        let (len, alone) = (message.len(), receive(&codec, &message, n));
        message.extend(more);
        let mut sum = vec![0.0; n];
        prop_assert_eq!(codec.merge(&message, &mut sum), Ok(len));
        prop_assert_eq!(bits(&alone), bits(&sum));
    }
}

/// An overflow usually reaches all gradients. Who skips the step then must not see it again.
#[test]
fn a_tensor_that_overflows_makes_one_bad_message() {
    let gradient: Vec<f32> = (0..5000u16).map(|i| f32::from(i % 97) - 48.0).collect();
    for name in NAMES {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let codec = codec(name);
            let (mut acc, mut state) = (vec![0.0; 5000], vec![0.0; codec.state_len(5000)]);
            for round in 0..4 {
                let gradient = if round == 1 { vec![bad; 5000] } else { gradient.clone() };
                codec.give(&gradient, &mut acc, &mut state);
                let message = send(&codec, &mut acc, &mut state, round);
                let finite = receive(&codec, &message, 5000).iter().all(|value| value.is_finite());
                assert_eq!(finite, round != 1, "{name}, {bad}, message {round}");
                let residual = acc.iter().chain(&state).all(|value| value.is_finite());
                assert!(residual, "{name}, {bad}: residual after message {round}");
            }
        }
    }
}

/// One scale serves a whole block, so a rounded one must not make an infinity of its largest value.
#[test]
fn the_largest_finite_value_stays_finite() {
    // The others add values up, which may overflow.
    for name in NAMES.iter().filter(|name| {
        !["onebit", "low-rank", "terngrad"].contains(&name.split(':').next().unwrap_or_default())
    }) {
        let codec = codec(name);
        for steps in 0..300u32 {
            let largest = f32::from_bits(f32::MAX.to_bits() - steps);
            for sign in [1.0, -1.0] {
                let mut acc = [sign * largest; 14];
                let mut state = vec![0.0; codec.state_len(14)];
                let message = send(&codec, &mut acc, &mut state, u64::from(steps));
                let delivered = receive(&codec, &message, 14);
                assert!(
                    delivered.iter().all(|value| value.is_finite()),
                    "{name}: {largest:e} became {delivered:?}"
                );
                assert!(acc.iter().all(|value| value.is_finite()), "{name}: {largest:e} left {acc:?}");
            }
        }
    }
}

/// A step that is skipped takes the whole block with it, as docs/host-format.md says of codecs with
/// scales.
#[test]
fn a_block_that_was_sent_as_nan_leaves_no_residual() {
    let names = [
        "q8",
        "q8:256",
        "q4",
        "q4:7",
        "3lc:1",
        "3lc:1.5:64",
        "3lc:1.75:1024",
        "3lc:1:7",
        "terngrad",
        "low-rank:4",
        "ternary",
        "ternary:7",
    ];
    for name in names {
        let codec = codec(name);
        let n = 3000;
        let mut acc: Vec<f32> =
            (0..n).map(|i| if i == 1234 { f32::INFINITY } else { 1e4 + i as f32 }).collect();
        let mut state = vec![0.0; codec.state_len(n)];
        let message = send(&codec, &mut acc, &mut state, 0);
        let delivered = receive(&codec, &message, n);
        for (i, (residual, delivered)) in acc.iter().zip(&delivered).enumerate() {
            assert!(
                !delivered.is_nan() || *residual == 0.0,
                "{name}, value {i}: {residual} is the residual of what arrived as NaN"
            );
        }
        assert!(delivered[1234].is_nan(), "{name}");
    }
}
