//! Runs a rank's graph of one partition, without knowing where messages go or come from.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gradwire_codecs::{Codec, Malformed, Raw};

use crate::graph::{Format, Graph, Message, Op, Rank};

/// A message's bytes, which several peers may be sent.
pub type Bytes = Arc<Vec<u8>>;

/// Codecs of a tensor: of sums that are not everybody's yet, and of the result.
///
/// They differ only where the network itself compresses: then sums travel as they are, and the
/// owner does to its result what the network does to everybody else's.
#[derive(Clone, Copy)]
pub struct Codecs<'a> {
    /// Of sums under way.
    pub partial: &'a dyn Codec,
    /// Of the result.
    pub result: &'a dyn Codec,
}

impl<'a> Codecs<'a> {
    /// One codec for both.
    #[must_use]
    pub fn both(codec: &'a dyn Codec) -> Self {
        Self { partial: codec, result: codec }
    }
}

/// A partition's values, which belong to whoever runs it.
pub struct Values<'a> {
    /// The sum: the gradient plus the residual; in the end the residual.
    pub sum: &'a mut [f32],
    /// The codec's other state.
    pub state: &'a mut [f32],
    /// The result.
    pub result: &'a mut [f32],
    /// For a codec that needs no feedback: losses of messages are added here, if anybody wants to
    /// know.
    pub dropped: Option<&'a mut [f32]>,
}

/// A step of [`Part::step`].
#[derive(Clone, Debug)]
pub enum Step {
    /// It encoded, merged or decoded.
    Computed(Op),
    /// These bytes have to be sent.
    Send(Rank, Message, Bytes),
}

/// One partition under way at one rank.
pub struct Part {
    graph: Graph,
    /// By task: how many tasks it still waits for.
    waits: Vec<usize>,
    /// By task: which tasks wait for it.
    followers: Vec<Vec<usize>>,
    ready: VecDeque<usize>,
    left: usize,
    messages: BTreeMap<Message, Pending>,
    decoded_any: bool,
    keep: bool,
    /// Nothing was given or merged so far, so `sum` has only the residual.
    idle: bool,
}

/// A message, and how many tasks still need it.
struct Pending {
    bytes: Option<Bytes>,
    uses: usize,
}

impl Part {
    /// At the start of `graph`. With `keep`, messages that were decoded stay until the part is
    /// dropped.
    #[must_use]
    pub fn new(graph: Graph, keep: bool) -> Self {
        let tasks = graph.tasks();
        let mut followers = vec![Vec::new(); tasks.len()];
        let mut messages = BTreeMap::new();
        for (at, task) in tasks.iter().enumerate() {
            task.after.iter().for_each(|&before| followers[before].push(at));
            let pending = messages.entry(task.op.message()).or_insert(Pending { bytes: None, uses: 0 });
            let uses = match task.op {
                Op::Send { .. } | Op::Merge { .. } => 1,
                Op::Decode { .. } => 1 + usize::from(keep),
                Op::Encode { .. } | Op::Recv { .. } => 0,
            };
            pending.uses += uses;
        }
        let waits: Vec<usize> = tasks.iter().map(|task| task.after.len()).collect();
        let receives = |at: usize| matches!(tasks[at].op, Op::Recv { .. });
        let ready = (0..tasks.len()).filter(|&at| waits[at] == 0 && !receives(at)).collect();
        Self {
            left: tasks.len(),
            waits,
            followers,
            ready,
            messages,
            decoded_any: false,
            keep,
            idle: false,
            graph,
        }
    }

    /// Says that this rank has no gradient of the partition: all values are zeros. Until others'
    /// values are merged, it sends messages without a byte, which add nothing, and `sum` stays the
    /// residual. If that holds for all ranks, all results are zeros. So a residual is not in a
    /// result that DDP discards because no rank used the parameter.
    pub fn set_idle(&mut self) {
        self.idle = true;
    }

    /// Is everything done?
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Can [`step`](Self::step) do anything now?
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Messages that have not arrived yet, and from whom.
    pub fn awaited(&self) -> impl Iterator<Item = (Rank, Message)> {
        self.graph.tasks().iter().filter_map(|task| match task.op {
            Op::Recv { message, from } if self.messages[&message].bytes.is_none() => {
                // A message that came, and that nobody needs any more, is none either; but then
                // nobody needs it.
                (self.messages[&message].uses > 0).then_some((from, message))
            }
            _ => None,
        })
    }

