//! Compares what arrived with what was sent, value by value, in `f64`: no code that compresses has
//! a part in it.

use serde::{Deserialize, Serialize};

use super::values::Values;

/// A value that is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Wrong {
    /// The connection, from 0.
    pub(super) connection: usize,
    /// Its place in that connection's stream, from 0.
    pub(super) place: u64,
    /// The bits that were sent, and that arrived: JSON has no NaN.
    pub(super) sent: u32,
    pub(super) got: u32,
}

/// Counts over a stream, or several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StreamTally {
    /// Whole values that arrived.
    pub(super) values: u64,
    /// Bytes that arrived.
    pub(super) bytes: u64,
    /// Values that are not bit for bit what was sent.
    pub(super) changed: u64,
    /// Values that were not zero and became zero.
    pub(super) zeroed: u64,
    /// Values beyond the bound, or that should not have changed at all.
    pub(super) wrong: u64,
    /// The first of them.
    pub(super) first_wrong: Option<Wrong>,
    /// The largest error.
    pub(super) largest_error: f64,
    /// Sums of squares of finite values, as sent and as they arrived.
    pub(super) squares_sent: f64,
    pub(super) squares_got: f64,
}

impl StreamTally {
    /// Adds that of another stream.
    pub(super) fn add(&mut self, other: &Self) {
        self.values += other.values;
        self.bytes += other.bytes;
        self.changed += other.changed;
        self.zeroed += other.zeroed;
        self.wrong += other.wrong;
        self.first_wrong = self.first_wrong.or(other.first_wrong);
        self.largest_error = self.largest_error.max(other.largest_error);
        self.squares_sent += other.squares_sent;
        self.squares_got += other.squares_got;
    }
}

/// Verifies one stream.
#[derive(Debug)]
pub(super) struct Verifier<'a> {
    expected: &'a [[u8; 4]],
    /// The next of them.
    at: usize,
    connection: usize,
    /// The error that no value may exceed; none if no bit may change.
    bound: Option<f64>,
    /// The first bytes of a value whose last ones have not come yet.
    partial: ([u8; 4], usize),
    pub(super) tally: StreamTally,
}

impl<'a> Verifier<'a> {
    pub(super) fn new(values: &'a Values, connection: usize, bound: Option<f64>) -> Self {
        let (expected, _) = values.bytes().as_chunks();
        let at = values.start(connection) / 4;
        Self { expected, at, connection, bound, partial: ([0; 4], 0), tally: StreamTally::default() }
    }

    /// The next bytes of the stream, cut anywhere.
    pub(super) fn take(&mut self, mut bytes: &[u8]) {
        self.tally.bytes += bytes.len() as u64;
        while self.partial.1 != 0
            && let [first, rest @ ..] = bytes
        {
            self.partial.0[self.partial.1] = *first;
            self.partial.1 = (self.partial.1 + 1) % 4;
            bytes = rest;
            if self.partial.1 == 0 {
                self.value(self.partial.0);
            }
        }
        let (values, rest) = bytes.as_chunks::<4>();
        values.iter().for_each(|value| self.value(*value));
        self.partial.0[self.partial.1..self.partial.1 + rest.len()].copy_from_slice(rest);
        self.partial.1 += rest.len();
    }

    fn value(&mut self, got: [u8; 4]) {
        let sent = f32::from_le_bytes(self.expected[self.at]);
        self.at = if self.at + 1 == self.expected.len() { 0 } else { self.at + 1 };
        let got = f32::from_le_bytes(got);
        let tally = &mut self.tally;
        let same = sent.to_bits() == got.to_bits();
        let (exact, arrived) = (f64::from(sent), f64::from(got));
        if sent.is_finite() && got.is_finite() {
            tally.squares_sent += exact * exact;
            tally.squares_got += arrived * arrived;
        }
        if !same {
            let error = (exact - arrived).abs();
            tally.changed += 1;
            tally.zeroed += u64::from(got == 0.0 && sent != 0.0);
            // A NaN is within nothing.
            if !self.bound.is_some_and(|bound| error <= bound) {
                tally.wrong += 1;
                tally.first_wrong.get_or_insert(Wrong {
                    connection: self.connection,
                    place: tally.values,
                    sent: sent.to_bits(),
                    got: got.to_bits(),
                });
            }
            // JSON has no infinity either.
            tally.largest_error = tally.largest_error.max(if error.is_finite() { error } else { f64::MAX });
        }
        tally.values += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: f64 = 1.0 / 1024.0;

    fn verified(sent: &[f32], got: &[f32], bound: Option<f64>, piece: usize) -> StreamTally {
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
        let values = Values::of_bytes(bytes(sent)).unwrap();
        let mut verifier = Verifier::new(&values, 0, bound);
        bytes(got).chunks(piece).for_each(|piece| verifier.take(piece));
        verifier.tally
    }

    #[test]
    fn however_a_stream_is_cut_every_value_counts() {
        let sent = [1.0, -0.5, 0.25];
        let got = [1.0, -0.5, 0.25, 1.0, -0.5, 0.250_5];
        for piece in [1, 2, 3, 4, 5, 7, 11, 24] {
            let tally = verified(&sent, &got, Some(BOUND), piece);
            assert_eq!((tally.values, tally.bytes, tally.changed, tally.wrong), (6, 24, 1, 0), "{piece}");
            assert!((tally.largest_error - 0.000_5).abs() < 1e-7);
            let exact = verified(&sent, &got, None, piece);
            let wrong = exact.first_wrong.unwrap();
            assert_eq!((exact.wrong, wrong.place, f32::from_bits(wrong.got)), (1, 5, 0.250_5));
        }
    }

    /// One value beyond the bound among many is found, also by the smallest step.
    #[test]
    fn no_value_beyond_the_bound_is_missed() {
        let sent = vec![0.5f32; 1000];
        for (value, wrong) in [
            (0.5 + 1023.0 / 1_048_576.0, 0),
            (0.5 + 1024.0 / 1_048_576.0, 0),
            (0.5 + 1025.0 / 1_048_576.0, 1),
            (0.0, 1),
            (f32::NAN, 1),
            (f32::INFINITY, 1),
        ] {
            let mut got = sent.clone();
            got[777] = value;
            let tally = verified(&sent, &got, Some(BOUND), 1448);
            assert_eq!(tally.wrong, wrong, "{value}");
            assert_eq!(tally.first_wrong.map(|wrong| wrong.place), (wrong == 1).then_some(777));
            assert_eq!(tally.zeroed, u64::from(value == 0.0));
        }
        // What is not finite must arrive as it is.
        let special = [f32::NAN, f32::INFINITY, -0.0];
        assert_eq!(verified(&special, &special, None, 4).changed, 0);
        assert_eq!(verified(&special, &[1.0, 1.0, 0.0], Some(BOUND), 4).wrong, 2);
    }

    #[test]
    fn a_stream_that_is_shifted_or_anothers_is_wrong() {
        let values = Values::generated(3);
        let stream = |number: usize| {
            [values.bytes(), values.bytes()].concat()[values.start(number)..][..40_000].to_vec()
        };
        for (bytes, right) in [
            (stream(1), true),
            (stream(2), false),
            (stream(1)[4..].to_vec(), false),
            (stream(1)[1..].to_vec(), false),
        ] {
            let mut verifier = Verifier::new(&values, 1, Some(BOUND));
            verifier.take(&bytes);
            assert_eq!(verifier.tally.wrong == 0, right);
        }
    }
}
