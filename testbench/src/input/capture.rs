//! A capture: frames of an Ethernet, with the time of each.

use std::time::Duration;

/// One captured frame: Ethernet II, without FCS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its place in the file, from 1, as capture tools count.
    pub number: u64,
    /// When it was captured, since 1970.
    pub time: Duration,
    /// Its bytes, all of them.
    pub bytes: Vec<u8>,
}

/// The frames of a capture that are whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    /// In the order of the file.
    pub frames: Vec<Frame>,
    /// Frames that a snap length has cut; they are left out, since no check could be made on them.
    pub cut: u64,
    /// The end of the file, if that is within a frame. The frame is left out.
    pub torn: Option<u64>,
}

impl Capture {
    /// Adds a frame, or counts it if fewer bytes were captured than it had.
    pub(super) fn push(&mut self, time: Duration, data: &[u8], frame_len: u32, fcs_len: usize) {
        if data.len() < frame_len as usize {
            self.cut += 1;
            return;
        }
        let number = self.frames.len() as u64 + self.cut + 1;
        let bytes = data[..data.len().saturating_sub(fcs_len)].to_vec();
        self.frames.push(Frame { number, time, bytes });
    }
}