    /// Messages that were decoded, if they were to be kept.
    pub fn decoded(&self) -> impl Iterator<Item = (Message, &Bytes)> {
        let tasks = self.graph.tasks().iter().filter(|_| self.keep);
        tasks.filter_map(|task| match task.op {
            Op::Decode { message } => Some((message, self.messages[&message].bytes.as_ref()?)),
            _ => None,
        })
    }

    /// Takes a message that arrived; `false` if nobody waits for it, or not any more.
    #[must_use]
    pub fn arrived(&mut self, from: Rank, message: Message, bytes: Bytes) -> bool {
        let receive = Op::Recv { message, from };
        let Some(at) = self.graph.tasks().iter().position(|task| task.op == receive) else { return false };
        let pending = self.messages.get_mut(&message).expect("each message of the graph is there");
        if pending.bytes.is_some() || pending.uses == 0 {
            return false;
        }
        pending.bytes = Some(bytes);
        self.finish(at);
        true
    }

    /// Does the next thing that can be done; `None` if everything waits for messages or is done.
    ///
    /// # Errors
    /// A message is not one of this codec and this number of values.
    pub fn step(
        &mut self,
        codecs: Codecs,
        values: &mut Values,
        seed: u64,
    ) -> Result<Option<Step>, (Message, Malformed)> {
        let Some(at) = self.ready.pop_front() else { return Ok(None) };
        let op = self.graph.tasks()[at].op;
        let message = op.message();
        let codec: &dyn Codec = match message.format {
            Format::Raw => &Raw,
            Format::Coded if self.graph.decodes(message) => codecs.result,
            Format::Coded => codecs.partial,
        };
        let step = match op {
            Op::Encode { .. } if self.idle => {
                self.messages.get_mut(&message).expect("of the graph").bytes = Some(Bytes::default());
                Step::Computed(op)
            }
            Op::Encode { .. } => {
                let mut out = vec![0; codec.bound(values.sum.len())];
                // The codec's state belongs to the tensor; raw messages have none.
                let state = match message.format {
                    Format::Raw => &mut [],
                    Format::Coded => &mut *values.state,
                };
                let len = codec.encode(values.sum, state, seed ^ u64::from(message.tag), &mut out);
                out.truncate(len);
                if !codec.feeds_back() {
                    if let Some(dropped) = &mut values.dropped {
                        dropped.iter_mut().zip(&*values.sum).for_each(|(dropped, lost)| *dropped += lost);
                    }
                    values.sum.fill(0.0);
                }
                self.messages.get_mut(&message).expect("of the graph").bytes = Some(Arc::new(out));
                Step::Computed(op)
            }
            Op::Send { to, .. } => Step::Send(to, message, self.take(message)),
            Op::Merge { .. } => {
                let bytes = self.take(message);
                self.idle &= bytes.is_empty();
                add(codec, &bytes, values.sum).map_err(|error| (message, error))?;
                Step::Computed(op)
            }
            Op::Decode { .. } => {
                if !self.decoded_any {
                    values.result.fill(0.0);
                    self.decoded_any = true;
                }
                add(codec, &self.take(message), values.result).map_err(|error| (message, error))?;
                Step::Computed(op)
            }
            Op::Recv { .. } => unreachable!("receives are done when messages arrive"),
        };
        self.finish(at);
        Ok(Some(step))
    }

    /// The message's bytes; the last to need them takes them away.
    fn take(&mut self, message: Message) -> Bytes {
        let pending = self.messages.get_mut(&message).expect("of the graph");
        pending.uses -= 1;
        let bytes = if pending.uses == 0 { pending.bytes.take() } else { pending.bytes.clone() };
        bytes.expect("what makes a message comes before what uses it")
    }

    fn finish(&mut self, at: usize) {
        self.left -= 1;
        for &next in &self.followers[at] {
            self.waits[next] -= 1;
            if self.waits[next] == 0 {
                self.ready.push_back(next);
            }
        }
    }
}

/// Adds a whole message; one without a byte adds nothing.
fn add(codec: &dyn Codec, bytes: &[u8], to: &mut [f32]) -> Result<(), Malformed> {
    if bytes.is_empty() {
        return Ok(());
    }
    let len = codec.merge(bytes, to)?;
    if len == bytes.len() { Ok(()) } else { Err(Malformed::Field { what: "end", at: len }) }
}
