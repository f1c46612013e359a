//! Strategies: functions from (ranks, me, partition) to the graph of one rank.
//!
//! Partitions are numbered over a tensor, and a strategy gives each partition an owner by its
//! number. So where a tensor has as many partitions as there are ranks, everybody owns one, and all
//! links carry alike. More partitions than ranks are batches: partition p has the owner of p modulo
//! the ranks.

mod all_gather;
mod butterfly;
mod halving_doubling;
mod hierarchy;
mod ring;
mod servers;

use std::fmt;
use std::str::FromStr;

pub use all_gather::all_gather;
pub use butterfly::butterfly;
pub use halving_doubling::halving_doubling;
pub use hierarchy::{Between, hierarchy};
pub use ring::ring;
pub use servers::{pull, push, servers};

use crate::graph::{Format, Graph, Message, Op, Rank};

/// The most ranks that a strategy is made for.
pub const MAX_RANKS: usize = 1024;

/// Which strategy, with its parameters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Strategy {
    /// [`ring()`].
    Ring,
    /// [`servers`], so many; without a number everybody is one.
    Servers(Option<usize>),
    /// [`hierarchy`].
    Hierarchy {
        /// Ranks of a group, which have neighbouring ranks.
        group: usize,
        /// The sums within groups and between them.
        between: Between,
    },
    /// [`butterfly`].
    Butterfly,
    /// [`halving_doubling`].
    HalvingDoubling,
    /// [`all_gather`].
    AllGather,
    /// [`push`], which a server asks for: no plan names it, since it leaves all others without a
    /// result.
    Push,
    /// [`pull`], likewise: all lose their own values.
    Pull,
}

impl Strategy {
    /// The text of each of them.
    pub const USAGE: &str =
        "ring, servers[:S], hierarchy:GROUP[:servers], butterfly, halving-doubling, all-gather";

    /// One of each that a plan may name, for tests and documents.
    pub const EXAMPLES: [Self; 8] = [
        Self::Ring,
        Self::Servers(None),
        Self::Servers(Some(1)),
        Self::Hierarchy { group: 2, between: Between::Rings },
        Self::Hierarchy { group: 2, between: Between::Servers },
        Self::Butterfly,
        Self::HalvingDoubling,
        Self::AllGather,
    ];

    /// The graph of rank `me` of `ranks` for a tensor's partition with number `partition`.
    ///
    /// # Errors
    /// There are no such ranks, or the strategy is not for so many.
    pub fn graph(self, ranks: usize, me: Rank, partition: usize) -> Result<Graph, StrategyError> {
        self.check(ranks)?;
        if me >= ranks {
            return Err(StrategyError::NoSuchRank { me, ranks });
        }
        let ops = match self {
            Self::Ring => ring(ranks, me, partition),
            Self::Servers(count) => servers(ranks, me, partition, count.unwrap_or(ranks)),
            Self::Hierarchy { group, between } => hierarchy(ranks, me, partition, group, between),
            Self::Butterfly => butterfly(ranks, me),
            Self::HalvingDoubling => halving_doubling(ranks, me, partition),
            Self::AllGather => all_gather(ranks, me),
            Self::Push => push(ranks, me),
            Self::Pull => pull(ranks, me),
        };
        Ok(Graph::new(ops).expect("each strategy's operations make a graph"))
    }

    /// Is the strategy for so many ranks?
    ///
    /// # Errors
    /// It is not.
    pub fn check(self, ranks: usize) -> Result<(), StrategyError> {
        if !(1..=MAX_RANKS).contains(&ranks) {
            return Err(StrategyError::Ranks { ranks });
        }
        match self {
            Self::Servers(Some(servers)) if !(1..=ranks).contains(&servers) => {
                Err(StrategyError::Servers { servers, ranks })
            }
            Self::Hierarchy { group, .. } if !(1..=ranks).contains(&group) => {
                Err(StrategyError::Group { group, ranks })
            }
            _ => Ok(()),
        }
    }

    /// The ranks of a group, between which the network compresses what it can; `None` if each rank
    /// sends to several others there, and would need a tagged connection to each.
    pub(crate) const fn tagged_group(self) -> Option<usize> {
        match self {
            Self::Ring => Some(1),
            Self::Hierarchy { group, between: Between::Rings } => Some(group),
            _ => None,
        }
    }

