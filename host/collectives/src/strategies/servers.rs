//! Parameter servers.

use super::{message, pass_from, sum_at};
use crate::graph::{Format, Op, Rank};

/// Everybody sends to the partition's owner. The owner sums in the order of the ranks, encodes
/// once, and sends the message to all: 3LC's shared pull (MLSys 2019), and CaSync's parameter
/// servers.
///
/// `servers` ranks own partitions. One is the classical server. With everybody, each sends 2(N-1)/N
/// of a tensor, as in a ring, but in one round trip and with two messages that may lose something.
///
/// The owner's own gradient is not coded before the sum, so for `f32` the result is the sum in the
/// order of the ranks, bit by bit, whoever owns a partition.
#[must_use]
pub fn servers(ranks: usize, me: Rank, partition: usize, servers: usize) -> Vec<Op> {
    let all: Vec<Rank> = (0..ranks).collect();
    let owner = partition % servers * ranks / servers;
    let result = message(ranks, 1, owner, Format::Coded);
    let mut ops = Vec::new();
    sum_at(&mut ops, &all, me, owner, |rank| message(ranks, 0, rank, Format::Coded));
    if me == owner {
        ops.push(Op::Encode { message: result });
    }
    pass_from(&mut ops, &all, me, owner, result);
    ops.push(Op::Decode { message: result });
    ops
}

/// The first half of [`servers`] with rank 0 as the only one: all send it their values, and it
/// alone has a result, their sum.
#[must_use]
pub fn push(ranks: usize, me: Rank) -> Vec<Op> {
    let all: Vec<Rank> = (0..ranks).collect();
    let mut ops = Vec::new();
    sum_at(&mut ops, &all, me, 0, |rank| message(ranks, 0, rank, Format::Coded));
    if me == 0 {
        // Nothing is lost on the way to its own result.
        let message = message(ranks, 1, 0, Format::Raw);
        ops.extend([Op::Encode { message }, Op::Decode { message }]);
    }
    ops
}

/// The second half: rank 0 encodes its values once, and all, itself included, have what the message
/// says.
#[must_use]
pub fn pull(ranks: usize, me: Rank) -> Vec<Op> {
    let all: Vec<Rank> = (0..ranks).collect();
    let message = message(ranks, 1, 0, Format::Coded);
    let mut ops = Vec::new();
    if me == 0 {
        ops.push(Op::Encode { message });
    }
    pass_from(&mut ops, &all, me, 0, message);
    ops.push(Op::Decode { message });
    ops
}
