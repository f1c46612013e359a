//! The fast ways of packing, sorting and filtering, held to plain ones. `bitvec` packs bits.

use bitvec::field::BitField;
use bitvec::order::Lsb0;
use bitvec::view::BitView;
use gradwire_codecs::ops::{self, Place, Random, concat, extract, filter, map, sort};
use gradwire_codecs::{
    Blocks, Bounded, Codec, Dgc, EightBits, FourBits, GradDrop, Half, LowRank, OneBit, Raw, Registry,
    TernGrad, Ternary, ThreeLc, Threshold, Truncation,
};
use proptest::prelude::*;

/// `numbers` of `width` bits each, the first in the lowest bits.
fn packed(width: usize, numbers: &[usize]) -> Vec<u8> {
    let mut bytes = vec![0; (width * numbers.len()).div_ceil(8)];
    let bits = bytes.view_bits_mut::<Lsb0>();
    for (field, number) in bits.chunks_exact_mut(width.max(1)).zip(numbers) {
        if width > 0 {
            field.store_le(*number);
        }
    }
    bytes
}

fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

fn codes_are_packed<const BITS: usize>(codes: &[u8]) {
    let codes: Vec<u8> = codes.iter().map(|code| code & (0xff >> (8 - BITS))).collect();
    let mut values: Vec<f32> = codes.iter().map(|code| f32::from(*code)).collect();
    let mut out = vec![0xaa; codes.len() + 1];
    let mut message = concat(&mut out);
    message.pack::<BITS>(map(&mut values, |i, value| {
        assert_eq!(*value, f32::from(codes[i]));
        *value = 0.0;
        codes[i]
    }));
    let len = message.len();
    let numbers: Vec<usize> = codes.iter().map(|code| usize::from(*code)).collect();
    assert_eq!(out[..len], packed(BITS, &numbers));
    let mut read = extract(&out);
    read.unpack::<BITS>(&mut values, |code, value| *value += f32::from(code));
    assert_eq!((read.len(), values), (len, codes.iter().map(|code| f32::from(*code)).collect()));
}

proptest! {
    #[test]
    fn codes_are_packed_as_bitvec_packs_them(codes in prop::collection::vec(any::<u8>(), 0..300)) {
        codes_are_packed::<1>(&codes);
        codes_are_packed::<2>(&codes);
        codes_are_packed::<4>(&codes);
        codes_are_packed::<8>(&codes);
    }

    #[test]
    fn numbers_are_packed_as_bitvec_packs_them(width in 0..=32u32, numbers in prop::collection::vec(any::<u32>(), 0..100)) {
        let numbers: Vec<usize> = numbers.iter().map(|number| (u64::from(*number) & ((1 << width) - 1)) as usize).collect();
        let expected = packed(width as usize, &numbers);
        let mut out = vec![0xaa; expected.len()];
        let mut message = concat(&mut out);
        message.numbers(width, numbers.len(), numbers.iter().copied());
        prop_assert_eq!(message.len(), expected.len());
        prop_assert_eq!(&out, &expected);
        prop_assert_eq!(extract(&out).numbers(width, numbers.len()).collect::<Vec<_>>(), numbers);
    }

    #[test]
    fn a_place_is_found_as_if_values_were_sorted(
        values in prop::collection::vec(prop_oneof![any::<f32>(), Just(0.0), Just(-1.0), any::<u32>().prop_map(f32::from_bits)], 1..200),
        place: prop::sample::Index,
    ) {
        let place = place.index(values.len());
        let mut keys: Vec<u32> = values.iter().map(|value| magnitude(*value)).collect();
        keys.sort_unstable_by(|a, b| b.cmp(a));
        let key = keys[place];
        let larger = keys.iter().filter(|other| **other > key).count();
        prop_assert_eq!(sort(&values, place), Place { key, larger });
        let kept: Vec<usize> = (0..values.len()).filter(|i| magnitude(values[*i]) >= key).collect();
        prop_assert_eq!(filter(&values, key).collect::<Vec<_>>(), kept);
    }

    #[test]
    fn three_lc_is_the_papers(
        values in prop::collection::vec(prop_oneof![3 => Just(0.0f32), 1 => -1.0f32..1.0], 0..1500),
        multiplier in prop::sample::select(&[1.0f32, 1.5, 1.75, 1.9][..]),
        block in prop::sample::select(&[0u32, 7, 64, 100, 320, 1024][..]),
    ) {
        let blocks = core::num::NonZeroU32::new(block).map_or(Blocks::WHOLE, Blocks::of);
        let codec = ThreeLc::new(multiplier, blocks).unwrap();
        let mut acc = values.clone();
        let mut out = vec![0; codec.bound(values.len())];
        let len = codec.encode(&mut acc, &mut [], 0, &mut out);
        prop_assert_eq!(&out[..len], three_lc(&values, multiplier, blocks));
    }

    #[test]
    fn four_bits_are_the_nearest_sevenths_of_the_peak(
        values in prop_oneof![
            prop::collection::vec(-1.0f32..1.0, 0..300),
            prop::collection::vec(any::<u32>().prop_map(f32::from_bits), 0..300),
        ],
        block in prop::sample::select(&[0u32, 1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 256][..]),
    ) {
        four_bits(&values, core::num::NonZeroU32::new(block).map_or(Blocks::WHOLE, Blocks::of));
    }

    #[test]
    fn the_numbers_of_chance_are_below_one_and_spread_evenly(seed: u64) {
        let random = Random::new(seed);
        let mut tenths = [0u32; 10];
        for index in 0..10_000 {
            let unit = random.unit(index);
            prop_assert!((0.0..1.0).contains(&unit));
            tenths[(unit * 10.0) as usize] += 1;
            prop_assert!(random.below(7, index) < 7);
        }
        // Thirty for one standard deviation: six of them, for some ten thousand trials.
        prop_assert!(tenths.iter().all(|tenth| tenth.abs_diff(1000) < 180), "{:?}", tenths);
    }
}

