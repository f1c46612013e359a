//! Sums of codec 2's values: each contribution against `f64`, sums against 64-bit integers, every kernel against the definition.

mod common;

use common::aggregation::{sum_of, whole_units};
use gradwire::aggregate::{Aggregator, Node};
use gradwire::codec::planar::sums::{
    self, BLOCK_VALUES, MAX_CODED, NOT_A_NUMBER, OVER, Units, limit, units, value_of,
};
use gradwire::codec::planar::{Bound, decode_value, encode_payload, encode_value};
use gradwire::kernels::{Kernel, Odd};
use gradwire::wire::chunk::MAX_SECTION_LEN;
use proptest::prelude::*;

fn any_bound() -> impl Strategy<Value = Bound> {
    prop_oneof![Just(Bound::MIN), Just(-10), Just(Bound::MAX), Bound::MIN..=Bound::MAX]
        .prop_map(|y| Bound::new(y).unwrap())
}

/// The section of a block's values, from the definition.
fn section_of(values: impl IntoIterator<Item = u32>, bound: Bound) -> Vec<u8> {
    let bytes: Vec<u8> = values.into_iter().flat_map(u32::to_le_bytes).collect();
    let mut section = [0; MAX_SECTION_LEN];
    let len = encode_payload(&bytes, &mut section, bound).unwrap();
    section[..len].to_vec()
}

/// Adds the values of a section with a kernel.
fn add(kernel: Kernel, section: &[u8], sums: &mut [i32], bound: Bound, limit: i32) -> Odd {
    let mut units = [0; BLOCK_VALUES];
    let len = kernel.decode_units(section, &mut units[..sums.len()], bound, limit);
    assert_eq!(len, Some(section.len()), "{}", kernel.name());
    let mut block = [0; BLOCK_VALUES];
    block[..sums.len()].copy_from_slice(sums);
    let odd = kernel.add(&units, &mut block);
    sums.copy_from_slice(&block[..sums.len()]);
    odd
}

/// What one value counts, judged in `f64`: the error is at most the bound, and what is over the limit is said to be.
fn judge(bits: u32, bound: Bound, limit: i32) {
    let restored = decode_value(encode_value(bits, bound), bound);
    let (value, unit) = (f64::from(f32::from_bits(bits)), f64::from(bound.bound()));
    let expected = whole_units(bits, bound);
    match units(restored, bound, limit) {
        Units::NotANumber => assert!(!value.is_finite(), "{bits:#010x}"),
        Units::Over(negative) => {
            assert!(expected.is_some_and(|units| units.abs() > f64::from(limit)), "{bits:#010x}");
            assert_eq!(negative, value < 0.0, "{bits:#010x}");
        }
        Units::Whole(units) => {
            assert_eq!(expected, Some(units.into()), "{bits:#010x}");
            assert!((f64::from(units) * unit - value).abs() <= unit, "{bits:#010x}");
        }
    }
}

