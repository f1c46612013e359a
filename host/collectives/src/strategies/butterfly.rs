//! Recursive doubling.

use super::message;
use crate::graph::{Format, Op, Rank};

/// In step t, ranks whose ranks differ in bit t exchange their sums, and both add the two in the
/// order of the ranks. After log2 N steps everybody has everything.
///
/// Ranks beyond a power of two give their values to one below first, and get the result from it.
/// Each step sends whole partitions, so this is for small tensors, where the number of steps
/// counts. Several ranks encode the same sum, so the codec must not lose anything: the residual of
/// each would count more than once.
#[must_use]
pub fn butterfly(ranks: usize, me: Rank) -> Vec<Op> {
    let doubled = 1usize << ranks.ilog2();
    let steps = doubled.ilog2() as usize;
    let sum = |step, rank| message(ranks, step, rank, Format::Coded);
    let result = |rank| sum(steps + 1, rank);
    if me >= doubled {
        let (own, below) = (sum(0, me), me - doubled);
        return vec![
            Op::Encode { message: own },
            Op::Send { message: own, to: below },
            Op::Recv { message: result(below), from: below },
            Op::Decode { message: result(below) },
        ];
    }
    let mut ops = Vec::new();
    let beyond = me + doubled;
    if beyond < ranks {
        let message = sum(0, beyond);
        ops.extend([Op::Recv { message, from: beyond }, Op::Merge { message }]);
    }
    for step in 0..steps {
        let other = me ^ 1 << step;
        let (own, theirs) = (sum(step + 1, me), sum(step + 1, other));
        ops.extend([
            Op::Encode { message: own },
            Op::Send { message: own, to: other },
            Op::Recv { message: theirs, from: other },
            Op::Merge { message: sum(step + 1, me.min(other)) },
            Op::Merge { message: sum(step + 1, me.max(other)) },
        ]);
    }
    let message = result(me);
    ops.push(Op::Encode { message });
    if beyond < ranks {
        ops.push(Op::Send { message, to: beyond });
    }
    ops.push(Op::Decode { message });
    ops
}
