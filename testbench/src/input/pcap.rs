//! Reads and writes pcap (draft-ietf-opsawg-pcap).

use std::io::{self, Write};
use std::time::Duration;

use super::capture::Capture;
use super::fields::{ETHERNET, ETHERNET_WANTED, Fields, MAX_FRAME_LEN};
use super::known;
use crate::error::Error;

const GLOBAL_HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;

/// Adds the frames in `bytes`, the content of `file`, to `capture`.
pub(super) fn parse(file: &str, bytes: &[u8], capture: &mut Capture) -> Result<(), Error> {
    let reader = Fields { file, bytes, big_endian: false };
    let (reader, nanoseconds) = match reader.u32(0, "the magic number of a capture")? {
        MICROSECONDS => (reader, false),
        NANOSECONDS => (reader, true),
        magic if magic.swap_bytes() == MICROSECONDS => (Fields { big_endian: true, ..reader }, false),
        magic if magic.swap_bytes() == NANOSECONDS => (Fields { big_endian: true, ..reader }, true),
        _ => {
            let found = known::found(bytes);
            let expected = "a capture: pcap (a1b2c3d4 or a1b23c4d in either byte order) or pcapng (0a0d0d0a)";
            return Err(Error::input(file, 0usize, found, expected));
        }
    };
    // The upper bits say whether frames end with an FCS (draft-ietf-opsawg-pcap, section 4).
    let link = reader.u32(20, "the link type")?;
    if link & 0xffff != ETHERNET {
        return Err(Error::input(file, 20usize, format!("link type {}", link & 0xffff), ETHERNET_WANTED));
    }
    let fcs_len = if link & 0x0400_0000 != 0 { 2 * (link >> 28) as usize } else { 0 };

    let mut at = GLOBAL_HEADER_LEN;
    while at < bytes.len() {
        let seconds = reader.u32(at, "a record header")?;
        let fraction = reader.u32(at + 4, "a record header")?;
        let captured_len = reader.u32(at + 8, "a record header")?;
        let frame_len = reader.u32(at + 12, "a record header")?;
        let data = reader.frame(at + RECORD_HEADER_LEN, at + 8, captured_len)?;
        let nanos = if nanoseconds { fraction } else { fraction.saturating_mul(1000) };
        let time = Duration::from_secs(seconds.into()).saturating_add(Duration::from_nanos(nanos.into()));
        capture.push(time, data, frame_len, fcs_len);
        at += RECORD_HEADER_LEN + data.len();
    }
    Ok(())
}

/// Writes a capture in the pcap format, with nanoseconds.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Writes the global header.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W) -> io::Result<Self> {
        let words = [NANOSECONDS, 4 << 16 | 2, 0, 0, MAX_FRAME_LEN, ETHERNET];
        for word in words {
            out.write_all(&word.to_le_bytes())?;
        }
        Ok(Self { out })
    }

    /// Appends a frame. Seconds wrap in 2106, as the format has it.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn frame(&mut self, time: Duration, bytes: &[u8]) -> io::Result<()> {
        let len = bytes.len() as u32;
        for word in [time.as_secs() as u32, time.subsec_nanos(), len, len] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(bytes)
    }

    /// Flushes what is written so far.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}
