//! Inputs for the tests of the clocked model, and what the definition makes of them.
#![allow(dead_code, reason = "each test file compiles its own copy and uses a part of it")]

use gradwire::codec::{self, DecodeError, Params};
use proptest::prelude::*;

/// Cases are short, so there are many; failures are not stored, as the clocked model keeps no
/// regression file.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() }
}

/// Every valid pair of bound exponent and byte offset.
pub(crate) fn exponent_pairs() -> impl Iterator<Item = (u8, u8)> {
    (1..=14u8).flat_map(|b| (b.saturating_sub(7)..=b).map(move |k| (b, k)))
}

/// Any parameters, often at the extremes of the scale.
pub(crate) fn params() -> impl Strategy<Value = Params> {
    let pairs: Vec<_> = exponent_pairs().collect();
    let scale = prop_oneof![3 => Just(0), 1 => Just(Params::MIN_SCALE), 1 => Just(127), 2 => -80..=127i8];
    (prop::sample::select(pairs), scale).prop_map(|((b, k), x)| Params::from_exponents(b, k, x).unwrap())
}

/// A value by its bits: mostly with an exponent around the borders of `params`, sometimes any at
/// all.
fn value(params: Params) -> impl Strategy<Value = u32> {
    let one = 127 + i32::from(params.x());
    let near = (one - 20..one + 3).prop_map(|exponent| exponent.clamp(0, 255) as u32);
    prop_oneof![
        4 => (near, any::<u32>()).prop_map(|(exponent, bits)| bits & 0x807f_ffff | exponent << 23),
        1 => any::<u32>(),
        1 => Just(0),
    ]
}

/// Parameters and a payload of up to `max` values.
pub(crate) fn payload(max: usize) -> impl Strategy<Value = (Params, Vec<u8>)> {
    params().prop_flat_map(move |params| {
        let values = prop::collection::vec(value(params), 0..=max);
        (Just(params), values.prop_map(|v| v.iter().flat_map(|bits| bits.to_le_bytes()).collect()))
    })
}

/// Random numbers from a seed (splitmix64), for what proptest need not shrink.
pub(crate) fn noise(seed: u64) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) as u32
    }
}

/// The groups of `values` by the definition.
pub(crate) fn define_encode(values: &[u8], params: Params) -> Vec<u8> {
    let mut groups = vec![0; codec::max_encoded_len(values.len())];
    let len = codec::encode_payload(values, &mut groups, params).unwrap();
    groups.truncate(len);
    groups
}

/// The length of the groups decoded, and their values, by the definition.
pub(crate) fn define_decode(
    groups: &[u8],
    values_len: usize,
    params: Params,
) -> Result<(usize, Vec<u8>), DecodeError> {
    let mut values = vec![0xaa; values_len];
    codec::decode_payload(groups, &mut values, params).map(|len| (len, values))
}
