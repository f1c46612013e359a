//! Verifies the readers of files: any bytes are read or refused, and what was read was there.

use crate::input::npy;
use crate::input::{Capture, Writer};

/// Any bytes as a capture.
///
/// # Panics
/// It has more bytes than the file, or changes when it is written and read again.
pub fn capture(data: &[u8]) {
    let Ok(capture) = Capture::parse("fuzz.pcap", data) else { return };
    let total: usize = capture.frames.iter().map(|frame| frame.bytes.len()).sum();
    assert!(total <= data.len());
    let mut written = Vec::new();
    let mut writer = Writer::new(&mut written).expect("a vector takes all");
    for frame in &capture.frames {
        writer.frame(frame.time, &frame.bytes).expect("a vector takes all");
    }
    writer.finish().expect("a vector takes all");
    let again = Capture::parse("written.pcap", &written).expect("what was written reads");
    assert_eq!(again.cut, 0);
    assert!(
        again.frames.iter().map(|frame| &frame.bytes).eq(capture.frames.iter().map(|frame| &frame.bytes))
    );
}

/// Any bytes as an `.npy` file.
///
/// # Panics
/// What was read is not the end of the file, or not whole values.
pub fn npy(data: &[u8]) {
    let Ok(values) = npy::parse("fuzz.npy", data) else { return };
    assert!(!values.is_empty() && values.len().is_multiple_of(4));
    assert!(data.ends_with(values));
}
