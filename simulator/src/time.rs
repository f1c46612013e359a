//! Exact time and rates: integer picoseconds, integer bits per second.

/// A time, or a span of time, in picoseconds; a `u64` holds 213 days.
pub type Picos = u64;

/// Picoseconds in a second.
pub const SECOND: Picos = 1_000_000_000_000;

/// The time that `bits` take at `rate` bit/s, rounded up to a picosecond.
///
/// Exact at every rate that divides 10^12 (all usual link rates do). A rate of zero is the caller's
/// mistake and panics; [`Scenario::check`](crate::Scenario::check) refuses it first.
#[must_use]
pub fn transmission(bits: u64, rate: u64) -> Picos {
    match bits.checked_mul(SECOND) {
        Some(scaled) => scaled.div_ceil(rate),
        None => {
            let span = (u128::from(bits) * u128::from(SECOND)).div_ceil(u128::from(rate));
            u64::try_from(span).expect("a message that takes more than 213 days")
        }
    }
}

/// Seconds to picoseconds, rounded to the nearest; negative and NaN become zero.
#[must_use]
pub fn picos(seconds: f64) -> Picos {
    (seconds * SECOND as f64).round() as Picos
}

/// Picoseconds to seconds.
#[must_use]
pub fn seconds(time: Picos) -> f64 {
    time as f64 / SECOND as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_at_10_gbit_takes_100_ps_and_large_messages_do_not_overflow() {
        assert_eq!(transmission(1, 10_000_000_000), 100);
        assert_eq!(transmission(1 << 40, 1_000_000_000), 1000 << 40);
        assert_eq!(transmission(1, 3), 333_333_333_334);
    }
}
