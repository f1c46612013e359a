//! Every kernel against the definition: same bytes, same errors, on every input.

use gradwire::checksum::Sum;
use gradwire::codec::{self, DecodeError, EncodeError, LANES, Params, Split, max_encoded_len};
use gradwire::kernels::Kernel;
use proptest::prelude::*;

fn any_params() -> impl Strategy<Value = Params> {
    (1u8..=14, -80i8..=127)
        .prop_flat_map(|(b, x)| (Just(b), b.saturating_sub(7)..=b, Just(x)))
        .prop_map(|(b, k, x)| Params::from_exponents(b, k, x).unwrap())
}

/// Bit patterns whose exponents lie around the class borders of `params`, and anything else.
fn any_values(params: Params, len: usize) -> impl Strategy<Value = Vec<u8>> {
    let near = 127 + i32::from(params.x());
    let value = prop_oneof![
        4 => (any::<u32>(), -16i32..3).prop_map(move |(bits, from)| {
            bits & 0x807f_ffff | ((near + from).clamp(0, 255) as u32) << 23
        }),
        1 => any::<u32>(),
        1 => (any::<u32>(), any::<bool>()).prop_map(|(bits, zero)| if zero { 0 } else { bits & 0x807f_ffff }),
    ];
    prop::collection::vec(value, len).prop_map(|values| values.iter().flat_map(|v| v.to_le_bytes()).collect())
}

type Encoded = Result<Vec<u8>, EncodeError>;
type Decoded = Result<(usize, Vec<u8>), DecodeError>;

fn encoded(result: Result<usize, EncodeError>, groups: &[u8]) -> Encoded {
    result.map(|len| groups[..len].to_vec())
}

/// With unlike fills, so that a byte that was not written shows.
fn agree_on_encoding(values: &[u8], room: usize, params: Params) -> Encoded {
    let mut groups = vec![0xaa; room];
    let expected = encoded(codec::encode_payload(values, &mut groups, params), &groups);
    for kernel in Kernel::available() {
        for fill in [0x00, 0x55] {
            let mut groups = vec![fill; room];
            let got = encoded(kernel.encode(values, &mut groups, params), &groups);
            assert_eq!(got, expected, "{} {params:?} {} values", kernel.name(), values.len() / 4);
        }
    }
    expected
}

fn agree_on_decoding(groups: &[u8], len: usize, params: Params) -> Decoded {
    let mut values = vec![0xaa; len];
    let expected = codec::decode_payload(groups, &mut values, params).map(|used| (used, values));
    for kernel in Kernel::available() {
        for fill in [0x00, 0x55] {
            let mut values = vec![fill; len];
            let got = kernel.decode(groups, &mut values, params).map(|used| (used, values));
            assert_eq!(got, expected, "{} {params:?} {len} bytes of values", kernel.name());
        }
    }
    expected
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn on_payloads_of_any_length(
        (params, values) in (any_params(), 0usize..800).prop_flat_map(|(p, n)| (Just(p), any_values(p, n))),
        short in 0usize..80,
    ) {
        let groups = agree_on_encoding(&values, max_encoded_len(values.len()), params).unwrap();
        // Any room from the exact one up and down.
        let _ = agree_on_encoding(&values, groups.len(), params);
        let _ = agree_on_encoding(&values, groups.len().saturating_sub(short), params);
        let _ = agree_on_encoding(&values, groups.len() + short, params);
        let (used, _) = agree_on_decoding(&groups, values.len(), params).unwrap();
        prop_assert_eq!(used, groups.len());
        // Anything behind, and anything missing.
        let longer = [&groups[..], &[0xff; 80][..short]].concat();
        let _ = agree_on_decoding(&longer, values.len(), params);
        let _ = agree_on_decoding(&groups[..groups.len().saturating_sub(short)], values.len(), params);
        let _ = agree_on_decoding(&longer, values.len().saturating_sub(4 * short), params);
    }

    #[test]
    fn on_checksums(bytes in prop::collection::vec(any::<u8>(), 0..2000), ones in 0usize..200) {
        let bytes = [&bytes[..], &[0xff; 200][..ones]].concat();
        for kernel in Kernel::available() {
            prop_assert_eq!(kernel.sum(&bytes), Sum::of(&bytes), "{}", kernel.name());
        }
    }

    #[test]
    fn on_any_bytes(groups in prop::collection::vec(any::<u8>(), 0..600), len in 0usize..900, params in any_params()) {
        let _ = agree_on_decoding(&groups, len, params);
        let _ = agree_on_encoding(&groups, len, params);
    }
}