    /// Is each sum encoded by one rank alone, so that a codec may lose something?
    ///
    /// In a butterfly several ranks encode one sum. If the message lost something, each of them
    /// would hold it back, and it would count more than once.
    #[must_use]
    pub const fn one_encodes(self) -> bool {
        !matches!(self, Self::Butterfly)
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring => f.write_str("ring"),
            Self::Servers(None) => f.write_str("servers"),
            Self::Servers(Some(servers)) => write!(f, "servers:{servers}"),
            Self::Hierarchy { group, between: Between::Rings } => write!(f, "hierarchy:{group}"),
            Self::Hierarchy { group, between: Between::Servers } => write!(f, "hierarchy:{group}:servers"),
            Self::Butterfly => f.write_str("butterfly"),
            Self::HalvingDoubling => f.write_str("halving-doubling"),
            Self::AllGather => f.write_str("all-gather"),
            Self::Push => f.write_str("push"),
            Self::Pull => f.write_str("pull"),
        }
    }
}

impl FromStr for Strategy {
    type Err = StrategyError;

    fn from_str(text: &str) -> Result<Self, StrategyError> {
        let bad = || StrategyError::Name { got: text.to_owned() };
        let mut words = text.split(':');
        let name = words.next().unwrap_or("");
        let words: Vec<&str> = words.collect();
        let number = |word: &str| word.parse().ok().filter(|&number| number > 0).ok_or_else(bad);
        match (name, &words[..]) {
            ("ring", []) => Ok(Self::Ring),
            ("servers", []) => Ok(Self::Servers(None)),
            ("servers", [servers]) => Ok(Self::Servers(Some(number(servers)?))),
            ("hierarchy", [group]) => Ok(Self::Hierarchy { group: number(group)?, between: Between::Rings }),
            ("hierarchy", [group, "servers"]) => {
                Ok(Self::Hierarchy { group: number(group)?, between: Between::Servers })
            }
            ("butterfly", []) => Ok(Self::Butterfly),
            ("halving-doubling", []) => Ok(Self::HalvingDoubling),
            ("all-gather", []) => Ok(Self::AllGather),
            _ => Err(bad()),
        }
    }
}

/// Why there is no such graph.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are what was asked for")]
pub enum StrategyError {
    /// No strategy is written so.
    #[error("strategy '{got}': expected one of {}", Strategy::USAGE)]
    Name { got: String },
    /// Nobody, or too many.
    #[error("{ranks} ranks: expected 1 to {MAX_RANKS}")]
    Ranks { ranks: usize },
    /// A rank beyond the ranks.
    #[error("rank {me} of {ranks}: ranks go from 0 to one less than the ranks")]
    NoSuchRank { me: Rank, ranks: usize },
    /// More servers than ranks.
    #[error("{servers} servers among {ranks} ranks: expected 1 to {ranks}")]
    Servers { servers: usize, ranks: usize },
    /// Groups larger than all.
    #[error("groups of {group} among {ranks} ranks: expected 1 to {ranks}")]
    Group { group: usize, ranks: usize },
}

/// Are two ranks in different groups of so many neighbouring ranks?
pub(crate) const fn are_apart(group: usize, one: Rank, other: Rank) -> bool {
    one / group != other / group
}

/// Numbers of messages: each step of a strategy has as many as there are ranks, one for each that
/// may encode in it.
const fn message(ranks: usize, step: usize, encoder: Rank, format: Format) -> Message {
    Message { tag: (step * ranks + encoder) as u32, format }
}

/// The ranks of a list, behind `me` first: in step t everybody sends to the t-th behind, so no two
/// send to one.
fn in_turns(list: &[Rank], me: Rank) -> impl Iterator<Item = Rank> {
    let at = list.iter().position(|&rank| rank == me).map_or(0, |at| at + 1);
    let others = list.iter().cycle().skip(at).take(list.len());
    others.copied().filter(move |&rank| rank != me)
}

/// Sums along a ring that ends at its rank number `owner`. `partial` names what a rank sends on.
fn sum_along(ops: &mut Vec<Op>, ring: &[Rank], me: Rank, owner: usize, partial: impl Fn(Rank) -> Message) {
    let (at, before, behind) = neighbours(ring, me);
    let first = (owner + 1) % ring.len();
    if ring.len() > 1 && at != first {
        let message = partial(ring[before]);
        ops.extend([Op::Recv { message, from: ring[before] }, Op::Merge { message }]);
    }
    if at != owner {
        let message = partial(me);
        ops.extend([Op::Encode { message }, Op::Send { message, to: ring[behind] }]);
    }
}

/// Hands a message that the ring's rank number `owner` has from one to the next.
fn pass_along(ops: &mut Vec<Op>, ring: &[Rank], me: Rank, owner: usize, message: Message) {
    let (at, before, behind) = neighbours(ring, me);
    if at != owner {
        ops.push(Op::Recv { message, from: ring[before] });
    }
    if behind != owner {
        ops.push(Op::Send { message, to: ring[behind] });
    }
}

/// The places of `me`, the one before and the one behind in a ring.
fn neighbours(ring: &[Rank], me: Rank) -> (usize, usize, usize) {
    let at = ring.iter().position(|&rank| rank == me).expect("a rank of the ring");
    (at, (at + ring.len() - 1) % ring.len(), (at + 1) % ring.len())
}