/// The message, what it decodes to and what it leaves, in `f64` value by value.
fn four_bits(values: &[f32], blocks: Blocks) {
    let codec = FourBits { blocks };
    let (mut acc, mut sum) = (values.to_vec(), vec![0.0; values.len()]);
    let mut message = vec![0xaa; codec.bound(values.len())];
    assert_eq!(codec.encode(&mut acc, &mut [], 0, &mut message), message.len());
    assert_eq!(codec.merge(&message, &mut sum), Ok(message.len()));
    let (mut rest, mut at) = (&message[..], 0);
    for block in values.chunks(blocks.len(values.len())) {
        let half = block.len().div_ceil(2);
        let (scale, codes) = rest[..4 + half].split_at(4);
        rest = &rest[4 + half..];
        let scale = f32::from_le_bytes(scale.try_into().unwrap());
        let peak = block.iter().fold(0.0, |most, value| f64::from(value.abs()).max(most));
        let finite = block.iter().all(|value| value.is_finite());
        let small = peak < 2f64.powi(-100);
        let expected = if small { 0.0 } else { (peak / 7.0) as f32 };
        assert!(if finite { scale == expected } else { scale.is_nan() }, "scale {scale} of {block:?}");
        for (i, value) in block.iter().enumerate() {
            let nibble = if i < half { codes[i] & 15 } else { codes[i - half] >> 4 };
            let code = f64::from(nibble) - if nibble < 8 { 0.0 } else { 16.0 };
            let (sum, residual) = (sum[at + i], acc[at + i]);
            if !finite {
                assert!(code == 0.0 && sum.is_nan() && residual == 0.0, "{value} of {block:?}");
                continue;
            }
            let exact = if small { 0.0 } else { f64::from(*value) / f64::from(scale) };
            assert!((code - exact).abs() <= 0.5 + 1e-5 && code.abs() <= 7.0, "{code} for {exact}");
            let sent = (code * f64::from(scale)) as f32;
            assert_eq!((sum, residual), (sent, (f64::from(*value) - f64::from(sent)) as f32));
        }
        if block.len() % 2 == 1 {
            assert!(codes[half - 1] < 16, "nothing stands in the upper half of the last byte");
        }
        at += block.len();
    }
    assert!(rest.is_empty());
}