/// Values of every size that a sum can meet: near the bound, raw, over the limit, subnormal, infinite.
fn any_value() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => (any::<bool>(), 110u32..135, 0u32..1 << 23),
        1 => (any::<bool>(), 135u32..165, 0u32..1 << 23),
    ]
    .prop_map(|(sign, exponent, mantissa)| u32::from(sign) << 31 | exponent << 23 | mantissa)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn any_value_counts_what_it_is_worth(bits: u32, bound in any_bound(), workers in 1u8..) {
        judge(bits, bound, limit(workers));
    }

    #[test]
    fn any_value_near_a_border_does(exponent in -2i32..=34, near in -3i32..=3, sign: bool, bound in any_bound(), workers in 1u8..) {
        let bits = ((127 + i32::from(bound.y()) + exponent).clamp(1, 255) << 23) + near;
        judge(bits as u32 | u32::from(sign) << 31, bound, limit(workers));
    }

    #[test]
    fn a_sum_is_restored_as_the_nearest_value(sum: i32, bound in any_bound()) {
        let expected = (f64::from(sum) * f64::from(bound.bound())) as f32;
        let expected = if sum == NOT_A_NUMBER { f32::NAN.to_bits() } else { expected.to_bits() };
        prop_assert_eq!(value_of(sum, bound), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Each kernel adds as the definition does, in any order of the workers, and the sum is that of 64-bit integers.
    #[test]
    fn every_kernel_adds_alike_in_every_order(
        workers in prop::collection::vec(prop::collection::vec(any_value(), BLOCK_VALUES), 1..9),
        count in 1..=BLOCK_VALUES, rotated in 0usize..9, y in -12i8..-8, odd in prop::option::weighted(0.1, any::<u32>()),
    ) {
        let bound = Bound::new(y).unwrap();
        let mut workers: Vec<Vec<u32>> = workers.into_iter().map(|values| values[..count].to_vec()).collect();
        if let Some(odd) = odd {
            workers[0][0] = odd;
        }
        let limit = limit(workers.len() as u8);
        let restored = |bits: &u32| decode_value(encode_value(*bits, bound), bound);
        let mut expected = vec![0i64; count];
        let (mut not_numbers, mut over) = (0u128, false);
        for values in &workers {
            for (lane, bits) in values.iter().enumerate() {
                match units(restored(bits), bound, limit) {
                    Units::Whole(units) => expected[lane] += i64::from(units),
                    Units::Over(_) => over = true,
                    Units::NotANumber => not_numbers |= 1 << lane,
                }
            }
        }
        for kernel in Kernel::available() {
            let mut got = vec![0i32; count];
            let mut found = (0u128, false);
            for at in 0..workers.len() {
                let section = section_of(workers[(at + rotated) % workers.len()].iter().copied(), bound);
                let odd = add(kernel, &section, &mut got, bound, limit);
                found = (found.0 | odd.not_numbers, found.1 | odd.over);
            }
            prop_assert!(got.iter().map(|sum| i64::from(*sum)).eq(expected.iter().copied()), "{}", kernel.name());
            prop_assert_eq!(found, (not_numbers, over), "{}", kernel.name());
            if not_numbers == 0 && !over {
                for (lane, sum) in got.iter().enumerate() {
                    let value = sum_of(workers.iter().map(|values| values[lane]), bound);
                    prop_assert_eq!(value_of(*sum, bound), value);
                }
            }
        }
    }

    /// Sections of sums: exact, the same bytes from every kernel, no longer than is said, and any prefix is refused.
    #[test]
    fn sections_of_sums_are_exact(
        values in prop::collection::vec(prop_oneof![
            4 => Just(0i32), 8 => -20i32..20, 4 => -(MAX_CODED as i32) - 2..MAX_CODED as i32 + 3, 1 => any::<i32>(),
        ], 1..=BLOCK_VALUES),
        below in prop_oneof![Just(i32::MAX), Just(9000), 120..140, 2..140], odd in prop::option::weighted(0.2, any::<bool>()),
    ) {
        let mut values = values;
        values.iter_mut().for_each(|sum| *sum %= below);
        if let Some(odd) = odd {
            values[0] = if odd { NOT_A_NUMBER } else { OVER };
        }
        let mut expected = [0; MAX_SECTION_LEN];
        let len = sums::encode(&values, &mut expected).unwrap();
        for kernel in Kernel::available() {
            let mut section = [0xaa; 1024];
            prop_assert_eq!(kernel.encode_sums(&values, &mut section), Some(len), "{}", kernel.name());
            prop_assert_eq!(&section[..len], &expected[..len], "{}", kernel.name());
            prop_assert_eq!(kernel.encode_sums(&values, &mut section[..len - 1]), None);
            let mut got = vec![0x55; values.len()];
            prop_assert_eq!(kernel.decode_sums(&expected[..len], &mut got), Some(len), "{}", kernel.name());
            prop_assert_eq!(&got, &values, "{}", kernel.name());
            for len in 0..len {
                prop_assert_eq!(kernel.decode_sums(&expected[..len], &mut got), None, "{}", kernel.name());
            }
        }
    }

    /// Kernels read what no encoder writes as the definition does.
    #[test]
    fn any_bytes_are_read_alike(
        bytes in prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(0xff), 2 => 0u8..4], 1..300),
        mode in 0u8..5, count in 1..=BLOCK_VALUES, bound in any_bound(),
        limit in prop_oneof![Just(limit(16)), 0..i32::MAX, 0..0x10000],
    ) {
        let mut bytes = bytes;
        bytes[0] = mode;
        let (mut of_sums, mut of_values) = (vec![0; count], vec![0; count]);
        let len = sums::decode(&bytes, &mut of_sums);
        prop_assert_eq!(sums::decode_units(&bytes, &mut of_values, bound, limit), len);
        for kernel in Kernel::available() {
            let mut got = vec![0x55; count];
            prop_assert_eq!(kernel.decode_sums(&bytes, &mut got), len, "{}", kernel.name());
            prop_assert!(len.is_none() || got == of_sums, "{}", kernel.name());
            prop_assert_eq!(kernel.decode_units(&bytes, &mut got, bound, limit), len, "{}", kernel.name());
            prop_assert!(len.is_none() || got == of_values, "{}", kernel.name());
        }
    }
}

