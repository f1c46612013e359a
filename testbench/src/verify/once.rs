//! Verifies FORMAT.md section 5.1: no byte of a TCP stream leaves in two compressed segments.
//!
//! The verifier knows nothing of flow tables, alignments or resends. It writes down the byte range
//! of every compressed segment of a stream and compares the ranges.

use std::collections::BTreeMap;

use gradwire::rules::{DEFAULT_MARK, ECN};

use super::frame::{Flow, Transport, View};
use super::handshake::Handshakes;
use super::stream::Unwrapper;

/// The byte ranges of one TCP stream that left in compressed segments.
#[derive(Clone, Debug, Default)]
pub struct Compressed {
    unwrapper: Option<Unwrapper>,
    /// The end of each range by its start, as positions. Ranges do not overlap.
    ranges: BTreeMap<i64, i64>,
}

impl Compressed {
    /// Adds a compressed segment: its sequence number, and the length of its payload before
    /// compression.
    ///
    /// # Errors
    /// Some of its bytes were in a compressed segment before; the sequence number of the first of
    /// them.
    pub fn add(&mut self, seq: u32, len: u32) -> Result<(), u32> {
        let start = self.unwrapper.get_or_insert(Unwrapper::new(seq)).position(seq);
        let end = start + i64::from(len);
        let before = self.ranges.range(..=start).next_back().map(|(_, end)| *end);
        let behind = self.ranges.range(start..end).next().map(|(start, _)| *start);
        let twice = if before.is_some_and(|before| before > start) { Some(start) } else { behind };
        match twice {
            // The difference of two positions within one segment.
            Some(at) => Err(seq.wrapping_add((at - start) as u32)),
            None => {
                self.ranges.insert(start, end);
                Ok(())
            }
        }
    }

    /// The number of segments that were added.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.ranges.len()
    }
}

/// Verifies all TCP connections of a wire that carries routed framing with the default mark; how
/// many compressed segments there were.
///
/// `frames` are in the order of the wire, each once: a capture of one interface, in one place. A
/// connection begins anew with a SYN that the other side accepted, so frames of both directions
/// belong to it.
///
/// # Errors
/// A byte is in two compressed segments; which.
pub fn on_wire<'a>(frames: impl IntoIterator<Item = &'a [u8]>) -> Result<usize, String> {
    const SEGMENT_HEADER_LEN: usize = 8;
    let mut handshakes = Handshakes::default();
    let mut streams: BTreeMap<Flow, Compressed> = BTreeMap::new();
    let mut segments = 0;
    for (number, frame) in frames.into_iter().enumerate() {
        let Some(view) = View::of(frame) else { continue };
        let Some(segment) = view.segment else { continue };
        let Transport::Tcp(tcp) = segment.transport else { continue };
        // FORMAT.md section 5.2. A host never sends a segment with the mark and a wrong checksum.
        let payload = &frame[segment.payload.clone()];
        let raw_len = match payload {
            [1, 1 | 2, _, _, high, low, ..] if payload.len() >= SEGMENT_HEADER_LEN => {
                u32::from(u16::from_be_bytes([*high, *low]))
            }
            _ => 0,
        };
        let compressed = view.tos & !ECN == DEFAULT_MARK && !segment.checksum.is_accepted() && raw_len > 0;
        let len = if compressed { raw_len } else { payload.len() as u32 };
        if handshakes.begins(segment.flow, tcp, len).is_some() {
            streams.remove(&segment.flow);
        }
        if compressed {
            segments += 1;
            streams.entry(segment.flow).or_default().add(tcp.first_byte(), len).map_err(|at| {
                format!("frame {}: {}: byte {at} is compressed a second time", number + 1, segment.flow)
            })?;
        }
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Against a set of all bytes, across the wrap.
        #[test]
        fn ranges_are_those_of_a_set_of_bytes(
            origin in prop_oneof![Just(0u32), Just(u32::MAX - 50), any::<u32>()],
            segments in prop::collection::vec((0u32..200, 1u32..30), 1..40),
        ) {
            let (mut ranges, mut bytes) = (Compressed::default(), BTreeSet::new());
            for (at, len) in segments {
                let twice = (at..at + len).find(|byte| bytes.contains(byte));
                let expected = twice.map_or(Ok(()), |byte| Err(origin.wrapping_add(byte)));
                prop_assert_eq!(ranges.add(origin.wrapping_add(at), len), expected);
                if twice.is_none() {
                    bytes.extend(at..at + len);
                }
            }
        }
    }
}