/// Judged by the standard library, which asks the processor itself.
#[cfg(target_arch = "x86_64")]
#[test]
fn every_kernel_that_the_processor_runs_is_there() {
    let has = |name: &str| Kernel::available().any(|kernel| kernel.name() == name);
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("popcnt");
    let avx512 = avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512vbmi2");
    assert_eq!((has("avx2"), has("avx512")), (avx2, avx512));
    assert!(has("portable") && has("scalar32"));
}

/// FORMAT.md §4: a tag vector and up to 32 bytes.
#[test]
fn the_shortest_and_the_longest_group() {
    let mut groups = [0; 64];
    assert_eq!(codec::encode_payload(&[0; 32], &mut groups, Params::DEFAULT), Ok(2));
    assert_eq!(codec::encode_payload(&[0xff; 32], &mut groups, Params::DEFAULT), Ok(34));
    assert_eq!((codec::MAX_GROUP_LEN, max_encoded_len(32), max_encoded_len(36)), (34, 34, 40));
}

#[test]
fn on_every_length_and_every_truncation() {
    let params = Params::DEFAULT;
    let values: Vec<u8> =
        (0..200u32).flat_map(|i| (i.wrapping_mul(0x9e37_79b9) >> 3 | 0x3800_0000).to_le_bytes()).collect();
    for count in 0..200 {
        let groups = agree_on_encoding(&values[..4 * count], 1000, params).unwrap();
        for len in 0..=groups.len() {
            let whole = agree_on_decoding(&groups[..len], 4 * count, params).is_ok();
            assert_eq!(whole, len == groups.len());
        }
    }
}

/// Kernels may read words if payloads lie on them.
#[test]
fn at_every_address() {
    let params = Params::DEFAULT;
    let values: Vec<u8> =
        (0..100u32).flat_map(|i| (i.wrapping_mul(0x9e37_79b9) >> 3 | 0x3800_0000).to_le_bytes()).collect();
    let mut expected = vec![0; max_encoded_len(values.len())];
    let len = codec::encode_payload(&values, &mut expected, params).unwrap();
    let mut decoded = vec![0; values.len()];
    codec::decode_payload(&expected[..len], &mut decoded, params).unwrap();
    for kernel in Kernel::available() {
        for offset in 0..8 {
            let shifted = [&[0xff; 8][..offset], &values].concat();
            let mut groups = vec![0xaa; expected.len()];
            assert_eq!(kernel.encode(&shifted[offset..], &mut groups, params), Ok(len), "{}", kernel.name());
            assert_eq!(groups[..len], expected[..len], "{} at {offset}", kernel.name());
            let mut restored = vec![0x55; offset + values.len()];
            assert_eq!(kernel.decode(&groups[..len], &mut restored[offset..], params), Ok(len));
            assert_eq!(restored[offset..], decoded, "{} at {offset}", kernel.name());
            for end in shifted.len() - 8..shifted.len() {
                let bytes = &shifted[offset..end];
                assert_eq!(kernel.sum(bytes), Sum::of(bytes), "{} at {offset}", kernel.name());
            }
        }
    }
}

#[test]
fn on_every_tag_vector() {
    let noise: Vec<u8> = (0..64u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect();
    for params in [Params::DEFAULT, Params::new(14, Split::Paper, -80).unwrap()] {
        for tags in 0..=u16::MAX {
            let groups = [&tags.to_le_bytes(), &noise[..(tags % 30) as usize + 32]].concat();
            let (lanes, second) = (tags as usize % LANES, tags as usize / LANES % 2 * 32);
            let _ = agree_on_decoding(&groups, 32, params);
            let _ = agree_on_decoding(&groups, second + 4 * lanes, params);
        }
    }
}

/// With all parameters but most scales: every exponent, both signs, and the ends and the middle of the significands. Lanes of
/// one burst have exponents far apart. Quick enough for an emulator.
#[test]
fn on_every_exponent_with_all_parameters() {
    const SIGNIFICANDS: [u32; 5] = [0, 1, 0x2a_aaaa, 0x40_0000, 0x7f_ffff];
    let values: Vec<u8> = (0..256u32)
        .flat_map(|i| [0, 1].map(|sign| sign << 31 | (i * 91 % 256) << 23))
        .flat_map(|value| SIGNIFICANDS.map(|significand| value | significand))
        .flat_map(u32::to_le_bytes)
        .collect();
    let splits = (1u8..=14).flat_map(|b| (b.saturating_sub(7)..=b).map(move |k| (b, k)));
    for (b, k) in splits {
        for x in [-80, -31, -1, 0, 1, 64, 127] {
            let params = Params::from_exponents(b, k, x).unwrap();
            let groups = agree_on_encoding(&values, max_encoded_len(values.len()), params).unwrap();
            let (used, _) = agree_on_decoding(&groups, values.len(), params).unwrap();
            assert_eq!(used, groups.len());
        }
    }
}
