//! Recursive halving and doubling.

use super::message;
use crate::graph::{Format, Op, Rank};

/// Rabenseifner's algorithm (ICCS 2004), of one partition: half of those who still have a part of
/// the sum send it to their partners in the other half, where the owner is, until the owner has
/// all. The result goes back the same way.
///
/// With as many partitions as ranks, each rank sends 2(N-1)/N of a tensor in 2 log2 N steps. Ranks
/// beyond a power of two give their values to one below first, and get the result from it.
#[must_use]
pub fn halving_doubling(ranks: usize, me: Rank, partition: usize) -> Vec<Op> {
    let doubled = 1usize << ranks.ilog2();
    let owner = partition % doubled;
    let part = |rank| message(ranks, 0, rank, Format::Coded);
    let result = message(ranks, 1, owner, Format::Coded);
    let mut ops = Vec::new();
    // Partners that send to this rank, from the first on, and the one that it sends to.
    let mut from = Vec::new();
    let mut to = (me >= doubled).then(|| me - doubled);
    if me < doubled {
        from.extend(Some(me + doubled).filter(|&beyond| beyond < ranks));
        for step in (0..doubled.ilog2()).rev() {
            let partner = me ^ 1 << step;
            if to.is_none() && (me ^ owner) >> step & 1 == 1 {
                to = Some(partner);
            } else if to.is_none() {
                from.push(partner);
            }
        }
    }
    for &from in &from {
        let message = part(from);
        ops.extend([Op::Recv { message, from }, Op::Merge { message }]);
    }
    match to {
        Some(to) => {
            let message = part(me);
            ops.extend([Op::Encode { message }, Op::Send { message, to }]);
            ops.push(Op::Recv { message: result, from: to });
        }
        None => ops.push(Op::Encode { message: result }),
    }
    ops.extend(from.iter().rev().map(|&to| Op::Send { message: result, to }));
    ops.push(Op::Decode { message: result });
    ops
}
