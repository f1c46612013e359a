//! A ring.

use super::{message, pass_along, sum_along};
use crate::graph::{Format, Op, Rank};

/// INCEPTIONN's Algorithm 1 (MICRO 2018), of one partition: the sum goes from the rank behind its
/// owner once round the ring, and ends at the owner. The owner codes it for itself too, and the
/// message goes round again.
///
/// With as many partitions as ranks, each rank sends 2(N-1)/N of a tensor. The messages of a
/// partition are made one after the other, so a codec that loses something loses N times.
#[must_use]
pub fn ring(ranks: usize, me: Rank, partition: usize) -> Vec<Op> {
    let all: Vec<Rank> = (0..ranks).collect();
    let owner = partition % ranks;
    let result = message(ranks, 1, owner, Format::Coded);
    let mut ops = Vec::new();
    sum_along(&mut ops, &all, me, owner, |rank| message(ranks, 0, rank, Format::Coded));
    if me == owner {
        ops.push(Op::Encode { message: result });
    }
    pass_along(&mut ops, &all, me, owner, result);
    ops.push(Op::Decode { message: result });
    ops
}
