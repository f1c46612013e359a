//! Signs of life: rank 0 looks after all others, and they look after rank 0. What a rank saw of a
//! failure may have a better cause.

use std::time::{Duration, Instant};

use crate::failure::{Failure, Weight, list};
use crate::graph::Rank;

/// The time that rank 0 waits for a better cause than a closed connection.
const GRACE: Duration = Duration::from_millis(300);
/// The time that a rank which leaves waits for the others to hear of it.
pub(super) const FAREWELL: Duration = Duration::from_secs(2);
/// The longest that ranks wait to agree on a cause.
const MAX_EXPLANATION: Duration = Duration::from_secs(10);

/// The time that a rank which reported a failure waits for what rank 0 makes of it, and rank 0 for
/// all to hear of it, in a job with this timeout. A rank that closes its connections before others
/// have heard is taken for the cause. A rank that is stopped hears nothing, so all others wait so
/// long for it: never more than some seconds.
pub(crate) fn explanation(timeout: Duration) -> Duration {
    (timeout / 10).clamp(FAREWELL, MAX_EXPLANATION).min(timeout)
}

pub(super) struct Liveness {
    rank: Rank,
    served: bool,
    timeout: Duration,
    /// By rank.
    signs: Vec<Signs>,
    /// When rank 0 asked last.
    pinged: Instant,
    /// A failure that waits for a better cause.
    suspect: Option<(Failure, Instant)>,
}

/// Signs of life of a rank.
struct Signs {
    /// When it was heard of by control.
    heard: Instant,
    /// The exchange that it began last.
    sequence: u64,
    /// It left, or one of its connections closed.
    left: bool,
}

impl Liveness {
    pub(super) fn new(rank: Rank, ranks: usize, served: bool, timeout: Duration, now: Instant) -> Self {
        let signs = (0..ranks).map(|_| Signs { heard: now, sequence: 0, left: false }).collect();
        Self { rank, served, timeout, signs, pinged: now, suspect: None }
    }

    /// This rank begins an exchange.
    pub(super) fn begin(&mut self, sequence: u64, now: Instant) {
        self.all_heard(now);
        self.signs[self.rank].sequence = sequence;
    }

    /// Silence counts from now on.
    pub(super) fn all_heard(&mut self, now: Instant) {
        self.signs.iter_mut().for_each(|signs| signs.heard = now);
    }

    pub(super) fn heard(&mut self, rank: Rank, now: Instant) {
        self.signs[rank].heard = now;
    }

    /// A rank says which exchange it began last.
    pub(super) fn began(&mut self, rank: Rank, sequence: u64) {
        self.signs[rank].sequence = sequence;
    }

    pub(super) fn left(&mut self, rank: Rank) {
        self.signs[rank].left = true;
    }

    /// Keeps a failure that may have a better cause, if it is the first.
    pub(super) fn suspect(&mut self, failure: Failure, now: Instant) {
        self.suspect.get_or_insert((failure, now));
    }

    pub(super) fn suspects(&self) -> bool {
        self.suspect.is_some()
    }

    /// When no better cause will come any more. The others ask rank 0 at once.
    fn decides(&self) -> Option<Instant> {
        let (_, since) = self.suspect.as_ref()?;
        Some(if self.rank == 0 { *since + GRACE } else { *since })
    }

    /// The failure whose cause nobody knows better by now.
    pub(super) fn known(&self, now: Instant) -> Option<Failure> {
        let (failure, _) = self.suspect.as_ref()?;
        self.decides().filter(|decides| now >= *decides).map(|_| failure.clone())
    }

    fn ping_every(&self) -> Duration {
        (self.timeout / 10).clamp(Duration::from_millis(20), Duration::from_secs(2))
    }

    /// At rank 0: is it time to ask for signs of life?
    pub(super) fn ping(&mut self, now: Instant) -> bool {
        let due = self.rank == 0 && now >= self.pinged + self.ping_every();
        if due {
            self.pinged = now;
        }
        due
    }

    /// Ranks that this one looks after.
    fn watched(&self) -> std::ops::Range<Rank> {
        if self.rank == 0 { 1..self.signs.len() } else { 0..1 }
    }

    /// When a rank that has not left will have been silent for too long.
    fn silent_at(&self, rank: Rank) -> Option<Instant> {
        let signs = &self.signs[rank];
        (!signs.left).then(|| signs.heard + self.timeout / 2)
    }