/// Kernels for small cores have a short way for sections of small items: at its borders, in sections of any length, sparse and dense.
#[test]
fn small_items_and_others() {
    for count in 1..=BLOCK_VALUES {
        for zeros in [0, 3, count / 4, count - 1] {
            for last in
                [1, -1, 63, -64, 65, 126, -126, 127, -127, 128, -128, 129, -129, 1 << 8, 1 << 13, -1 << 31]
            {
                let mut expected: Vec<i32> = (0..count as i32).map(|i| (i * 89 + 1) % 127 - 63).collect();
                expected.iter_mut().take(zeros).for_each(|sum| *sum = 0);
                expected[count - 1] = last;
                let mut of_sums = [0; MAX_SECTION_LEN];
                let len = sums::encode(&expected, &mut of_sums).unwrap();
                for kernel in Kernel::available() {
                    for room in [len - 1, len, len + 1, len + 40, MAX_SECTION_LEN] {
                        let mut section = [0xaa; MAX_SECTION_LEN];
                        let got = kernel.encode_sums(&expected, &mut section[..room]);
                        assert_eq!(got, (room >= len).then_some(len), "{}", kernel.name());
                        assert!(got.is_none() || section[..len] == of_sums[..len], "{}", kernel.name());
                        assert!(section[room..].iter().all(|byte| *byte == 0xaa), "{}", kernel.name());
                    }
                    let mut got = vec![0x55; count];
                    assert_eq!(kernel.decode_sums(&of_sums[..len], &mut got), Some(len), "{}", kernel.name());
                    assert_eq!(got, expected, "{}", kernel.name());
                }
            }
        }
    }
}

/// With the largest bounds, 2^22 of them are more than any number.
#[test]
fn no_infinity_is_a_number_of_bounds() {
    let bound = Bound::new(Bound::MAX).unwrap();
    for bits in [f32::INFINITY.to_bits(), f32::NEG_INFINITY.to_bits(), f32::NAN.to_bits()] {
        let section = section_of([bits], bound);
        for kernel in Kernel::available() {
            let odd = add(kernel, &section, &mut [0], bound, limit(1));
            assert_eq!(odd, Odd { not_numbers: 1, over: false }, "{}", kernel.name());
        }
    }
}

/// No chunk has an empty block, so kernels need not agree with the definition on what one would be; they agree to refuse it.
#[test]
fn a_section_of_nothing_is_none() {
    let bound = Bound::new(0).unwrap();
    for section in [&[][..], &[0], &[1, 0], &[3, 0, 0]] {
        for kernel in Kernel::available() {
            assert_eq!(kernel.decode_sums(section, &mut []), None, "{}", kernel.name());
            assert_eq!(kernel.decode_units(section, &mut [], bound, limit(1)), None, "{}", kernel.name());
        }
    }
}

