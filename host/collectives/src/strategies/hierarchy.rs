//! Groups, and groups of groups.

use super::{message, pass_along, pass_from, sum_along, sum_at};
use crate::graph::{Format, Op, Rank};

/// The sums of a hierarchy, within groups and between them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Between {
    /// Rings of rings.
    Rings,
    /// Aggregators of aggregators.
    Servers,
}

/// Sums within groups of `group` neighbouring ranks first, as `f32`, and then between groups, with
/// the codec. The last group may be smaller.
///
/// Within a host the network is memory, and a codec there would only lose. Each group has a head
/// for each partition, and heads change with the partitions, so every rank's network card carries a
/// share. The result is one message for all.
#[must_use]
pub fn hierarchy(ranks: usize, me: Rank, partition: usize, group: usize, between: Between) -> Vec<Op> {
    let groups: Vec<Vec<Rank>> =
        (0..ranks).step_by(group).map(|first| (first..ranks.min(first + group)).collect()).collect();
    let head = |group: &Vec<Rank>| partition % group.len();
    let heads: Vec<Rank> = groups.iter().map(|group| group[head(group)]).collect();
    let mine = &groups[me / group];
    let (my_head, owner) = (head(mine), partition / group % groups.len());
    let raw = |rank| message(ranks, 0, rank, Format::Raw);
    let coded = |rank| message(ranks, 1, rank, Format::Coded);
    let result = message(ranks, 2, heads[owner], Format::Coded);
    let mut ops = Vec::new();
    match between {
        Between::Rings => sum_along(&mut ops, mine, me, my_head, raw),
        Between::Servers => sum_at(&mut ops, mine, me, mine[my_head], raw),
    }
    if me == mine[my_head] {
        match between {
            Between::Rings => sum_along(&mut ops, &heads, me, owner, coded),
            Between::Servers => sum_at(&mut ops, &heads, me, heads[owner], coded),
        }
        if me == heads[owner] {
            ops.push(Op::Encode { message: result });
        }
        match between {
            Between::Rings => pass_along(&mut ops, &heads, me, owner, result),
            Between::Servers => pass_from(&mut ops, &heads, me, heads[owner], result),
        }
    }
    match between {
        Between::Rings => pass_along(&mut ops, mine, me, my_head, result),
        Between::Servers => pass_from(&mut ops, mine, me, mine[my_head], result),
    }
    ops.push(Op::Decode { message: result });
    ops
}
