//! Codec 2's definition: its laws in `f64`, the second implementation's files, and any bytes.

use gradwire::codec::bit_plane::{
    Bound, BoundError, SECTION_VALUES, decode_payload, encode_payload, max_encoded_len,
};
use gradwire::codec::{DecodeError, EncodeError};
use proptest::prelude::*;

use crate::common::bit_plane::BitPlaneLaws;
use crate::common::golden::golden;

fn bound(y: i8) -> Bound {
    Bound::new(y).unwrap()
}

fn any_bound() -> impl Strategy<Value = Bound> {
    prop_oneof![Just(Bound::MIN), Just(-10), Just(Bound::MAX), Bound::MIN..=Bound::MAX].prop_map(bound)
}

fn le_bytes(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Encodes and decodes; the sections.
fn round_trip(values: &[u8], bound: Bound) -> Vec<u8> {
    let mut sections = vec![0xaa; max_encoded_len(values.len())];
    let len = encode_payload(values, &mut sections, bound).unwrap();
    sections.truncate(len);
    let mut decoded = vec![0x55; values.len()];
    assert_eq!(decode_payload(&sections, &mut decoded, bound), Ok(len));
    for (sent, got) in values.as_chunks::<4>().0.iter().zip(decoded.as_chunks::<4>().0) {
        let [sent, got] = [sent, got].map(|bytes| u32::from_le_bytes(*bytes));
        assert_eq!(got, BitPlaneLaws::of(bound).by_arithmetic(sent));
    }
    sections
}

/// Values as gradients have them: most near the bound or below it, some raw.
fn any_values() -> impl Strategy<Value = Vec<u32>> {
    let exponent = prop_oneof![8 => 100u32..130, 1 => 0u32..256];
    let value = (any::<bool>(), exponent, 0u32..1 << 23)
        .prop_map(|(sign, exponent, mantissa)| u32::from(sign) << 31 | exponent << 23 | mantissa);
    prop::collection::vec(prop_oneof![2 => Just(0u32), 3 => value], 0..1200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn laws_hold_for_any_bits_and_any_bound(f in 0u32..1 << 31, step in 0u32..1 << 12, bound in any_bound()) {
        let laws = BitPlaneLaws::of(bound);
        laws.hold(f, laws.restored(f.saturating_sub(step)));
    }

    #[test]
    fn laws_hold_at_every_border(exponent in -1i32..=16, near in -3i32..=3, bound in any_bound()) {
        let f = (((127 + i32::from(bound.y()) + exponent).clamp(1, 255) << 23) + near) as u32;
        let laws = BitPlaneLaws::of(bound);
        laws.hold(f, laws.restored(f - 1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn each_value_decodes_as_if_alone(values in any_values(), y in -30i8..5) {
        let values = le_bytes(&values);
        let sections = round_trip(&values, bound(y));
        let mut out = vec![0; sections.len()];
        prop_assert_eq!(encode_payload(&values, &mut out, bound(y)), Ok(sections.len()));
        prop_assert_eq!(&out, &sections);
        if let Some(room) = sections.len().checked_sub(1) {
            let refused = Err(EncodeError::NoRoom { have: room });
            prop_assert_eq!(encode_payload(&values, &mut out[..room], bound(y)), refused);
        }
        let mut decoded = vec![0; values.len()];
        for len in (0..sections.len()).step_by(7) {
            prop_assert!(decode_payload(&sections[..len], &mut decoded, bound(y)).is_err(), "{}", len);
        }
    }

    /// Bytes that no encoder makes have a value too, and encoding that value again is stable.
    #[test]
    fn any_bytes_decode_or_are_refused(
        mut sections in prop::collection::vec(any::<u8>(), 0..600), mode in 0u8..5, count in 0usize..600, bound in any_bound(),
    ) {
        if let Some(first) = sections.first_mut() {
            *first = mode;
        }
        let mut values = vec![0xaa; 4 * count];
        if let Ok(len) = decode_payload(&sections, &mut values, bound) {
            prop_assert!(len <= sections.len());
            let again = round_trip(&values, bound);
            let mut decoded = vec![0; values.len()];
            prop_assert_eq!(decode_payload(&again, &mut decoded, bound), Ok(again.len()));
        }
    }
}

/// Files of a second implementation: y, three bytes, the number of values; values, sections,
/// decoded values.
#[test]
fn golden_files() {
    let files = golden("v1_sections_");
    assert_eq!(files.len(), 13);
    for (name, bytes) in files {
        let [y, _, _, _, count @ ..] = *bytes.first_chunk::<8>().unwrap();
        let bound = bound(y as i8);
        let values_len = 4 * u32::from_le_bytes(count) as usize;
        let (values, rest) = bytes[8..].split_at(values_len);
        let (sections, decoded) = rest.split_at(rest.len() - values_len);
        assert_eq!(round_trip(values, bound), sections, "{name}");
        let mut out = vec![0; values_len];
        assert_eq!(decode_payload(sections, &mut out, bound), Ok(sections.len()), "{name}");
        assert_eq!(out, decoded, "{name}");
        for len in 0..sections.len() {
            assert!(decode_payload(&sections[..len], &mut out, bound).is_err(), "{name}: {len}");
        }
    }
}

/// One section of 16 values at y = -10, by hand; what each refused one has too much.
#[test]
fn invalid_sections_are_refused() {
    let decode = |section: &[u8], count: usize| {
        let mut values = vec![0xaa; 4 * count];
        decode_payload(section, &mut values, bound(-10)).map(|len| (len, values))
    };
    let refused = Err(DecodeError::Section { at: 0 });
    // Flat map: value 9 alone, negative, two planes: 3, so -7 * 2^-10.
    let flat = [2, 0, 0b10, 1, 2, 1, 1];
    let (len, values) = decode(&flat, 16).unwrap();
    assert_eq!((len, &values[36..40]), (7, &(-7.0f32 / 1024.0).to_le_bytes()[..]));
    // The same as a two-level map of nine values' two bytes.
    let (_, same) = decode(&[1, 0b10, 0b10, 1, 2, 1, 1], 16).unwrap();
    assert_eq!(same, values);
    assert_eq!(decode(&[4], 16), refused, "a mode that there is not");
    assert_eq!(decode(&[1, 0b100], 16), refused, "a presence bit beyond the map");
    assert_eq!(decode(&[2, 0, 0b10, 1, 2, 1, 1], 9), refused, "a map bit beyond the values");
    assert_eq!(decode(&[2, 0, 0b10, 1, 0x12, 1, 1], 16), refused, "spare code bits");
    assert_eq!(decode(&[2, 0, 0b10, 1, 15, 0, 15], 16), refused, "a width of 15");
    // All that an encoder does not make: an empty map, a zero byte of a two-level map, wide codes,
    // raw bits of absent items.
    assert_eq!(decode(&[2, 0, 0], 16), Ok((3, vec![0; 64])));
    assert_eq!(decode(&[1, 0b01, 0], 16), Ok((3, vec![0; 64])));
    assert!(
        decode(&[2, 0, 0b10, 1, 14, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 16)
            .is_ok_and(|(_, wide)| wide == values)
    );
    let raw = [2, 0, 0b10, 1, 15, 0b11, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(
        decode(&raw, 16).map(|(len, values)| (len, values[36..40].to_vec())),
        Ok((15, vec![1, 2, 3, 4]))
    );
    assert_eq!(decode(&raw[..14], 16), refused, "an absent item's raw value is cut short");
    // Dense: a plane value of 0 is +0.0, whatever its sign.
    assert_eq!(decode(&[3, 0xff, 0], 8), Ok((3, vec![0; 32])));
    assert_eq!(decode(&[], 3), refused);
    assert_eq!(decode(&[], 0), Ok((0, vec![])));
    let mut part = [0; 6];
    assert_eq!(decode_payload(&flat, &mut part, bound(-10)), Err(DecodeError::Unaligned { len: 6 }));
    assert_eq!(encode_payload(&[0; 6], &mut part, bound(-10)), Err(EncodeError::Unaligned { len: 6 }));
}

#[test]
fn the_bound_is_exact_and_has_a_range() {
    for y in i8::MIN..=i8::MAX {
        match Bound::new(y) {
            Ok(bound) => assert_eq!((bound.y(), f64::from(bound.bound())), (y, 2f64.powi(y.into()))),
            Err(refused) => assert_eq!(refused, BoundError { got: y.into() }),
        }
        assert_eq!(Bound::new(y).is_ok(), (-94..=111).contains(&y));
        for x in i8::MIN..=i8::MAX {
            let sum = i16::from(x) + i16::from(y);
            let expected = i8::try_from(sum).map_err(|_| BoundError { got: sum }).and_then(Bound::new);
            assert_eq!(Bound::from_exponents(y.into(), x), expected);
        }
    }
    assert_eq!(Bound::from_exponents(i16::MAX, 127), Err(BoundError { got: i16::MAX }));
    assert_eq!(Bound::from_exponents(i16::MIN, -128), Err(BoundError { got: i16::MIN }));
}

#[test]
fn the_longest_payload_is_as_long_as_is_said() {
    let raw = le_bytes(&[f32::NAN.to_bits(); 2 * SECTION_VALUES]);
    // FORMAT.md section 4.2: 1 + 45 octets + half as many, for octets of 8 values; width 14 needs
    // values beside raw ones.
    assert_eq!(max_encoded_len(4 * SECTION_VALUES), 2913);
    assert_eq!(max_encoded_len(4 * 362), 1 + 45 * 46 + 23);
    for count in [1, 7, 8, 9, 511, 512, 513, 1024] {
        assert!(round_trip(&raw[..4 * count], bound(-10)).len() <= max_encoded_len(4 * count), "{count}");
    }
    assert_eq!(max_encoded_len(0), 0);
}