    fn is_silent(&self, rank: Rank, now: Instant) -> bool {
        self.silent_at(rank).is_some_and(|at| now >= at)
    }

    fn silence(&self, rank: Rank) -> String {
        let silent = self.timeout / 2;
        format!(
            "rank {rank} gave no sign of life for {silent:?}: it is stopped, or its host or the network between is down"
        )
    }

    /// A rank that this one looks after has been silent for too long.
    pub(super) fn silent(&self, now: Instant) -> Option<String> {
        self.watched().find(|&rank| self.is_silent(rank, now)).map(|rank| self.silence(rank))
    }

    /// When to look again. A rank that `waits` for others watches them.
    pub(super) fn next_timeout(&self, waits: bool) -> Option<Instant> {
        let ping = (self.rank == 0 && self.signs.len() > 1).then(|| self.pinged + self.ping_every());
        let silent = self.watched().filter_map(|rank| self.silent_at(rank)).min().filter(|_| waits);
        [ping, silent, self.decides()].into_iter().flatten().min()
    }

    /// At rank 0: who is behind something that came late?
    pub(super) fn explain(&self, failure: Failure, now: Instant) -> Failure {
        let Weight::Late { sequence } = failure.weight else { return failure };
        // This rank may have all that it needs, and look after nobody any more.
        if let Some(rank) = (1..self.signs.len()).find(|&rank| self.is_silent(rank, now)) {
            return Failure { cause: self.silence(rank), ..failure };
        }
        // A server begins when it is asked to, so it is never the one behind.
        let first = usize::from(self.served);
        let is_behind = |rank: &Rank| self.signs[*rank].sequence < sequence;
        let behind: Vec<Rank> = (first..self.signs.len()).filter(is_behind).collect();
        if behind.is_empty() {
            return failure;
        }
        let cause =
            format!("rank {} did not begin exchange {sequence} within {:?}", list(&behind), self.timeout);
        Failure { cause, ..failure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_agree_on_a_cause_within_seconds_whatever_the_timeout_is() {
        let seconds = |timeout| explanation(Duration::from_secs(timeout)).as_secs();
        assert_eq!([1, 10, 60, 300, 1800, 86_400].map(seconds), [1, 2, 6, 10, 10, 10]);
    }

    /// Rank 0 may have all that it needs of an exchange when another one still waits for somebody,
    /// who is stopped.
    #[test]
    fn the_cause_of_a_late_message_is_the_rank_that_is_silent_or_behind() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut root = Liveness::new(0, 4, false, 120 * second, start);
        (0..4).for_each(|rank| root.began(rank, 1));
        let cause = "nothing came of rank 3".to_owned();
        let late = Failure { reporter: 1, cause: cause.clone(), weight: Weight::Late { sequence: 1 } };
        let explain = |root: &Liveness, now| root.explain(late.clone(), now).cause;
        assert_eq!(explain(&root, start + 59 * second), cause);
        for rank in [0, 1, 3] {
            root.heard(rank, start + 30 * second);
        }
        assert!(explain(&root, start + 60 * second).starts_with("rank 2 gave no sign of life for 60s"));
        root.heard(2, start + 30 * second);
        root.began(2, 0);
        assert_eq!(explain(&root, start + 60 * second), "rank 2 did not begin exchange 1 within 120s");
    }

    #[test]
    fn next_timeouts_are_those_at_which_something_is_due() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut root = Liveness::new(0, 3, false, 20 * second, start);
        assert_eq!(root.next_timeout(false), Some(start + 2 * second));
        assert!(!root.ping(start + second) && root.ping(start + 2 * second));
        let mut other = Liveness::new(1, 3, false, 20 * second, start);
        assert_eq!((other.next_timeout(false), other.next_timeout(true)), (None, Some(start + 10 * second)));
        assert!(other.silent(start + 9 * second).is_none() && other.silent(start + 10 * second).is_some());
        other.left(0);
        assert_eq!((other.next_timeout(true), other.silent(start + 10 * second)), (None, None));
        let failure = Failure { reporter: 0, cause: String::new(), weight: Weight::Closed };
        for (liveness, wait) in [(&mut root, GRACE), (&mut other, Duration::ZERO)] {
            liveness.suspect(failure.clone(), start);
            assert_eq!(liveness.next_timeout(false), Some(start + wait));
            assert_eq!(liveness.known(start + wait), Some(failure.clone()));
        }
    }
}