/// A gradient, as two workers' blocks of it.
#[test]
fn every_kernel_sums_a_recorded_gradient() {
    let file = include_bytes!("../../testbench/recordings/cnn_i0300_w0.npy");
    // The values are the last bytes of the file, behind a header that is a multiple of 64 long.
    let (values, _) = file[128..].as_chunks::<4>();
    let blocks: Vec<&[[u8; 4]]> = values.chunks(BLOCK_VALUES).collect();
    for y in [-30, -14, -10, -8, -3] {
        let bound = Bound::new(y).unwrap();
        for pair in blocks.windows(2).filter(|pair| pair[0].len() == pair[1].len()) {
            let sections = [pair[0], pair[1]]
                .map(|values| section_of(values.iter().map(|bits| u32::from_le_bytes(*bits)), bound));
            let mut expected = vec![0; pair[0].len()];
            for section in &sections {
                let mut units = vec![0; expected.len()];
                assert_eq!(sums::decode_units(section, &mut units, bound, limit(2)), Some(section.len()));
                expected.iter_mut().zip(units).for_each(|(sum, units)| *sum += units);
            }
            let mut of_sums = [0; MAX_SECTION_LEN];
            let len = sums::encode(&expected, &mut of_sums).unwrap();
            for kernel in Kernel::available() {
                let mut got = vec![0; expected.len()];
                for section in &sections {
                    assert_eq!(add(kernel, section, &mut got, bound, limit(2)), Odd::default());
                }
                assert_eq!(got, expected, "{}", kernel.name());
                let mut section = [0xaa; 1024];
                assert_eq!(kernel.encode_sums(&got, &mut section), Some(len), "{}", kernel.name());
                assert_eq!(section[..len], of_sums[..len], "{}", kernel.name());
                assert_eq!(kernel.decode_sums(&section[..len], &mut got), Some(len), "{}", kernel.name());
                assert_eq!(got, expected, "{}", kernel.name());
            }
        }
    }
}

#[test]
#[ignore = "all 2^32 inputs, minutes: cargo test --release -p gradwire --test sums -- --ignored"]
fn every_value_counts_what_it_is_worth() {
    for y in [Bound::MIN, -10, Bound::MAX] {
        let bound = Bound::new(y).unwrap();
        for workers in [1, 64] {
            (0..=u32::MAX).for_each(|bits| judge(bits, bound, limit(workers)));
        }
    }
}

/// Kernels against the definition, in blocks that follow one another, so that nearly all have either coded or raw values alone.
#[test]
#[ignore = "all 2^32 inputs, minutes: cargo test --release -p gradwire --test sums -- --ignored"]
fn every_kernel_adds_every_value() {
    let bound = Bound::new(-10).unwrap();
    let kernels: Vec<Kernel> = Kernel::available().collect();
    for first in (0..=u32::MAX).step_by(BLOCK_VALUES) {
        let block: [u32; BLOCK_VALUES] =
            std::array::from_fn(|i| decode_value(encode_value(first + i as u32, bound), bound));
        let section = section_of(block, bound);
        for kernel in &kernels {
            let mut got = [0; BLOCK_VALUES];
            let odd = add(*kernel, &section, &mut got, bound, limit(16));
            for (lane, bits) in block.into_iter().enumerate() {
                let (whole, is_odd) = match units(bits, bound, limit(16)) {
                    Units::Whole(units) => (units, false),
                    Units::NotANumber => (0, true),
                    Units::Over(_) => {
                        assert!(odd.over);
                        (0, false)
                    }
                };
                assert_eq!((got[lane], odd.not_numbers >> lane & 1 == 1), (whole, is_odd), "{bits:#010x}");
            }
        }
    }
}

#[test]
fn sums_of_as_many_workers_as_there_may_be_fit() {
    for workers in 1..=u8::MAX {
        let most = i64::from(limit(workers)) * i64::from(workers);
        assert!(most < i64::from(i32::MAX) && -most > i64::from(OVER), "{workers}");
    }
    let bound = Bound::new(0).unwrap();
    let mut sums = [0; 1];
    for _ in 0..255 {
        let largest = section_of([(-(limit(255) as f32 - 1.0)).to_bits()], bound);
        assert!(!add(Kernel::PORTABLE, &largest, &mut sums, bound, limit(255)).over);
    }
    assert_eq!(i64::from(sums[0]), 255 * (i64::from(-limit(255)) + 1));
}

/// What hosts and soft cores have room for: a window of 16 chunks of 2048 and of 256 values. Beside the slots, there are addresses.
#[test]
fn slots_take_as_much_memory_as_is_said() {
    assert!(size_of::<Aggregator<u8, 1, 32, 16>>() <= 272 * 1024);
    assert!(size_of::<Node<1, 32, 16>>() <= 274 * 1024);
    assert!(size_of::<Aggregator<u8, 1, 32, 2>>() <= 36 * 1024);
    assert!(size_of::<Node<1, 32, 2>>() <= 38 * 1024);
}
