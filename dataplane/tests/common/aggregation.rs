//! What sums ought to be, in wide integers, and members of a job.

use gradwire::aggregate::Membership;
use gradwire::codec::planar::Bound;
use gradwire::wire::chunk::Limits;

use super::planar::PlanarLaws;

pub fn membership(worker: u8, members: u8) -> Membership {
    Membership {
        job: 7,
        epoch: 0xffff_fff0,
        worker,
        members,
        total: members,
        limits: Limits::MOST,
        key: 0x5eed,
    }
}

pub fn le_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// How many units `2^y` a worker's value counts: what codec 2 restores, to the nearest whole number, the even one of two. None for
/// NaN and infinities.
pub fn whole_units(bits: u32, bound: Bound) -> Option<f64> {
    let restored = f64::from(f32::from_bits(PlanarLaws::of(bound).by_arithmetic(bits)));
    let units = (restored / 2f64.powi(bound.y().into())).round_ties_even();
    units.is_finite().then_some(units)
}

/// The sum of a value of each worker: an exact integer, then the nearest `f32`. What is beyond an aggregator's limit saturates.
pub fn sum_of(values: impl IntoIterator<Item = u32>, bound: Bound) -> u32 {
    let mut sum = 0i64;
    for bits in values {
        let Some(units) = whole_units(bits, bound) else { return 0x7fc0_0000 };
        sum = sum.saturating_add(units as i64);
    }
    // An i64 of this size is an f64; the rounding to f32 is the only one, but for what is too large.
    ((sum as f64 * 2f64.powi(bound.y().into())) as f32).to_bits()
}

/// The sums of all values of all workers.
pub fn exact_sum(inputs: &[Vec<u8>], bound: Bound) -> Vec<u8> {
    let word = |input: &[u8], at: usize| u32::from_le_bytes(input[at..at + 4].try_into().unwrap());
    (0..inputs[0].len())
        .step_by(4)
        .flat_map(|at| sum_of(inputs.iter().map(|input| word(input, at)), bound).to_le_bytes())
        .collect()
}