/// By hand, with a number that no encoder writes, and bits that a decoder ignores.
#[test]
fn four_bits_of_a_half_stand_beside_those_of_the_other() {
    let codec = FourBits { blocks: Blocks::of(core::num::NonZeroU32::new(3).unwrap()) };
    let mut message = [0.5f32.to_le_bytes(), 2.0f32.to_le_bytes()].concat();
    message.splice(4..4, [0x8f, 0xa7]);
    message.push(0x3e);
    assert_eq!((codec.bound(4), message.len()), (11, 11));
    let mut sum = [1.0; 4];
    assert_eq!(codec.merge(&message, &mut sum), Ok(11));
    assert_eq!(sum, [0.5, 4.5, -3.0, -3.0]);
    let refused = codec.merge(&message[..10], &mut sum);
    assert_eq!(refused, Err(gradwire_codecs::Malformed::Short { need: 11, have: 10 }));
    assert_eq!(sum, [0.5, 4.5, -3.0, -3.0]);
}

/// 3LC value by value: quantise, five planes of a group to a byte each, runs.
fn three_lc(values: &[f32], multiplier: f32, blocks: Blocks) -> Vec<u8> {
    let mut message = Vec::new();
    let mut digits = Vec::new();
    for block in values.chunks(blocks.len(values.len())) {
        let scale = multiplier * block.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        message.extend(scale.to_le_bytes());
        digits.extend(block.iter().map(|value| {
            if scale == 0.0 { 0 } else { (f64::from(*value) / f64::from(scale)).round() as i32 }
        }));
    }
    let mut bytes = Vec::new();
    for group in digits.chunks(320) {
        let plane = group.len().div_ceil(5);
        for at in 0..plane {
            let digit = |k: usize| 1 + group.get(k * plane + at).copied().unwrap_or(0);
            bytes.push((digit(0) * 81 + digit(1) * 27 + digit(2) * 9 + digit(3) * 3 + digit(4)) as u8);
        }
    }
    let mut coded = Vec::new();
    let mut rest = &bytes[..];
    while let Some(first) = rest.first() {
        let zeros = rest.iter().take_while(|byte| **byte == 121).take(14).count();
        coded.push(if zeros >= 2 { 243 + (zeros - 2) as u8 } else { *first });
        rest = &rest[zeros.max(1)..];
    }
    message.extend((coded.len() as u32).to_le_bytes());
    message.extend(coded);
    message
}

#[test]
fn all_zeros_are_a_byte_for_seventy_values() {
    let codec = ThreeLc::new(1.0, Blocks::WHOLE).unwrap();
    let mut out = vec![0; codec.bound(70_000)];
    assert_eq!(codec.encode(&mut vec![0.0; 70_000], &mut [], 0, &mut out), 8 + 1000);
    assert!(out[8..1008].iter().all(|byte| *byte == 255));
}

/// Of 4,000 messages a value's mean is off by less than five standard deviations: of a digit that
/// is 1 with chance p, sqrt(p (1 - p) / 4000) of the scale.
#[test]
fn three_values_by_chance_have_the_right_mean() {
    let codec = Ternary { blocks: Blocks::WHOLE };
    let values = [0.5f32, -2.0, 0.0, 0.02, -1.0, 1.99, -0.25];
    let (mut sum, mut out) = ([0.0; 7], vec![0; codec.bound(7)]);
    for seed in 0..4000 {
        let len = codec.encode(&mut values.clone(), &mut [], seed, &mut out);
        let mut one = [0.0; 7];
        assert_eq!((len, codec.merge(&out, &mut one)), (6, Ok(6)));
        assert!(one.iter().all(|value| [-2.0, 0.0, 2.0].contains(value)), "{one:?}");
        sum.iter_mut().zip(one).for_each(|(sum, value)| *sum += value);
    }
    for (value, sum) in values.into_iter().zip(sum) {
        let chance = f64::from(value.abs()) / 2.0;
        let deviation = 2.0 * (chance * (1.0 - chance) / 4000.0).sqrt();
        let off = (f64::from(sum) / 4000.0 - f64::from(value)).abs();
        assert!(off <= 5.0 * deviation, "{value}: off by {off}, {deviation} is usual");
    }
    // Codes of five digits end at 242.
    out[4] = 243;
    let refused = codec.merge(&out, &mut [0.0; 7]);
    assert_eq!(refused, Err(gradwire_codecs::Malformed::Field { what: "code of five digits", at: 4 }));
}

