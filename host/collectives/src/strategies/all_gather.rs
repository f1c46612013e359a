//! Everybody's message to everybody.

use super::{in_turns, message};
use crate::graph::{Format, Op, Rank};

/// Each rank encodes its own values once and sends the message to all others. All add up the
/// messages in the order of the ranks.
///
/// Each rank sends N-1 messages, so this is for codecs whose messages are small and whose sums are
/// not, such as sparse ones. Nothing is coded twice.
#[must_use]
pub fn all_gather(ranks: usize, me: Rank) -> Vec<Op> {
    let all: Vec<Rank> = (0..ranks).collect();
    let own = |rank| message(ranks, 0, rank, Format::Coded);
    let mut ops = vec![Op::Encode { message: own(me) }];
    ops.extend(in_turns(&all, me).map(|to| Op::Send { message: own(me), to }));
    ops.extend(all.iter().filter(|&&from| from != me).map(|&from| Op::Recv { message: own(from), from }));
    ops.extend(all.iter().map(|&rank| Op::Decode { message: own(rank) }));
    ops
}
