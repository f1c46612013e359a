//! The laws of the codec (FORMAT.md §3.5), judged in `f64` and on bits.

use std::thread;

use gradwire::codec::{Class, Lane, Params, Split, decode_lane, encode_lane};
use proptest::prelude::*;

fn any_params() -> impl Strategy<Value = Params> {
    (1u8..=14, -80i8..=127)
        .prop_flat_map(|(b, x)| (Just(b), b.saturating_sub(7)..=b, Just(x)))
        .prop_map(|(b, k, x)| Params::from_exponents(b, k, x).unwrap())
}

fn restored(f: u32, params: Params) -> u32 {
    decode_lane(encode_lane(f, params), params)
}

/// `|f - g| < 2^(x-b)` in `f64`, where every `f32` and every difference that matters is exact.
fn within(f: u32, g: u32, params: Params) -> bool {
    let bound = 2f64.powi(i32::from(params.x()) - i32::from(params.b()));
    let (f_value, g_value) = (f64::from(f32::from_bits(f)), f64::from(f32::from_bits(g)));
    f == g || (f_value - g_value).abs() < bound
}

/// All laws that one positive value and its predecessor's decoded magnitude can show; returns its own.
fn hold(f: u32, below: u32, params: Params) -> u32 {
    let lane = encode_lane(f, params);
    let g = decode_lane(lane, params);
    assert!(within(f, g, params), "bound: {f:#010x} -> {g:#010x}, {params:?}");
    assert_eq!(encode_lane(g, params), lane, "idempotence: {f:#010x}, {params:?}");
    assert!(g >= below, "monotonicity: {f:#010x}, {params:?}");
    // Any mix of bits, and so of bytes, then lies between g and f in magnitude.
    assert_eq!(g & !f, 0, "mixing: {f:#010x} -> {g:#010x}, {params:?}");
    let negative = restored(f | 1 << 31, params);
    let expected = if lane.class == Class::Zero { 0 } else { g | 1 << 31 };
    assert_eq!(negative, expected, "sign symmetry: {f:#010x}, {params:?}");
    g
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn laws_hold_for_any_bits_and_any_parameters(f: u32, step in 0u32..1 << 12, params in any_params()) {
        let f = f & !(1 << 31);
        let below = restored(f.saturating_sub(step), params);
        hold(f, below, params);
    }

    #[test]
    fn laws_hold_near_every_class_border(border in 0u32..4, near in -3i32..=3, params in any_params()) {
        let e = 127 + i32::from(params.x());
        let exponent = match border {
            0 => e - i32::from(params.b()),
            1 => e - i32::from(params.k()),
            2 => e,
            _ => 255,
        };
        let f = ((exponent << 23) + near) as u32;
        hold(f, restored(f - 1, params), params);
    }

    #[test]
    fn any_mix_of_bytes_keeps_the_bound(f: u32, params in any_params(), from_decoded: [bool; 4]) {
        let (raw, decoded) = (f.to_le_bytes(), restored(f, params).to_le_bytes());
        let mix: [u8; 4] = core::array::from_fn(|i| if from_decoded[i] { decoded[i] } else { raw[i] });
        prop_assert!(within(f, u32::from_le_bytes(mix), params));
    }

    /// FORMAT.md §3.4 in `f64`: what no encoder makes has a value too.
    #[test]
    fn every_vector_has_the_value_of_the_format(vector: u16, params in any_params()) {
        let x = i32::from(params.x());
        let value = |magnitude: u16, sign: bool, n: i32| {
            f64::from(magnitude) * 2f64.powi(x - n) * if sign { -1.0 } else { 1.0 }
        };
        let half = decode_lane(Lane { class: Class::Half, vector: vector.into() }, params);
        prop_assert_eq!(f64::from(f32::from_bits(half)), value(vector & 0x7fff, vector >> 15 != 0, 15));
        let byte = vector & 0xff;
        let decoded = decode_lane(Lane { class: Class::Byte, vector: byte.into() }, params);
        let n = i32::from(params.k()) + 7;
        prop_assert_eq!(f64::from(f32::from_bits(decoded)), value(byte & 0x7f, byte >> 7 != 0, n));
    }
}

/// FORMAT.md §3.2 by comparing magnitudes, not exponents.
#[test]
fn classes_are_ranges_of_magnitude() {
    for (b, split, x) in
        [(10, Split::Dense, 0), (10, Split::Paper, 0), (3, Split::Dense, -20), (14, Split::Paper, 90)]
    {
        let params = Params::new(b, split, x).unwrap();
        let power = |exponent: i32| 2f64.powi(exponent + i32::from(x));
        for exponent in 0..=255u32 {
            for mantissa in [0, 1, 0x0040_0000, 0x007f_ffff] {
                let bits = exponent << 23 | mantissa;
                let magnitude = f64::from(f32::from_bits(bits));
                let expected = if magnitude < power(-i32::from(params.b())) {
                    Class::Zero
                } else if magnitude < power(-i32::from(params.k())) {
                    Class::Byte
                } else if magnitude < power(0) {
                    Class::Half
                } else {
                    Class::Raw // infinities and NaN too
                };
                assert_eq!(encode_lane(bits, params).class, expected, "{bits:#010x} {params:?}");
            }
        }
    }
}

#[test]
#[ignore = "all 2^32 inputs, minutes: cargo test --release -p gradwire --test laws -- --ignored"]
fn laws_hold_for_every_f32() {
    let all: Vec<Params> = [6, 8, 10]
        .into_iter()
        .flat_map(|b| [Split::Dense, Split::Paper].map(|split| Params::new(b, split, 0).unwrap()))
        .collect();
    const SHARE: u32 = 1 << 26;
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        for thread in 0..threads {
            let all = &all;
            scope.spawn(move || {
                let shares = ((1u32 << 31) / SHARE) as usize;
                for share in (thread..shares).step_by(threads) {
                    let first = share as u32 * SHARE;
                    for &params in all {
                        let mut below = restored(first.saturating_sub(1), params);
                        for f in first..first + SHARE {
                            below = hold(f, below, params);
                        }
                    }
                }
            });
        }
    });
}