/// The paper's algorithm, in `f64`, beside ours: u = m u + g, v = v + u, the largest of v are sent,
/// and both are zero there.
#[test]
fn dgc_corrects_momentum_and_masks_factors() {
    let codec = Dgc::new(10.0, 0.5).unwrap();
    let n = 50;
    let (mut acc, mut state) = (vec![0.0f32; n], vec![0.0f32; codec.state_len(n)]);
    let (mut u, mut v) = (vec![0.0f64; n], vec![0.0f64; n]);
    for round in 0..20 {
        let random = Random::new(round);
        let gradient: Vec<f32> = (0..n).map(|i| random.unit(i) - 0.5).collect();
        codec.give(&gradient, &mut acc, &mut state);
        let mut out = vec![0; codec.bound(n)];
        let len = codec.encode(&mut acc, &mut state, round, &mut out);
        let mut sum = vec![0.0; n];
        codec.merge(&out[..len], &mut sum).unwrap();
        for i in 0..n {
            u[i] = 0.5 * u[i] + f64::from(gradient[i]);
            v[i] += u[i];
        }
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|a, b| v[*b].abs().total_cmp(&v[*a].abs()));
        for (place, i) in order.into_iter().enumerate() {
            let sent = if place < 5 { std::mem::take(&mut v[i]) } else { 0.0 };
            if place < 5 {
                u[i] = 0.0;
            }
            assert!(
                (f64::from(sum[i]) - sent).abs() < 1e-5,
                "round {round}, value {i}: {} and {sent}",
                sum[i]
            );
            assert!((f64::from(state[i]) - u[i]).abs() < 1e-5 && (f64::from(acc[i]) - v[i]).abs() < 1e-5);
        }
    }
}

#[test]
fn values_of_one_size_are_sent_in_their_order_and_larger_ones_always() {
    let codec = Dgc::new(30.0, 0.0).unwrap();
    let mut acc = [1.0, 0.0, -1.0, 1.0, 1.0, 2.0, 0.0, 0.0, 0.0, -3.0];
    let mut out = vec![0; codec.bound(10)];
    let len = codec.encode(&mut acc, &mut [], 0, &mut out);
    let mut sum = [0.0; 10];
    codec.merge(&out[..len], &mut sum).unwrap();
    assert_eq!(sum, [1.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, -3.0]);
    assert_eq!(ops::index_bits(10), 4);
    // Of zeros nothing is sent.
    assert_eq!(codec.encode(&mut [0.0; 10], &mut [], 0, &mut out), 4);
}

/// Two messages, the residual, the state, and a sum, as bits.
fn everything(codec: &dyn Codec, gradient: &[f32]) -> (Vec<u8>, Vec<u32>) {
    let n = gradient.len();
    let (mut acc, mut state, mut sum) = (vec![0.0; n], vec![0.0; codec.state_len(n)], vec![1.0; n]);
    let mut messages = Vec::new();
    for seed in 0..2 {
        codec.give(gradient, &mut acc, &mut state);
        let mut out = vec![0; codec.bound(n)];
        let len = codec.encode(&mut acc, &mut state, seed, &mut out);
        codec.merge(&out, &mut sum).unwrap();
        messages.extend(&out[..len]);
    }
    (messages, [acc, state, sum].concat().iter().map(|value| value.to_bits()).collect())
}

