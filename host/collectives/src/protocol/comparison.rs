//! Comparisons of checksums: each rank sends one, and rank 0 says whether they are alike.

use std::collections::BTreeMap;

use crate::failure::list;
use crate::graph::Rank;

/// A rank's part in the comparisons.
#[derive(Default)]
pub(super) struct Comparison {
    ranks: usize,
    /// Comparisons in which all were alike. The next one has a number one higher.
    alike: u64,
    /// Does this rank wait for the others?
    waits: bool,
    /// The cause of a failure if they differ.
    means: String,
    /// At rank 0: by rank, its checksum in the next comparison.
    have: BTreeMap<Rank, u64>,
}

impl Comparison {
    pub(super) fn new(ranks: usize) -> Self {
        Self { ranks, ..Self::default() }
    }

    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// This rank compares. Returns the comparison's number.
    pub(super) fn begin(&mut self, means: String) -> u64 {
        (self.means, self.waits) = (means, true);
        self.alike + 1
    }

    /// At rank 0: counts a checksum. Are all here, and alike?
    pub(super) fn count(&mut self, from: Rank, number: u64, checksum: u64) -> Result<bool, String> {
        // A rank is at most one comparison ahead of what is decided, since each waits for all.
        let next = self.alike + 1;
        if number != next {
            return Err(format!("rank {from} compares results {number}, and rank 0 is at comparison {next}"));
        }
        if self.have.insert(from, checksum).is_some() {
            return Err(format!("rank {from} compares twice in comparison {number}"));
        }
        if self.have.len() < self.ranks {
            return Ok(false);
        }
        let have = std::mem::take(&mut self.have);
        let own = have[&0];
        let others: Vec<Rank> = have.iter().filter(|(_, sum)| **sum != own).map(|(rank, _)| *rank).collect();
        if let [other, more @ ..] = &others[..] {
            let and = if more.is_empty() { String::new() } else { format!(" (and so ranks {})", list(more)) };
            let theirs = have[other];
            return Err(format!(
                "checksums differ: rank 0 has {own:016x}, rank {other} has {theirs:016x}{and}; {}",
                self.means
            ));
        }
        self.close();
        Ok(true)
    }

    /// At the others: rank 0 says that all were alike; `false` if this rank does not wait for that.
    pub(super) fn alike(&mut self, number: u64) -> bool {
        let fits = self.waits && number == self.alike + 1;
        if fits {
            self.close();
        }
        fits
    }

    fn close(&mut self) {
        self.alike += 1;
        self.waits = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_compared_and_those_that_differ_are_named() {
        let mut root = Comparison::new(4);
        assert_eq!(root.begin(String::new()), 1);
        assert_eq!(
            [3, 0, 1, 2].map(|rank| root.count(rank, 1, 7)),
            [Ok(false), Ok(false), Ok(false), Ok(true)]
        );
        assert!(!root.waits());
        assert_eq!(root.begin("bad memory".into()), 2);
        assert_eq!(
            [(0, 7), (1, 8), (2, 7)].map(|(rank, sum)| root.count(rank, 2, sum)),
            [Ok(false), Ok(false), Ok(false)]
        );
        let says = "checksums differ: rank 0 has 0000000000000007, rank 1 has 0000000000000008 (and so ranks 3); bad memory";
        assert_eq!(root.count(3, 2, 9), Err(says.into()));
    }

    #[test]
    fn checksums_of_other_comparisons_and_second_ones_are_refused() {
        let mut root = Comparison::new(3);
        assert!(root.count(1, 2, 7).is_err() && root.count(1, 0, 7).is_err());
        assert_eq!(root.count(1, 1, 7), Ok(false));
        assert!(root.count(1, 1, 7).unwrap_err().contains("rank 1 compares twice in comparison 1"));
        let mut other = Comparison::new(3);
        assert!(!other.alike(1));
        other.begin(String::new());
        assert!(!other.alike(2) && other.alike(1) && !other.alike(1) && !other.waits());
    }
}
