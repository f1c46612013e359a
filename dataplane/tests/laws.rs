//! The laws of the codec (FORMAT.md §3.5), verified in `f64` and on bits.

use gradwire::codec::{Class, Lane, Params, Split, decode_lane, encode_lane};
use proptest::prelude::*;

use crate::common::laws::Laws;

fn any_params() -> impl Strategy<Value = Params> {
    (1u8..=14, -80i8..=127)
        .prop_flat_map(|(b, x)| (Just(b), b.saturating_sub(7)..=b, Just(x)))
        .prop_map(|(b, k, x)| Params::from_exponents(b, k, x).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn laws_hold_for_any_bits_and_any_parameters(f: u32, step in 0u32..1 << 12, params in any_params()) {
        let f = f & !(1 << 31);
        let laws = Laws::of(params);
        laws.hold(f, laws.restored(f.saturating_sub(step)));
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
        let laws = Laws::of(params);
        laws.hold(f, laws.restored(f - 1));
    }

    #[test]
    fn any_mix_of_bytes_keeps_the_bound(f: u32, params in any_params(), from_decoded: [bool; 4]) {
        let laws = Laws::of(params);
        let (raw, decoded) = (f.to_le_bytes(), laws.restored(f).to_le_bytes());
        let mix: [u8; 4] = core::array::from_fn(|i| if from_decoded[i] { decoded[i] } else { raw[i] });
        prop_assert!(laws.within(f, u32::from_le_bytes(mix)));
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
