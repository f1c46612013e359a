//! Input of a design, and its output.

/// A frame to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Stream in, 0 or 1; designs with one stream have stream 0.
    pub port: u8,
    /// `s_axis_tuser`, which counts on the first beat.
    pub user: u64,
    /// All of it, without FCS.
    pub bytes: Vec<u8>,
    /// Send a last beat of no bytes behind a frame of whole beats.
    pub empty_last: bool,
}

impl Frame {
    /// A frame for stream 0.
    #[must_use]
    pub fn new(user: u64, bytes: Vec<u8>) -> Self {
        Self { port: 0, user, bytes, empty_last: false }
    }
}

/// Clocks that source and sinks leave empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// Of 256 clocks, in so many the source begins a pause.
    pub source: u8,
    /// A pause of the source is up to so many clocks long; at least 1.
    pub source_longest: u8,
    /// Of 256 clocks, in so many a sink begins a pause.
    pub sink: u8,
    /// A pause of a sink is up to so many clocks long; at least 1.
    pub sink_longest: u8,
}

impl Pauses {
    /// A source that always has a beat, and a sink that always takes one.
    pub const NONE: Self = Self { source: 0, source_longest: 1, sink: 0, sink_longest: 1 };
}

/// Frames that are sent one behind the other, without a gap of the driver's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// In the order of sending, stream by stream.
    pub frames: Vec<Frame>,
    /// At sources and sinks.
    pub pauses: Pauses,
    /// Of the pauses, and of what stands in bytes that are not kept.
    pub seed: u64,
    /// Drive noise wherever no rule of AXI4-Stream says what stands there: behind a frame's end,
    /// while `tvalid` is low, and in `tuser` behind the first beat.
    pub noise: bool,
    /// Reset the design in this clock and end the batch: frames that are not out by then are lost.
    pub reset_at: Option<u64>,
    /// So many frames come out, of all streams: the batch ends soon behind them. If more come they
    /// are noticed. If fewer come, the batch ends when nothing has moved for [`Self::quiet`]
    /// clocks.
    pub expected: u32,
    /// See [`Self::expected`].
    pub quiet: u32,
}

impl Batch {
    /// Frames without pauses; as many come out as go in.
    #[must_use]
    pub fn of(frames: Vec<Frame>) -> Self {
        let expected = frames.len() as u32;
        Self { frames, pauses: Pauses::NONE, seed: 1, noise: false, reset_at: None, expected, quiet: 4096 }
    }
}

/// When a frame went in, in clocks since the batch began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The design took its first beat; `u64::MAX` if it never did.
    pub first: u64,
    /// The design took its last beat; `u64::MAX` if it never did.
    pub last: u64,
}

/// A frame that came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Stream out, 0 or 1.
    pub port: u8,
    /// `m_axis_tuser` of the last beat.
    pub user: u64,
    /// Clock of the first beat, since the batch began.
    pub first: u64,
    /// Clock of the last beat, since the batch began.
    pub last: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The outcome of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Clocks that the batch took, with the quiet ones at its end.
    pub clocks: u64,
    /// Clocks in which a beat was offered and not taken, of all streams.
    pub stalls: u64,
    /// Clocks in which a beat was there and the sink was not ready, of all streams.
    pub waits: u64,
    /// Broken rules of AXI4-Stream, in words, a line each: a beat that changed while it waited, one
    /// before the last that is not full, an empty last beat of a frame that is not empty, a frame
    /// without end, a design that takes nothing more. Empty if none was.
    pub broken: String,
    /// Of each frame sent, in their order.
    pub sent: Vec<Sent>,
    /// All that came out, in the order of their ends.
    pub frames: Vec<Received>,
}