/// Sums the list's ranks at `owner`, in the order of the list. `own` names what a rank sends.
fn sum_at(ops: &mut Vec<Op>, list: &[Rank], me: Rank, owner: Rank, own: impl Fn(Rank) -> Message) {
    // The owner's own part takes its place in the order as a message too, but nothing of it may be
    // lost.
    let part = |rank| if rank == owner { Message { format: Format::Raw, ..own(rank) } } else { own(rank) };
    if list.len() == 1 {
        return;
    }
    ops.push(Op::Encode { message: part(me) });
    if me == owner {
        let others = list.iter().filter(|&&rank| rank != owner);
        ops.extend(others.map(|&from| Op::Recv { message: part(from), from }));
        ops.extend(list.iter().map(|&rank| Op::Merge { message: part(rank) }));
    } else {
        ops.push(Op::Send { message: part(me), to: owner });
    }
}

/// Hands a message that `owner` has to all others of the list.
fn pass_from(ops: &mut Vec<Op>, list: &[Rank], me: Rank, owner: Rank, message: Message) {
    if me == owner {
        ops.extend(in_turns(list, me).map(|to| Op::Send { message, to }));
    } else {
        ops.push(Op::Recv { message, from: owner });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::check;

    /// Strategies that so many ranks can run.
    fn strategies(ranks: usize) -> impl Iterator<Item = Strategy> {
        let groups = (1..=ranks).filter(move |group| [1, 2, 3, 4, 7, 8].contains(group) || *group == ranks);
        let hierarchies = groups.flat_map(|group| {
            [Between::Rings, Between::Servers].map(move |between| Strategy::Hierarchy { group, between })
        });
        let servers = (1..=ranks).filter(|servers| [1, 2, 5].contains(servers)).map(Some);
        hierarchies.chain(servers.map(Strategy::Servers)).chain([
            Strategy::Ring,
            Strategy::Servers(None),
            Strategy::Butterfly,
            Strategy::HalvingDoubling,
            Strategy::AllGather,
            Strategy::Push,
            Strategy::Pull,
        ])
    }

    #[test]
    fn graphs_of_all_ranks_fit_together() {
        for ranks in 1..=20 {
            for strategy in strategies(ranks) {
                for partition in 0..ranks + 2 {
                    let graphs: Vec<Graph> =
                        (0..ranks).map(|me| strategy.graph(ranks, me, partition).unwrap()).collect();
                    check(&graphs).unwrap_or_else(|error| panic!("{strategy}, {ranks} ranks: {error}"));
                }
            }
        }
    }

    /// Values that the busiest rank sends and receives of a tensor of one value a partition, and
    /// partitions.
    fn traffic(strategy: Strategy, ranks: usize) -> (usize, usize) {
        let (mut sent, mut received) = (vec![0; ranks], vec![0; ranks]);
        for partition in 0..ranks {
            for me in 0..ranks {
                for task in strategy.graph(ranks, me, partition).unwrap().tasks() {
                    match task.op {
                        Op::Send { .. } => sent[me] += 1,
                        Op::Recv { .. } => received[me] += 1,
                        _ => {}
                    }
                }
            }
        }
        (sent.into_iter().max().unwrap(), received.into_iter().max().unwrap())
    }

    #[test]
    fn ranks_send_what_the_literature_says() {
        // Of a tensor in n partitions: a ring, partitioned servers and halving-doubling 2(n-1) of
        // them, one server n(n-1).
        for n in [2, 4, 8, 16] {
            for strategy in [Strategy::Ring, Strategy::Servers(None), Strategy::HalvingDoubling] {
                assert_eq!(traffic(strategy, n), (2 * (n - 1), 2 * (n - 1)), "{strategy}");
            }
            assert_eq!(traffic(Strategy::Servers(Some(1)), n), (n * (n - 1), n * (n - 1)));
            assert_eq!(traffic(Strategy::AllGather, n), (n * (n - 1), n * (n - 1)));
            assert_eq!(traffic(Strategy::Butterfly, n).0, n * n.ilog2() as usize);
        }
    }

    #[test]
    fn names_come_back_and_others_are_refused() {
        for strategy in Strategy::EXAMPLES {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
        for text in
            ["", "rings", "ring:2", "servers:0", "servers:x", "hierarchy", "hierarchy:2:rings", "butterfly:"]
        {
            let error = text.parse::<Strategy>().unwrap_err().to_string();
            assert!(error.contains("ring, servers[:S]"), "{error}");
        }
        assert!(
            Strategy::Servers(Some(5)).graph(4, 0, 0).unwrap_err().to_string().contains("expected 1 to 4")
        );
        assert!(Strategy::Ring.graph(4, 4, 0).is_err() && Strategy::Ring.graph(0, 0, 0).is_err());
    }
}
