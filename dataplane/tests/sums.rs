//! Sums of what codecs restore: each contribution against `f64`, sums against 64-bit integers,
//! every kernel against the definition.

use gradwire::aggregate::{Aggregator, EthernetAggregator};
use gradwire::codec::bit_plane::sums::{self, MAX_CODED};
use gradwire::codec::bit_plane::{Bound, SECTION_VALUES, decode_value, encode_value};
use gradwire::codec::{Params, decode_lane, encode_lane};
use gradwire::kernels::{Kernel, Unsummable};
use gradwire::profile::Profile;
use gradwire::sums::{
    BLOCK_LEN, BLOCK_VALUES, NOT_A_NUMBER, OVER, Summable, UnitError, Units, limit, units, value_of,
};
use gradwire::wire::chunk::MAX_SECTION_LEN;
use proptest::prelude::*;

use crate::common::aggregation::{any_profile, bit_plane, code_of, size_class, sum_of, unit_of, whole_units};

/// The value restored for a value, from the definition.
fn restored(bits: u32, profile: Summable) -> u32 {
    let mut value = [0; 4];
    profile.profile().decode_payload(&code_of([bits], profile), &mut value).unwrap();
    u32::from_le_bytes(value)
}

/// Adds the values of a block's code with a kernel.
fn add(kernel: Kernel, code: &[u8], sums: &mut [i32], profile: Summable, limit: i32) -> Unsummable {
    let mut units = [0; BLOCK_VALUES];
    let len = kernel.decode_units(code, &mut units[..sums.len()], profile, limit);
    assert_eq!(len, Some(code.len()), "{}", kernel.name());
    let mut block = [0; BLOCK_VALUES];
    block[..sums.len()].copy_from_slice(sums);
    let mut straight = block;
    let unsummable = kernel.add(&units, &mut block);
    if let Some(adder) = kernel.adder(profile, limit) {
        let mut codes = adder.codes(code, sums.len()).expect("as it was decoded");
        assert_eq!(codes.add(&mut straight), unsummable, "{}", kernel.name());
        assert_eq!(straight, block, "{}", kernel.name());
    }
    sums.copy_from_slice(&block[..sums.len()]);
    unsummable
}

/// The contribution of one restored value, verified in `f64`: the error is at most the bound (codec
/// 1: less), and what is over the limit is said to be.
fn verify(bits: u32, restored: u32, profile: Summable, limit: i32) {
    let (value, unit) = (f64::from(f32::from_bits(bits)), unit_of(profile));
    let bound = f64::from(profile.profile().bound());
    let expected = whole_units(bits, profile);
    match units(restored, profile.unit(), limit) {
        Units::NotANumber => assert!(!value.is_finite(), "{bits:#010x}"),
        Units::Over(negative) => {
            assert!(expected.is_some_and(|units| units.abs() > f64::from(limit)), "{bits:#010x}");
            assert_eq!(negative, value < 0.0, "{bits:#010x}");
        }
        Units::Whole(units) => {
            assert_eq!(expected, Some(units.into()), "{bits:#010x}");
            let error = (f64::from(units) * unit - value).abs();
            let is_within = match profile.profile() {
                Profile::SizeClass(_) => error < bound,
                Profile::BitPlane(_) => error <= bound,
            };
            assert!(is_within, "{bits:#010x}");
        }
    }
}

