//! Votes about sums in the network: each rank casts one about each sum, and rank 0 counts them.

use std::collections::BTreeMap;

use super::{End, Vote};
use crate::graph::Rank;

/// A rank's part in the votes.
pub(super) struct Ballot {
    rank: Rank,
    ranks: usize,
    /// Sums that all have voted about. The next one has a number one higher.
    decided: u64,
    state: State,
    /// Does this rank know that somebody gave up on the next sum?
    halted: bool,
    /// At rank 0: votes about the next sum.
    votes: BTreeMap<Rank, Vote>,
}

/// This rank's progress with the next sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Idle,
    /// It sums.
    Begun,
    /// It has voted, and waits for the others.
    Cast,
}

/// The consequence of a vote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Count {
    /// Others have not voted.
    Waits,
    /// This rank is the first to give up: nobody need wait for the aggregator any more.
    Halt,
    /// All have voted; by rank.
    Decided(Vec<Vote>),
}

impl Ballot {
    pub(super) fn new(rank: Rank, ranks: usize) -> Self {
        Self { rank, ranks, decided: 0, state: State::Idle, halted: false, votes: BTreeMap::new() }
    }

    /// This rank begins a sum.
    pub(super) fn begin(&mut self, number: u64) {
        debug_assert_eq!(number, self.decided + 1, "one sum after the other");
        self.state = State::Begun;
    }

    /// This rank votes.
    pub(super) fn cast(&mut self, number: u64) {
        debug_assert_eq!(number, self.decided + 1, "one sum after the other");
        self.state = State::Cast;
    }

    /// At rank 0: counts a vote.
    pub(super) fn count(&mut self, from: Rank, number: u64, vote: Vote) -> Result<Count, String> {
        // A rank is at most one sum ahead of what all have voted about, since each waits for all.
        let next = self.decided + 1;
        if number != next {
            return Err(format!("rank {from} votes about sum {number}, and all others about {next}"));
        }
        if self.votes.insert(from, vote).is_some() {
            return Err(format!("rank {from} votes twice about sum {number}"));
        }
        if self.votes.len() == self.ranks {
            let votes = std::mem::take(&mut self.votes).into_values().collect();
            self.close();
            return Ok(Count::Decided(votes));
        }
        if vote.end == End::Complete || std::mem::replace(&mut self.halted, true) {
            return Ok(Count::Waits);
        }
        Ok(Count::Halt)
    }

    /// At the others: rank 0 says that somebody gave up; `false` if that is not about the next sum,
    /// or not new.
    pub(super) fn halt(&mut self, number: u64) -> bool {
        number == self.decided + 1 && !std::mem::replace(&mut self.halted, true)
    }

    /// At the others: rank 0 has so many votes; `false` if these cannot be all about the sum that
    /// this rank voted about.
    pub(super) fn decide(&mut self, number: u64, votes: usize) -> bool {
        let fits = self.state == State::Cast && number == self.decided + 1 && votes == self.ranks;
        if fits {
            self.close();
        }
        fits
    }

    fn close(&mut self) {
        self.decided += 1;
        (self.state, self.halted) = (State::Idle, false);
    }

    /// Of ranks that have left, one without which the sum that this rank is at cannot be decided,
    /// and the sum's number.
    pub(super) fn missing(&self, mut gone: impl Iterator<Item = Rank>) -> Option<(Rank, u64)> {
        if self.state == State::Idle {
            return None;
        }
        let needed = |rank: &Rank| if self.rank == 0 { !self.votes.contains_key(rank) } else { *rank == 0 };
        gone.find(needed).map(|rank| (rank, self.decided + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vote(end: End) -> Vote {
        Vote { end, epoch: 1, blocks: 2, base: 3, later: 4 }
    }

    #[test]
    fn a_sum_is_decided_when_all_have_voted_and_halted_once() {
        let mut ballot = Ballot::new(0, 3);
        for number in 1..4 {
            ballot.begin(number);
            assert_eq!(ballot.count(2, number, vote(End::Silent)), Ok(Count::Halt));
            ballot.cast(number);
            assert_eq!(ballot.count(0, number, vote(End::Stopped)), Ok(Count::Waits));
            let all = vec![vote(End::Stopped), vote(End::Complete), vote(End::Silent)];
            assert_eq!(ballot.count(1, number, vote(End::Complete)), Ok(Count::Decided(all)));
        }
    }

    #[test]
    fn votes_about_another_sum_and_second_ones_are_refused() {
        let mut ballot = Ballot::new(0, 3);
        assert!(ballot.count(1, 2, vote(End::Complete)).unwrap_err().contains("sum 2"));
        assert_eq!(ballot.count(1, 1, vote(End::Complete)), Ok(Count::Waits));
        assert!(ballot.count(1, 1, vote(End::Silent)).unwrap_err().contains("votes twice about sum 1"));
    }

    #[test]
    fn rank_0_decides_only_what_a_rank_has_voted_about() {
        let mut ballot = Ballot::new(1, 2);
        assert!(ballot.halt(1) && !ballot.halt(1) && !ballot.halt(2));
        ballot.begin(1);
        assert!(!ballot.decide(1, 2));
        ballot.cast(1);
        assert!(!ballot.decide(2, 2) && !ballot.decide(1, 3) && ballot.decide(1, 2) && !ballot.decide(1, 2));
        assert!(ballot.halt(2));
    }

    #[test]
    fn ranks_without_which_nothing_is_decided_are_missed() {
        let mut root = Ballot::new(0, 3);
        assert_eq!(root.missing([1].into_iter()), None);
        root.begin(1);
        root.count(1, 1, vote(End::Complete)).unwrap();
        assert_eq!(root.missing([1].into_iter()), None);
        assert_eq!(root.missing([1, 2].into_iter()), Some((2, 1)));
        let mut other = Ballot::new(1, 3);
        other.cast(1);
        assert_eq!(other.missing([0].into_iter()), Some((0, 1)));
    }
}
