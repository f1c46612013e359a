//! The work of a rank for one partition of a tensor, as a graph of five primitives.
//!
//! The primitives are those of CaSync (HiPress, SOSP 2021, section 3.1): encode, send, recv, merge
//! and decode. A partition has two buffers. The *sum* starts as the rank's gradient plus its
//! residual; `Merge` adds a message to it; `Encode` makes a message of it and leaves in it what the
//! message lost. The *result* starts as zeros; `Decode` adds a message to it.
//!
//! So what a message lost stays with the rank that made the message, in the same buffer as the
//! rank's residual of its own gradient. An aggregator's loss needs no second buffer: it is added to
//! the next sum, which is where it belongs.
//!
//! A graph knows no network, no codec and no clock. A link runs it, and so does a simulator.

use std::collections::BTreeMap;
use std::fmt;

/// A rank's number, from 0.
pub type Rank = usize;

/// The coding of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Format {
    /// The values as they are, whatever the codec.
    Raw,
    /// By the codec.
    Coded,
}

/// The name of a message among those of its partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Message {
    /// Its number. All ranks that have a message know it by the same number.
    pub tag: u32,
    /// Its coding.
    pub format: Format,
}

/// A primitive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are a message, and where it goes or comes from")]
pub enum Op {
    /// Makes a message of the sum, and leaves in the sum what the message lost.
    Encode { message: Message },
    /// Sends a message that was made or received.
    Send { message: Message, to: Rank },
    /// Waits for a message.
    Recv { message: Message, from: Rank },
    /// Adds a message to the sum.
    Merge { message: Message },
    /// Adds a message to the result.
    Decode { message: Message },
}

impl Op {
    /// The message that it makes, sends, receives or adds.
    #[must_use]
    pub const fn message(self) -> Message {
        match self {
            Self::Encode { message }
            | Self::Send { message, .. }
            | Self::Recv { message, .. }
            | Self::Merge { message }
            | Self::Decode { message } => message,
        }
    }
}

/// An operation, and the operations that have to be done before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// The operation.
    pub op: Op,
    /// Positions of earlier tasks in the same graph.
    pub after: Vec<usize>,
}

/// The work of one rank for one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Graph {
    tasks: Vec<Task>,
}

impl Graph {
    /// A graph of operations in an order in which one rank could do them one by one.
    ///
    /// The order says what depends on what: an operation on a buffer comes after the one before it
    /// on that buffer, and what uses a message comes after what makes it. Nothing else waits, so
    /// sends and receives overlap. Merges keep their order: results repeat bit by bit, however
    /// messages arrive.
    ///
    /// # Errors
    /// A message is used before it is there, or made twice.
    pub fn new(ops: impl IntoIterator<Item = Op>) -> Result<Self, GraphError> {
        let mut tasks = Vec::new();
        let (mut sum, mut result) = (None, None);
        let mut made = BTreeMap::new();
        for op in ops {
            let (at, message) = (tasks.len(), op.message());
            let source = made.get(&message).copied();
            let buffer = match op {
                Op::Encode { .. } | Op::Merge { .. } => Some(&mut sum),
                Op::Decode { .. } => Some(&mut result),
                Op::Send { .. } | Op::Recv { .. } => None,
            };
            match (op, source) {
                (Op::Encode { .. } | Op::Recv { .. }, None) => _ = made.insert(message, at),
                (Op::Encode { .. } | Op::Recv { .. }, Some(_)) => {
                    return Err(GraphError::MadeTwice { message, at });
                }
                (_, None) => return Err(GraphError::NotThere { message, at }),
                (_, Some(_)) => {}
            }
            let before = buffer.and_then(|last| last.replace(at));
            let mut after: Vec<usize> = source.into_iter().chain(before).collect();
            after.sort_unstable();
            after.dedup();
            tasks.push(Task { op, after });
        }
        Ok(Self { tasks })
    }

    /// The tasks. Each comes behind those that it waits for.
    #[must_use]
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// Does this rank add the message to its result?
    #[must_use]
    pub fn decodes(&self, message: Message) -> bool {
        self.tasks.iter().any(|task| task.op == Op::Decode { message })
    }
}

