//! Whole payloads and frames through the model: a source that always has a beat, a sink that is
//! always ready.

use std::fmt;

use gradwire::codec::{BURST_LEN, DecodeError, EncodeError, Params, VALUE_LEN};
use gradwire::rules::Rule;

use super::{Beat, Clocks, Compressor, Decompressor, Layout, Step};

/// A payload or frame that went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Length in bytes: of what was written, or of the groups that [`decode_payload`] decoded.
    pub len: usize,
    /// Its cost, from the first beat in to the last beat out.
    pub clocks: Clocks,
}

/// [`gradwire::codec::encode_payload`], clock by clock: the same groups and the same errors.
///
/// # Errors
/// `values` is not a multiple of 4 long, or the groups do not fit; `groups` then holds nothing of
/// use.
pub fn encode_payload(values: &[u8], groups: &mut [u8], params: Params) -> Result<Run, EncodeError> {
    if !values.len().is_multiple_of(VALUE_LEN) {
        return Err(EncodeError::Unaligned { len: values.len() });
    }
    let layout = Layout { bypass: 0, values: values.len() / VALUE_LEN };
    compress(Compressor::new(params), values, layout, groups)
}

/// [`gradwire::codec::decode_payload`], clock by clock: the same values and the same errors.
/// [`Run::len`] is how many bytes of `groups` were decoded; the clocks count until all values have
/// left.
///
/// # Errors
/// `values` is not a multiple of 4 long, the groups end too early, or a lane past the last value
/// has a tag; `values` then holds nothing of use.
pub fn decode_payload(groups: &[u8], values: &mut [u8], params: Params) -> Result<Run, DecodeError> {
    if !values.len().is_multiple_of(VALUE_LEN) {
        return Err(DecodeError::Unaligned { len: values.len() });
    }
    let layout = Layout { bypass: 0, values: values.len() / VALUE_LEN };
    let mut decompressor = Decompressor::new(params);
    let mut sink = Sink { enough: values.len(), bytes: values, len: 0 };
    drive(groups, &mut sink, |beat| decompressor.clock(beat, layout, true))?;
    Ok(Run { len: decompressor.groups_len(), clocks: decompressor.clocks() })
}

/// An Ethernet frame (without FCS) to its in-place form (FORMAT.md §5): the bytes before the first
/// value, the groups, the bytes after the last value. A frame that does not match the rule's type
/// of service, or that has no values, comes out as it went in.
///
/// A frame that ends before `layout` says: the whole values that are there are coded, the rest is
/// bypassed.
///
/// # Errors
/// The result does not fit; `out` then holds nothing of use.
pub fn encode_frame(frame: &[u8], layout: Layout, out: &mut [u8], rule: &Rule) -> Result<Run, EncodeError> {
    compress(Compressor::for_frames(rule), frame, layout, out)
}

/// The inverse of [`encode_frame`]; `layout` is that of the frame before compression. What follows
/// the last group comes out as it went in; how long it may be is the caller's to check.
///
/// # Errors
/// The groups are refused, or the result does not fit; `out` then holds nothing of use.
pub fn decode_frame(frame: &[u8], layout: Layout, out: &mut [u8], rule: &Rule) -> Result<Run, FrameError> {
    let mut decompressor = Decompressor::for_frames(rule);
    let mut sink = Sink::for_frame(out);
    drive(frame, &mut sink, |beat| decompressor.clock(beat, layout, true)).map_err(FrameError::Groups)?;
    if sink.is_overfull() {
        return Err(FrameError::NoRoom { have: sink.bytes.len() });
    }
    Ok(Run { len: sink.len, clocks: decompressor.clocks() })
}

fn compress(
    mut compressor: Compressor,
    bytes: &[u8],
    layout: Layout,
    out: &mut [u8],
) -> Result<Run, EncodeError> {
    let mut sink = Sink::for_frame(out);
    // A compressor gives no fault.
    let _ = drive(bytes, &mut sink, |beat| compressor.clock(beat, layout, true));
    if sink.is_overfull() {
        return Err(EncodeError::NoRoom { have: sink.bytes.len() });
    }
    Ok(Run { len: sink.len, clocks: compressor.clocks() })
}

/// The end of the beats' way; counts also the bytes that did not fit.
struct Sink<'a> {
    bytes: &'a mut [u8],
    len: usize,
    /// Length at which no more is wanted.
    enough: usize,
}

impl<'a> Sink<'a> {
    /// Takes a whole frame, and one byte too many as the sign that it did not fit.
    const fn for_frame(bytes: &'a mut [u8]) -> Self {
        let enough = bytes.len().saturating_add(1);
        Self { bytes, len: 0, enough }
    }

    const fn is_overfull(&self) -> bool {
        self.len > self.bytes.len()
    }

    fn put(&mut self, beat: &Beat) {
        let room = self.bytes.get_mut(self.len..).unwrap_or(&mut []);
        room.iter_mut().zip(beat.bytes()).for_each(|(to, from)| *to = *from);
        self.len = self.len.saturating_add(beat.bytes().len());
    }
}

/// Clocks `source` through, beat by beat, until the last beat is out or the sink has enough. An
/// empty source is one beat of no bytes.
fn drive(
    mut source: &[u8],
    sink: &mut Sink<'_>,
    mut clock: impl FnMut(Option<&Beat>) -> Step,
) -> Result<(), DecodeError> {
    let mut offered = true;
    while sink.len < sink.enough {
        let rest = source.get(BURST_LEN..).unwrap_or(&[]);
        let beat = Beat::new(source, rest.is_empty());
        let step = clock(offered.then_some(&beat));
        if step.taken {
            source = rest;
            offered = !beat.is_last();
        }
        if let Some(fault) = step.fault {
            return Err(fault);
        }
        if let Some(beat) = step.beat {
            sink.put(&beat);
            if beat.is_last() {
                break;
            }
        }
    }
    Ok(())
}

/// Why the clocked model could not decode a frame; nothing of the output may be used.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Its groups were refused; offsets count from the first group.
    Groups(DecodeError),
    /// The restored frame does not fit into the output.
    NoRoom {
        /// Length of the output in bytes.
        have: usize,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Groups(fault) => fault.fmt(f),
            Self::NoRoom { have } => write!(f, "the frame does not fit into {have} bytes"),
        }
    }
}

impl std::error::Error for FrameError {}