/// A codec by its name runs the code for this processor, a codec by its type what the compiler's
/// target promises.
#[test]
fn all_processors_make_the_same_bytes() {
    let block = Blocks::of(core::num::NonZeroU32::new(256).unwrap());
    let codecs: [(&str, &dyn Codec); 16] = [
        ("f32", &Raw),
        ("f16", &Half),
        ("trunc:16", &Truncation::new(16).unwrap()),
        ("trunc:22", &Truncation::new(22).unwrap()),
        ("trunc:24", &Truncation::new(24).unwrap()),
        ("q8:256", &EightBits { blocks: block }),
        ("q4:256", &FourBits { blocks: block }),
        ("3lc:1.5:256", &ThreeLc::new(1.5, block).unwrap()),
        ("onebit", &OneBit { blocks: Blocks::WHOLE }),
        ("tbq:0.1", &Threshold::new(0.1).unwrap()),
        ("terngrad:4", &TernGrad::new(4).unwrap()),
        ("dgc:5:0.9", &Dgc::new(5.0, 0.9).unwrap()),
        ("graddrop:99", &GradDrop::new(99.0).unwrap()),
        ("low-rank:5", &LowRank::new(5, None).unwrap()),
        ("bounded:6", &Bounded::new(6).unwrap()),
        ("ternary:256", &Ternary { blocks: block }),
    ];
    let random = Random::new(1);
    for n in [0, 1, 63, 4_000, 12_345] {
        let gradient: Vec<f32> = (0..n).map(|i| (random.unit(i) - 0.5).powi(5)).collect();
        for (name, codec) in codecs {
            let chosen = Registry::BUILT_IN.codec(name).unwrap();
            assert!(everything(codec, &gradient) == everything(&chosen, &gradient), "{name}, {n} values");
        }
    }
}

/// Processes exchange factors as `Shape` says: a sum of gradients whose rank is small arrives
/// whole, and everybody has the same bits.
#[test]
fn processes_that_exchange_factors_find_a_matrix_of_their_rank() {
    let (rows, cols, processes) = (60, 40, 3);
    let random = Random::new(3);
    let of = |seed: usize| move |i: usize| random.unit(10_000 * seed + i) - 0.5;
    // All processes' gradients have rows of two vectors.
    let gradients: Vec<Vec<f32>> = (0..processes)
        .map(|process| {
            let row = |r: usize, c: usize| {
                of(1)(2 * r + 100 * process) * of(9)(c) + of(2)(2 * r + 100 * process) * of(8)(c)
            };
            (0..rows * cols).map(|i| row(i / cols, i % cols)).collect()
        })
        .collect();
    let shape = LowRank::new(2, Some(cols as u32)).unwrap().shape(rows * cols).unwrap();
    assert_eq!((shape.rows, shape.cols, shape.rank), (rows, cols, 2));
    let mut q = vec![0.0; shape.right_len()];
    let (mut sum, mut residual): (Vec<f32>, Vec<Vec<f32>>) = (Vec::new(), gradients.clone());
    for _ in 0..3 {
        shape.start(&mut q);
        let (mut p, mut part) = (vec![0.0; shape.left_len()], vec![0.0; shape.left_len()]);
        for m in &gradients {
            shape.left(m, &q, &mut part);
            p.iter_mut().zip(&part).for_each(|(p, part)| *p += part);
        }
        shape.orthonormalise(&mut p);
        q.fill(0.0);
        for (m, residual) in gradients.iter().zip(&mut residual) {
            let mut own = vec![0.0; shape.right_len()];
            shape.right(m, &p, &mut own);
            residual.clone_from(m);
            shape.subtract(residual, &p, &own);
            q.iter_mut().zip(&own).for_each(|(q, own)| *q += own);
        }
        sum = vec![0.0; rows * cols];
        shape.product(&p, &q, &mut sum);
    }
    for i in 0..rows * cols {
        let exact: f64 = gradients.iter().map(|m| f64::from(m[i])).sum();
        assert!((f64::from(sum[i]) - exact).abs() < 1e-5, "value {i}: {} for {exact}", sum[i]);
        // The ranks' residuals cancel: the sum has a rank of 2, and each of them may have another
        // one.
        assert!(residual.iter().map(|residual| f64::from(residual[i])).sum::<f64>().abs() < 1e-5);
    }
}