/// Do the graphs of all ranks, in the order of their ranks, fit together?
///
/// # Errors
/// A message is sent that nobody waits for, or the other way round; or ranks wait for each other in
/// a circle.
pub fn check(graphs: &[Graph]) -> Result<(), GraphError> {
    // Where each receive is, by (from, to, message), until its send is found.
    let mut receives = BTreeMap::new();
    let mut starts = Vec::with_capacity(graphs.len());
    let mut count = 0;
    for (me, graph) in graphs.iter().enumerate() {
        starts.push(count);
        for (at, task) in graph.tasks.iter().enumerate() {
            if let Op::Recv { message, from } = task.op {
                receives.insert((from, me, message), count + at);
            }
        }
        count += graph.tasks.len();
    }
    let mut waits = vec![0; count];
    let mut followers = vec![Vec::new(); count];
    for (from, graph) in graphs.iter().enumerate() {
        for (at, task) in graph.tasks.iter().enumerate() {
            let here = starts[from] + at;
            for &before in &task.after {
                followers[starts[from] + before].push(here);
            }
            waits[here] += task.after.len();
            if let Op::Send { message, to } = task.op {
                let receive = receives.remove(&(from, to, message));
                let receive = receive.ok_or(GraphError::NobodyReceives { message, from, to })?;
                followers[here].push(receive);
                waits[receive] += 1;
            }
        }
    }
    if let Some((&(from, to, message), _)) = receives.first_key_value() {
        return Err(GraphError::NobodySends { message, from, to });
    }
    let mut ready: Vec<usize> = (0..count).filter(|&at| waits[at] == 0).collect();
    let mut done = 0;
    while let Some(at) = ready.pop() {
        done += 1;
        for &next in &followers[at] {
            waits[next] -= 1;
            if waits[next] == 0 {
                ready.push(next);
            }
        }
    }
    if done < count { Err(GraphError::Circle) } else { Ok(()) }
}

/// Why operations are no graph, or graphs do not fit together.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are a message, its ends, and a position among the operations")]
pub enum GraphError {
    /// An operation uses a message that no earlier one makes.
    NotThere { message: Message, at: usize },
    /// Two operations make one message.
    MadeTwice { message: Message, at: usize },
    /// A rank sends a message that its receiver does not wait for.
    NobodyReceives { message: Message, from: Rank, to: Rank },
    /// A rank waits for a message that its sender does not send.
    NobodySends { message: Message, from: Rank, to: Rank },
    /// Ranks wait for each other.
    Circle,
}

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotThere { message, at } => {
                write!(f, "operation {at} uses message {}: encode or receive it before", message.tag)
            }
            Self::MadeTwice { message, at } => {
                write!(f, "operation {at} makes message {} again: give it another number", message.tag)
            }
            Self::NobodyReceives { message, from, to } => write!(
                f,
                "rank {from} sends message {} to rank {to}, which does not receive it: add a receive there",
                message.tag
            ),
            Self::NobodySends { message, from, to } => write!(
                f,
                "rank {to} waits for message {} of rank {from}, which does not send it: add a send there",
                message.tag
            ),
            Self::Circle => f.write_str("ranks wait for each other: some send has to come before a receive"),
        }
    }
}

impl std::error::Error for GraphError {}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Message = Message { tag: 0, format: Format::Raw };
    const B: Message = Message { tag: 1, format: Format::Coded };

    fn graph(ops: &[Op]) -> Result<Graph, GraphError> {
        Graph::new(ops.iter().copied())
    }

    #[test]
    fn a_task_waits_for_its_message_and_for_its_buffer() {
        let graph = graph(&[
            Op::Recv { message: A, from: 1 },
            Op::Merge { message: A },
            Op::Encode { message: B },
            Op::Send { message: B, to: 2 },
            Op::Decode { message: B },
            Op::Decode { message: A },
        ])
        .unwrap();
        let after: Vec<&[usize]> = graph.tasks().iter().map(|task| &task.after[..]).collect();
        assert_eq!(after, [&[][..], &[0], &[1], &[2], &[2], &[0, 4]]);
    }

    #[test]
    fn graphs_that_cannot_run_are_refused() {
        assert_eq!(graph(&[Op::Merge { message: A }]), Err(GraphError::NotThere { message: A, at: 0 }));
        let twice = [Op::Encode { message: A }, Op::Recv { message: A, from: 1 }];
        assert_eq!(graph(&twice), Err(GraphError::MadeTwice { message: A, at: 1 }));

        let alone = [Op::Encode { message: A }, Op::Decode { message: A }];
        let sends = [Op::Encode { message: A }, Op::Send { message: A, to: 1 }, Op::Decode { message: A }];
        let waits = |message, from| [Op::Recv { message, from }, Op::Decode { message }];
        let check =
            |graphs: &[&[Op]]| check(&graphs.iter().map(|ops| graph(ops).unwrap()).collect::<Vec<_>>());
        assert_eq!(check(&[&sends, &waits(A, 0)]), Ok(()));
        let (message, from, to) = (A, 0, 1);
        assert_eq!(check(&[&sends, &alone]), Err(GraphError::NobodyReceives { message, from, to }));
        assert_eq!(check(&[&alone, &waits(A, 0)]), Err(GraphError::NobodySends { message, from, to }));
        let after = |receive, from, send, to| {
            [
                Op::Recv { message: receive, from },
                Op::Merge { message: receive },
                Op::Encode { message: send },
                Op::Send { message: send, to },
                Op::Decode { message: send },
            ]
        };
        assert_eq!(check(&[&after(A, 1, B, 1), &after(B, 0, A, 0)]), Err(GraphError::Circle));
    }
}