/// Values of every size that a sum can meet: near the bound, raw, over the limit, subnormal,
/// infinite.
fn any_value() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => (any::<bool>(), 110u32..135, 0u32..1 << 23),
        1 => (any::<bool>(), 135u32..165, 0u32..1 << 23),
    ]
    .prop_map(|(sign, exponent, mantissa)| u32::from(sign) << 31 | exponent << 23 | mantissa)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40_000))]

    #[test]
    fn any_value_counts_what_it_is_worth(bits: u32, profile in any_profile(), workers in 1u8..) {
        verify(bits, restored(bits, profile), profile, limit(workers));
    }

    #[test]
    fn any_value_near_a_border_does(exponent in -2i32..=34, near in -3i32..=3, sign: bool, profile in any_profile(), workers in 1u8..) {
        let of_unit = (profile.unit().value().to_bits() >> 23) as i32;
        let bits = ((of_unit + exponent).clamp(1, 255) << 23) + near;
        let bits = bits as u32 | u32::from(sign) << 31;
        verify(bits, restored(bits, profile), profile, limit(workers));
    }

    #[test]
    fn a_sum_is_restored_as_the_nearest_value(sum: i32, profile in any_profile()) {
        let expected = (f64::from(sum) * unit_of(profile)) as f32;
        let expected = if sum == NOT_A_NUMBER { f32::NAN.to_bits() } else { expected.to_bits() };
        prop_assert_eq!(value_of(sum, profile.unit()), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Each kernel adds as the definition does, in any order of the workers; the sum is that of
    /// 64-bit integers, and within as many bounds of the values' as is said.
    #[test]
    fn every_kernel_adds_alike_in_every_order(
        workers in prop::collection::vec(prop::collection::vec(any_value(), BLOCK_VALUES), 1..9),
        count in 1..=BLOCK_VALUES, rotated in 0usize..9, special in prop::option::weighted(0.1, any::<u32>()),
        profile in prop_oneof![(-12i8..-8).prop_map(bit_plane), (6u8..=14, -2i8..2).prop_map(|(b, x)| size_class(b, b - 6, x))],
    ) {
        let mut workers: Vec<Vec<u32>> = workers.into_iter().map(|values| values[..count].to_vec()).collect();
        if let Some(special) = special {
            workers[0][0] = special;
        }
        let limit = limit(workers.len() as u8);
        let mut expected = vec![0i64; count];
        let (mut not_numbers, mut over) = (0u128, false);
        for values in &workers {
            for (lane, bits) in values.iter().enumerate() {
                match units(restored(*bits, profile), profile.unit(), limit) {
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
                let code = code_of(workers[(at + rotated) % workers.len()].iter().copied(), profile);
                let unsummable = add(kernel, &code, &mut got, profile, limit);
                found = (found.0 | unsummable.not_numbers, found.1 | unsummable.over);
            }
            prop_assert!(got.iter().map(|sum| i64::from(*sum)).eq(expected.iter().copied()), "{}", kernel.name());
            prop_assert_eq!(found, (not_numbers, over), "{}", kernel.name());
            if not_numbers == 0 && !over {
                for (lane, sum) in got.iter().enumerate() {
                    let of_lane = || workers.iter().map(|values| values[lane]);
                    let value = profile.restored(*sum);
                    prop_assert_eq!(value, sum_of(of_lane(), profile));
                    let exact: f64 = of_lane().map(|bits| f64::from(f32::from_bits(bits))).sum();
                    // The sum's own code has a bound, too.
                    let codes = workers.len() + usize::from(profile.profile().codec() == 1);
                    let off = (f64::from(f32::from_bits(value)) - exact).abs();
                    // The last rounding, and those of the test's own sum.
                    let rounding = exact.abs() * 2f64.powi(-24);
                    prop_assert!(off <= codes as f64 * f64::from(profile.profile().bound()) + rounding);
                }
            }
        }
    }

    /// Results: the same bytes from every kernel, which read them as sums with the same values; any
    /// prefix is refused.
    #[test]
    fn results_are_what_is_restored(
        sums in prop::collection::vec(prop_oneof![
            2 => Just(0i32), 4 => -300i32..300, 8 => -40_000i32..40_000, 2 => any::<i32>(), 1 => Just(NOT_A_NUMBER),
            1 => Just(i32::MAX - 1), 1 => Just(OVER + 1),
        ], 1..=BLOCK_VALUES),
        below in prop_oneof![Just(i32::MAX), Just(1 << 16), 100..40_000], profile in any_profile(),
    ) {
        let worth = |sum: i32| if sum == NOT_A_NUMBER { sum } else { (sum % below).max(OVER + 1) };
        let sums: Vec<i32> = sums.into_iter().map(worth).collect();
        let mut expected = [0; MAX_SECTION_LEN];
        let len = profile.encode_result(&sums, &mut expected).unwrap();
        let values: Vec<u32> = sums.iter().map(|sum| profile.restored(*sum)).collect();
        if matches!(profile.profile(), Profile::SizeClass(_)) {
            let mut decoded = vec![0; 4 * values.len()];
            prop_assert_eq!(profile.profile().decode_payload(&expected[..len], &mut decoded), Ok(len));
            prop_assert!(decoded.as_chunks().0.iter().map(|value| u32::from_le_bytes(*value)).eq(values.iter().copied()));
        }
        let mut again = vec![0; sums.len()];
        prop_assert_eq!(profile.decode_result(&expected, &mut again), Some(len));
        prop_assert!(again.iter().map(|sum| value_of(*sum, profile.unit())).eq(values.iter().copied()));
        for kernel in Kernel::available() {
            let mut code = [0xaa; 1024];
            prop_assert_eq!(kernel.encode_result(&sums, &mut code, profile), Some(len), "{}", kernel.name());
            prop_assert_eq!(&code[..len], &expected[..len], "{}", kernel.name());
            prop_assert_eq!(kernel.encode_result(&sums, &mut code[..len - 1], profile), None);
            let mut got = vec![0x55; sums.len()];
            prop_assert_eq!(kernel.decode_result(&expected[..len], &mut got, profile), Some(len), "{}", kernel.name());
            prop_assert_eq!(&got, &again, "{}", kernel.name());
            // What is read once is written alike, and read alike: aggregators of racks pass results
            // on.
            prop_assert_eq!(kernel.encode_result(&again, &mut code, profile), Some(len));
            prop_assert_eq!(&code[..len], &expected[..len], "{}", kernel.name());
            for len in 0..len {
                prop_assert_eq!(kernel.decode_result(&expected[..len], &mut got, profile), None, "{}", kernel.name());
            }
        }
    }

    /// Sections of sums: exact, the same bytes from every kernel, no longer than is said, and any
    /// prefix is refused.
    #[test]
    fn sections_of_sums_are_exact(
        values in prop::collection::vec(prop_oneof![
            4 => Just(0i32), 8 => -20i32..20, 4 => -(MAX_CODED as i32) - 2..MAX_CODED as i32 + 3, 1 => any::<i32>(),
        ], 1..=BLOCK_VALUES),
        below in prop_oneof![Just(i32::MAX), Just(9000), 120..140, 2..140], marker in prop::option::weighted(0.2, any::<bool>()),
    ) {
        let mut values = values;
        values.iter_mut().for_each(|sum| *sum %= below);
        if let Some(marker) = marker {
            values[0] = if marker { NOT_A_NUMBER } else { OVER };
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
        mode in 0u8..5, count in 1..=BLOCK_VALUES, profile in any_profile(),
        limit in prop_oneof![Just(limit(16)), 0..i32::MAX, 0..0x10000],
    ) {
        let mut bytes = bytes;
        bytes[0] = mode;
        let (mut of_sums, mut of_values, mut of_results) = (vec![0; count], vec![0; count], vec![0; count]);
        let len_of_sums = sums::decode(&bytes, &mut of_sums);
        let len = profile.decode_units(&bytes, &mut of_values, limit);
        prop_assert_eq!(profile.decode_result(&bytes, &mut of_results), len);
        for kernel in Kernel::available() {
            let mut got = vec![0x55; count];
            prop_assert_eq!(kernel.decode_sums(&bytes, &mut got), len_of_sums, "{}", kernel.name());
            prop_assert!(len_of_sums.is_none() || got == of_sums, "{}", kernel.name());
            prop_assert_eq!(kernel.decode_units(&bytes, &mut got, profile, limit), len, "{}", kernel.name());
            prop_assert!(len.is_none() || got == of_values, "{}", kernel.name());
            if let Some(adder) = kernel.adder(profile, limit) {
                prop_assert_eq!(adder.codes(&bytes, count).is_some(), len == Some(bytes.len()), "{}", kernel.name());
                let exact = &bytes[..len.unwrap_or(0)];
                prop_assert_eq!(adder.codes(exact, count).is_some(), len.is_some(), "{}", kernel.name());
            }
            prop_assert_eq!(kernel.decode_result(&bytes, &mut got, profile), len, "{}", kernel.name());
            prop_assert!(len.is_none() || got == of_results, "{}", kernel.name());
        }
    }
}

/// The blocks of a packet are one code of codec 1: each call takes the next block, or leaves it
/// out. What is left is not touched.
#[test]
fn codes_are_added_block_by_block() {
    let (profile, limit) = (size_class(10, 4, 0), limit(4));
    let values = |block: usize, count: usize| -> Vec<u32> {
        let value =
            |i: usize| (((i * 7919 + block * 104_729) % 4001) as f32 / 4001.0 - 0.5).powi(5).to_bits();
        (0..count).map(value).collect()
    };
    // A NaN beside values, and one over the limit: each is said of its own block, and adds nothing.
    let mut blocks =
        [values(0, BLOCK_VALUES), values(1, BLOCK_VALUES), values(2, BLOCK_VALUES), values(3, 27)];
    blocks[1][77] = f32::NAN.to_bits();
    blocks[2][5] = 1e30f32.to_bits();
    let code: Vec<u8> = blocks.iter().flat_map(|block| code_of(block.iter().copied(), profile)).collect();
    let count = blocks.iter().map(Vec::len).sum();
    let adder = Kernel::SCALAR32.adder(profile, limit).expect("it has one");
    for left_out in 0..16 {
        let mut codes = adder.codes(&code, count).unwrap();
        for (at, block) in blocks.iter().enumerate() {
            if left_out >> at & 1 == 1 {
                codes.skip();
                continue;
            }
            let mut sums = [1000; BLOCK_VALUES];
            let unsummable = codes.add(&mut sums);
            assert_eq!((unsummable.not_numbers, unsummable.over), (u128::from(at == 1) << 77, at == 2));
            for (lane, sum) in sums.into_iter().enumerate() {
                let units = match block
                    .get(lane)
                    .map(|bits| units(restored(*bits, profile), profile.unit(), limit))
                {
                    Some(Units::Whole(units)) => units,
                    _ => 0,
                };
                assert_eq!(sum, 1000 + units, "{at} {lane}");
            }
        }
    }
    assert!(adder.codes(&code, count - 1).is_none() && adder.codes(&code, count + 8).is_none());
    // Only a limit that no coded value exceeds lets codes be added unseen; and no other kernel, nor
    // codec 2, has a faster way.
    assert!(
        Kernel::SCALAR32.adder(profile, 0x7fff).is_some()
            && Kernel::SCALAR32.adder(profile, 0x7ffe).is_none()
    );
    assert!(Kernel::SCALAR32.adder(bit_plane(0), limit).is_none());
}

/// Kernels for small cores have a short way for sections of small items: at its borders, in
/// sections of any length, sparse and dense.
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

/// Of the largest units, 2^22 are more than any number.
#[test]
fn no_infinity_is_a_number_of_units() {
    for profile in [bit_plane(Bound::MAX), size_class(10, 3, i8::MAX)] {
        for bits in [f32::INFINITY.to_bits(), f32::NEG_INFINITY.to_bits(), f32::NAN.to_bits()] {
            let code = code_of([bits], profile);
            for kernel in Kernel::available() {
                let unsummable = add(kernel, &code, &mut [0], profile, limit(1));
                assert_eq!(unsummable, Unsummable { not_numbers: 1, over: false }, "{}", kernel.name());
            }
        }
    }
}

/// No chunk has an empty block, so kernels need not agree with the definition on what one would be;
/// they agree to refuse it, and more values than a block has.
#[test]
fn a_code_of_nothing_or_too_much_is_none() {
    let mut longer = [0; BLOCK_VALUES + 1];
    let mut out = [0; 2 * BLOCK_LEN];
    for profile in [bit_plane(0), size_class(10, 3, 0)] {
        for code in [&[][..], &[0], &[1, 0], &[3, 0, 0], &[0; 2 * BLOCK_LEN]] {
            for kernel in Kernel::available() {
                for sums in [&mut [][..], &mut longer] {
                    assert_eq!(kernel.decode_sums(code, sums), None, "{}", kernel.name());
                    assert_eq!(kernel.decode_units(code, sums, profile, limit(1)), None, "{}", kernel.name());
                    assert_eq!(kernel.decode_result(code, sums, profile), None, "{}", kernel.name());
                }
                assert_eq!(kernel.encode_result(&longer, &mut out, profile), None, "{}", kernel.name());
            }
        }
        assert_eq!(profile.decode_units(&out, &mut longer, limit(1)), None);
        assert_eq!(profile.decode_result(&out, &mut longer), None);
        assert_eq!(profile.encode_result(&longer, &mut out), None);
    }
    // A section has room for more than a block.
    for (count, len) in [(SECTION_VALUES, Some(1)), (SECTION_VALUES + 1, None)] {
        assert_eq!(sums::encode(&vec![0; count], &mut out), len);
        assert_eq!(sums::decode(&[0], &mut vec![1; count]), len);
    }
}

#[test]
fn a_value_at_the_limit_is_not_over_it() {
    for (value, limit, expected) in [
        (5.0, 5, Units::Whole(5)),
        (-5.0, 5, Units::Whole(-5)),
        (5.0, 4, Units::Over(false)),
        (-5.0, 4, Units::Over(true)),
    ] {
        assert_eq!(units(f32::to_bits(value), bit_plane(0).unit(), limit), expected);
    }
}

/// A byte vector of codec 1 weighs `2^(x-k-7)`, the unit `2^(x-15)`.
#[test]
fn only_whole_units_are_summed() {
    for b in Params::MIN_B..=Params::MAX_B {
        for k in b.saturating_sub(7)..=b {
            let summable = Summable::try_from(Profile::from(Params::from_exponents(b, k, 0).unwrap()));
            assert_eq!(summable.err(), (k > 8).then_some(UnitError { got: k }));
        }
    }
    for split in gradwire::Split::ALL {
        let params = |b| Profile::from(Params::new(b, split, 0).unwrap());
        assert!((Params::MIN_B..=Params::MAX_B).all(|b| Summable::try_from(params(b)).is_ok()));
    }
}

/// A gradient, as two workers' blocks of it.
#[test]
fn every_kernel_sums_a_recorded_gradient() {
    let file = include_bytes!("../../testbench/recordings/cnn_i0300_w0.npy");
    // The values are the last bytes of the file, behind a header that is a multiple of 64 long.
    let (values, _) = file[128..].as_chunks::<4>();
    let blocks: Vec<&[[u8; 4]]> = values.chunks(BLOCK_VALUES).collect();
    let of_classes =
        [(10, 3, -12), (10, 3, 0), (14, 7, -2), (6, 8, 0)].map(|(b, k, x)| size_class(b, k.min(b), x));
    for profile in [-30, -14, -10, -8, -3].map(bit_plane).into_iter().chain(of_classes) {
        for pair in blocks.windows(2).filter(|pair| pair[0].len() == pair[1].len()) {
            let codes = [pair[0], pair[1]]
                .map(|values| code_of(values.iter().map(|bits| u32::from_le_bytes(*bits)), profile));
            let mut expected = vec![0; pair[0].len()];
            for code in &codes {
                let mut units = vec![0; expected.len()];
                assert_eq!(profile.decode_units(code, &mut units, limit(2)), Some(code.len()));
                expected.iter_mut().zip(units).for_each(|(sum, units)| *sum += units);
            }
            let (mut of_sums, mut of_result) = ([0; MAX_SECTION_LEN], [0; MAX_SECTION_LEN]);
            let len = sums::encode(&expected, &mut of_sums).unwrap();
            let result_len = profile.encode_result(&expected, &mut of_result).unwrap();
            for kernel in Kernel::available() {
                let mut got = vec![0; expected.len()];
                for code in &codes {
                    assert_eq!(add(kernel, code, &mut got, profile, limit(2)), Unsummable::default());
                }
                assert_eq!(got, expected, "{}", kernel.name());
                let mut code = [0xaa; 1024];
                assert_eq!(kernel.encode_result(&got, &mut code, profile), Some(result_len));
                assert_eq!(code[..result_len], of_result[..result_len], "{}", kernel.name());
                assert_eq!(kernel.encode_sums(&got, &mut code), Some(len), "{}", kernel.name());
                assert_eq!(code[..len], of_sums[..len], "{}", kernel.name());
                assert_eq!(kernel.decode_sums(&code[..len], &mut got), Some(len), "{}", kernel.name());
                assert_eq!(got, expected, "{}", kernel.name());
            }
        }
    }
}

/// Every value, at both ends of what limits are.
fn verify_all(profile: Summable, restored: impl Fn(u32) -> u32) {
    for bits in 0..=u32::MAX {
        let restored = restored(bits);
        [1, 64].map(limit).into_iter().for_each(|limit| verify(bits, restored, profile, limit));
    }
}

#[test]
#[ignore = "all 2^32 inputs, minutes: cargo test --release -p gradwire --test all -- --ignored sums::"]
fn every_value_counts_what_it_is_worth() {
    std::thread::scope(|scope| {
        for bound in [Bound::MIN, -10, Bound::MAX].map(|y| Bound::new(y).unwrap()) {
            scope.spawn(move || {
                verify_all(bound.into(), |bits| decode_value(encode_value(bits, bound), bound));
            });
        }
    });
}

#[test]
#[ignore = "all 2^32 inputs, minutes: cargo test --release -p gradwire --test all -- --ignored sums::"]
fn every_value_of_codec_1_does() {
    std::thread::scope(|scope| {
        for (b, k, x) in [(10, 3, 0), (14, 8, Params::MIN_SCALE), (1, 0, i8::MAX)] {
            scope.spawn(move || {
                let params = Params::from_exponents(b, k, x).unwrap();
                verify_all(size_class(b, k, x), |bits| decode_lane(encode_lane(bits, params), params));
            });
        }
    });
}

/// Kernels against the definition, in blocks that follow one another, so that nearly all have
/// either coded or raw values alone.
#[test]
#[ignore = "all 2^32 inputs, minutes: cargo test --release -p gradwire --test all -- --ignored sums::"]
fn every_kernel_adds_every_value() {
    let kernels: Vec<Kernel> = Kernel::available().collect();
    for profile in [bit_plane(-10), size_class(10, 3, 0)] {
        for first in (0..=u32::MAX).step_by(BLOCK_VALUES) {
            let code = code_of((0..BLOCK_VALUES).map(|i| first + i as u32), profile);
            let mut units = [0; BLOCK_VALUES];
            assert_eq!(profile.decode_units(&code, &mut units, limit(16)), Some(code.len()));
            for kernel in &kernels {
                let mut got = [0; BLOCK_VALUES];
                let unsummable = add(*kernel, &code, &mut got, profile, limit(16));
                assert_eq!(unsummable.over, units.contains(&OVER), "{first:#010x}");
                for (lane, units) in units.into_iter().enumerate() {
                    let whole = if matches!(units, OVER | NOT_A_NUMBER) { 0 } else { units };
                    let is_marked = unsummable.not_numbers >> lane & 1 == 1;
                    assert_eq!((got[lane], is_marked), (whole, units == NOT_A_NUMBER), "{first:#010x}");
                }
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
    let mut sums = [0; 1];
    for _ in 0..255 {
        let largest = code_of([(-(limit(255) as f32 - 1.0)).to_bits()], bit_plane(0));
        assert!(!add(Kernel::PORTABLE, &largest, &mut sums, bit_plane(0), limit(255)).over);
    }
    assert_eq!(i64::from(sums[0]), 255 * (i64::from(-limit(255)) + 1));
}

/// The sizes for which hosts and soft cores have room: a window of 16 chunks of 2048 values, and of
/// 4 of 1024. Beside the slots there are addresses, and room for one chunk's numbers; an aggregator
/// has a frame, and room behind it.
#[test]
fn slots_take_as_much_memory_as_is_said() {
    let numbers = |blocks: usize| blocks * BLOCK_LEN;
    assert!(size_of::<Aggregator<u8, 1, 32, 16>>() - numbers(16) <= 272 * 1024);
    assert!(size_of::<EthernetAggregator<1, 32, 16>>() - numbers(16) <= 275 * 1024);
    assert!(size_of::<Aggregator<u8, 1, 8, 8>>() - numbers(8) <= 36 * 1024);
    assert!(size_of::<EthernetAggregator<1, 8, 8>>() - numbers(8) <= 39 * 1024);
}
