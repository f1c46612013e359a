//! Turns byte strings of one length into byte strings of another.

use gradwire::codec::{BURST_LEN, DecodeError, MAX_GROUP_LEN};

use super::Beat;

/// Bytes of a collector: two bursts and one byte.
///
/// Before the blocks: 33 bytes are not yet a group of 34, and the beat that completes it must fit.
/// Behind them: 31 bytes are not yet a beat, and a group of 34 must fit. With 512 bits either would
/// wait for ever.
const COLLECTOR_LEN: usize = BURST_LEN + MAX_GROUP_LEN - 1;

/// A shift register: strings of any length are appended behind what it holds, and bytes leave at
/// its front. Before the blocks it is the burst buffer, behind them it collects full beats.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    bytes: [u8; COLLECTOR_LEN],
    held: usize, // at most COLLECTOR_LEN
}

impl Collector {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; COLLECTOR_LEN], held: 0 }
    }

    /// The bytes held, oldest first.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.held).unwrap_or(&self.bytes)
    }

    /// Appends all of `bytes`, or nothing and `false` if they do not fit.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        let free = self.bytes.get_mut(self.held..).unwrap_or(&mut []);
        let Some(place) = free.get_mut(..bytes.len()) else { return false };
        place.copy_from_slice(bytes);
        self.held += bytes.len();
        true
    }

    /// Drops the oldest `len` bytes, or all if it holds fewer.
    pub(super) fn shift_out(&mut self, len: usize) {
        self.bytes.copy_within(len.min(COLLECTOR_LEN).., 0);
        self.held = self.held.saturating_sub(len);
    }

    /// Drops all.
    pub(super) fn clear(&mut self) {
        self.held = 0;
    }
}

/// The end of a frame: `Err` if it was refused on the way.
pub(super) type End = Result<(), DecodeError>;

/// The output of the blocks in one clock, for the alignment unit: a group, a burst or bypassed
/// bytes; 0 to 34 bytes.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    bytes: [u8; MAX_GROUP_LEN],
    len: usize, // at most MAX_GROUP_LEN
    /// Set on the frame's last parcel.
    pub(super) end: Option<End>,
}

impl Parcel {
    /// The first `len` of `bytes`; `len` is cut to 34.
    pub(super) fn new(bytes: [u8; MAX_GROUP_LEN], len: usize) -> Self {
        Self { bytes, len: len.min(MAX_GROUP_LEN), end: None }
    }

    /// The first 34 of `bytes`.
    pub(super) fn copy_of(bytes: &[u8]) -> Self {
        let mut parcel = Self::new([0; MAX_GROUP_LEN], bytes.len());
        parcel.bytes.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        parcel
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

/// Alignment unit: collects parcels and gives a full beat whenever 256 bits have collected, and
/// what is left when the frame ends. Two stages: the register that the blocks write, and the
/// collector behind it.
///
/// A new frame's bytes wait in the register until the last beat of the frame before has left, so
/// that no beat holds bytes of two frames.
#[derive(Clone, Debug)]
pub(super) struct AlignmentUnit {
    register: Option<Parcel>,
    collector: Collector,
    /// Set while the last byte of a frame is in the collector.
    end: Option<End>,
}

impl AlignmentUnit {
    pub(super) const fn new() -> Self {
        Self { register: None, collector: Collector::new(), end: None }
    }

    /// Nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.register.is_none() && self.end.is_none() && self.collector.held == 0
    }

    /// A beat waits for the sink.
    pub(super) fn has_beat(&self) -> bool {
        self.collector.held >= BURST_LEN || self.end.is_some()
    }

    /// Gives the beat that waits; with the last beat of a refused frame, why it was refused.
    pub(super) fn give(&mut self) -> (Beat, Option<DecodeError>) {
        let end = if self.collector.held <= BURST_LEN { self.end.take() } else { None };
        let beat = Beat::new(self.collector.bytes(), end.is_some());
        self.collector.shift_out(BURST_LEN);
        (beat, end.and_then(Result::err))
    }

    /// Moves the register into the collector if it has room.
    pub(super) fn collect(&mut self) {
        if self.end.is_some() {
            return;
        }
        if let Some(parcel) = &self.register
            && self.collector.push(parcel.bytes())
        {
            self.end = parcel.end;
            self.register = None;
        }
    }

    /// The register can be written in this clock.
    pub(super) const fn is_ready(&self) -> bool {
        self.register.is_none()
    }

    /// Writes the register.
    pub(super) fn load(&mut self, parcel: Option<Parcel>) {
        self.register = parcel;
    }
}
