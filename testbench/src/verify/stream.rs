//! Reassembles one direction of a TCP connection, by either of the two policies a receiver may
//! have.
//!
//! If copies of the same bytes differ, some hosts keep the first and some the last; a compressed
//! stream has to be right for both.

use std::collections::BTreeMap;

/// Which copy of a byte that was sent more than once counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The first to arrive.
    FirstWins,
    /// The last to arrive.
    LastWins,
}

/// Bytes of a stream without a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Position of the first byte; 0 is the stream's origin, and a capture that starts in the
    /// middle of a connection can have positions below it.
    pub start: i64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Unwraps sequence numbers to positions that do not wrap.
///
/// Each is taken as the one within 2^31 of the highest position seen, as TCP's window demands.
#[derive(Clone, Copy, Debug)]
pub struct Unwrapper {
    /// Some sequence number and the position it stands for.
    highest: (u32, i64),
}

impl Unwrapper {
    /// Sequence number `origin` is position 0.
    #[must_use]
    pub const fn new(origin: u32) -> Self {
        Self { highest: (origin, 0) }
    }

    /// The position of a segment that starts with `seq`.
    pub fn position(&mut self, seq: u32) -> i64 {
        let (highest, at) = self.highest;
        let position = at + i64::from(seq.wrapping_sub(highest).cast_signed());
        if position > at {
            self.highest = (seq, position);
        }
        position
    }
}

/// Collects segments and puts their bytes in order.
#[derive(Clone, Debug)]
pub struct Reassembler<'a> {
    policy: Policy,
    unwrapper: Unwrapper,
    /// Pieces by the position of their first byte. They are not empty and do not overlap.
    pieces: BTreeMap<i64, &'a [u8]>,
}

impl<'a> Reassembler<'a> {
    /// A stream whose byte with sequence number `origin` is at position 0.
    #[must_use]
    pub const fn new(policy: Policy, origin: u32) -> Self {
        Self { policy, unwrapper: Unwrapper::new(origin), pieces: BTreeMap::new() }
    }

    /// Adds a segment, in the order of arrival.
    pub fn push(&mut self, seq: u32, payload: &'a [u8]) {
        let start = self.unwrapper.position(seq);
        match self.policy {
            Policy::FirstWins => self.fill(start, payload),
            Policy::LastWins => {
                self.cut(start, start + payload.len() as i64);
                if !payload.is_empty() {
                    self.pieces.insert(start, payload);
                }
            }
        }
    }

    /// Inserts the parts of `payload` that no piece covers.
    fn fill(&mut self, mut start: i64, mut payload: &'a [u8]) {
        while !payload.is_empty() {
            let before = self.pieces.range(..=start).next_back();
            let covered_to = before.map_or(start, |(at, piece)| at + piece.len() as i64);
            if covered_to > start {
                let covered = payload.len().min((covered_to - start) as usize);
                payload = &payload[covered..];
                start += covered as i64;
                continue;
            }
            let room = match self.pieces.range(start..).next() {
                Some((next, _)) => payload.len().min((next - start) as usize),
                None => payload.len(),
            };
            let (piece, rest) = payload.split_at(room);
            self.pieces.insert(start, piece);
            payload = rest;
            start += room as i64;
        }
    }

    /// Removes what pieces have between positions `start` and `end`.
    fn cut(&mut self, start: i64, end: i64) {
        // At most one piece starts before `start` and reaches past it; the loop takes those behind
        // it.
        let first = self.pieces.range(..start).next_back().map_or(start, |(at, _)| *at);
        let touched: Vec<i64> = self.pieces.range(first..end.max(first)).map(|(at, _)| *at).collect();
        for at in touched {
            let Some(piece) = self.pieces.remove(&at) else { continue };
            let piece_end = at + piece.len() as i64;
            if at < start {
                let kept = piece.len().min((start - at) as usize);
                self.pieces.insert(at, &piece[..kept]);
            }
            if piece_end > end {
                let from = (end - at).max(0) as usize;
                self.pieces.insert(at + from as i64, &piece[from..]);
            }
        }
    }

    /// The stream as runs, in order; between two of them there is a gap.
    #[must_use]
    pub fn finish(self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (start, piece) in self.pieces {
            match runs.last_mut() {
                Some(run) if run.start + run.bytes.len() as i64 == start => {
                    run.bytes.extend_from_slice(piece);
                }
                _ => runs.push(Run { start, bytes: piece.to_vec() }),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(policy: Policy, origin: u32, segments: &[(u32, &[u8])]) -> Vec<(i64, Vec<u8>)> {
        let mut reassembler = Reassembler::new(policy, origin);
        for (seq, payload) in segments {
            reassembler.push(*seq, payload);
        }
        reassembler.finish().into_iter().map(|run| (run.start, run.bytes)).collect()
    }

    #[test]
    fn the_policy_decides_between_copies() {
        let segments: [(u32, &[u8]); 3] = [(10, b"abcd"), (16, b"gh"), (12, b"CDEFG")];
        assert_eq!(runs(Policy::FirstWins, 10, &segments), [(0, b"abcdEFgh".to_vec())]);
        assert_eq!(runs(Policy::LastWins, 10, &segments), [(0, b"abCDEFGh".to_vec())]);
    }

    #[test]
    fn a_copy_inside_a_piece_splits_it() {
        let segments: [(u32, &[u8]); 2] = [(0, b"abcdef"), (2, b"XY")];
        assert_eq!(runs(Policy::FirstWins, 0, &segments), [(0, b"abcdef".to_vec())]);
        assert_eq!(runs(Policy::LastWins, 0, &segments), [(0, b"abXYef".to_vec())]);
    }

    #[test]
    fn sequence_numbers_wrap() {
        let segments: [(u32, &[u8]); 3] = [(u32::MAX - 1, b"ab"), (2, b"ef"), (0, b"cd")];
        assert_eq!(runs(Policy::FirstWins, u32::MAX - 1, &segments), [(0, b"abcdef".to_vec())]);
    }

    #[test]
    fn gaps_stay_and_a_late_start_goes_below_zero() {
        let segments: [(u32, &[u8]); 3] = [(100, b"ab"), (104, b"e"), (98, b"z")];
        let expected = [(-2, b"z".to_vec()), (0, b"ab".to_vec()), (4, b"e".to_vec())];
        assert_eq!(runs(Policy::LastWins, 100, &segments), expected);
        assert_eq!(runs(Policy::FirstWins, 100, &segments), expected);
    }
}
