//! Clocked model of the NIC pipeline: both directions, one 256-bit beat per clock (FORMAT.md §4).
//!
//! The reference for RTL: same bytes as [`gradwire::codec`] on every input, and the clocks counted.
//! After the compression and decompression engines of Li et al., MICRO 2018
//! (doi:10.1109/MICRO.2018.00023).
//!
//! ```text
//!  Compressor
//!          ┌─ intake ────────────────┐                                     ┌─ alignment unit ──────┐
//!          │ ToS comparator          │  ┌─────────────┐   ┌─────────┐      │                       │
//!   beat ─►│ burst ───────► payload ─┼─►│ 8 compress. ├──►│ shifter ├──┬──►│ register ─► collector ├─► beat
//!          │ buffer ──────► bypass ──┼┐ │ blocks      │   │ tree    │  │   │                       │
//!          └─────────────────────────┘│ └─────────────┘   └─────────┘  │   └───────────────────────┘
//!                                     └────────────────────────────────┘
//!  Decompressor
//!          ┌─ intake ────────────────┐                                     ┌─ alignment unit ──────┐
//!          │ ToS comparator          │  ┌─────────┐   ┌───────────────┐    │                       │
//!   beat ─►│ burst ───────► payload ─┼─►│ tag     ├──►│ 8 decompress. ├┬──►│ register ─► collector ├─► beat
//!          │ buffer ──────► bypass ──┼┐ │ decoder │   │ blocks        ││   │                       │
//!          └─────────────────────────┘│ └─────────┘   └───────────────┘│   └───────────────────────┘
//!                                     └────────────────────────────────┘
//! ```
//!
//! State is held in three places: burst buffer (65 bytes), register (34), collector (65). All
//! between them is combinational. Both sides are valid/ready: a source may leave clocks empty and
//! must offer a beat until it is taken; a sink may refuse in any clock. Neither changes a byte.
//!
//! - The *burst buffer* realigns: headers rarely end on a burst, and the payload is cut into bursts
//!   that start at its first value.
//! - *Bypass*: headers, the bytes before the first value and the bytes after the last value go
//!   around the blocks, up to 32 a clock; frames that the comparator does not want go around whole.
//! - The *collector* keeps the bytes of a frame in one stream and cuts it into full beats.
//!
//! A payload of 1448 bytes takes 49 clocks in either direction, from the first beat in to the last
//! beat out: 46 bursts and three stages. Raw lanes add at most four clocks. Frames of 1514 bytes
//! with such a payload of zeros follow each other every 49 clocks.
//!
//! Where the values are comes from the frame parser beside the pipeline, as a [`Layout`] with the
//! first beat. What is known only at a frame's end has to be checked around the pipeline, which
//! gives its first beat before it has seen the last: whether the frame got shorter (raw lanes make
//! it longer by 1/16) and whether its L4 checksum was right (FORMAT.md §5). A NIC keeps the
//! original frame until then.

mod aligner;
mod blocks;
mod compressor;
mod decompressor;
mod intake;
mod pipeline;
mod run;

pub use blocks::{compression_block, decompression_block};
pub use compressor::Compressor;
pub use decompressor::Decompressor;
pub use run::{FrameError, Run, decode_frame, decode_payload, encode_frame, encode_payload};

use gradwire::codec::{BURST_LEN, DecodeError};

/// One beat of a 256-bit AXI stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    data: [u8; BURST_LEN],
    valid: usize, // at most BURST_LEN
    last: bool,
}

impl Beat {
    /// A beat of the first 32 of `bytes`, or of all if there are fewer. A beat of no bytes is
    /// allowed: with `last` it ends a frame.
    #[must_use]
    pub fn new(bytes: &[u8], last: bool) -> Self {
        let mut data = [0; BURST_LEN];
        data.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Self { data, valid: bytes.len().min(BURST_LEN), last }
    }

    /// The valid bytes, 0 to 32; on the bus the first of them is in the lowest byte lane.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.data.get(..self.valid).unwrap_or(&self.data)
    }

    /// The beat ends its frame.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        self.last
    }
}

/// The place of the values in a frame; what the frame parser gives the pipeline with the first beat
/// (`tuser`).
///
/// The same in both directions: it describes the frame as it was before compression. What follows
/// the values is bypassed up to the last beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes before the first value: headers, and the payload's bytes before the first value.
    pub bypass: usize,
    /// Number of values, each 4 bytes; 0 bypasses the whole frame.
    pub values: usize,
}

/// The effect of one clock.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The beat offered was taken.
    pub taken: bool,
    /// The beat given to the sink.
    pub beat: Option<Beat>,
    /// Comes with the last beat of a frame that could not be decoded: the sink throws the frame
    /// away. A compressor never gives one.
    pub fault: Option<DecodeError>,
}

/// The use of the clocks; the counters wrap at 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// All clocks.
    pub total: u64,
    /// Clocks in which a frame was inside or entered.
    pub busy: u64,
    /// Beats taken.
    pub beats_in: u64,
    /// Beats given.
    pub beats_out: u64,
    /// Clocks in which a beat was offered and not taken.
    pub stalls: u64,
    /// Clocks in which a beat was there for the sink and the sink was not ready.
    pub waits: u64,
}
