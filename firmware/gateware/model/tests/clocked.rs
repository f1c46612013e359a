//! The clocked model against the definition: the same bytes and the same errors on every payload.

use gradwire::codec::{self, Class, DecodeError, EncodeError, Lane, Params, decode_lane, encode_lane};
use gradwire_gateware_model::{compression_block, decode_payload, decompression_block, encode_payload};
use proptest::prelude::*;

mod clocked_inputs;
use clocked_inputs::{define_decode, define_encode, exponent_pairs, noise, params, payload};

/// As [`define_decode`], by the model; another fill, so that a value nobody wrote shows.
fn model_decode(groups: &[u8], values_len: usize, params: Params) -> Result<(usize, Vec<u8>), DecodeError> {
    let mut values = vec![0x55; values_len];
    decode_payload(groups, &mut values, params).map(|run| (run.len, values))
}

fn assert_agrees(values: &[u8], params: Params) {
    let groups = define_encode(values, params);
    let mut out = vec![0x55; codec::max_encoded_len(values.len())];
    let run = encode_payload(values, &mut out, params).unwrap();
    assert_eq!(&out[..run.len], groups);
    assert_eq!(model_decode(&groups, values.len(), params), define_decode(&groups, values.len(), params));
}

#[test]
fn lane_blocks_equal_the_definition_at_every_exponent() {
    let mut next = noise(1);
    for (b, k) in exponent_pairs() {
        for x in Params::MIN_SCALE..=i8::MAX {
            let params = Params::from_exponents(b, k, x).unwrap();
            for sign_and_exponent in 0..=0x1ffu32 {
                for mantissa in [0, 0x7f_ffff, next() & 0x7f_ffff] {
                    let value = sign_and_exponent << 23 | mantissa;
                    let lane = compression_block(value, params);
                    assert_eq!(lane, encode_lane(value, params), "{value:#010x} {params:?}");
                    assert_eq!(decompression_block(lane, params), decode_lane(lane, params));
                }
            }
        }
    }
}

#[test]
fn decompression_block_equals_the_definition_on_every_vector() {
    let mut next = noise(2);
    for (b, k) in exponent_pairs() {
        for x in [Params::MIN_SCALE, 0, i8::MAX] {
            let params = Params::from_exponents(b, k, x).unwrap();
            for low in 0..=0xffffu32 {
                // Bits above the class's width are there, as the input multiplexer lets them
                // through.
                let vector = next() << 16 | low;
                for class in [Class::Zero, Class::Byte, Class::Half, Class::Raw] {
                    let lane = Lane { class, vector };
                    let value = decompression_block(lane, params);
                    assert_eq!(value, decode_lane(lane, params), "{lane:?} {params:?}");
                }
            }
        }
    }
}

#[test]
fn every_length_up_to_199_values() {
    let mut next = noise(3);
    for (b, k) in exponent_pairs() {
        for x in [Params::MIN_SCALE, -1, 0, 1, i8::MAX] {
            let params = Params::from_exponents(b, k, x).unwrap();
            let values: Vec<u8> = (0..199)
                .flat_map(|_| {
                    let exponent = (128 + i32::from(x) - (next() % 18) as i32).min(255) as u32;
                    (next() & 0x807f_ffff | exponent << 23).to_le_bytes()
                })
                .collect();
            for count in 0..200 {
                assert_agrees(&values[..4 * count], params);
            }
        }
    }
}

#[test]
fn every_tag_vector_with_every_number_of_lanes() {
    let mut next = noise(4);
    for tags in 0..=u16::MAX {
        let mut groups = [0u8; codec::MAX_GROUP_LEN];
        groups.fill_with(|| next() as u8);
        groups[..2].copy_from_slice(&tags.to_le_bytes());
        for lanes in 0..=8 {
            let want = define_decode(&groups, 4 * lanes, Params::DEFAULT);
            assert_eq!(model_decode(&groups, 4 * lanes, Params::DEFAULT), want, "{tags:#06x} {lanes}");
        }
        let cut = &groups[..next() as usize % groups.len()];
        let want = define_decode(cut, 32, Params::DEFAULT);
        assert_eq!(model_decode(cut, 32, Params::DEFAULT), want, "{tags:#06x} cut to {}", cut.len());
    }
}

#[test]
fn a_group_may_begin_in_any_byte_of_a_burst() {
    // A first group of every length, then groups of 34 bytes: also from byte 31 on, into a third
    // burst.
    for first in [vec![1.5f32; 8], vec![0.0; 8]] {
        for bytes in 0..=8 {
            for halves in 0..=8 - bytes {
                let mut values = first.clone();
                values[..bytes].fill(0.004);
                values[bytes..bytes + halves].fill(0.3);
                values.extend([1.5; 8 * 40]);
                let values: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                assert_agrees(&values, Params::DEFAULT);
            }
        }
    }
}

#[test]
fn values_that_are_not_whole_are_refused_alike() {
    let mut out = [0u8; 128];
    for len in (0..100).filter(|len| len % 4 != 0) {
        let want = codec::encode_payload(&vec![0; len], &mut out, Params::DEFAULT);
        assert_eq!(want, Err(EncodeError::Unaligned { len }));
        let got = encode_payload(&vec![0; len], &mut out, Params::DEFAULT);
        assert_eq!(got.map(|run| run.len), want);
        let got = decode_payload(&[0; 64], &mut out[..len], Params::DEFAULT);
        assert_eq!(got, Err(DecodeError::Unaligned { len }));
    }
}

proptest! {
    #![proptest_config(clocked_inputs::config())]

    #[test]
    fn payloads_equal_the_definition((params, values) in payload(199)) {
        assert_agrees(&values, params);
    }

    #[test]
    fn every_truncation_is_refused_alike((params, values) in payload(60)) {
        let groups = define_encode(&values, params);
        for cut in 0..groups.len() {
            let refused = define_decode(&groups[..cut], values.len(), params);
            prop_assert!(refused.is_err());
            prop_assert_eq!(model_decode(&groups[..cut], values.len(), params), refused);
        }
    }

    #[test]
    fn every_output_too_short_is_refused_alike((params, values) in payload(60)) {
        let mut out = define_encode(&values, params);
        let need = out.len();
        for have in 0..need {
            let want = Err(EncodeError::NoRoom { have });
            prop_assert_eq!(codec::encode_payload(&values, &mut out[..have], params), want);
            let got = encode_payload(&values, &mut out[..have], params).map(|run| run.len);
            prop_assert_eq!(got, want);
        }
        prop_assert_eq!(encode_payload(&values, &mut out, params).map(|run| run.len), Ok(need));
    }

    #[test]
    fn any_bytes_decode_alike(
        params in params(),
        groups in prop::collection::vec(prop_oneof![3 => Just(0u8), 4 => any::<u8>()], 0..600),
        count in 0usize..200,
    ) {
        let want = define_decode(&groups, 4 * count, params);
        prop_assert_eq!(model_decode(&groups, 4 * count, params), want);
    }

    #[test]
    fn bytes_behind_the_groups_are_left_alone(
        (params, values) in payload(99),
        more in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut groups = define_encode(&values, params);
        let len = groups.len();
        groups.extend(more);
        let got = model_decode(&groups, values.len(), params);
        prop_assert_eq!(got.as_ref().map(|(len, _)| *len), Ok(len));
        prop_assert_eq!(got, define_decode(&groups, values.len(), params));
    }
}
