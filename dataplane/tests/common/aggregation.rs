//! Right sums, in wide integers, and workers of a job.

use gradwire::aggregate::WorkerSettings;
use gradwire::codec::Params;
use gradwire::codec::bit_plane::Bound;
use gradwire::profile::Profile;
use gradwire::sums::Summable;
use gradwire::wire::chunk::{Limits, MAX_SECTION_LEN};
use proptest::prelude::*;

use super::bit_plane::BitPlaneLaws;
use super::laws::{Laws, power};

pub fn worker_settings(child: u8, children: u8) -> WorkerSettings {
    WorkerSettings {
        job: 7,
        epoch: 0xffff_fff0,
        child,
        children,
        total: children,
        limits: Limits::MOST,
        key: 0x5eed,
    }
}

/// A hello once more, with the cookie of the welcome that answered it.
pub fn with_cookie(hello: &[u8], welcome: &[u8]) -> Vec<u8> {
    [&hello[..14], &welcome[14..20], &hello[20..]].concat()
}

pub fn le_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn any_bound() -> impl Strategy<Value = Bound> {
    prop_oneof![Just(Bound::MIN), Just(-10), Just(Bound::MAX), Bound::MIN..=Bound::MAX]
        .prop_map(|y| Bound::new(y).unwrap())
}

/// Codec 1 with these exponents.
pub fn size_class(b: u8, k: u8, x: i8) -> Summable {
    Profile::from(Params::from_exponents(b, k, x).unwrap()).try_into().unwrap()
}

/// Codec 2 with the bound `2^y`.
pub fn bit_plane(y: i8) -> Summable {
    Bound::new(y).unwrap().into()
}

/// Both codecs alike, with all that sums take.
pub fn any_profile() -> impl Strategy<Value = Summable> {
    let scales = prop_oneof![Just(Params::MIN_SCALE), Just(0), Just(i8::MAX), Params::MIN_SCALE..=i8::MAX];
    let of_classes = (Params::MIN_B..=Params::MAX_B, 0u8..=8, scales)
        .prop_map(|(b, k, x)| size_class(b, k.clamp(b.saturating_sub(7), b.min(8)), x));
    prop_oneof![of_classes, any_bound().prop_map(Summable::from)]
}

/// The code of a block's values, from the definition.
pub fn code_of(values: impl IntoIterator<Item = u32>, profile: Summable) -> Vec<u8> {
    let bytes: Vec<u8> = values.into_iter().flat_map(u32::to_le_bytes).collect();
    let mut code = [0; MAX_SECTION_LEN];
    let len = profile.profile().encode_payload(&bytes, &mut code).unwrap();
    code[..len].to_vec()
}

/// The value that a codec restores, by its laws' arithmetic.
fn restored(bits: u32, profile: Summable) -> u32 {
    match profile.profile() {
        Profile::SizeClass(params) => Laws::of(params).by_arithmetic(bits),
        Profile::BitPlane(bound) => BitPlaneLaws::of(bound).by_arithmetic(bits),
    }
}

/// The unit, from docs/aggregation-protocol.md section 2.
pub fn unit_of(profile: Summable) -> f64 {
    power(match profile.profile() {
        Profile::SizeClass(params) => i32::from(params.x()) - 15,
        Profile::BitPlane(bound) => bound.y().into(),
    })
}

/// The number of units a worker's value counts: what its codec restores, to the nearest whole
/// number, the even one of two. None for NaN and infinities.
pub fn whole_units(bits: u32, profile: impl Into<Summable>) -> Option<f64> {
    let profile = profile.into();
    let value = f64::from(f32::from_bits(restored(bits, profile)));
    let units = (value / unit_of(profile)).round_ties_even();
    units.is_finite().then_some(units)
}

/// The sum of a value of each child: an exact integer, then the nearest `f32`, then what codec 1
/// restores of that. What is beyond an aggregator's limit saturates.
pub fn sum_of(values: impl IntoIterator<Item = u32>, profile: impl Into<Summable>) -> u32 {
    let profile = profile.into();
    let mut sum = 0i64;
    for bits in values {
        let Some(units) = whole_units(bits, profile) else { return 0x7fc0_0000 };
        sum = sum.saturating_add(units as i64);
    }
    // An i64 of this size is an f64; the rounding to f32 is the only one, but for what is too
    // large.
    let nearest = ((sum as f64 * unit_of(profile)) as f32).to_bits();
    match profile.profile() {
        Profile::SizeClass(_) => restored(nearest, profile),
        Profile::BitPlane(_) => nearest,
    }
}

/// The sums of all values of all workers.
pub fn exact_sum(inputs: &[Vec<u8>], profile: impl Into<Summable>) -> Vec<u8> {
    let profile = profile.into();
    let word = |input: &[u8], at: usize| u32::from_le_bytes(input[at..at + 4].try_into().unwrap());
    (0..inputs[0].len())
        .step_by(4)
        .flat_map(|at| sum_of(inputs.iter().map(|input| word(input, at)), profile).to_le_bytes())
        .collect()
}
